/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Damaged and contradictory files, failing streams, disks and allocations: refused in words, and nothing is left behind. */
#include "tests/common.h"

#include <string.h>

#include "core/file.h"
#include "tests/context_fixture.h"
#include "tests/persist_fixture.h"
#include "tests/scratch.h"

enum { DIM = 3, ROWS = 5 };

/* A file of some hundred bytes. */
static dci_index *small_coded(dci_context *where, dci_index_kind kind, dci_metric metric, bool with_ids, int32_t bits)
{
        static const float rows[ROWS * DIM] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, 1, 2, 0, 2};
        static const int64_t ids[ROWS] = {50, 40, 30, 20, 10};
        dci_index_config config = index_config(DIM, metric, DCI_F32);
        dci_index *index = NULL;
        config.kind = kind;
        config.num_comp_indices = 1;
        config.num_simp_indices = 2;
        config.sketch_bits = bits;
        ck_ok(dci_index_create(where, &config, &index));
        ck_ok(dci_index_add(index, ROWS, rows, DIM, with_ids ? ids : NULL, NULL));
        return index;
}

static dci_index *small_index(dci_context *where, dci_index_kind kind, dci_metric metric, bool with_ids)
{
        return small_coded(where, kind, metric, with_ids, 0);
}

static persist_bytes small_file(dci_index_kind kind, dci_metric metric, bool with_ids)
{
        dci_index *index = small_index(context, kind, metric, with_ids);
        persist_bytes bytes = persist_save(index);
        dci_index_destroy(index);
        return bytes;
}

/* Refused from memory and from a mapped file, alike. */
static void refused_everywhere(const persist_bytes *bytes, dci_status status, const char *part)
{
        dci_index *index = NULL;
        ck_refused(dci_index_load_memory(context, bytes->data, bytes->n, &index), status, part);
        ck_assert_ptr_null(index);
        scratch_put("damaged", bytes->data, bytes->n);
        ck_refused(dci_index_map(context, scratch_path("damaged"), &index), status, part);
        ck_assert_ptr_null(index);
}

START_TEST(every_truncation_is_refused)
{
        persist_bytes whole = small_file(DCI_KIND_PDCI, DCI_METRIC_IP, true);
        for (size_t n = 0; n < whole.n; n++) {
                persist_bytes part = persist_copy(&whole, n);
                refused_everywhere(&part, DCI_ERR_FORMAT, "");
                persist_reseal(&part);
                refused_everywhere(&part, DCI_ERR_FORMAT, "");
                persist_free(&part);
        }
        persist_bytes longer = persist_copy(&whole, whole.n + 1);
        longer.data[whole.n] = 0;
        refused_everywhere(&longer, DCI_ERR_FORMAT, "bytes, its header says");
        persist_free(&longer);
        persist_free(&whole);
}
END_TEST

/* Loops over kinds and metrics. */
START_TEST(every_flipped_bit_is_refused)
{
        persist_bytes bytes = small_file(DCI_KIND_FLAT + _i % 3, DCI_METRIC_L2 + _i / 3, true);
        for (size_t bit = 0; bit < 8 * bytes.n; bit++) {
                dci_index *index = NULL;
                bytes.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
                dci_status status = dci_index_load_memory(context, bytes.data, bytes.n, &index);
                ck_assert_msg(status == DCI_ERR_FORMAT || status == DCI_ERR_UNSUPPORTED, "bit %zu: %s", bit,
                              dci_status_name(status));
                ck_assert_ptr_null(index);
                bytes.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
        }
        persist_free(&bytes);
}
END_TEST

