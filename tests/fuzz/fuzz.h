/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Targets of coverage-guided fuzzing. Each is one source with the functions below and two mains: libFuzzer's (preset `fuzz`, scripts/fuzz), and
 * replay.c's, an ordinary suite that plays what is kept in tests/corpus and some mutations of it, with any compiler. A failure is one of
 * Check's assertions, a sanitizer's report or a signal.
 */
#ifndef DCI_TESTS_FUZZ_FUZZ_H
#define DCI_TESTS_FUZZ_FUZZ_H

#include "tests/common.h"
#include "tests/fuzz_bytes.h"

/* A target: plays one input; 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* A target: hands over the inputs that a corpus begins with. */
void fuzz_seeds(void (*put)(const void *data, size_t size));
/* Targets of checked files (DCI_FUZZ_MUTATOR): mutates what is in sections and makes checksums right. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);

/* Targets of several formats (DCI_FUZZ_FORMATS), which the first byte chooses: the name of an input's. */
const char *fuzz_format_of(const uint8_t *data, size_t size);

/* libFuzzer, or replay.c in its place. */
size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
int LLVMFuzzerInitialize(int *argc, char ***argv);

/* seeds.c: writes the target's seeds to a folder, one file each; inputs of n bytes drawn from a generator. */
void fuzz_write_seeds(const char *folder);
void fuzz_random_seeds(void (*put)(const void *data, size_t size), size_t n_inputs, size_t n_bytes);

/* limited.c: a context of one thread whose memory ends at 64 MiB, so that sizes which a config allows do not fill the machine; it
 * fails when not all of it came back. */
dci_context *fuzz_limited_context(void);
void fuzz_limited_end(dci_context *context);
/* A call that worked, or was refused with a sentence. */
bool fuzz_worked(dci_status status);

/* What targets of files say of each, counted in limited.c: it was refused, or what came of it was used. */
typedef struct fuzz_tally {
        size_t refused, accepted;
} fuzz_tally;
extern fuzz_tally fuzz_files;
void fuzz_count(bool accepted);
/* Set where each input must be played, slow ones, too. */
extern bool fuzz_all;

/* A struct_size that was drawn, but none that promises more than there is: up to 4,096 bytes would be read. */
static inline size_t fuzz_struct_size(size_t drawn, size_t known)
{
        return drawn > known && drawn <= 4096 ? known : drawn;
}

#endif
