/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* dci-bench and ann-benchmarks HDF5 files, good and bad. */
#include "tests/bench_bytes.h"

#include <hdf5.h>
#include <string.h>

static void h5_table(hid_t file, const char *name, hid_t stored, hid_t memory, const void *data, size_t n, size_t dim,
                     bool packed)
{
        hsize_t shape[2] = {n, dim};
        hid_t space = H5Screate_simple(2, shape, NULL), properties = H5Pcreate(H5P_DATASET_CREATE);
        if (packed) {
                ck_assert_int_ge(H5Pset_chunk(properties, 2, shape), 0);
                ck_assert_int_ge(H5Pset_deflate(properties, 6), 0);
        }
        hid_t dataset = H5Dcreate2(file, name, stored, space, H5P_DEFAULT, properties, H5P_DEFAULT);
        ck_assert_int_ge(dataset, 0);
        if (data != NULL)
                ck_assert_int_ge(H5Dwrite(dataset, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data), 0);
        H5Dclose(dataset);
        H5Pclose(properties);
        H5Sclose(space);
}

/* distance NULL: no attribute. */
static void h5_distance(hid_t file, const char *distance, bool variable)
{
        if (distance == NULL)
                return;
        hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
        H5Tset_size(type, variable ? H5T_VARIABLE : strlen(distance) + 1);
        hid_t attribute = H5Acreate2(file, "distance", type, space, H5P_DEFAULT, H5P_DEFAULT);
        ck_assert_int_ge(H5Awrite(attribute, type, variable ? (const void *)&distance : distance), 0);
        H5Aclose(attribute);
        H5Tclose(type);
        H5Sclose(space);
}

static hid_t h5_create(void)
{
        hid_t file = H5Fcreate(scratch_path("d.hdf5"), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
        ck_assert_int_ge(file, 0);
        return file;
}

static void h5_whole(const char *distance, bool variable, bool packed, bool with_neighbours)
{
        hid_t file = h5_create();
        h5_table(file, "train", H5T_IEEE_F32LE, H5T_NATIVE_UCHAR, base, N, DIM, packed);
        h5_table(file, "test", packed ? H5T_STD_U8LE : H5T_IEEE_F64LE, H5T_NATIVE_UCHAR, queries, N_QUERIES, DIM,
                 false);
        if (with_neighbours)
                h5_table(file, "neighbors", H5T_STD_I32LE, H5T_NATIVE_INT, neighbours, N_QUERIES, K, false);
        h5_distance(file, distance, variable);
        H5Fclose(file);
}

#define H5_RUN(...)                                                                                                    \
        BENCH("ann", "--data", scratch_path("d.hdf5"), "--repeat", "1", "--mode", "batch", "--cache", "none",          \
              __VA_ARGS__)

START_TEST(an_hdf5_file_brings_its_metric_and_truth)
{
        static const struct {
                const char *distance, *metric, *origin, *k;
                bool variable, packed, with_neighbours;
        } files[] = {{"euclidean", "l2", "file", "4", false, false, true},
                     {"euclidean", "l2", "computed", "5", true, true, true}, /* more than the file has */
                     {"euclidean", "l2", "computed", "4", true, true, false},
                     {"angular", "cosine", "computed", "4", true, false, false},
                     {"dot", "ip", "computed", "4", true, false, false},
                     {"ip", "ip", "computed", "4", false, false, false},
                     {"sqeuclidean", "l2", "computed", "4", true, false, false},
                     {"Cosine", "cosine", "computed", "4", true, false, false}};
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
                h5_whole(files[i].distance, files[i].variable, files[i].packed, files[i].with_neighbours);
                json_t *report = bench_good(H5_RUN("--json", scratch_path("r.json"), "--k", files[i].k));
                const json_t *row = bench_row(report, 0);
                ck_assert_str_eq(json_string_value(json_object_get(row, "metric")), files[i].metric);
                ck_assert_str_eq(json_string_value(json_object_get(json_object_get(report, "truth"), "origin")),
                                 files[i].origin);
                ck_assert_double_eq(bench_number(report, 0, "recall"), 1);
                ck_assert_double_eq(bench_number(report, 0, "n"), N);
        }
}
END_TEST

START_TEST(an_hdf5_file_without_a_known_distance_needs_a_metric)
{
        static const struct {
                const char *name, *part;
        } distances[] = {{NULL, "says no distance; give --metric"},
                         {"hamming", "is for the distance 'hamming', which dci does not have"},
                         {"jaccard", "'jaccard', which dci does not have"},
                         {"odd\n\33[m", "'odd??[m', which dci does not have"},
                         {"a distance with a name of more than thirty characters", "'a distance with a name of"}};
        for (size_t i = 0; i < sizeof distances / sizeof *distances; i++) {
                h5_whole(distances[i].name, true, false, true);
                bench_refused(H5_RUN("--k", "4"), 2, distances[i].part);
                /* The neighbours were made for another metric: they are not believed. */
                json_t *report = bench_good(H5_RUN("--json", scratch_path("r.json"), "--metric", "ip", "--k", "4"));
                ck_assert_str_eq(json_string_value(json_object_get(json_object_get(report, "truth"), "origin")),
                                 "computed");
        }
}
END_TEST

START_TEST(a_truncated_hdf5_file_is_refused)
{
        size_t n_bytes;
        h5_whole("euclidean", true, true, true);
        unsigned char *bytes = scratch_get("d.hdf5", &n_bytes);
        for (size_t i = 0; i < n_bytes; i += 1 + n_bytes / 40) {
                scratch_put("d.hdf5", bytes, i);
                bench_refused(H5_RUN("--k", "4"), 2, "d.hdf5");
        }
        scratch_put("d.hdf5", bytes, n_bytes - 1);
        bench_refused(H5_RUN("--k", "4"), 2, "d.hdf5");
        free(bytes);
}
END_TEST