/* Loops over kinds and metrics. What the checksums would have caught the checks after them must survive. */
START_TEST(a_flipped_bit_with_right_checksums_is_refused_or_harmless)
{
        static const float query[DIM] = {1, 1, 1};
        const persist_bytes whole = small_file(DCI_KIND_FLAT + _i % 3, DCI_METRIC_L2 + _i / 3, true);
        size_t refused = 0, loaded = 0;
        for (size_t bit = 0; bit < 8 * whole.n; bit++) {
                dci_index *index = NULL;
                persist_bytes bytes = persist_copy(&whole, whole.n);
                bytes.data[bit / 8] ^= (unsigned char)(1 << bit % 8);
                persist_reseal(&bytes);
                dci_status status = dci_index_load_memory(context, bytes.data, bytes.n, &index);
                if (status == DCI_OK && index->config.query_dtype == DCI_F32) {
                        int64_t ids[ROWS];
                        dci_search_params params;
                        ck_ok(dci_search_params_init(&params, sizeof params));
                        params.num_to_retrieve = 2;
                        ck_ok(dci_index_search(index, 1, query, DIM, ROWS, NULL, ids, NULL));
                        ck_ok(dci_index_search(index, 1, query, DIM, 1, &params, ids, NULL));
                        loaded++;
                } else if (status != DCI_OK) {
                        ck_assert_msg(status == DCI_ERR_FORMAT || status == DCI_ERR_UNSUPPORTED, "bit %zu: %s", bit,
                                      dci_status_name(status));
                        refused++;
                }
                dci_index_destroy(index);
                persist_free(&bytes);
        }
        ck_assert(refused > 1000 && loaded > 500);
        persist_bytes spent = whole;
        persist_free(&spent);
}
END_TEST

/* --- contradictions with right checksums ------------------------------------------------------------------------------------- */

#define F32_NAN UINT64_C(0x7fc00000)
#define F32_INFINITY UINT64_C(0x7f800000)
#define F32_MINUS_1 UINT64_C(0xbf800000)
#define F32_3 UINT64_C(0x40400000)
#define F32_1E19 UINT64_C(0x5f0ac723)
#define F32_1E30 UINT64_C(0x7149f2ca)
#define F64_NAN UINT64_C(0x7ff8000000000000)
#define F64_2 UINT64_C(0x4000000000000000)

typedef struct edit {
        dci_metric metric;
        bool with_ids;
        const char *section;
        size_t offset, width;
        uint64_t value;
        dci_status status;
        const char *part;
} edit;

