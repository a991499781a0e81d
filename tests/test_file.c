/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* The checked container, in memory and on disk; what happens at the operating system is test_file_io.c. */
#include "core/file.h"

#include <string.h>
#include <unistd.h>

#include "tests/common.h"
#include "tests/scratch.h"

#define KIND UINT32_C(0x54534554) /* 'TEST' */
#define VERSION UINT32_C(7)

/* --- a container in memory, and changes to it ------------------------------------------------------------------- */

typedef struct buffer {
        unsigned char bytes[16384];
        size_t n_bytes;
        size_t writes, fail_at; /* fail_at: 1-based number of the write that fails; 0: none */
} buffer;

static dci_status buffer_write(void *ctx, const void *data, size_t n_bytes)
{
        buffer *to = ctx;
        if (++to->writes == to->fail_at)
                return dci_fail(DCI_ERR_FULL, "write %zu fails", to->writes);
        ck_assert_uint_le(n_bytes, sizeof to->bytes - to->n_bytes);
        memcpy(to->bytes + to->n_bytes, data, n_bytes);
        to->n_bytes += n_bytes;
        return DCI_OK;
}

/* Entries at 48 and 80, "first" at 128 with 5 bytes, a gap, "second" at 192 with 3: 195 bytes in all. */
static const dci_section two[2] = {{"first", "hello", 5}, {"second", "abc", 3}};
#define TWO_BYTES 195

static void make(buffer *to, size_t n_sections, const dci_section *sections)
{
        memset(to, 0, sizeof *to);
        const dci_sink sink = {to, buffer_write};
        ck_ok(dci_file_write(&sink, KIND, VERSION, n_sections, sections));
}

static void store(unsigned char *at, size_t width, uint64_t value)
{
        for (size_t i = 0; i < width; i++)
                at[i] = (unsigned char)(value >> 8 * i);
}

/* Makes the checksums right again, so that the check after them is reached. */
static void seal(buffer *file)
{
        uint32_t n_sections = dci_load_le32(file->bytes + 24);
        if (n_sections <= 2)
                store(file->bytes + 40, 4, dci_crc32c(0, file->bytes + 48, n_sections * (size_t)32));
        store(file->bytes + 44, 4, dci_crc32c(0, file->bytes, 44));
}

/* --- CRC-32C ---------------------------------------------------------------------------------------------------- */

START_TEST(crc_gives_the_published_values)
{
        /* RFC 3720, appendix B.4, and the check value of the CRC catalogues. */
        unsigned char zeros[32] = {0}, ones[32], up[32], down[32];
        memset(ones, 0xff, sizeof ones);
        for (int i = 0; i < 32; i++) {
                up[i] = (unsigned char)i;
                down[i] = (unsigned char)(31 - i);
        }
        const struct {
                const void *data;
                size_t n_bytes;
                uint32_t crc;
        } rows[] = {{zeros, 32, 0x8a9136aa}, {ones, 32, 0x62a8ab43},       {up, 32, 0x46dd794e},
                    {down, 32, 0x113fdb5c},  {"123456789", 9, 0xe3069283}, {"", 0, 0}};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                ck_assert_uint_eq(dci_crc32c(0, rows[i].data, rows[i].n_bytes), rows[i].crc);
}
END_TEST

static uint32_t crc_bit_by_bit(const unsigned char *data, size_t n_bytes)
{
        uint32_t crc = UINT32_MAX;
        for (size_t i = 0; i < n_bytes; i++) {
                crc ^= data[i];
                for (int bit = 0; bit < 8; bit++)
                        crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
        }
        return ~crc;
}

START_TEST(crc_equals_bit_by_bit_at_every_length_and_alignment)
{
        unsigned char data[128];
        dci_rng rng;
        dci_rng_seed(&rng, 1);
        for (size_t i = 0; i < sizeof data; i++)
                data[i] = (unsigned char)dci_rng_next(&rng);
        for (size_t at = 0; at < 8; at++)
                for (size_t n = 0; n <= sizeof data - at; n++)
                        ck_assert_uint_eq(dci_crc32c(0, data + at, n), crc_bit_by_bit(data + at, n));
}
END_TEST

