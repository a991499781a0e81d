/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * A target without libFuzzer: plays the inputs that are kept, then DCI_FUZZ_RUNS of its own mutations of them.
 *
 *   fuzz_replay_NAME                   a suite
 *   fuzz_replay_NAME FILE...           plays these files, in this process
 *   fuzz_replay_NAME --seeds=FOLDER    writes what a corpus begins with
 *   fuzz_replay_NAME --mutations FORMAT SEED FROM TO [FILE]
 *                                      plays the mutations FROM to TO - 1 of what there is of a format (any: of everything), each of
 *                                      which follows from SEED and its number alone, and puts the last one into FILE (scripts/mutate)
 *
 * A pack (scripts/fuzz makes and unpacks them) is its inputs one after the other, the length of each before it in four bytes.
 */
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "tests/scratch.h"

typedef struct input {
        const unsigned char *data;
        size_t size;
} input;

enum { MAX_INPUTS = 20000, MAX_BYTES = 1 << 16 };
static input inputs[MAX_INPUTS];
static size_t n_inputs, n_kept; /* those after the kept ones are seeds, as they were made */
static dci_rng rng;

static size_t below(size_t n)
{
        return (size_t)dci_rng_below(&rng, n);
}

static unsigned char *read_file(const char *path, size_t *out_size)
{
        FILE *file = fopen(path, "rb");
        ck_assert_ptr_nonnull(file);
        ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
        const long size = ftell(file);
        ck_assert(size >= 0);
        rewind(file);
        unsigned char *bytes = malloc((size_t)size + 1);
        ck_assert_ptr_nonnull(bytes);
        ck_assert_uint_eq(fread(bytes, 1, (size_t)size, file), (size_t)size);
        fclose(file);
        *out_size = (size_t)size;
        return bytes;
}

static void keep(const void *data, size_t size)
{
        ck_assert(n_inputs < MAX_INPUTS);
        unsigned char *copy = malloc(size + 1);
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, data, size);
        inputs[n_inputs++] = (input){copy, size};
}

static void read_inputs(void)
{
        size_t n, at = 0;
        unsigned char *pack = read_file(DCI_FUZZ_PACK, &n);
        while (at < n) {
                ck_assert(n - at >= 4 && dci_load_le32(pack + at) <= n - at - 4);
                const size_t size = dci_load_le32(pack + at);
                keep(pack + at + 4, size);
                at += 4 + size;
        }
        free(pack);
        n_kept = n_inputs;
        fuzz_seeds(keep);
        ck_assert(n_inputs > 0);
}

static void free_inputs(void)
{
        while (n_inputs > 0)
                free((void *)(uintptr_t)inputs[--n_inputs].data);
}

/* A copy that ends where its memory does, so that a sanitizer sees what is read beyond it. */
static void play(const unsigned char *data, size_t size)
{
        unsigned char *copy = malloc(size == 0 ? 1 : size);
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, data, size);
        LLVMFuzzerTestOneInput(copy, size);
        free(copy);
}

/* --- mutations ------------------------------------------------------------------------------------------------------------- */

static void put_number(uint8_t *data, size_t size)
{
        static const uint64_t numbers[] = {0,   1,    2,     3,          7,          16,         63,        64,
                                           255, 4096, 65535, 0x7f800000, 0x80000000, 0xffffffff, UINT64_MAX};
        const size_t width = (size_t)1 << below(4);
        if (size < width)
                return;
        const size_t at = below(size - width + 1);
        const uint64_t value = numbers[below(sizeof numbers / sizeof numbers[0])] + below(3) - 1;
        for (size_t i = 0; i < width; i++)
                data[at + i] = (uint8_t)(value >> 8 * i);
}

static size_t insert(uint8_t *data, size_t size, size_t most)
{
        const size_t room = most - size, n = room == 0 ? 0 : 1 + below(room < 16 ? room : 16), at = below(size + 1);
        memmove(data + at + n, data + at, size - at);
        for (size_t i = 0; i < n; i++)
                data[at + i] = (uint8_t)below(256);
        return size + n;
}

static size_t erase(uint8_t *data, size_t size)
{
        if (size < 2)
                return size;
        const size_t n = 1 + below(below(4) == 0 ? size - 1 : (size - 1 < 8 ? size - 1 : 8)), at = below(size - n + 1);
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
}

/* A part of another input, over what there is. */
static void splice(uint8_t *data, size_t size)
{
        const input *other = &inputs[below(n_inputs)];
        const size_t least = other->size < size ? other->size : size;
        if (least == 0)
                return;
        const size_t n = 1 + below(least), from = below(other->size - n + 1);
        const size_t to = below(2) == 0 && from + n <= size ? from : below(size - n + 1);
        memcpy(data + to, other->data + from, n);
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most)
{
        for (size_t i = 1 + below(4); i > 0; i--) {
                const size_t how = size == 0 ? 4 : below(8);
                if (how < 2)
                        data[below(size)] ^= (uint8_t)(1 << below(8));
                else if (how < 3)
                        data[below(size)] = (uint8_t)below(256);
                else if (how < 4)
                        put_number(data, size);
                else if (how < 5)
                        size = insert(data, size, most);
                else if (how < 6)
                        size = erase(data, size);
                else
                        splice(data, size);
        }
        return size;
}

static size_t mutate(uint8_t *data, size_t size, size_t most)
{
#ifdef DCI_FUZZ_MUTATOR
        return LLVMFuzzerCustomMutator(data, size, most, (unsigned)below(UINT32_MAX));
#else
        return LLVMFuzzerMutate(data, size, most);
#endif
}

/* --- the suite -------------------------------------------------------------------------------------------------------------- */

