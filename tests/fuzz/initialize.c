/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Of libFuzzer's builds: a scratch folder for the whole run (under TMPDIR, which scripts/fuzz empties), and --seeds=FOLDER. */
#include "tests/fuzz/fuzz.h"

#include <string.h>

#include "tests/scratch.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
        static const char option[] = "--seeds=";
        if (*argc == 2 && strncmp((*argv)[1], option, strlen(option)) == 0) {
                scratch_open();
                fuzz_write_seeds((*argv)[1] + strlen(option));
                scratch_close();
                exit(EXIT_SUCCESS);
        }
        scratch_open();
        return 0;
}