START_TEST(crc_of_every_byte_at_every_place_is_right)
{
        for (size_t place = 0; place < 8; place++)
                for (unsigned value = 0; value < 256; value++) {
                        unsigned char data[8] = {0};
                        data[place] = (unsigned char)value;
                        ck_assert_uint_eq(dci_crc32c(0, data, 8), crc_bit_by_bit(data, 8));
                }
}
END_TEST

START_TEST(crc_may_be_computed_in_pieces)
{
        static const char text[] = "a checksum may be continued from any point of the data it covers";
        for (size_t n = 0; n < sizeof text; n++)
                ck_assert_uint_eq(dci_crc32c(dci_crc32c(0, text, n), text + n, sizeof text - n),
                                  dci_crc32c(0, text, sizeof text));
}
END_TEST

/* --- the format ------------------------------------------------------------------------------------------------- */

START_TEST(sections_come_back_as_written)
{
        static const size_t sizes[] = {0, 1, 63, 64, 65, 0, 1000, 8};
        static const char names[8][8] = {"empty", "one", "63", "64", "65", "empty2", "1000", "8letters"};
        unsigned char data[1000];
        for (size_t i = 0; i < sizeof data; i++)
                data[i] = (unsigned char)(i * 7 + 1);
        dci_section sections[8];
        for (size_t n = 0; n <= 8; n++) {
                for (size_t i = 0; i < n; i++) {
                        sections[i] = (dci_section){.data = sizes[i] == 0 ? NULL : data, .n_bytes = sizes[i]};
                        memcpy(sections[i].name, names[i], 8);
                }
                buffer file;
                make(&file, n, sections);
                dci_file parsed;
                ck_ok(dci_file_parse(file.bytes, file.n_bytes, KIND, &parsed));
                ck_assert_uint_eq(parsed.n_sections, n);
                ck_assert_uint_eq(parsed.version, VERSION);
                ck_assert_uint_eq(parsed.kind, KIND);
                for (size_t i = 0; i < n; i++) {
                        char name[9] = {0};
                        const void *found;
                        size_t n_bytes;
                        memcpy(name, names[i], 8);
                        ck_ok(dci_file_section(&parsed, name, &found, &n_bytes));
                        ck_assert_uint_eq(n_bytes, sizes[i]);
                        ck_assert_mem_eq(found, data, n_bytes);
                        ck_assert_uint_eq(((size_t)((const unsigned char *)found - file.bytes)) % 64, 0);
                }
                dci_file_free(&parsed);
                ck_assert_uint_eq(parsed.n_sections, 0);
        }
}
END_TEST

START_TEST(bytes_are_those_of_the_documented_layout)
{
        unsigned char wanted[TWO_BYTES] = "dciFILE\n\1\0\0\0\4\3\2\1TEST\7\0\0\0\2\0\0\0\0\0\0\0\303";
        memcpy(wanted + 48, "first\0\0\0\200\0\0\0\0\0\0\0\5\0\0\0\0\0\0\0", 24);
        memcpy(wanted + 80, "second\0\0\300\0\0\0\0\0\0\0\3\0\0\0\0\0\0\0", 24);
        memcpy(wanted + 128, "hello", 5);
        memcpy(wanted + 192, "abc", 3);
        store(wanted + 72, 4, crc_bit_by_bit(wanted + 128, 5));
        store(wanted + 104, 4, crc_bit_by_bit(wanted + 192, 3));
        store(wanted + 40, 4, crc_bit_by_bit(wanted + 48, 64));
        store(wanted + 44, 4, crc_bit_by_bit(wanted, 44));
        buffer file;
        make(&file, 2, two);
        ck_assert_uint_eq(file.n_bytes, TWO_BYTES);
        ck_assert_mem_eq(file.bytes, wanted, TWO_BYTES);
}
END_TEST