START_TEST(inputs_that_were_kept_hold)
{
        read_inputs();
        for (size_t i = 0; i < n_inputs; i++)
                play(inputs[i].data, inputs[i].size);
        free_inputs();
}
END_TEST

START_TEST(mutations_of_them_hold)
{
        uint8_t *data = malloc(2 * MAX_BYTES);
        ck_assert_ptr_nonnull(data);
        read_inputs();
        dci_rng_seed(&rng, 1);
        const size_t runs = DCI_FUZZ_RUNS / (test_short() ? 4 : 1);
        for (size_t i = 0; i < runs; i++) {
                const input *begin = &inputs[below(n_inputs)];
                if (begin->size > MAX_BYTES)
                        continue;
                memcpy(data, begin->data, begin->size);
                play(data, mutate(data, begin->size, 2 * MAX_BYTES));
        }
        free_inputs();
        free(data);
}
END_TEST

/* --- a range of mutations ----------------------------------------------------------------------------------------------------- */

static bool is_format(const char *format, const uint8_t *data, size_t size)
{
#ifdef DCI_FUZZ_FORMATS
        return strcmp(format, "any") == 0 || strcmp(format, fuzz_format_of(data, size)) == 0;
#else
        (void)data;
        (void)size;
        return strcmp(format, "any") == 0;
#endif
}

static void keep_format(const char *format)
{
        size_t n = 0, kept = 0;
        for (size_t i = 0; i < n_inputs; i++) {
                const input *one = &inputs[i];
                if (one->size > 1 && one->size <= MAX_BYTES / 2 && is_format(format, one->data, one->size))
                        inputs[n++] = *one;
                else
                        free((void *)(uintptr_t)one->data);
                kept = i < n_kept ? n : kept;
        }
        n_inputs = n;
        n_kept = kept;
}

/* One that differs from what it came of, is not empty and of the same format. Half come of seeds, so that many are nearly right. */
static size_t draw(const char *format, uint8_t *data)
{
        size_t size;
        const input *begin;
        do {
                begin = &inputs[n_kept < n_inputs && below(2) == 0 ? n_kept + below(n_inputs - n_kept)
                                                                   : below(n_inputs)];
                memcpy(data, begin->data, begin->size);
                size = mutate(data, begin->size, MAX_BYTES / 2);
        } while (size < 2 || !is_format(format, data, size) ||
                 (size == begin->size && memcmp(data, begin->data, size) == 0));
        return size;
}

static void put_file(const char *path, const uint8_t *data, size_t size)
{
        FILE *file = fopen(path, "wb");
        ck_assert_ptr_nonnull(file);
        ck_assert_uint_eq(fwrite(data, 1, size, file), size);
        ck_assert_int_eq(fclose(file), 0);
}

static struct {
        const char *format, *file; /* file: where the last one goes before it is played, or NULL */
        uint64_t seed, from, to;
} range;

START_TEST(a_range_of_mutations_holds)
{
        uint8_t *data = malloc(MAX_BYTES);
        ck_assert_ptr_nonnull(data);
        read_inputs();
        keep_format(range.format);
        ck_assert_msg(n_inputs > 0, "nothing is of the format %s", range.format);
        fuzz_all = true;
        for (uint64_t number = range.from; number < range.to; number++) {
                dci_rng_seed(&rng, range.seed << 32 ^ number);
                const size_t size = draw(range.format, data);
                if (range.file != NULL && number + 1 == range.to)
                        put_file(range.file, data, size);
                play(data, size);
        }
        printf("inputs %zu, files %llu, refused %zu, accepted %zu\n", n_inputs,
               (unsigned long long)(range.to - range.from), fuzz_files.refused, fuzz_files.accepted);
        free_inputs();
        free(data);
}
END_TEST

static char **files; /* ended by NULL */

START_TEST(files_hold)
{
        for (char **path = files; *path != NULL; path++) {
                size_t size;
                unsigned char *bytes = read_file(*path, &size);
                play(bytes, size);
                free(bytes);
        }
}
END_TEST

static int run(void (*add_tests)(TCase *tcase))
{
        Suite *suite = suite_create(DCI_FUZZ_NAME);
        TCase *tcase = test_case_with(suite, "inputs", 300, scratch_open, scratch_close);
        add_tests(tcase);
        return test_main(suite);
}

static void suite_tests(TCase *tcase)
{
        tcase_add_test(tcase, inputs_that_were_kept_hold);
        tcase_add_test(tcase, mutations_of_them_hold);
}

static void range_test(TCase *tcase)
{
        tcase_add_test(tcase, a_range_of_mutations_holds);
}

static void files_test(TCase *tcase)
{
        tcase_add_test(tcase, files_hold);
}

int main(int argc, char **argv)
{
        static const char option[] = "--seeds=";
        if (argc == 2 && strncmp(argv[1], option, strlen(option)) == 0) {
                scratch_open();
                fuzz_write_seeds(argv[1] + strlen(option));
                scratch_close();
                return EXIT_SUCCESS;
        }
        if (argc == 1)
                return run(suite_tests);
        setenv("CK_FORK", "no", 1); /* these take as long as they take, and a debugger is near */
        if ((argc == 6 || argc == 7) && strcmp(argv[1], "--mutations") == 0) {
                range.format = argv[2];
                range.seed = strtoull(argv[3], NULL, 10);
                range.from = strtoull(argv[4], NULL, 10);
                range.to = strtoull(argv[5], NULL, 10);
                range.file = argc == 7 ? argv[6] : NULL;
                return run(range_test);
        }
        files = argv + 1;
        return run(files_test);
}
