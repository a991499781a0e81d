/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* .npy files: what NumPy writes is read, what is written is what NumPy reads, everything else is refused. */
#include "core/npy.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/common.h"
#include "tests/scratch.h"

#define N_BYTES_MAX 8192

/* A .npy file of the given version: the header as it stands, then n_data bytes 0, 1, 2... Returns its length. */
static size_t build(unsigned char file[N_BYTES_MAX], int version, const char *header, size_t n_data)
{
        size_t n_header = strlen(header), n = version == 1 ? 10 : 12;
        ck_assert_uint_le(n + n_header + n_data, N_BYTES_MAX);
        memcpy(file, "\x93NUMPY", 6);
        file[6] = (unsigned char)version;
        for (size_t i = 7; i < n; i++)
                file[i] = i < 8 ? 0 : (unsigned char)(n_header >> 8 * (i - 8));
        memcpy(file + n, header, n_header);
        for (size_t i = 0; i < n_data; i++)
                file[n + n_header + i] = (unsigned char)i;
        return n + n_header + n_data;
}

static void put(int version, const char *header, size_t n_data)
{
        unsigned char file[N_BYTES_MAX];
        size_t n = build(file, version, header, n_data);
        scratch_put("file.npy", file, n);
}

#define DICT(type, shape) "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }"

/* Reads file.npy, which must hold this type and shape. */
static void expect_array(dci_context *context, dci_npy_type type, size_t n_dims, const size_t *shape)
{
        dci_npy npy;
        size_t n_bytes = dci_npy_type_size(type);
        ck_ok(dci_npy_read(context, scratch_path("file.npy"), &npy));
        ck_assert_int_eq(npy.type, type);
        ck_assert_uint_eq(npy.n_dims, n_dims);
        for (size_t i = 0; i < n_dims; i++) {
                ck_assert_uint_eq(npy.shape[i], shape[i]);
                n_bytes *= shape[i];
        }
        ck_assert_uint_eq(npy.n_bytes, n_bytes);
        ck_assert_uint_eq((uintptr_t)npy.data % DCI_CACHE_LINE, 0);
        for (size_t i = 0; i < n_bytes; i++)
                ck_assert_uint_eq(((const unsigned char *)npy.data)[i], i & 255);
        dci_npy_free(&npy);
        ck_assert_ptr_null(npy.data);
}

static const size_t shapes[][DCI_NPY_MAX_DIMS] = {
        {3, 4, 2, 5}, {1, 1, 1, 1}, {0, 4, 2, 5}, {3, 0, 0, 5}, {1000, 1, 1, 1}};
#define N_SHAPES (sizeof shapes / sizeof shapes[0])

START_TEST(every_type_and_rank_comes_back)
{
        dci_context *context = test_context(1);
        unsigned char data[8000];
        for (size_t i = 0; i < sizeof data; i++)
                data[i] = (unsigned char)i;
        for (dci_npy_type type = DCI_NPY_F32; type <= DCI_NPY_BOOL; type++)
                for (size_t i = 0; i < N_SHAPES; i++)
                        for (size_t n_dims = 0; n_dims <= DCI_NPY_MAX_DIMS; n_dims++) {
                                ck_ok(dci_npy_write(scratch_path("file.npy"), type, n_dims, shapes[i], data));
                                expect_array(context, type, n_dims, shapes[i]);
                        }
        ck_assert_uint_eq(scratch_count(), 1);
        dci_context_destroy(context);
}
END_TEST

