/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Files that others make: .npy, and what dci-bench reads. The first byte says which reader, the rest is the file; of a trace, three files with their
 * lengths before them. HDF5 is parsed by libhdf5 in a process of its own, so few of these inputs are played.
 */
#include <hdf5.h>
#include <stdio.h>
#include <string.h>

#include "bench/ann/runbook.h"
#include "bench/common/dataset.h"
#include "core/file.h"
#include "tests/fuzz/fuzz.h"
#include "tests/scratch.h"

enum { MAX_FILE = 1 << 15, RUNBOOK_ROWS = 200 };

/* Names decide how most are read. */
static const char *const names[] = {"a.npy", "a.fvecs", "a.bvecs", "a.fbin",  "a.u8bin", "a.i8bin", "a.idx",
                                    "a.gz",  "a.ivecs", "a.ibin",  "ids.npy", "a.yaml",  "trace",   "a.hdf5"};
enum { N_NAMES = sizeof names / sizeof names[0], FIRST_IDS = 8, RUNBOOK = 11, TRACE = 12, HDF5 = 13 };

static void expect(dci_status status, bool empty)
{
        const bool worked = fuzz_worked(status);
        fuzz_count(worked);
        if (worked)
                return;
        ck_assert_msg(status == DCI_ERR_FORMAT || status == DCI_ERR_UNSUPPORTED || status == DCI_ERR_LIMIT ||
                              status == DCI_ERR_MEMORY,
                      "%s: %s", dci_status_name(status), dci_last_error());
        ck_assert_msg(empty, "something is left: %s", dci_last_error());
}

static void read_rows(dci_context *context, const char *path, size_t limit)
{
        bench_rows rows;
        double row[64];
        const dci_status status = bench_read_rows(context, path, limit, &rows);
        expect(status, rows.data == NULL && rows.owned == NULL);
        if (status != DCI_OK)
                return;
        ck_assert(rows.n <= limit);
        for (size_t i = 0; i < rows.n && rows.dim <= 64; i++)
                bench_row_to_double(&rows, i, row);
        bench_rows_free(&rows);
}

static void read_ids(dci_context *context, const char *path, size_t limit)
{
        bench_ids ids;
        const dci_status status = bench_read_ids(context, path, limit, &ids);
        expect(status, ids.data == NULL);
        volatile int64_t last = 0; /* all of them are there to be read */
        for (size_t i = 0; ids.data != NULL && i < ids.n * ids.width; i++)
                last = ids.data[i];
        (void)last;
        if (status == DCI_OK)
                bench_ids_free(&ids);
}

/* What was rehearsed can be played. */
static void read_runbook(dci_context *context, const char *path)
{
        runbook book;
        bool live[RUNBOOK_ROWS] = {false};
        const dci_status status = runbook_read(context, path, NULL, RUNBOOK_ROWS, &book);
        expect(status, book.steps == NULL);
        for (size_t i = 0; book.steps != NULL && i < book.n_steps; i++) {
                const runbook_step *step = &book.steps[i];
                ck_assert(step->operation >= RUNBOOK_INSERT && step->operation <= RUNBOOK_SEARCH);
                ck_assert(step->end <= RUNBOOK_ROWS && step->first_row + (step->end - step->start) <= RUNBOOK_ROWS);
                for (size_t id = step->start; id < step->end; id++) {
                        ck_assert(live[id] == (step->operation != RUNBOOK_INSERT));
                        live[id] = step->operation != RUNBOOK_DELETE;
                }
        }
        if (status == DCI_OK)
                runbook_free(&book);
}

/* Three files, the lengths of the first two in two bytes each. */
static void read_trace(dci_context *context, const uint8_t *data, size_t size)
{
        static const char *const files[] = {"meta.json", "keys.npy", "queries.npy"};
        for (size_t i = 0; i < 3; i++) {
                size_t n = size;
                if (i < 2) {
                        const size_t said = size < 2 ? 0 : (size_t)data[0] | (size_t)data[1] << 8;
                        data += size < 2 ? size : 2;
                        size -= size < 2 ? size : 2;
                        n = said < size ? said : size;
                }
                scratch_put(files[i], data, n);
                data += n;
                size -= n;
        }
        bench_dataset set;
        const bench_source source = {.trace = scratch_path("."), .limit_base = BENCH_ALL, .limit_queries = BENCH_ALL};
        const dci_status status = bench_dataset_read(context, &source, &set);
        expect(status, set.base.data == NULL);
        if (status == DCI_OK) {
                ck_assert(set.base.dim == set.queries.dim && set.base.n > 0 && set.queries.n > 0);
                bench_dataset_free(&set);
        }
}