#define IP DCI_METRIC_IP, false
#define IP_IDS DCI_METRIC_IP, true
#define COSINE DCI_METRIC_COSINE, false
static const edit edits[] = {
        {IP, "config", 0, 8, 0, DCI_ERR_FORMAT, "dim is 0"},
        {IP, "config", 0, 8, 4, DCI_ERR_FORMAT, "section 'rows' has 60 bytes, wanted 5 times 16"},
        {IP, "config", 0, 8, DCI_MAX_DIM + 1, DCI_ERR_FORMAT, "the config in the file: dim is 1048577"},
        {IP, "config", 0, 8, UINT64_MAX, DCI_ERR_FORMAT, "dim is"},
        {IP, "config", 8, 8, 6, DCI_ERR_FORMAT, "section 'rows' has 60 bytes, wanted 6 times 12"},
        {IP, "config", 8, 8, 0, DCI_ERR_FORMAT, "section 'rows' has 60 bytes, wanted 0"},
        {IP, "config", 8, 8, DCI_MAX_ROWS + 1, DCI_ERR_FORMAT, "at most 2147483584"},
        {IP, "config", 8, 8, UINT64_MAX, DCI_ERR_FORMAT, "at most 2147483584"},
        {IP, "config", 16, 4, 9, DCI_ERR_UNSUPPORTED, "index kind 9"},
        {IP, "config", 16, 4, DCI_KIND_FLAT, DCI_ERR_UNSUPPORTED, "a section 'norms'"},
        {IP, "config", 20, 4, 4, DCI_ERR_FORMAT, "metric is 4, expected L2, IP or COSINE"},
        {IP, "config", 20, 4, UINT32_MAX, DCI_ERR_FORMAT, "metric is -1"},
        {IP, "config", 20, 4, DCI_METRIC_L2, DCI_ERR_UNSUPPORTED, "a section 'norms'"},
        {IP, "config", 24, 4, 9, DCI_ERR_FORMAT, "dtype is 9, expected DCI_F32"},
        {IP, "config", 24, 4, DCI_F16, DCI_ERR_FORMAT, "section 'rows'"},
        {IP, "config", 28, 4, 0, DCI_ERR_FORMAT, "add_dtype is 0"},
        {IP, "config", 28, 4, 6, DCI_ERR_FORMAT, "add_dtype is 6"},
        {IP, "config", 32, 4, 0, DCI_ERR_FORMAT, "query_dtype is 0"},
        {IP, "config", 32, 4, 7, DCI_ERR_FORMAT, "query_dtype is 7"},
        {IP, "config", 36, 4, 2, DCI_ERR_FORMAT, "zero_rows is 2, expected DCI_ZERO_REFUSE or DCI_ZERO_KEEP"},
        {IP, "config", 40, 8, 0, DCI_ERR_FORMAT, "num_comp_indices is 0"},
        {IP, "config", 40, 8, UINT64_MAX, DCI_ERR_FORMAT, "at most 4096 in all"},
        {IP, "config", 48, 8, 3, DCI_ERR_FORMAT, "section 'proj' has 40 bytes, wanted 5 times 12"},
        {IP, "config", 48, 8, 4097, DCI_ERR_FORMAT, "at most 4096 in all"},
        {IP, "config", 64, 8, 4, DCI_ERR_FORMAT, "next id is 4"},
        {IP, "config", 64, 8, UINT64_C(1) << 63, DCI_ERR_FORMAT, "next id is 9223372036854775808"},
        {IP, "config", 72, 8, F64_2, DCI_ERR_FORMAT, "prop_to_visit is 2"},
        {IP, "config", 72, 8, F64_NAN, DCI_ERR_FORMAT, "prop_to_visit is nan"},
        {IP, "config", 80, 8, F64_2, DCI_ERR_FORMAT, "prop_to_retrieve is 2"},
        {IP, "config", 104, 4, 0, DCI_ERR_FORMAT, "c^2 is 0"},
        {IP, "config", 104, 4, F32_3, DCI_ERR_FORMAT, "c^2 is 3"},
        {IP, "config", 104, 4, F32_NAN, DCI_ERR_FORMAT, "c^2 is nan"},
        {IP, "config", 104, 4, F32_INFINITY, DCI_ERR_FORMAT, "c^2 is inf"},
        {IP, "config", 104, 4, F32_MINUS_1, DCI_ERR_FORMAT, "c^2 is -1"},
        {COSINE, "config", 104, 4, UINT64_C(0x3f800000), DCI_ERR_FORMAT, "c^2 is 1"},
        {IP, "config", 108, 1, 1, DCI_ERR_FORMAT, "no section 'frames'"},
        {IP, "config", 108, 1, 5, DCI_ERR_FORMAT, "sketch_bits is 5"},
        {IP, "config", 119, 1, 0xbf, DCI_ERR_FORMAT, "rerank is"},
        {IP, "config", 127, 1, 0xbf, DCI_ERR_FORMAT, "guarantee is"},
        {IP, "config", 128, 1, 1, DCI_ERR_UNSUPPORTED, "byte 128"},
        {IP, "config", 255, 1, 1, DCI_ERR_UNSUPPORTED, "byte 255"},
        {IP, "effort", 0, 8, 0, DCI_ERR_FORMAT, "target_recall is 0"},
        {IP, "effort", 0, 8, F64_NAN, DCI_ERR_FORMAT, "target_recall is nan"},
        {IP, "effort", 8, 8, F64_2, DCI_ERR_FORMAT, "target_recall is 2"},
        {IP, "effort", 16, 4, 3, DCI_ERR_FORMAT, "the calibration is on 3"},
        {IP, "effort", 16, 4, UINT32_MAX, DCI_ERR_FORMAT, "the calibration is on"},
        {IP, "effort", 16, 4, 1, DCI_ERR_FORMAT, "the calibration is of 0 lengths"},
        {IP, "rows", 24, 4, F32_NAN, DCI_ERR_FORMAT, "row 2 of the file holds NaN"},
        {IP, "rows", 56, 4, F32_INFINITY, DCI_ERR_FORMAT, "row 4 of the file"},
        {IP, "rows", 0, 4, F32_1E30, DCI_ERR_FORMAT, "row 0 of the file holds NaN or infinity or is too large"},
        {IP, "rows", 12, 4, F32_MINUS_1, DCI_ERR_FORMAT, "the squared norm of row 1 is 77"},
        {IP, "norms", 4, 4, F32_3, DCI_ERR_FORMAT, "the squared norm of row 1 is 3"},
        {IP, "norms", 8, 4, F32_NAN, DCI_ERR_FORMAT, "the squared norm of row 2 is nan"},
        {IP, "norms", 16, 4, F32_MINUS_1, DCI_ERR_FORMAT, "the squared norm of row 4 is -1"},
        {COSINE, "norms", 4, 4, F32_3, DCI_ERR_FORMAT, "the inverse norm of row 1 is 3"},
        {COSINE, "norms", 8, 4, F32_NAN, DCI_ERR_FORMAT, "the inverse norm of row 2 is nan"},
        {COSINE, "norms", 8, 4, F32_MINUS_1, DCI_ERR_FORMAT, "the inverse norm of row 2 is -1"},
        {COSINE, "norms", 16, 4, 0, DCI_ERR_FORMAT, "row 4 of the file is zero"},
        {IP, "proj", 0, 4, F32_NAN, DCI_ERR_FORMAT, "projection 0 of row 0 is nan"},
        {IP, "proj", 28, 4, F32_INFINITY, DCI_ERR_FORMAT, "projection 1 of row 2 is inf"},
        {IP, "proj", 36, 4, F32_1E19, DCI_ERR_FORMAT, "projection 1 of row 4"},
        {IP_IDS, "ids", 8, 8, UINT64_MAX, DCI_ERR_FORMAT, "row 1 of the file has id -1"},
        {IP_IDS, "ids", 16, 8, 51, DCI_ERR_FORMAT, "row 2 of the file has id 51, allowed is 0 to 50"},
        {IP_IDS, "ids", 32, 8, 40, DCI_ERR_FORMAT, "rows 1 and 4 of the file both have id 40"},
        {IP_IDS, "config", 64, 8, 50, DCI_ERR_FORMAT, "row 0 of the file has id 50"},
};