START_TEST(headers_are_written_as_numpy_writes_them)
{
        static const struct {
                dci_npy_type type;
                size_t n_dims, shape[DCI_NPY_MAX_DIMS], n_bytes;
                const char *text;
        } rows[] = {
                {DCI_NPY_F32, 0, {0}, 4, DICT("<f4", "()")},
                {DCI_NPY_F16, 1, {3}, 6, DICT("<f2", "(3,)")},
                {DCI_NPY_U16, 2, {3, 4}, 24, DICT("<u2", "(3, 4)")},
                {DCI_NPY_I32, 3, {1, 2, 3}, 24, DICT("<i4", "(1, 2, 3)")},
                {DCI_NPY_I64, 4, {1, 2, 3, 2}, 96, DICT("<i8", "(1, 2, 3, 2)")},
                {DCI_NPY_F32, 4, {0, 10, 100000000, 1000000000}, 0, DICT("<f4", "(0, 10, 100000000, 1000000000)")},
                {DCI_NPY_I64, 2, {0, (size_t)1 << 60}, 0, DICT("<i8", "(0, 1152921504606846976)")},
                {DCI_NPY_F64, 1, {3}, 24, DICT("<f8", "(3,)")},
                {DCI_NPY_U8, 1, {3}, 3, DICT("|u1", "(3,)")},
                {DCI_NPY_BOOL, 2, {3, 4}, 12, DICT("|b1", "(3, 4)")},
        };
        static const unsigned char data[96];
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                size_t n_text = strlen(rows[i].text);
                unsigned char wanted[128 + sizeof data] = "\x93NUMPY\1\0\166";
                memset(wanted + 10, ' ', 117);
                memcpy(wanted + 10, rows[i].text, n_text);
                wanted[127] = '\n';
                ck_ok(dci_npy_write(scratch_path("file.npy"), rows[i].type, rows[i].n_dims, rows[i].shape, data));
                scratch_expect("file.npy", wanted, 128 + rows[i].n_bytes);
        }
}
END_TEST

START_TEST(every_header_numpy_may_write_is_read)
{
        static const struct {
                const char *header;
                dci_npy_type type;
                size_t n_dims, shape[DCI_NPY_MAX_DIMS];
        } rows[] = {
                {DICT("<f4", "()"), DCI_NPY_F32, 0, {0}},
                {DICT("<f4", "(3,)") "          \n", DCI_NPY_F32, 1, {3}},
                {DICT("<f2", "(3, 4)") "\n", DCI_NPY_F16, 2, {3, 4}},
                {DICT("<u2", "(3,4)"), DCI_NPY_U16, 2, {3, 4}},
                {DICT("<i4", "(3, 4,)"), DCI_NPY_I32, 2, {3, 4}},
                {DICT("<i8", "( 3 , 4 , 2 , 5 , )"), DCI_NPY_I64, 4, {3, 4, 2, 5}},
                {DICT("<f4", "(3L, 4L)"), DCI_NPY_F32, 2, {3, 4}},
                {DICT("<f8", "(3, 4)"), DCI_NPY_F64, 2, {3, 4}},
                {DICT("|i1", "(3, 4)"), DCI_NPY_I8, 2, {3, 4}},
                {DICT("<i2", "(3, 4)"), DCI_NPY_I16, 2, {3, 4}},
                {DICT("|u1", "(3, 4)"), DCI_NPY_U8, 2, {3, 4}},
                {DICT("<u4", "(3, 4)"), DCI_NPY_U32, 2, {3, 4}},
                {DICT("<u8", "(3, 4)"), DCI_NPY_U64, 2, {3, 4}},
                {DICT("|b1", "(3, 4)"), DCI_NPY_BOOL, 2, {3, 4}},
                {DICT("<f4", "(0, 4)"), DCI_NPY_F32, 2, {0, 4}},
                {"{'shape': (3,), 'fortran_order': False, 'descr': '<f4'}", DCI_NPY_F32, 1, {3}},
                {"{'fortran_order': False, 'shape': (3, 4), 'descr': '<f4', }", DCI_NPY_F32, 2, {3, 4}},
                {"{\"descr\":\"<f4\",\"fortran_order\":False,\"shape\":(3,)}", DCI_NPY_F32, 1, {3}},
                {"  { 'descr' : '<f4' ,\n'fortran_order'\t: False , 'shape' : (3,) , } \n", DCI_NPY_F32, 1, {3}},
        };
        dci_context *context = test_context(1);
        for (int version = 1; version <= 3; version++)
                for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                        size_t n_bytes = dci_npy_type_size(rows[i].type);
                        for (size_t j = 0; j < rows[i].n_dims; j++)
                                n_bytes *= rows[i].shape[j];
                        put(version, rows[i].header, n_bytes);
                        expect_array(context, rows[i].type, rows[i].n_dims, rows[i].shape);
                }
        dci_context_destroy(context);
}
END_TEST

