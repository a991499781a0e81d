/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Loads damaged index files, with and without right checksums, and uses whatever loads. Meant for a build with sanitizers.
 * Usage: fuzz_load [SEED [SECONDS]]; without SECONDS a fixed number of files.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/file.h"
#include "dci/file.h"
#include "tests/fuzz_files.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { N_CORPUS = FUZZ_INDEX_FILES, FIXED = 20000 };

static persist_bytes corpus[N_CORPUS];
static fuzz_bytes from;

static size_t below(size_t bound)
{
        return (size_t)fuzz_below(&from, bound);
}

static persist_bytes copy_of(const persist_bytes *bytes, size_t n)
{
        persist_bytes copy = fuzz_room(n);
        memcpy(copy.data, bytes->data, n < bytes->n ? n : bytes->n);
        return copy;
}

/* --- damage --------------------------------------------------------------------------------------------------------------- */

static uint64_t interesting(void)
{
        static const uint64_t values[] = {0,
                                          1,
                                          2,
                                          3,
                                          4,
                                          7,
                                          15,
                                          16,
                                          17,
                                          63,
                                          64,
                                          255,
                                          4096,
                                          65535,
                                          1048576,
                                          0x7f800000,
                                          0x7fc00000,
                                          0x80000000,
                                          0xffffffff,
                                          UINT64_C(0x7ff0000000000000),
                                          UINT64_C(0x8000000000000000),
                                          UINT64_MAX - 63,
                                          UINT64_MAX};
        const uint64_t value = values[below(COUNT(values))];
        return below(3) == 0 ? value + below(5) - 2 : value;
}

static void put_number(const persist_bytes *to)
{
        const size_t width = below(2) == 0 ? 4 : 8;
        /* Mostly where lengths and the config are: after a table of up to 19 sections. */
        enum { FRONT = 960 };
        const size_t end = below(4) == 0 || to->n < FRONT ? to->n : FRONT;
        if (end < width)
                return;
        const size_t at = below((end - width) / 4 + 1) * 4;
        const uint64_t value = interesting();
        for (size_t i = 0; i < width; i++)
                to->data[at + i] = (unsigned char)(value >> 8 * i);
}

static void splice(const persist_bytes *to)
{
        const persist_bytes *other = &corpus[below(N_CORPUS)];
        const size_t least = other->n < to->n ? other->n : to->n;
        if (least == 0)
                return;
        const size_t n = below(least) + 1;
        const size_t source = below(other->n - n + 1),
                     target = below(2) == 0 && source + n <= to->n ? source : below(to->n - n + 1);
        memcpy(to->data + target, other->data + source, n);
}

static void resize(persist_bytes *bytes)
{
        const size_t n = below(2) == 0 ? below(bytes->n + 1) : bytes->n + below(200);
        persist_bytes other = copy_of(bytes, n);
        for (size_t i = bytes->n; i < n; i++)
                other.data[i] = 0;
        /* Half of them say so. */
        if (n >= DCI_FILE_HEADER_BYTES && below(2) == 0)
                dci_store_le64(other.data + 32, n);
        free(bytes->data);
        *bytes = other;
}

static persist_bytes damaged(void)
{
        const persist_bytes *seed = &corpus[below(N_CORPUS)];
        persist_bytes bytes = copy_of(seed, seed->n);
        for (size_t i = below(4) + 1; i > 0; i--) {
                const size_t how = below(10);
                if (how < 4 && bytes.n > 0)
                        bytes.data[below(bytes.n)] ^= (unsigned char)(1 << below(8));
                else if (how < 8)
                        put_number(&bytes);
                else if (how < 9)
                        splice(&bytes);
                else
                        resize(&bytes);
        }
        if (below(8) != 0)
                persist_reseal(&bytes);
        return bytes;
}

int main(int argc, char **argv)
{
        const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
        const double seconds = argc > 2 ? strtod(argv[2], NULL) : 0.0;
        const time_t begin = time(NULL);
        dci_context *context = NULL;
        fuzz_must(dci_context_create(NULL, &context) == DCI_OK, "context");
        size_t files = 0, loaded = 0;
        bool right = true;
        fuzz_from_seed(&from, seed);
        for (size_t i = 0; i < N_CORPUS; i++)
                corpus[i] = fuzz_index_file(context, &from.rng, i);
        while (right && (seconds > 0.0 ? difftime(time(NULL), begin) < seconds : files < FIXED)) {
                persist_bytes bytes = damaged();
                dci_index *index = NULL;
                const dci_status status = dci_index_load_memory(context, bytes.data, bytes.n, &index);
                right = status == DCI_OK ? fuzz_index_returns(context, index) && fuzz_use_index(index, &from)
                                         : status == DCI_ERR_FORMAT || status == DCI_ERR_UNSUPPORTED;
                if (!right)
                        fprintf(stderr, "fuzz_load: seed %llu, file %zu: %s: %s\n", (unsigned long long)seed, files,
                                dci_status_name(status), dci_last_error());
                dci_index_destroy(index);
                free(bytes.data);
                files++;
                loaded += status == DCI_OK;
        }
        for (size_t i = 0; i < N_CORPUS; i++)
                free(corpus[i].data);
        dci_context_destroy(context);
        printf("fuzz_load: seed %llu, %zu files, %zu of them loaded\n", (unsigned long long)seed, files, loaded);
        return right && loaded > 0 && loaded < files ? EXIT_SUCCESS : EXIT_FAILURE;
}