START_TEST(max_sections_fit_and_one_more_is_refused)
{
        dci_section sections[DCI_FILE_MAX_SECTIONS + 1];
        memset(sections, 0, sizeof sections);
        for (size_t i = 0; i <= DCI_FILE_MAX_SECTIONS; i++) {
                sections[i].name[0] = 'a';
                sections[i].name[1] = (char)('0' + i / 10);
                sections[i].name[2] = (char)('0' + i % 10);
                sections[i].data = "x";
                sections[i].n_bytes = 1;
        }
        buffer file;
        make(&file, DCI_FILE_MAX_SECTIONS, sections);
        dci_file parsed;
        ck_ok(dci_file_parse(file.bytes, file.n_bytes, KIND, &parsed));
        ck_assert_uint_eq(parsed.n_sections, DCI_FILE_MAX_SECTIONS);
        const dci_sink sink = {&file, buffer_write};
        ck_refused(dci_file_write(&sink, KIND, VERSION, DCI_FILE_MAX_SECTIONS + 1, sections), DCI_ERR_LIMIT,
                   "65 sections, a file has at most 64");
}
END_TEST

START_TEST(every_truncated_prefix_is_refused)
{
        buffer file;
        make(&file, 2, two);
        for (size_t n = 0; n < file.n_bytes; n++) {
                /* A block of exactly this size lets the sanitizer see a read beyond it. */
                unsigned char *copy = malloc(n > 0 ? n : 1);
                ck_assert_ptr_nonnull(copy);
                memcpy(copy, file.bytes, n);
                dci_file parsed;
                ck_refused(dci_file_parse(copy, n, KIND, &parsed), DCI_ERR_FORMAT, "the file in memory has ");
                ck_assert_uint_eq(parsed.n_sections, 0);
                free(copy);
        }
        dci_file parsed;
        ck_refused(dci_file_parse(file.bytes, file.n_bytes + 1, KIND, &parsed), DCI_ERR_FORMAT,
                   "has 196 bytes, its header says 195");
}
END_TEST