START_TEST(big_endian_elements_are_turned_around)
{
        static const struct {
                const char *header;
                dci_npy_type type;
        } rows[] = {{DICT(">f2", "(12,)"), DCI_NPY_F16}, {DICT(">u2", "(12,)"), DCI_NPY_U16},
                    {DICT(">f4", "(6,)"), DCI_NPY_F32},  {DICT(">i4", "(6,)"), DCI_NPY_I32},
                    {DICT(">f8", "(3,)"), DCI_NPY_F64},  {DICT(">u8", "(3,)"), DCI_NPY_U64},
                    {DICT(">i1", "(24,)"), DCI_NPY_I8}};
        dci_context *context = test_context(1);
        for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
                const size_t size = dci_npy_type_size(rows[r].type);
                dci_npy npy;
                put(1, rows[r].header, 24);
                ck_ok(dci_npy_read(context, scratch_path("file.npy"), &npy));
                ck_assert_int_eq(npy.type, rows[r].type);
                ck_assert_uint_eq(npy.n_bytes, 24);
                for (size_t i = 0; i < 24; i++)
                        ck_assert_uint_eq(((const unsigned char *)npy.data)[i], i / size * size + size - 1 - i % size);
                dci_npy_free(&npy);
        }
        dci_context_destroy(context);
}
END_TEST