static void put(unsigned char *at, uint64_t value, size_t width)
{
        for (size_t i = 0; i < width; i++)
                at[i] = (unsigned char)(value >> 8 * i);
}

/* Codes: scales and then residuals of 32 rows; how far they reach, and their centre. */
static const edit edits_of_codes[] = {
        {IP, "centres", 0, 4, F32_NAN, DCI_ERR_FORMAT, "a transform or centre of the file's codes"},
        {IP, "scales", 124, 4, F32_NAN, DCI_ERR_FORMAT, "a scale of the file's codes"},
        {IP, "scales", 128, 4, F32_MINUS_1, DCI_ERR_FORMAT, "residual -1 and reach"},
        {IP, "blocks", 0, 4, F32_INFINITY, DCI_ERR_FORMAT, "a scale of the file's codes"},
        {IP, "blocks", 4, 1, 1, DCI_ERR_FORMAT, "name centre 1 of 1"},
        {IP, "blocks", 4, 1, 255, DCI_ERR_FORMAT, "name centre 255 of 1"},
};

static void refused_after(const edit *e, dci_index *index)
{
        persist_bytes bytes = persist_save(index);
        size_t n_section;
        unsigned char *section = persist_section(&bytes, e->section, &n_section);
        ck_assert(section != NULL && e->offset + e->width <= n_section);
        put(section + e->offset, e->value, e->width);
        persist_reseal(&bytes);
        refused_everywhere(&bytes, e->status, e->part);
        persist_free(&bytes);
        dci_index_destroy(index);
}