#if !BENCH_SANITIZED
/* libhdf5 itself crashes on some of these; a sanitizer would describe that at length. */
START_TEST(a_changed_byte_of_an_hdf5_file_is_an_answer_or_a_sentence)
{
        dci_rng rng;
        size_t n_bytes;
        h5_whole("euclidean", true, true, true);
        unsigned char *bytes = scratch_get("d.hdf5", &n_bytes);
        dci_rng_seed(&rng, 1);
        for (size_t i = 0; i < 60; i++) {
                size_t at = dci_rng_below(&rng, n_bytes);
                unsigned char was = bytes[at];
                bytes[at] = (unsigned char)dci_rng_below(&rng, 256);
                scratch_put("d.hdf5", bytes, n_bytes);
                bytes[at] = was;
                bench_composed(H5_RUN("--k", "4", "--metric", "l2"));
        }
        free(bytes);
}
END_TEST
#endif

/* Each breaks one thing about an otherwise good file. */
static void h5_nothing(hid_t file)
{
        (void)file;
}

static void h5_no_test(hid_t file)
{
        h5_table(file, "train", H5T_IEEE_F32LE, H5T_NATIVE_UCHAR, base, N, DIM, false);
}

static void h5_other_dim(hid_t file)
{
        h5_no_test(file);
        h5_table(file, "test", H5T_IEEE_F32LE, H5T_NATIVE_UCHAR, queries, N_QUERIES, DIM - 1, false);
}

static void h5_unwritten(hid_t file)
{
        hsize_t shape[2] = {(hsize_t)1 << 30, 1 << 10}, chunk[2] = {1, 1 << 10};
        hid_t space = H5Screate_simple(2, shape, NULL), properties = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_chunk(properties, 2, chunk);
        H5Dclose(H5Dcreate2(file, "train", H5T_IEEE_F32LE, space, H5P_DEFAULT, properties, H5P_DEFAULT));
        H5Pclose(properties);
        H5Sclose(space);
}

static void h5_cube(hid_t file)
{
        hsize_t shape[3] = {2, 3, 4};
        hid_t space = H5Screate_simple(3, shape, NULL);
        H5Dclose(H5Dcreate2(file, "train", H5T_IEEE_F32LE, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        H5Sclose(space);
}

static void h5_text(hid_t file)
{
        hsize_t shape[2] = {2, 3};
        hid_t space = H5Screate_simple(2, shape, NULL);
        H5Dclose(H5Dcreate2(file, "train", H5T_C_S1, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        H5Sclose(space);
}

static void h5_few_neighbours(hid_t file)
{
        h5_no_test(file);
        h5_table(file, "test", H5T_IEEE_F32LE, H5T_NATIVE_UCHAR, queries, N_QUERIES, DIM, false);
        h5_table(file, "neighbors", H5T_STD_I32LE, H5T_NATIVE_INT, neighbours, N_QUERIES - 1, K, false);
}

static void h5_large_integers(hid_t file)
{
        int64_t rows[N * DIM];
        for (size_t i = 0; i < N * DIM; i++)
                rows[i] = i == 3 * DIM + 1 ? (1 << 24) + 1 : (int64_t)i;
        h5_table(file, "train", H5T_STD_I64LE, H5T_NATIVE_INT64, rows, N, DIM, false);
        h5_table(file, "test", H5T_STD_I64LE, H5T_NATIVE_INT64, rows, 1, DIM, false);
}

static void h5_large_doubles(hid_t file)
{
        double rows[2 * DIM] = {[DIM + 2] = 1e300};
        h5_table(file, "train", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, rows, 2, DIM, false);
        h5_table(file, "test", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, rows, 1, DIM, false);
}

static void h5_group(hid_t file)
{
        H5Gclose(H5Gcreate2(file, "train", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
}

START_TEST(an_hdf5_file_of_the_wrong_form_is_refused)
{
        static const struct {
                void (*write)(hid_t file);
                const char *part;
        } files[] = {{h5_nothing, "no readable dataset train"},
                     {h5_no_test, "no readable dataset test"},
                     {h5_other_dim, "train has rows of 9 elements, test of 8"},
                     {h5_unwritten, "0 bytes are stored"},
                     {h5_cube, "two dimensions"},
                     {h5_text, "does not hold numbers"},
                     {h5_few_neighbours, "neighbors of 4 queries"},
                     {h5_large_integers, "row 3 holds 16777217 (int64), which is no float32"},
                     {h5_large_doubles, "row 1 holds 1e+300 (float64), float32 ends at"},
                     {h5_group, "no readable dataset train"}};
        for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
                hid_t file = h5_create();
                files[i].write(file);
                h5_distance(file, "euclidean", true);
                H5Fclose(file);
                bench_refused(H5_RUN("--k", "4"), 2, files[i].part);
        }
}
END_TEST

int main(void)
{
        const bench_test tests[] = {
                {an_hdf5_file_brings_its_metric_and_truth, 0},
                {an_hdf5_file_without_a_known_distance_needs_a_metric, 0},
                {a_truncated_hdf5_file_is_refused, 0},
#if !BENCH_SANITIZED
                {a_changed_byte_of_an_hdf5_file_is_an_answer_or_a_sentence, 0},
#endif
                {an_hdf5_file_of_the_wrong_form_is_refused, 0},
        };
        return bench_main("bench hdf5", setup, teardown, tests, sizeof tests / sizeof *tests);
}