static const struct {
        const char *header;
        dci_status status;
        const char *part;
} refused_headers[] = {
        /* Valid, but not offered. */
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }", DCI_ERR_UNSUPPORTED, "Fortran order"},
        {DICT("<c8", "(3,)"), DCI_ERR_UNSUPPORTED, "holds complex numbers ('<c8'); readable are bool, int8"},
        {DICT("<f16", "(3,)"), DCI_ERR_UNSUPPORTED, "holds floats of another length ('<f16'); readable"},
        {DICT("<V2", "(3,)"), DCI_ERR_UNSUPPORTED, "bfloat16 of ml_dtypes is saved ('<V2'); readable"},
        {DICT("|O", "(3,)"), DCI_ERR_UNSUPPORTED, "holds Python objects ('|O'); readable"},
        {DICT("<U5", "(3,)"), DCI_ERR_UNSUPPORTED, "holds text ('<U5'); readable"},
        {DICT("|f4", "(3,)"), DCI_ERR_UNSUPPORTED, "('|f4'); readable"},
        {DICT("=f4", "(3,)"), DCI_ERR_UNSUPPORTED, "('=f4'); readable"},
        {DICT("f4", "(3,)"), DCI_ERR_UNSUPPORTED, "of an unknown type ('f4'); readable"},
        {DICT("<f44", "(3,)"), DCI_ERR_UNSUPPORTED, "('<f44'); readable are bool"},
        {DICT("", "(3,)"), DCI_ERR_UNSUPPORTED, "of an unknown type (''); readable are bool"},
        {DICT("0123456789012345678901234567890123456789", "(3,)"), DCI_ERR_UNSUPPORTED, "'01234567890123456789012'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", DCI_ERR_UNSUPPORTED, "structured"},
        {DICT("<f4", "(1, 1, 1, 1, 3)"), DCI_ERR_LIMIT, "more than 4 dimensions"},
        /* Not what the file holds. */
        {DICT("<f4", "(4,)"), DCI_ERR_FORMAT, "the shape needs 16 bytes, 12 follow the header"},
        {DICT("<f4", "(2,)"), DCI_ERR_FORMAT, "the shape needs 8 bytes, 12 follow the header"},
        {DICT("<f4", "(0,)"), DCI_ERR_FORMAT, "the shape needs 0 bytes, 12 follow the header"},
        {DICT("<f4", "(4611686018427387904,)"), DCI_ERR_FORMAT, "shape overflows, 12 bytes follow"},
        {DICT("<f4", "(4294967296, 4294967296)"), DCI_ERR_FORMAT, "shape overflows, 12 bytes follow"},
        {DICT("<f4", "(4294967296, 4294967296, 0)"), DCI_ERR_FORMAT, "shape overflows, 12 bytes follow"},
        {DICT("<f4", "(18446744073709551619,)"), DCI_ERR_FORMAT, "byte 51 of the header exceeds 18446744073709551615"},
        {DICT("<f4", "(99999999999999999999999999,)"), DCI_ERR_FORMAT, "byte 51 of the header exceeds"},
        /* Not a shape. */
        {DICT("<f4", "(3)"), DCI_ERR_FORMAT, "byte 52 of the header is 0x29, wanted a comma"},
        {DICT("<f4", "(,)"), DCI_ERR_FORMAT, "wanted a length"},
        {DICT("<f4", "(3,,)"), DCI_ERR_FORMAT, "wanted a length"},
        {DICT("<f4", "(1 3)"), DCI_ERR_FORMAT, "wanted a comma"},
        {DICT("<f4", "(1, 3 3)"), DCI_ERR_FORMAT, "wanted a comma or ')'"},
        {DICT("<f4", "(-3,)"), DCI_ERR_FORMAT, "byte 51 of the header is 0x2d, wanted a length"},
        {DICT("<f4", "(+3,)"), DCI_ERR_FORMAT, "wanted a length"},
        {DICT("<f4", "(03,)"), DCI_ERR_FORMAT, "wanted a length without leading zeros"},
        {DICT("<f4", "(3.0,)"), DCI_ERR_FORMAT, "is 0x2e, wanted a comma"},
        {DICT("<f4", "(0x3,)"), DCI_ERR_FORMAT, "is 0x78, wanted a comma"},
        {DICT("<f4", "[3]"), DCI_ERR_FORMAT, "wanted a shape in parentheses"},
        {DICT("<f4", "3"), DCI_ERR_FORMAT, "wanted a shape in parentheses"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (", DCI_ERR_FORMAT, "ends after 51 bytes, wanted a length"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3", DCI_ERR_FORMAT, "ends after 52 bytes, wanted a comma"},
        /* Not the dictionary. */
        {"", DCI_ERR_FORMAT, "ends after 0 bytes, wanted '{'"},
        {"{", DCI_ERR_FORMAT, "ends after 1 bytes, wanted a key"},
        {"{}", DCI_ERR_FORMAT, "no key 'descr'"},
        {"{,}", DCI_ERR_FORMAT, "wanted a key"},
        {"['descr']", DCI_ERR_FORMAT, "byte 0 of the header is 0x5b, wanted '{'"},
        {"{descr: '<f4'}", DCI_ERR_FORMAT, "byte 1 of the header is 0x64, wanted a key"},
        {"{'descr': '<f4}", DCI_ERR_FORMAT, "ends after 15 bytes, wanted a printable character or the closing quote"},
        {"{'descr': '<\\x664', }", DCI_ERR_FORMAT, "is 0x5c, wanted a printable"},
        {"{'descr': '<f\xc3\xa9', }", DCI_ERR_FORMAT, "is 0xc3, wanted a printable"},
        {"{'descr\" : '<f4'}", DCI_ERR_FORMAT, "an unknown key 'descr\" : '"},
        {"{'descr' '<f4'}", DCI_ERR_FORMAT, "byte 9 of the header is 0x27, wanted a colon"},
        {"{'descr': '<f4' 'shape': (3,)}", DCI_ERR_FORMAT, "wanted a comma or '}'"},
        {"{'descr': None, }", DCI_ERR_FORMAT, "wanted an element type in quotes"},
        {"{'fortran_order': 0, }", DCI_ERR_FORMAT, "wanted True or False"},
        {"{'fortran_order': Falsey, }", DCI_ERR_FORMAT, "wanted a comma or '}'"},
        {"{'descr': '<f4', 'shape': (3,), }", DCI_ERR_FORMAT, "no key 'fortran_order'"},
        {"{'descr': '<f4', 'fortran_order': False, }", DCI_ERR_FORMAT, "no key 'shape'"},
        {"{'fortran_order': False, 'shape': (3,), }", DCI_ERR_FORMAT, "no key 'descr'"},
        {"{'descr': '<f4', 'descr': '<f4', }", DCI_ERR_FORMAT, "a second key 'descr'"},
        {"{'descr': '<f4', 'order': False, }", DCI_ERR_FORMAT, "an unknown key 'order'"},
        {DICT("<f4", "(3,)") " }", DCI_ERR_FORMAT, "wanted nothing but blanks after '}'"},
        {DICT("<f4", "(3,),"), DCI_ERR_FORMAT, "wanted a key"},
};

START_TEST(every_other_header_is_refused_with_the_reason)
{
        dci_context *context = test_context(1);
        for (int version = 1; version <= 3; version++)
                for (size_t i = 0; i < sizeof refused_headers / sizeof refused_headers[0]; i++) {
                        dci_npy npy;
                        put(version, refused_headers[i].header, 12);
                        ck_refused(dci_npy_read(context, scratch_path("file.npy"), &npy), refused_headers[i].status,
                                   refused_headers[i].part);
                        ck_assert_ptr_nonnull(strstr(dci_last_error(), "/file.npy"));
                        ck_assert_ptr_null(npy.data);
                }
        dci_context_destroy(context);
}
END_TEST