/* Loops over the table. */
START_TEST(contradictions_behind_right_checksums_are_refused)
{
        const edit *e = &edits[_i];
        refused_after(e, small_index(context, DCI_KIND_PDCI, e->metric, e->with_ids));
}
END_TEST

/* The same. */
START_TEST(codes_that_no_row_has_are_refused)
{
        const edit *e = &edits_of_codes[_i];
        dci_index *index = small_coded(context, DCI_KIND_FLAT, e->metric, e->with_ids, 4);
        float more[27 * DIM]; /* fewer than 32 rows have no codes */
        for (size_t i = 0; i < 27 * DIM; i++)
                more[i] = (float)(i % 7);
        ck_ok(dci_index_add(index, 27, more, DIM, NULL, NULL));
        refused_after(e, index);
}
END_TEST

START_TEST(fronts_that_lie_are_refused)
{
        static const struct {
                size_t offset, width;
                uint64_t value;
                dci_status status;
                const char *part;
        } rows[] = {
                {8, 4, 2, DCI_ERR_UNSUPPORTED, "container version 2"},
                {12, 4, UINT64_C(0x04030201), DCI_ERR_FORMAT, "byte-order mark"},
                {16, 4, UINT64_C(0x31323334), DCI_ERR_FORMAT, "holds kind '4321', wanted 'INDX'"},
                {20, 4, 2, DCI_ERR_UNSUPPORTED, "an index of version 2, this library reads 1"},
                {20, 4, 0, DCI_ERR_UNSUPPORTED, "an index of version 0"},
                {24, 4, 0, DCI_ERR_FORMAT, "its last section ends at 48"},
                {24, 4, 65, DCI_ERR_FORMAT, "at most 64"},
                {32, 8, UINT64_MAX, DCI_ERR_FORMAT, "its header says 18446744073709551615"},
                {48, 8, UINT64_C(0x6769666e6f78), DCI_ERR_FORMAT, "no section 'config'"},
                {48 + 32, 8, UINT64_C(0x72), DCI_ERR_FORMAT, "no section 'rows'"},
                {48 + 64, 8, UINT64_C(0x78), DCI_ERR_UNSUPPORTED, "a section 'x', which"},
                {48 + 96, 8, UINT64_C(0x78), DCI_ERR_FORMAT, "no section 'norms'"},
                {48 + 128, 8, UINT64_C(0x78), DCI_ERR_FORMAT, "no section 'proj'"},
                {48 + 16, 8, 255, DCI_ERR_FORMAT, "section 'config' has 255 bytes"},
                {48 + 32 + 16, 8, UINT64_MAX, DCI_ERR_FORMAT, "section 'rows' has 18446744073709551615 bytes"},
                {48 + 32 + 16, 8, 59, DCI_ERR_FORMAT, "in the gap"},
                {48 + 128 + 8, 8, UINT64_MAX - 63, DCI_ERR_FORMAT, "section 'proj'"},
        };
        for (size_t i = 0; i < COUNT(rows); i++) {
                persist_bytes bytes = small_file(DCI_KIND_PDCI, DCI_METRIC_IP, true);
                put(bytes.data + rows[i].offset, rows[i].value, rows[i].width);
                persist_reseal(&bytes);
                refused_everywhere(&bytes, rows[i].status, rows[i].part);
                persist_free(&bytes);
        }
}
END_TEST

/* --- memory --------------------------------------------------------------------------------------------------------------------- */