START_TEST(every_flipped_bit_is_refused)
{
        buffer file;
        make(&file, 2, two);
        for (size_t bit = 0; bit < file.n_bytes * 8; bit++) {
                file.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
                dci_file parsed;
                bool in_version = bit / 8 >= 8 && bit / 8 < 12;
                ck_assert_int_eq(dci_file_parse(file.bytes, file.n_bytes, KIND, &parsed),
                                 in_version ? DCI_ERR_UNSUPPORTED : DCI_ERR_FORMAT);
                ck_assert_ptr_nonnull(strstr(dci_last_error(), "the file in memory"));
                ck_assert_uint_eq(parsed.n_sections, 0);
                file.bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
        dci_file parsed;
        ck_ok(dci_file_parse(file.bytes, file.n_bytes, KIND, &parsed));
}
END_TEST

START_TEST(every_field_that_lies_is_refused_even_with_valid_checksums)
{
        static const struct {
                size_t at, width;
                uint64_t value;
                dci_status status;
                const char *part;
        } rows[] = {
                {0, 4, 0x04034b50, DCI_ERR_FORMAT, "begins with 0x04034b50 0x0a454c49"},
                {0, 4, 0x46464952, DCI_ERR_FORMAT, "begins with 'RIFF'"},
                {8, 4, 2, DCI_ERR_UNSUPPORTED, "container version 2, this library reads 1"},
                {8, 4, 0, DCI_ERR_UNSUPPORTED, "container version 0, this library reads 1"},
                {12, 4, 0x04030201, DCI_ERR_FORMAT, "byte-order mark 0x04030201, wanted 0x01020304"},
                {16, 4, 0x52484f54, DCI_ERR_FORMAT, "kind 'TOHR', wanted 'TEST'"},
                {16, 4, 0x00000001, DCI_ERR_FORMAT, "kind 0x00000001, wanted 'TEST'"},
                {24, 4, 65, DCI_ERR_FORMAT, "65 sections, at most 64"},
                {24, 4, UINT32_MAX, DCI_ERR_FORMAT, "4294967295 sections, at most 64"},
                {24, 4, 64, DCI_ERR_FORMAT, "147 bytes after its header, its section table needs 2048"},
                {24, 4, 1, DCI_ERR_FORMAT, "byte 80, in the gap before section 'first', is 0x73, wanted 0"},
                {24, 4, 0, DCI_ERR_FORMAT, "has 195 bytes, its last section ends at 48"},
                {28, 4, 3, DCI_ERR_FORMAT, "3 in a reserved field of its header, wanted 0"},
                {32, 8, 194, DCI_ERR_FORMAT, "has 195 bytes, its header says 194"},
                {32, 8, UINT64_MAX, DCI_ERR_FORMAT, "has 195 bytes, its header says 18446744073709551615"},
                {48, 8, 0, DCI_ERR_FORMAT, "the name of section 0"},
                {48, 8, 0x6100000000000061, DCI_ERR_FORMAT, "the name of section 0"},
                {80, 8, 0x61ff, DCI_ERR_FORMAT, "the name of section 1"},
                {80, 8, 0x6120, DCI_ERR_FORMAT, "the name of section 1"},
                {80, 8, 0x7473726966, DCI_ERR_FORMAT, "sections 0 and 1 are both named 'first'"},
                {56, 8, 0, DCI_ERR_FORMAT, "'first' is at 0, wanted a multiple of 64 that is at least 112"},
                {56, 8, 130, DCI_ERR_FORMAT, "'first' is at 130, wanted a multiple of 64 that is at least 112"},
                {88, 8, 128, DCI_ERR_FORMAT, "'second' is at 128, wanted a multiple of 64 that is at least 133"},
                {88, 8, 256, DCI_ERR_FORMAT, "'second' has 3 bytes at 256, the file has 195"},
                {88, 8, UINT64_MAX - 63, DCI_ERR_FORMAT, "3 bytes at 18446744073709551552, the file has 195"},
                {96, 8, 4, DCI_ERR_FORMAT, "'second' has 4 bytes at 192, the file has 195"},
                {96, 8, UINT64_MAX - 191, DCI_ERR_FORMAT, "18446744073709551424 bytes at 192, the file has 195"},
                {96, 8, UINT64_MAX, DCI_ERR_FORMAT, "18446744073709551615 bytes at 192, the file has 195"},
                {64, 8, 65, DCI_ERR_FORMAT, "section 'first' has CRC"},
                {72, 4, 1, DCI_ERR_FORMAT, "'first' has CRC 0x9a71bb4c, recorded is 0x00000001"},
                {108, 4, 9, DCI_ERR_FORMAT, "section 'second' has 9 in a reserved field, wanted 0"},
                {120, 1, 5, DCI_ERR_FORMAT, "byte 120, in the gap before section 'first', is 0x05, wanted 0"},
                {191, 1, 6, DCI_ERR_FORMAT, "byte 191, in the gap before section 'second', is 0x06, wanted 0"},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                buffer file;
                dci_file parsed;
                make(&file, 2, two);
                store(file.bytes + rows[i].at, rows[i].width, rows[i].value);
                seal(&file);
                ck_refused(dci_file_parse(file.bytes, file.n_bytes, KIND, &parsed), rows[i].status, rows[i].part);
                ck_assert_uint_eq(parsed.n_sections, 0);
        }
}
END_TEST

START_TEST(a_wider_gap_of_zeros_is_read)
{
        /* The format promises multiples of 64, not the next one. */
        buffer file;
        make(&file, 2, two);
        memmove(file.bytes + 256, file.bytes + 192, 3);
        memset(file.bytes + 192, 0, 64);
        file.n_bytes += 64;
        store(file.bytes + 88, 8, 256);
        store(file.bytes + 32, 8, file.n_bytes);
        seal(&file);
        dci_file parsed;
        ck_ok(dci_file_parse(file.bytes, file.n_bytes, KIND, &parsed));
        ck_assert_mem_eq(parsed.sections[1].data, "abc", 3);
}
END_TEST

START_TEST(a_section_is_found_by_its_whole_name_only)
{
        static const char *const absent[] = {"", "f", "firs", "first2", "First", "secondary", "first\n", "12345678a"};
        static const dci_section sections[] = {{"first", "a", 1}, {"12345678", "b", 1}};
        buffer file;
        dci_file parsed;
        const void *data;
        size_t n_bytes;
        make(&file, 2, sections);
        ck_ok(dci_file_parse(file.bytes, file.n_bytes, KIND, &parsed));
        for (size_t i = 0; i < sizeof absent / sizeof absent[0]; i++) {
                ck_refused(dci_file_section(&parsed, absent[i], &data, &n_bytes), DCI_ERR_FORMAT, absent[i]);
                ck_assert_ptr_nonnull(strstr(dci_last_error(), "kind 'TEST' has no section"));
        }
        ck_ok(dci_file_section(&parsed, "12345678", &data, &n_bytes));
        ck_assert_mem_eq(data, "b", 1);
        ck_refused(dci_file_section(&parsed, NULL, &data, &n_bytes), DCI_ERR_INVALID, "NULL");
}
END_TEST

START_TEST(bad_sections_are_refused_before_a_byte_is_written_or_read)
{
        /* The huge lengths belong to one byte: reading as many would end the test. */
        static const struct {
                dci_section sections[2];
                dci_status status;
                const char *part;
        } rows[] = {
                {{{"same", "a", 1}, {"same", "b", 1}}, DCI_ERR_INVALID, "sections 0 and 1 are both named 'same'"},
                {{{"", "a", 1}, {"b", "b", 1}}, DCI_ERR_INVALID, "the name of section 0"},
                {{{"a", "a", 1}, {"b b", "b", 1}}, DCI_ERR_INVALID, "the name of section 1"},
                {{{"a\0b", "a", 1}, {"b", "b", 1}}, DCI_ERR_INVALID, "the name of section 0"},
                {{{"a\n", "a", 1}, {"b", "b", 1}}, DCI_ERR_INVALID, "the name of section 0"},
                {{{"a", NULL, 1}, {"b", "b", 1}}, DCI_ERR_INVALID, "section 'a' has 1 bytes at NULL"},
                {{{"a", "a", SIZE_MAX}, {"b", "b", 1}}, DCI_ERR_LIMIT, "section 'a' of 18446744073709551615 bytes"},
                {{{"a", "a", SIZE_MAX - 128}, {"b", "b", 0}}, DCI_ERR_LIMIT, "section 'b' of 0 bytes, after"},
                {{{"a", "a", 1}, {"b", "b", SIZE_MAX - 191}}, DCI_ERR_LIMIT, "section 'b' of 18446744073709551424"},
        };
        buffer file = {.n_bytes = 0};
        const dci_sink sink = {&file, buffer_write};
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                ck_refused(dci_file_write(&sink, KIND, VERSION, 2, rows[i].sections), rows[i].status, rows[i].part);
                ck_refused(dci_file_save(scratch_path("new"), KIND, VERSION, 2, rows[i].sections), rows[i].status,
                           rows[i].part);
        }
        ck_refused(dci_file_write(&sink, KIND, VERSION, 1, NULL), DCI_ERR_INVALID, "sections is NULL");
        ck_refused(dci_file_write(NULL, KIND, VERSION, 2, two), DCI_ERR_INVALID, "sink is NULL");
        ck_refused(dci_file_write(&(dci_sink){&file, NULL}, KIND, VERSION, 2, two), DCI_ERR_INVALID, "sink->write");
        ck_assert_uint_eq(file.writes, 0);
        ck_assert_uint_eq(scratch_count(), 0);
}
END_TEST