static void read_hdf5(dci_context *context, const char *path)
{
        bench_dataset set;
        const bench_source source = {.data = path, .limit_base = 1000, .limit_queries = 1000};
        const dci_status status = bench_dataset_read(context, &source, &set);
        expect(status, set.base.data == NULL);
        if (status == DCI_OK)
                bench_dataset_free(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static unsigned n_hdf5;
        if (size == 0 || size > MAX_FILE)
                return 0;
        const size_t which = data[0] % N_NAMES, limit = data[0] / N_NAMES % 3 == 0 ? 3 : BENCH_ALL;
        if (which == HDF5 && !fuzz_all && n_hdf5++ % 50 != 0)
                return 0;
        dci_context *context = fuzz_limited_context();
        if (which != TRACE)
                scratch_put(names[which], data + 1, size - 1);
        const char *path = scratch_path(names[which]);
        if (which == TRACE)
                read_trace(context, data + 1, size - 1);
        else if (which == RUNBOOK)
                read_runbook(context, path);
        else if (which == HDF5)
                read_hdf5(context, path);
        else if (which >= FIRST_IDS)
                read_ids(context, path, limit);
        else
                read_rows(context, path, limit);
        fuzz_limited_end(context);
        return 0;
}

const char *fuzz_format_of(const uint8_t *data, size_t size)
{
        return size == 0 ? "" : names[data[0] % N_NAMES];
}

/* --- what a corpus begins with ------------------------------------------------------------------------------------------------ */

static uint8_t seed[1 << 14];
static size_t n_seed;

static void add(const void *data, size_t n)
{
        ck_assert(n <= sizeof seed - n_seed);
        memcpy(seed + n_seed, data, n);
        n_seed += n;
}

static void add_word(uint32_t value)
{
        unsigned char bytes[4];
        dci_store_le32(bytes, value);
        add(bytes, sizeof bytes);
}

static void begin(size_t which)
{
        n_seed = 1;
        seed[0] = (uint8_t)(which + N_NAMES); /* without a limit */
}

static void add_npy(dci_npy_type type, size_t n_dims, const size_t *shape)
{
        static const float numbers[64] = {1.0f, -2.0f};
        size_t n;
        ck_ok(dci_npy_write(scratch_path("made.npy"), type, n_dims, shape, numbers));
        unsigned char *bytes = scratch_get("made.npy", &n);
        add(bytes, n);
        free(bytes);
}

static void put_npy(void (*put)(const void *data, size_t size))
{
        static const size_t shape[] = {5, 3};
        for (dci_npy_type type = DCI_NPY_F32; type <= DCI_NPY_BOOL; type++)
                for (size_t which = 0; which <= 10; which += 10) { /* rows, ids */
                        begin(which);
                        add_npy(type, 2, shape);
                        put(seed, n_seed);
                }
}

/* Rows with a head each, then a head for all of them. */
static void put_vecs(void (*put)(const void *data, size_t size))
{
        static const struct {
                size_t which, element;
                bool per_row;
        } forms[] = {{1, 4, true},  {2, 1, true},  {8, 4, true}, {3, 4, false},
                     {4, 1, false}, {5, 1, false}, {9, 4, false}};
        for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
                begin(forms[f].which);
                if (!forms[f].per_row) {
                        add_word(4);
                        add_word(3);
                }
                for (size_t i = 0; i < 4; i++) {
                        if (forms[f].per_row)
                                add_word(3);
                        add("\0\0\200?\1\2\3\4\5\6\7\10", 3 * forms[f].element);
                }
                put(seed, n_seed);
        }
        begin(6);
        add("\0\0\10\3\0\0\0\3\0\0\0\2\0\0\0\2abcdefghijkl", 28);
        put(seed, n_seed);
        begin(7); /* the same, compressed */
        add("\037\213\010\000\000\000\000\000\002\377\143\140\340\140\146\140\140\000\141\046\020\116"
            "\114\112\116\111\115\113\317\310\314\312\316\001\000\042\226\147\242\034\000\000\000",
            43);
        put(seed, n_seed);
}

/* Two bytes for the length of what follows them. */
static size_t add_length(void)
{
        add("\0\0", 2);
        return n_seed;
}

static void set_length(size_t at)
{
        seed[at - 2] = (uint8_t)(n_seed - at);
        seed[at - 1] = (uint8_t)((n_seed - at) >> 8);
}

