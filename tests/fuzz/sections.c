/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/fuzz/sections.h"

#include <string.h>

#include "core/file.h"
#include "tests/persist_seal.h"

enum { MORE = 64 }; /* bytes that a section may gain at once */

typedef struct written {
        uint8_t *out;
        size_t n, most;
} written;

static dci_status append(void *ctx, const void *data, size_t n_bytes)
{
        written *w = ctx;
        if (n_bytes > w->most - w->n)
                return DCI_ERR_LIMIT;
        memcpy(w->out + w->n, data, n_bytes);
        w->n += n_bytes;
        return DCI_OK;
}

/* The sections that the table names, as far as it points into the file; 0: there is no such table. */
static size_t find(const uint8_t *file, size_t size, dci_section *out)
{
        if (size < DCI_FILE_HEADER_BYTES)
                return 0;
        const size_t n = dci_load_le32(file + 24);
        if (n > DCI_FILE_MAX_SECTIONS || n > (size - DCI_FILE_HEADER_BYTES) / 32)
                return 0;
        for (size_t i = 0; i < n; i++) {
                const uint8_t *entry = file + DCI_FILE_HEADER_BYTES + 32 * i;
                const uint64_t offset = dci_load_le64(entry + 8), length = dci_load_le64(entry + 16);
                if (offset > size || length > size - offset)
                        return 0;
                memcpy(out[i].name, entry, sizeof out[i].name);
                out[i].data = file + offset;
                out[i].n_bytes = (size_t)length;
        }
        return n;
}

/* False where the sections make no file of at most `most` bytes; nothing has changed then. */
static bool mutate_section(dci_rng *rng, uint8_t *file, size_t *size, size_t most)
{
        dci_section sections[DCI_FILE_MAX_SECTIONS];
        const size_t n = find(file, *size, sections);
        if (n == 0)
                return false;
        dci_section *chosen = &sections[dci_rng_below(rng, n)];
        const size_t before = chosen->n_bytes;
        uint8_t *bytes = calloc(before + MORE + 1, 1), *whole = malloc(most + 1);
        ck_assert(bytes != NULL && whole != NULL);
        if (before > 0)
                memcpy(bytes, chosen->data, before);
        const size_t after = LLVMFuzzerMutate(bytes, before, before + MORE);
        chosen->data = bytes;
        chosen->n_bytes = dci_rng_below(rng, 3) > 0 ? before : after;
        written w = {.out = whole, .most = most};
        const dci_sink sink = {&w, append};
        const bool made =
                dci_file_write(&sink, dci_load_le32(file + 16), dci_load_le32(file + 20), n, sections) == DCI_OK;
        if (made) {
                memcpy(file, whole, w.n);
                *size = w.n;
        }
        test_free(bytes, whole);
        return made;
}

size_t fuzz_mutate_file(uint8_t *data, size_t size, size_t most, size_t n_before, unsigned seed)
{
        dci_rng rng;
        dci_rng_seed(&rng, seed);
        const uint64_t how = dci_rng_below(&rng, 10);
        if (size <= n_before || most <= n_before)
                return LLVMFuzzerMutate(data, size, most);
        uint8_t *file = data + n_before;
        size_t n = size - n_before;
        if (how < 7 && mutate_section(&rng, file, &n, most - n_before)) {
                if (how == 0)
                        data[0] = (uint8_t)dci_rng_next(&rng);
                return n_before + n;
        }
        if (how == 7) { /* in place: what the header and the table say */
                size_t table = DCI_FILE_HEADER_BYTES + 32 * 12;
                table = table < n ? table : n;
                LLVMFuzzerMutate(file, table, table);
        } else {
                size = LLVMFuzzerMutate(data, size, most);
                n = size > n_before ? size - n_before : 0;
        }
        const persist_bytes bytes = {file, n};
        if (how < 9)
                persist_reseal(&bytes);
        return size;
}
