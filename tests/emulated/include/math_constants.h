/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* In the place of CUDA's (emulator.h). */
#ifndef DCI_TESTS_EMULATED_MATH_CONSTANTS_H
#define DCI_TESTS_EMULATED_MATH_CONSTANTS_H

#define CUDART_INF_F __builtin_inff()
#define CUDART_L2E_F 1.442695041f
#define CUDART_LN2_F 0.693147181f

#endif