START_TEST(the_first_failing_write_ends_the_file)
{
        buffer whole;
        make(&whole, 2, two);
        for (size_t n = 1; n <= whole.writes; n++) {
                buffer file = {.fail_at = n};
                const dci_sink sink = {&file, buffer_write};
                ck_refused(dci_file_write(&sink, KIND, VERSION, 2, two), DCI_ERR_FULL, "fails");
                ck_assert_uint_eq(file.writes, n);
        }
}
END_TEST

/* --- on disk ---------------------------------------------------------------------------------------------------- */

START_TEST(a_saved_file_loads_and_replaces_what_was_there)
{
        dci_context *context = test_context(1);
        static const dci_section other[1] = {{"other", "a different content", 19}};
        buffer wanted;
        dci_file file;
        ck_ok(dci_file_save(scratch_path("file"), KIND, 1, 1, other));
        ck_ok(dci_file_save(scratch_path("file"), KIND, VERSION, 2, two));
        make(&wanted, 2, two);
        scratch_expect("file", wanted.bytes, wanted.n_bytes);
        ck_assert_uint_eq(scratch_count(), 1);
        ck_ok(dci_file_load(context, scratch_path("file"), KIND, &file));
        ck_assert_uint_eq(file.n_sections, 2);
        ck_assert_mem_eq(file.sections[0].data, "hello", 5);
        ck_assert_uint_eq((uintptr_t)file.sections[1].data % 64, 0);
        dci_file_free(&file);
        dci_file_free(&file);
        dci_file_free(NULL);
        dci_context_destroy(context);
}
END_TEST

