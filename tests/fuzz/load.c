/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Index files. The first byte says how: from memory, a path, a stream, mapped. What is refused is refused as a damaged or a foreign file, is
 * then given right checksums and loaded once more; what loads is used, and the same when it is saved and loaded again.
 */
#include <string.h>

#include "dci/check.h"
#include "dci/file.h"
#include "index/index_internal.h"
#include "tests/fuzz/sections.h"
#include "tests/fuzz_files.h"
#include "tests/scratch.h"

enum { MAX_FILE = 1 << 16 };

typedef struct stream {
        const uint8_t *at;
        size_t left;
} stream;

static int32_t read_stream(void *ctx, void *out, size_t n_bytes)
{
        stream *s = ctx;
        if (n_bytes > s->left)
                return 1;
        memcpy(out, s->at, n_bytes);
        s->at += n_bytes;
        s->left -= n_bytes;
        return 0;
}

static dci_status load(dci_context *context, size_t way, const uint8_t *file, size_t n, dci_index **out)
{
        stream s = {file, n};
        dci_reader reader;
        switch (way) {
        case 0:
                scratch_put("index", file, n);
                return dci_index_load(context, scratch_path("index"), out);
        case 1:
                scratch_put("index", file, n);
                return dci_index_map(context, scratch_path("index"), out);
        case 2:
                ck_ok(dci_reader_init(&reader, sizeof reader));
                reader.read = read_stream;
                reader.ctx = &s;
                reader.n_bytes = n % 2 == 0 ? 0 : n;
                return dci_index_load_stream(context, &reader, out);
        default:
                return dci_index_load_memory(context, file, n, out);
        }
}

/* A mapped index is searched, and refuses to be changed. */
static void use_mapped(dci_context *context, dci_index *index)
{
        int64_t ids[4];
        float scores[4];
        const size_t dim = index->config.dim;
        unsigned char *query = fuzz_room(dim * sizeof(float)).data;
        memset(query, 0x3c, dim * sizeof(float));
        ck_assert(fuzz_fits(index, dci_index_check(index, DCI_CHECK_STRUCTURE, NULL)));
        ck_assert(fuzz_fits(index, dci_index_search(index, 1, query, dim, 4, NULL, ids, scores)));
        ck_refused(dci_index_add(index, 1, query, dim, NULL, NULL), DCI_ERR_UNSUPPORTED, "map");
        ck_assert(fuzz_index_returns(context, index));
        free(query);
}

static bool load_and_use(dci_context *context, size_t way, const uint8_t *file, size_t n)
{
        dci_index *index = NULL;
        fuzz_bytes from;
        const dci_status status = load(context, way, file, n, &index);
        if (status != DCI_OK) {
                ck_assert_ptr_null(index);
                ck_assert_msg(status == DCI_ERR_FORMAT || status == DCI_ERR_UNSUPPORTED || status == DCI_ERR_MEMORY ||
                                      (status == DCI_ERR_IO && way == 2),
                              "%s: %s", dci_status_name(status), dci_last_error());
                ck_assert_msg(strlen(dci_last_error()) > 10, "'%s'", dci_last_error());
                return false;
        }
        /* Whole in any case (fuzz_use_index, use_mapped). What only rows can tell, a file may have wrong: a full check then says so. */
        const dci_status checked = dci_index_check(index, DCI_CHECK_FULL, NULL);
        ck_assert_msg(fuzz_fits(index, checked) || checked == DCI_ERR_FORMAT, "%s", dci_last_error());
        fuzz_from_seed(&from, n > 48 ? file[n - 1] + 256u * file[n / 2] : 0);
        if (way == 1) {
                use_mapped(context, index);
        } else {
                ck_assert_msg(fuzz_index_returns(context, index), "saved again it differs: %s", dci_last_error());
                ck_assert_msg(fuzz_use_index(index, &from), "%s", dci_last_error());
        }
        dci_index_destroy(index);
        return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        if (size == 0 || size > MAX_FILE)
                return 0;
        const size_t way = data[0] % 8, n = size - 1;
        dci_context *context = fuzz_limited_context();
        bool accepted = load_and_use(context, way, data + 1, n);
        if (!accepted) {
                persist_bytes sealed = fuzz_room(n);
                memcpy(sealed.data, data + 1, n);
                persist_reseal(&sealed);
                accepted = load_and_use(context, way, sealed.data, n);
                free(sealed.data);
        }
        fuzz_limited_end(context);
        fuzz_count(accepted);
        return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed)
{
        return fuzz_mutate_file(data, size, most, 1, seed);
}

void fuzz_seeds(void (*put)(const void *data, size_t size))
{
        dci_rng rng;
        dci_rng_seed(&rng, 1);
        dci_context *context = test_context(1);
        for (size_t i = 0; i < FUZZ_INDEX_FILES; i++) {
                persist_bytes file = fuzz_index_file(context, &rng, i);
                uint8_t *input = malloc(file.n + 1);
                ck_assert_ptr_nonnull(input);
                input[0] = (uint8_t)(i % 8);
                memcpy(input + 1, file.data, file.n);
                put(input, file.n + 1);
                test_free(input, file.data);
        }
        dci_context_destroy(context);
}
