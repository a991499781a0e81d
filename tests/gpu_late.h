/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * The host device, but late: what is queued on a stream is done when somebody waits for it, not before, and in no other order than streams and
 * events ask for. Memory is read, locked host memory too, when the work is done. So what a GPU would now and then have read too late, because
 * no event orders a copy before a kernel, or because the host has written again what a copy still reads, is read too late here every time.
 *
 * By the environment's DCI_LATE: "all" streams are late (what it is without), "first", the first one that was taken (suites take theirs before
 * the object takes its own) while the others do their work at once, with all that it waits for, or the "others".
 *
 * As CUDA has it, freeing memory waits for everything, and neither may a stream that is captured wait for what is not, nor the other way round.
 */
#ifndef DCI_TESTS_GPU_LATE_H
#define DCI_TESTS_GPU_LATE_H

#include "gpu/gpu_internal.h"

/* Makes a host device that nobody has used a late one. */
void late_become(dci_gpu *gpu);

#endif