START_TEST(every_prefix_and_flip_on_disk_is_refused_by_name_and_leaks_nothing)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        size_t live = memory.live_bytes;
        buffer whole;
        make(&whole, 2, two);
        for (size_t n = 0; n < 2 * whole.n_bytes; n++) {
                buffer file = whole;
                dci_file loaded;
                size_t n_bytes = n < whole.n_bytes ? n : whole.n_bytes;
                if (n >= whole.n_bytes)
                        file.bytes[n - whole.n_bytes] ^= 0x55;
                scratch_put("bad", file.bytes, n_bytes);
                dci_status status = dci_file_load(context, scratch_path("bad"), KIND, &loaded);
                ck_assert(status == DCI_ERR_FORMAT || status == DCI_ERR_UNSUPPORTED);
                ck_assert_ptr_nonnull(strstr(dci_last_error(), "/bad"));
                ck_assert_uint_eq(memory.live_bytes, live);
                ck_assert_ptr_null(loaded.owned);
        }
        dci_context_destroy(context);
        ck_assert_uint_eq(memory.live_blocks, 0);
}
END_TEST

START_TEST(no_claimed_length_is_allocated_before_it_is_checked)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        size_t calls = memory.calls;
        dci_file loaded;
        buffer file;
        make(&file, 2, two);
        store(file.bytes + 32, 8, UINT64_C(1) << 50);
        seal(&file);
        scratch_put("claim", file.bytes, file.n_bytes);
        ck_refused(dci_file_load(context, scratch_path("claim"), KIND, &loaded), DCI_ERR_FORMAT,
                   "has 195 bytes, its header says 1125899906842624");
        /* A file that is really large, but foreign. */
        scratch_put("foreign", "", 0);
        ck_assert_int_eq(truncate(scratch_path("foreign"), (off_t)1 << 36), 0);
        ck_refused(dci_file_load(context, scratch_path("foreign"), KIND, &loaded), DCI_ERR_FORMAT, "begins with");
        ck_assert_uint_eq(memory.calls, calls);
        dci_context_destroy(context);
}
END_TEST

static dci_context *odd_context;

static void refuse_load(const char *path, const char *wanted)
{
        dci_file file;
        dci_status status = dci_file_load(odd_context, path, KIND, &file);
        ck_assert(status == DCI_ERR_IO || status == DCI_ERR_INVALID);
        ck_refused(status, status, wanted);
}

static void refuse_save(const char *path, const char *wanted)
{
        dci_status status = dci_file_save(path, KIND, VERSION, 2, two);
        ck_assert(status == DCI_ERR_IO || status == DCI_ERR_INVALID);
        ck_refused(status, status, wanted);
}

START_TEST(only_regular_files_are_loaded_and_replaced)
{
        dci_file file;
        odd_context = test_context(1);
        scratch_each_odd_file(refuse_load);
        scratch_each_odd_file(refuse_save);
        ck_refused(dci_file_load(odd_context, scratch_path("absent"), KIND, &file), DCI_ERR_IO,
                   "/absent: No such file or directory");
        ck_refused(dci_file_load(NULL, scratch_path("plain"), KIND, &file), DCI_ERR_INVALID, "context is NULL");
        ck_refused(dci_file_load(odd_context, scratch_path("plain"), KIND, NULL), DCI_ERR_INVALID, "out_file is NULL");
        ck_refused(dci_file_parse(NULL, 100, KIND, &file), DCI_ERR_INVALID, "memory is NULL");
        ck_refused(dci_file_parse("", 1, KIND, NULL), DCI_ERR_INVALID, "out_file is NULL");
        dci_context_destroy(odd_context);
}
END_TEST