START_TEST(every_prefix_that_is_wrong_is_refused)
{
        static const struct {
                size_t at;
                unsigned char bytes[4];
                size_t n_bytes;
                dci_status status;
                const char *part;
        } rows[] = {
                {0, {'P', 'K', 3, 4}, 4, DCI_ERR_FORMAT, "begins with bytes 50 4b 03 04 50 59, a .npy file with 93 4e"},
                {5, {'y'}, 1, DCI_ERR_FORMAT, "93 4e 55 4d 50 79, a .npy file"},
                {6, {0, 0}, 2, DCI_ERR_UNSUPPORTED, "version 0.0, readable are 1.0"},
                {6, {4, 0}, 2, DCI_ERR_UNSUPPORTED, "version 4.0, readable are 1.0"},
                {6, {2, 1}, 2, DCI_ERR_UNSUPPORTED, "version 2.1, readable are 1.0"},
                {8, {0xff, 0xff, 0xff, 0xff}, 4, DCI_ERR_FORMAT, "claims a header of 4294967295 bytes, 4912 follow"},
                {8, {0x31, 0x13, 0, 0}, 4, DCI_ERR_FORMAT, "claims a header of 4913 bytes, 4912 follow"},
                {8, {0x30, 0x13, 0, 0}, 4, DCI_ERR_LIMIT, "a header of 4912 bytes, at most 4096"},
                {8, {0, 0, 0, 0}, 4, DCI_ERR_FORMAT, "ends after 0 bytes, wanted '{'"},
        };
        dci_context *context = test_context(1);
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
                unsigned char file[N_BYTES_MAX];
                dci_npy npy;
                size_t n = build(file, 2, DICT("<f4", "(1200,)") "      \n", 4800);
                memset(file + n, 0, sizeof file - n);
                memcpy(file + rows[i].at, rows[i].bytes, rows[i].n_bytes);
                scratch_put("file.npy", file, 12 + 4912);
                ck_refused(dci_npy_read(context, scratch_path("file.npy"), &npy), rows[i].status, rows[i].part);
        }
        dci_context_destroy(context);
}
END_TEST

START_TEST(every_truncated_prefix_is_refused_and_leaks_nothing)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        size_t live = memory.live_bytes, calls = memory.calls;
        for (int version = 1; version <= 3; version++) {
                unsigned char file[N_BYTES_MAX];
                size_t n_file = build(file, version, DICT("<f4", "(3,)") "  \n", 12);
                for (size_t n = 0; n < n_file; n++) {
                        dci_npy npy;
                        scratch_put("file.npy", file, n);
                        ck_refused(dci_npy_read(context, scratch_path("file.npy"), &npy), DCI_ERR_FORMAT, "/file.npy");
                }
        }
        ck_assert_uint_eq(memory.live_bytes, live);
        ck_assert_uint_eq(memory.calls, calls);
        dci_context_destroy(context);
}
END_TEST

START_TEST(a_flipped_byte_is_refused_or_gives_an_array_of_the_same_bytes)
{
        /* The format has no checksum: '<f2' may become '<u2', and (4, 3) may become (3, 4), but never more than is
         * there. */
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        size_t live = memory.live_bytes;
        unsigned char file[N_BYTES_MAX];
        size_t n_file = build(file, 1, DICT("<f2", "(4, 3)") " \n", 24);
        size_t n_given = 0;
        /* Every byte, and by default every seventh of its other values, which are not the same ones for each. */
        const size_t step = getenv("DCI_TEST_LONG") != NULL ? 1 : 7;
        for (size_t i = 0; i < (n_file - 24) * 255; i += step) {
                dci_npy npy;
                size_t at = i / 255;
                unsigned char original = file[at];
                file[at] ^= (unsigned char)(1 + i % 255);
                scratch_put("file.npy", file, n_file);
                if (dci_npy_read(context, scratch_path("file.npy"), &npy) == DCI_OK) {
                        n_given++;
                        ck_assert_uint_eq(npy.n_bytes, 24);
                        ck_assert_mem_eq(npy.data, file + n_file - 24, 24);
                } else {
                        ck_assert_ptr_null(npy.data);
                        ck_assert_ptr_nonnull(strstr(dci_last_error(), "/file.npy"));
                }
                dci_npy_free(&npy);
                ck_assert_uint_eq(memory.live_bytes, live);
                file[at] = original;
        }
        /* Blanks may turn into other blanks and type letters into each other, which is all. */
        ck_assert_uint_le(n_given, 40);
        dci_context_destroy(context);
        ck_assert_uint_eq(memory.live_blocks, 0);
}
END_TEST