static void put_text(void (*put)(const void *data, size_t size))
{
        static const char *const books[] = {
                "a:\n  max_pts: 100\n  1:\n    operation: insert\n    start: 0\n    end: 60\n  2: {operation: search}\n"
                "  3:\n    operation: delete\n    start: 5\n    end: 9\n",
                "a: {max_pts: 50, gt_url: none, 1: {operation: insert, start: 0, end: 20}, 2: {operation: replace,\n"
                "  tags_start: 3, tags_end: 6, ids_start: 30, ids_end: 33}, 3: {operation: search}}\n",
                "{\"a\": {\"max_pts\": 9, \"1\": {\"operation\": \"insert\", \"start\": 0, \"end\": 9}}}\n"};
        for (size_t i = 0; i < sizeof books / sizeof books[0]; i++) {
                begin(RUNBOOK);
                add(books[i], strlen(books[i]));
                put(seed, n_seed);
        }
        static const char meta[] =
                "{\"tokens\": 20, \"prompt\": 18, \"first_query\": 17, \"group\": 1, \"scale\": 0.125}";
        static const size_t keys[] = {20, 2}, queries[] = {1, 3, 2};
        begin(TRACE);
        size_t at = add_length();
        add(meta, strlen(meta));
        set_length(at);
        at = add_length();
        add_npy(DCI_NPY_F32, 2, keys);
        set_length(at);
        add_npy(DCI_NPY_F32, 3, queries);
        put(seed, n_seed);
}

/* 4 x 3 numbers; without the time of day, so that a seed is the same whenever it is made. */
static void hdf5_table(hid_t file, const char *name, hid_t stored, bool packed)
{
        static const float numbers[12] = {1.0f, 2.0f, 3.0f, 4.0f};
        static const hsize_t shape[] = {4, 3};
        const hid_t space = H5Screate_simple(2, shape, NULL), properties = H5Pcreate(H5P_DATASET_CREATE);
        ck_assert(H5Pset_obj_track_times(properties, false) >= 0);
        if (packed) {
                ck_assert(H5Pset_chunk(properties, 2, shape) >= 0);
                ck_assert(H5Pset_deflate(properties, 6) >= 0);
        }
        const hid_t table = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, properties, H5P_DEFAULT);
        ck_assert(table >= 0);
        ck_assert(H5Dwrite(table, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, numbers) >= 0);
        H5Dclose(table);
        H5Pclose(properties);
        H5Sclose(space);
}

/* What ann-benchmarks has, in both forms of the format: the newer one has checksums, so the older lets more through. */
static void put_hdf5(void (*put)(const void *data, size_t size), bool newer, bool packed)
{
        static const char distance[] = "angular";
        const hid_t access = H5Pcreate(H5P_FILE_ACCESS), creation = H5Pcreate(H5P_FILE_CREATE);
        const H5F_libver_t version = newer ? H5F_LIBVER_LATEST : H5F_LIBVER_EARLIEST;
        ck_assert(H5Pset_libver_bounds(access, version, H5F_LIBVER_LATEST) >= 0);
        ck_assert(H5Pset_obj_track_times(creation, false) >= 0);
        const hid_t file = H5Fcreate(scratch_path("made.hdf5"), H5F_ACC_TRUNC, creation, access);
        ck_assert(file >= 0);
        hdf5_table(file, "train", H5T_IEEE_F32LE, packed);
        hdf5_table(file, "test", H5T_IEEE_F64LE, false);
        hdf5_table(file, "neighbors", H5T_STD_I32LE, false);
        const hid_t text = H5Tcopy(H5T_C_S1), scalar = H5Screate(H5S_SCALAR);
        H5Tset_size(text, sizeof distance);
        const hid_t attribute = H5Acreate2(file, "distance", text, scalar, H5P_DEFAULT, H5P_DEFAULT);
        ck_assert(H5Awrite(attribute, text, distance) >= 0);
        H5Aclose(attribute);
        H5Sclose(scalar);
        H5Tclose(text);
        H5Fclose(file);
        H5Pclose(creation);
        H5Pclose(access);
        size_t n;
        unsigned char *bytes = scratch_get("made.hdf5", &n);
        begin(HDF5);
        add(bytes, n);
        put(seed, n_seed);
        free(bytes);
}

void fuzz_seeds(void (*put)(const void *data, size_t size))
{
        for (size_t i = 0; i < 4; i++)
                put_hdf5(put, i / 2 == 1, i % 2 == 1);
        put_npy(put);
        put_vecs(put);
        put_text(put);
}