START_TEST(claims_are_refused_before_they_cost_memory)
{
        static const struct {
                dci_index_kind kind;
                size_t offset;
                uint64_t value;
        } claims[] = {{DCI_KIND_FLAT, 0, DCI_MAX_DIM},
                      {DCI_KIND_FLAT, 8, DCI_MAX_ROWS},
                      {DCI_KIND_PDCI, 48, 4096},
                      {DCI_KIND_PDCI, 0, DCI_MAX_DIM}};
        test_memory memory;
        dci_context *counted = test_context_with(&memory, 1);
        for (size_t i = 0; i < COUNT(claims); i++) {
                dci_index *index = NULL;
                persist_bytes bytes = small_file(claims[i].kind, DCI_METRIC_L2, false);
                put(persist_section(&bytes, "config", NULL) + claims[i].offset, claims[i].value, 8);
                persist_reseal(&bytes);
                const size_t before = atomic_load(&memory.calls);
                ck_refused(dci_index_load_memory(counted, bytes.data, bytes.n, &index), DCI_ERR_FORMAT, "");
                ck_assert_uint_eq(atomic_load(&memory.calls), before);
                persist_free(&bytes);
        }
        dci_context_destroy(counted);
}
END_TEST

/* An empty index needs no rows to claim its directions. */
START_TEST(directions_out_of_proportion_are_refused_on_both_sides)
{
        enum { MANY = 4096 };
        dci_index_config config = index_config(MANY + 1, DCI_METRIC_L2, DCI_F32);
        dci_index *index = NULL, *loaded = NULL;
        size_t n_bytes;
        config.kind = DCI_KIND_PDCI;
        config.num_comp_indices = 1;
        config.num_simp_indices = MANY;
        ck_ok(dci_index_create(context, &config, &index));
        ck_refused(dci_index_save_memory(index, 0, NULL, &n_bytes), DCI_ERR_LIMIT, "4096 simple indices of dim 4097");
        dci_index_destroy(index);
        config.dim = DIM;
        ck_ok(dci_index_create(context, &config, &index));
        persist_bytes bytes = persist_save(index);
        put(persist_section(&bytes, "config", NULL), MANY + 1, 8);
        persist_reseal(&bytes);
        ck_refused(dci_index_load_memory(context, bytes.data, bytes.n, &loaded), DCI_ERR_FORMAT, "may ask for");
        persist_free(&bytes);
        dci_index_destroy(index);
}
END_TEST

/* Gives `left` bytes, then fails. Fails the n-th call if asked to. */
typedef struct supply {
        const persist_bytes *bytes;
        size_t at, left, calls, fail_at;
} supply;

static int32_t give(void *ctx, void *out, size_t n_bytes)
{
        supply *s = ctx;
        if (++s->calls == s->fail_at || n_bytes > s->left)
                return 17;
        memset(out, 0, n_bytes);
        if (s->at < s->bytes->n)
                memcpy(out, s->bytes->data + s->at, n_bytes < s->bytes->n - s->at ? n_bytes : s->bytes->n - s->at);
        s->at += n_bytes;
        s->left -= n_bytes;
        return 0;
}

static dci_status load_from(dci_context *where, supply *s, size_t known, dci_index **out)
{
        dci_reader reader;
        ck_ok(dci_reader_init(&reader, sizeof reader));
        reader.read = give;
        reader.ctx = s;
        reader.n_bytes = known;
        return dci_index_load_stream(where, &reader, out);
}

START_TEST(a_streams_claim_costs_memory_only_as_bytes_arrive)
{
        persist_peak p;
        dci_context *counted = persist_counted(&p);
        dci_index *index = NULL;
        const size_t before = p.live;
        persist_bytes bytes = small_file(DCI_KIND_FLAT, DCI_METRIC_L2, false);
        put(bytes.data + 32, UINT64_C(1) << 40, 8);
        persist_reseal(&bytes);
        for (size_t left = 100; left <= 2000000; left *= 10) {
                for (int known = 0; known < 2; known++) {
                        supply s = {.bytes = &bytes, .left = left};
                        p.most = before;
                        ck_refused(load_from(counted, &s, known == 1 ? (size_t)1 << 40 : 0, &index), DCI_ERR_IO,
                                   "the reader returned 17");
                        ck_assert_uint_le(p.most - before, 3 * left + 65536);
                        ck_assert_uint_eq(p.live, before);
                }
        }
        persist_free(&bytes);
        dci_context_destroy(counted);
        ck_assert_uint_eq(p.live, 0);
}
END_TEST