START_TEST(a_save_that_finds_the_disk_full_leaves_the_old_file)
{
        static unsigned char data[100000];
        const dci_section section = {"data", data, sizeof data};
        buffer old;
        make(&old, 2, two);
        ck_ok(dci_file_save(scratch_path("file"), KIND, VERSION, 2, two));
        static const size_t limits[] = {0, 1, 48, 128, 4096, 99999};
        for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
                scratch_limit_file_size(limits[i]);
                dci_status replaced = dci_file_save(scratch_path("file"), KIND, VERSION, 1, &section);
                dci_status created = dci_file_save(scratch_path("new"), KIND, VERSION, 1, &section);
                scratch_lift_file_size();
                ck_assert_int_eq(replaced, DCI_ERR_IO);
                ck_refused(created, DCI_ERR_IO, "/new: File too large");
                scratch_expect("file", old.bytes, old.n_bytes);
                ck_assert_uint_eq(scratch_count(), 1);
        }
}
END_TEST

START_TEST(a_failing_allocation_leaks_nothing)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        size_t live = memory.live_bytes, n = 0;
        dci_status status;
        ck_ok(dci_file_save(scratch_path("file"), KIND, VERSION, 2, two));
        do {
                dci_file file;
                memory.fail_at = memory.calls + ++n;
                status = dci_file_load(context, scratch_path("file"), KIND, &file);
                ck_assert(status == DCI_OK || status == DCI_ERR_MEMORY);
                dci_file_free(&file);
                ck_assert_uint_eq(memory.live_bytes, live);
        } while (status != DCI_OK);
        ck_assert_uint_ge(n, 2);
        dci_context_destroy(context);
        ck_assert_uint_eq(memory.live_blocks, 0);
}
END_TEST

START_TEST(a_loaded_file_keeps_its_context_alive)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        dci_file file;
        ck_ok(dci_file_save(scratch_path("file"), KIND, VERSION, 2, two));
        ck_ok(dci_file_load(context, scratch_path("file"), KIND, &file));
        dci_context_destroy(context);
        ck_assert_mem_eq(file.sections[0].data, "hello", 5);
        dci_file_free(&file);
        ck_assert_uint_eq(memory.live_blocks, 0);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("file");
        TCase *memory = test_case(suite, "memory", 120);
        tcase_add_test(memory, crc_gives_the_published_values);
        tcase_add_test(memory, crc_equals_bit_by_bit_at_every_length_and_alignment);
        tcase_add_test(memory, crc_of_every_byte_at_every_place_is_right);
        tcase_add_test(memory, crc_may_be_computed_in_pieces);
        tcase_add_test(memory, sections_come_back_as_written);
        tcase_add_test(memory, bytes_are_those_of_the_documented_layout);
        tcase_add_test(memory, max_sections_fit_and_one_more_is_refused);
        tcase_add_test(memory, every_truncated_prefix_is_refused);
        tcase_add_test(memory, every_flipped_bit_is_refused);
        tcase_add_test(memory, every_field_that_lies_is_refused_even_with_valid_checksums);
        tcase_add_test(memory, a_wider_gap_of_zeros_is_read);
        tcase_add_test(memory, a_section_is_found_by_its_whole_name_only);
        tcase_add_test(memory, the_first_failing_write_ends_the_file);
        TCase *disk = test_case_with(suite, "disk", 120, scratch_open, scratch_close);
        tcase_add_test(disk, bad_sections_are_refused_before_a_byte_is_written_or_read);
        tcase_add_test(disk, a_saved_file_loads_and_replaces_what_was_there);
        tcase_add_test(disk, every_prefix_and_flip_on_disk_is_refused_by_name_and_leaks_nothing);
        tcase_add_test(disk, no_claimed_length_is_allocated_before_it_is_checked);
        tcase_add_test(disk, only_regular_files_are_loaded_and_replaced);
        tcase_add_test(disk, a_save_that_finds_the_disk_full_leaves_the_old_file);
        tcase_add_test(disk, a_failing_allocation_leaks_nothing);
        tcase_add_test(disk, a_loaded_file_keeps_its_context_alive);
        return test_main(suite);
}