START_TEST(no_claimed_length_is_allocated_before_it_is_checked)
{
        static const char *const headers[] = {DICT("<f4", "(1099511627776,)"), DICT("<i8", "(1048576, 1048576, 4096)"),
                                              DICT("<f4", "(2,)")};
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        size_t calls = memory.calls;
        for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++) {
                dci_npy npy;
                put(1, headers[i], 4);
                ck_refused(dci_npy_read(context, scratch_path("file.npy"), &npy), DCI_ERR_FORMAT,
                           "4 follow the header");
        }
        ck_assert_uint_eq(memory.calls, calls);
        dci_context_destroy(context);
}
END_TEST

static dci_context *odd_context;

static void refuse_read(const char *path, const char *wanted)
{
        dci_npy npy;
        dci_status status = dci_npy_read(odd_context, path, &npy);
        ck_assert(status == DCI_ERR_IO || status == DCI_ERR_INVALID);
        ck_refused(status, status, wanted);
}

static void refuse_write(const char *path, const char *wanted)
{
        dci_status status = dci_npy_write(path, DCI_NPY_F32, 0, NULL, "1234");
        ck_assert(status == DCI_ERR_IO || status == DCI_ERR_INVALID);
        ck_refused(status, status, wanted);
}

START_TEST(only_regular_files_are_read_and_replaced)
{
        dci_npy npy;
        odd_context = test_context(1);
        scratch_each_odd_file(refuse_read);
        scratch_each_odd_file(refuse_write);
        refuse_read(scratch_path("absent.npy"), "/absent.npy: No such file or directory");
        ck_refused(dci_npy_read(NULL, scratch_path("plain"), &npy), DCI_ERR_INVALID, "context is NULL");
        ck_refused(dci_npy_read(odd_context, scratch_path("plain"), NULL), DCI_ERR_INVALID, "out_npy is NULL");
        dci_context_destroy(odd_context);
}
END_TEST

START_TEST(bad_arrays_are_refused_before_a_file_appears)
{
        static const size_t half = (size_t)1 << 32;
        const struct {
                dci_npy_type type;
                size_t n_dims;
                const size_t *shape;
                const void *data;
                dci_status status;
                const char *part;
        } rows[] = {
                {0, 1, (const size_t[]){1}, "12345678", DCI_ERR_INVALID, "type is 0, known are 1 to 12"},
                {13, 1, (const size_t[]){1}, "12345678", DCI_ERR_INVALID, "type is 13, known are 1 to 12"},
                {DCI_NPY_F32, 5, (const size_t[]){1, 1, 1, 1, 1}, "1234", DCI_ERR_LIMIT, "n_dims is 5, at most 4"},
                {DCI_NPY_F32, 1, NULL, "1234", DCI_ERR_INVALID, "shape is NULL, n_dims is 1"},
                {DCI_NPY_F32, 1, (const size_t[]){1}, NULL, DCI_ERR_INVALID, "data is NULL, the shape needs 4 bytes"},
                {DCI_NPY_I64, 2, (const size_t[]){half, half}, "1234", DCI_ERR_LIMIT, "overflows"},
                {DCI_NPY_F32, 1, (const size_t[]){SIZE_MAX / 2}, "1234", DCI_ERR_LIMIT,
                 "1 dimensions and 4 bytes overflows"},
                {DCI_NPY_F32, 3, (const size_t[]){0, half, half}, "1234", DCI_ERR_LIMIT, "overflows"},
        };
        for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
                ck_refused(dci_npy_write(scratch_path("file.npy"), rows[i].type, rows[i].n_dims, rows[i].shape,
                                         rows[i].data),
                           rows[i].status, rows[i].part);
        ck_assert_uint_eq(scratch_count(), 0);
}
END_TEST