/* The factor that file.h states, for the shapes that come nearest to it. */
START_TEST(loading_takes_no_more_memory_than_stated)
{
        static const struct {
                size_t n, dim;
                int32_t kind, bits;
        } shapes[] = {{1, 200000, DCI_KIND_FLAT, 0}, {17, 9000, DCI_KIND_FLAT, 0},  {1000, 1, DCI_KIND_FLAT, 0},
                      {40000, 2, DCI_KIND_FLAT, 0},  {70000, 1, DCI_KIND_FLAT, 0},  {0, 32736, DCI_KIND_FLAT, 1},
                      {0, 32736, DCI_KIND_FLAT, 8},  {1, 32736, DCI_KIND_FLAT, 4},  {0, 32736, DCI_KIND_MDCI, 1},
                      {1, 32736, DCI_KIND_MDCI, 2},  {1, 200000, DCI_KIND_MDCI, 0}, {40000, 2, DCI_KIND_MDCI, 0}};
        for (size_t i = 0; i < COUNT(shapes); i++) {
                const size_t n = shapes[i].n, dim = shapes[i].dim;
                persist_peak p;
                dci_context *counted = persist_counted(&p);
                dci_index *index = NULL;
                dci_index_config wanted = index_config(dim, DCI_METRIC_L2, DCI_F16);
                wanted.add_dtype = DCI_F32;
                wanted.kind = shapes[i].kind;
                wanted.sketch_bits = shapes[i].bits;
                ck_ok(dci_index_create(context, &wanted, &index));
                float *rows = calloc(n * dim + 1, sizeof *rows);
                int64_t *ids = malloc((n + 1) * sizeof *ids);
                ck_assert(rows != NULL && ids != NULL);
                for (size_t j = 0; j < n; j++)
                        ids[j] = (int64_t)(n - j);
                ck_ok(dci_index_add(index, n, rows, dim, ids, NULL));
                persist_bytes bytes = persist_save(index);
                dci_index_destroy(index);
                const size_t stated = 16 * bytes.n + ((size_t)1 << 20) + (shapes[i].bits == 0 ? 0 : 160 * dim);
                p.most = 0;
                ck_ok(dci_index_load_memory(counted, bytes.data, bytes.n, &index));
                ck_assert_msg(p.most <= stated, "shape %zu: %zu bytes, stated are %zu", i, p.most, stated);
                dci_index_destroy(index);
                dci_context_destroy(counted);
                persist_free(&bytes);
                test_free(rows, ids);
        }
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("persist faults");
        TCase *files = test_case_with(suite, "files", 60, context_open_1, context_close);
        TCase *memory = test_case_with(suite, "memory", 60, context_open_1, context_close);
        tcase_add_checked_fixture(files, scratch_open, scratch_close);
        tcase_add_checked_fixture(memory, scratch_open, scratch_close);
        tcase_add_test(files, every_truncation_is_refused);
        tcase_add_loop_test(files, every_flipped_bit_is_refused, 0, 9);
        tcase_add_loop_test(files, a_flipped_bit_with_right_checksums_is_refused_or_harmless, 0, 9);
        tcase_add_loop_test(files, contradictions_behind_right_checksums_are_refused, 0, COUNT(edits));
        tcase_add_loop_test(files, codes_that_no_row_has_are_refused, 0, COUNT(edits_of_codes));
        tcase_add_test(files, fronts_that_lie_are_refused);
        tcase_add_test(memory, claims_are_refused_before_they_cost_memory);
        tcase_add_test(memory, directions_out_of_proportion_are_refused_on_both_sides);
        tcase_add_test(memory, a_streams_claim_costs_memory_only_as_bytes_arrive);
        tcase_add_test(memory, loading_takes_no_more_memory_than_stated);
        return test_main(suite);
}