START_TEST(a_write_that_finds_the_disk_full_leaves_the_old_file)
{
        static unsigned char data[40000];
        static const size_t shape[1] = {10000};
        static const size_t limits[] = {0, 1, 127, 128, 129, 40127};
        scratch_put("file.npy", "old", 3);
        for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
                scratch_limit_file_size(limits[i]);
                dci_status status = dci_npy_write(scratch_path("file.npy"), DCI_NPY_F32, 1, shape, data);
                scratch_lift_file_size();
                ck_refused(status, DCI_ERR_IO, "/file.npy: File too large");
                scratch_expect("file.npy", "old", 3);
                ck_assert_uint_eq(scratch_count(), 1);
        }
        scratch_limit_file_size(40128);
        dci_status status = dci_npy_write(scratch_path("file.npy"), DCI_NPY_F32, 1, shape, data);
        scratch_lift_file_size();
        ck_ok(status);
}
END_TEST

START_TEST(a_failing_allocation_leaks_nothing)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        size_t live = memory.live_bytes, n = 0;
        dci_status status;
        put(1, DICT("<f4", "(3,)"), 12);
        do {
                dci_npy npy;
                memory.fail_at = memory.calls + ++n;
                status = dci_npy_read(context, scratch_path("file.npy"), &npy);
                ck_assert(status == DCI_OK || status == DCI_ERR_MEMORY);
                dci_npy_free(&npy);
                ck_assert_uint_eq(memory.live_bytes, live);
        } while (status != DCI_OK);
        ck_assert_uint_ge(n, 2);
        dci_context_destroy(context);
        ck_assert_uint_eq(memory.live_blocks, 0);
}
END_TEST

START_TEST(an_array_keeps_its_context_alive)
{
        test_memory memory;
        dci_context *context = test_context_with(&memory, 1);
        dci_npy npy;
        put(1, DICT("<f4", "(3,)"), 12);
        ck_ok(dci_npy_read(context, scratch_path("file.npy"), &npy));
        dci_context_destroy(context);
        ck_assert_uint_eq(((const unsigned char *)npy.data)[11], 11);
        dci_npy_free(&npy);
        dci_npy_free(&npy);
        dci_npy_free(NULL);
        ck_assert_uint_eq(memory.live_blocks, 0);
}
END_TEST

START_TEST(the_trace_in_the_repository_is_read)
{
        dci_context *context = test_context(1);
        char path[4096];
        dci_npy keys;
        snprintf(path, sizeof path, "%s/keys.npy", test_trace_dir());
        ck_ok(dci_npy_read(context, path, &keys));
        ck_assert_int_eq(keys.type, DCI_NPY_F16);
        ck_assert_uint_eq(keys.n_dims, 2);
        ck_assert_uint_eq(keys.n_bytes, 2 * keys.shape[0] * keys.shape[1]);
        dci_npy_free(&keys);
        dci_context_destroy(context);
}
END_TEST

int main(void)
{
        Suite *suite = suite_create("npy");
        TCase *tests = test_case_with(suite, "files", 120, scratch_open, scratch_close);
        tcase_add_test(tests, every_type_and_rank_comes_back);
        tcase_add_test(tests, headers_are_written_as_numpy_writes_them);
        tcase_add_test(tests, every_header_numpy_may_write_is_read);
        tcase_add_test(tests, big_endian_elements_are_turned_around);
        tcase_add_test(tests, every_other_header_is_refused_with_the_reason);
        tcase_add_test(tests, every_prefix_that_is_wrong_is_refused);
        tcase_add_test(tests, every_truncated_prefix_is_refused_and_leaks_nothing);
        tcase_add_test(tests, a_flipped_byte_is_refused_or_gives_an_array_of_the_same_bytes);
        tcase_add_test(tests, no_claimed_length_is_allocated_before_it_is_checked);
        tcase_add_test(tests, only_regular_files_are_read_and_replaced);
        tcase_add_test(tests, bad_arrays_are_refused_before_a_file_appears);
        tcase_add_test(tests, a_write_that_finds_the_disk_full_leaves_the_old_file);
        tcase_add_test(tests, a_failing_allocation_leaks_nothing);
        tcase_add_test(tests, an_array_keeps_its_context_alive);
        tcase_add_test(tests, the_trace_in_the_repository_is_read);
        return test_main(suite);
}
