/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* .npy files. Format: numpy/lib/format.py, versions 1.0 (16-bit header length), 2.0 (32-bit) and 3.0 (UTF-8 header). */
#include "core/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "core/file.h"
#include "core/npy.h"

/* Elements are read and written as they are in memory. */
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the .npy reader and writer need a little-endian machine"
#endif

#define PREFIX_BYTES ((size_t)10) /* magic, version, the first two bytes of the header's length */
/* Far more than four dimensions need: NumPy writes 118 or a few more. */
#define MAX_HEADER_BYTES ((size_t)4096)
#define ALIGNMENT ((size_t)64)

static const unsigned char magic[6] = {0x93, 'N', 'U', 'M', 'P', 'Y'};

static const struct type_row {
        char text[4]; /* as in the header, after the byte order */
        dci_npy_type type;
        size_t size;
        const char *name;
} types[] = {
        {"f4", DCI_NPY_F32, 4, "float32"}, {"f2", DCI_NPY_F16, 2, "float16"}, {"f8", DCI_NPY_F64, 8, "float64"},
        {"i1", DCI_NPY_I8, 1, "int8"},     {"i2", DCI_NPY_I16, 2, "int16"},   {"i4", DCI_NPY_I32, 4, "int32"},
        {"i8", DCI_NPY_I64, 8, "int64"},   {"u1", DCI_NPY_U8, 1, "uint8"},    {"u2", DCI_NPY_U16, 2, "uint16"},
        {"u4", DCI_NPY_U32, 4, "uint32"},  {"u8", DCI_NPY_U64, 8, "uint64"},  {"b1", DCI_NPY_BOOL, 1, "bool"},
};
#define N_TYPES (sizeof types / sizeof types[0])

static const struct type_row *row_of(dci_npy_type type)
{
        for (size_t i = 0; i < N_TYPES; i++)
                if (types[i].type == type)
                        return &types[i];
        return NULL;
}

size_t dci_npy_type_size(dci_npy_type type)
{
        const struct type_row *row = row_of(type);
        return row == NULL ? 0 : row->size;
}

const char *dci_npy_type_name(dci_npy_type type)
{
        const struct type_row *row = row_of(type);
        return row == NULL ? "unknown" : row->name;
}

/* Bytes of an array. A dimension of 0 makes it empty, but the others must not overflow either, so that whoever
 * multiplies some of them later is safe. */
static bool array_bytes(size_t element_size, size_t n_dims, const size_t *shape, size_t *out_bytes)
{
        size_t n_bytes = element_size;
        bool empty = false;
        for (size_t i = 0; i < n_dims; i++) {
                empty = empty || shape[i] == 0;
                if (!dci_mul(n_bytes, shape[i] == 0 ? 1 : shape[i], &n_bytes))
                        return false;
        }
        *out_bytes = empty ? 0 : n_bytes;
        return true;
}

/* --- reading: the header is a Python dictionary of three entries in any order ----------------------------------- */

typedef struct parser {
        const char *name; /* of the file */
        const char *begin, *at, *end;
        dci_npy *npy;
        bool big_endian;
} parser;

static dci_status fail_at(const parser *p, const char *wanted)
{
        size_t position = (size_t)(p->at - p->begin);
        if (p->at == p->end)
                return dci_fail(DCI_ERR_FORMAT, "%s: the header ends after %zu bytes, wanted %s", p->name, position,
                                wanted);
        return dci_fail(DCI_ERR_FORMAT, "%s: byte %zu of the header is 0x%02x, wanted %s", p->name, position,
                        (unsigned char)*p->at, wanted);
}

static void skip_space(parser *p)
{
        while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r'))
                p->at++;
}

/* Takes `word` if it comes next. */
static bool take(parser *p, const char *word)
{
        size_t n = strlen(word);
        if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0)
                return false;
        p->at += n;
        return true;
}

/* A quoted word of printable characters without escapes, cut to fit: nothing longer is a name that counts. */
static dci_status parse_word(parser *p, const char *wanted, char out_word[24])
{
        const char *quote = take(p, "'") ? "'" : "\"";
        if (quote[0] == '"' && !take(p, "\""))
                return fail_at(p, wanted);
        size_t n = 0;
        while (!take(p, quote)) {
                if (p->at == p->end || *p->at < ' ' || *p->at > '~' || *p->at == '\\')
                        return fail_at(p, "a printable character or the closing quote");
                if (n < 23)
                        out_word[n++] = *p->at;
                p->at++;
        }
        out_word[n] = '\0';
        return DCI_OK;
}

#define READABLE "readable are bool, int8 to int64, uint8 to uint64 and float16 to float64: save x.astype('float32')"

/* What NumPy calls elements that are none of these. */
static const char *kind_of(const char *word)
{
        static const struct {
                char letter;
                const char *kind;
        } kinds[] = {{'c', "complex numbers"}, {'f', "floats of another length"},
                     {'O', "Python objects"},  {'U', "text"},
                     {'S', "byte strings"},    {'M', "dates"},
                     {'m', "time spans"},      {'V', "raw bytes, as which bfloat16 of ml_dtypes is saved"}};
        for (size_t i = 0; i < sizeof kinds / sizeof kinds[0] && word[0] != '\0'; i++)
                if (word[1] == kinds[i].letter)
                        return kinds[i].kind;
        return "elements of an unknown type";
}

static dci_status parse_type(parser *p)
{
        char word[24] = {0};
        if (p->at < p->end && *p->at == '[')
                return dci_fail(DCI_ERR_UNSUPPORTED, "%s holds structured elements; " READABLE, p->name);
        DCI_TRY(parse_word(p, "an element type in quotes", word));
        const char order = word[0];
        for (size_t i = 0; i < N_TYPES && order != '\0'; i++) {
                const bool ordered = order == '<' || order == '>';
                if (strcmp(types[i].text, word + 1) != 0 || !(ordered || (order == '|' && types[i].size == 1)))
                        continue;
                p->npy->type = types[i].type;
                p->big_endian = order == '>';
                return DCI_OK;
        }
        return dci_fail(DCI_ERR_UNSUPPORTED, "%s holds %s ('%s'); " READABLE, p->name, kind_of(word), word);
}

static dci_status parse_order(parser *p)
{
        if (take(p, "True"))
                return dci_fail(DCI_ERR_UNSUPPORTED, "%s is in Fortran order, wanted C order (numpy.ascontiguousarray)",
                                p->name);
        return take(p, "False") ? DCI_OK : fail_at(p, "True or False");
}

static dci_status parse_length(parser *p, size_t *out_length)
{
        const char *first = p->at;
        size_t n = 0;
        for (; p->at < p->end && *p->at >= '0' && *p->at <= '9'; p->at++)
                if (!dci_mul(n, 10, &n) || !dci_add(n, (size_t)(*p->at - '0'), &n))
                        return dci_fail(DCI_ERR_FORMAT, "%s: the dimension at byte %zu of the header exceeds %zu",
                                        p->name, (size_t)(first - p->begin), SIZE_MAX);
        if (p->at == first)
                return fail_at(p, "a length");
        if (first[0] == '0' && p->at - first > 1) {
                p->at = first;
                return fail_at(p, "a length without leading zeros");
        }
        take(p, "L"); /* long integers of Python 2 */
        *out_length = n;
        return DCI_OK;
}

/* (), (3,), (3, 4) or (3, 4,). */
static dci_status parse_shape(parser *p)
{
        dci_npy *npy = p->npy;
        bool comma = true; /* true at the beginning: () needs none, and (3) is no tuple */
        if (!take(p, "("))
                return fail_at(p, "a shape in parentheses");
        for (npy->n_dims = 0;; npy->n_dims++) {
                skip_space(p);
                if ((comma || npy->n_dims > 1) && take(p, ")"))
                        return DCI_OK;
                if (!comma)
                        return fail_at(p, npy->n_dims > 1 ? "a comma or ')'" : "a comma");
                if (npy->n_dims == DCI_NPY_MAX_DIMS)
                        return dci_fail(DCI_ERR_LIMIT, "%s has more than %d dimensions", p->name, DCI_NPY_MAX_DIMS);
                DCI_TRY(parse_length(p, &npy->shape[npy->n_dims]));
                skip_space(p);
                comma = take(p, ",");
        }
}

static dci_status parse_header(parser *p)
{
        static const struct {
                const char *key;
                dci_status (*parse)(parser *);
        } entries[3] = {{"descr", parse_type}, {"fortran_order", parse_order}, {"shape", parse_shape}};
        bool seen[3] = {false, false, false};
        bool comma = true;
        skip_space(p);
        if (!take(p, "{"))
                return fail_at(p, "'{'");
        for (;;) {
                skip_space(p);
                if (take(p, "}"))
                        break;
                if (!comma)
                        return fail_at(p, "a comma or '}'");
                char key[24];
                DCI_TRY(parse_word(p, "a key in quotes or '}'", key));
                size_t i = 0;
                while (i < 3 && strcmp(entries[i].key, key) != 0)
                        i++;
                if (i == 3 || seen[i])
                        return dci_fail(
                                DCI_ERR_FORMAT,
                                "%s: the header has %s key '%s', wanted descr, fortran_order and shape once each",
                                p->name, i == 3 ? "an unknown" : "a second", key);
                seen[i] = true;
                skip_space(p);
                if (!take(p, ":"))
                        return fail_at(p, "a colon");
                skip_space(p);
                DCI_TRY(entries[i].parse(p));
                skip_space(p);
                comma = take(p, ",");
        }
        for (size_t i = 0; i < 3; i++)
                if (!seen[i])
                        return dci_fail(DCI_ERR_FORMAT, "%s: the header has no key '%s'", p->name, entries[i].key);
        skip_space(p);
        return p->at == p->end ? DCI_OK : fail_at(p, "nothing but blanks after '}'");
}

/* Reads up to the header's last byte; *out_left is what the file holds beyond it. */
static dci_status read_header(dci_source *source, char header[MAX_HEADER_BYTES], size_t *out_n, size_t *out_left)
{
        unsigned char prefix[PREFIX_BYTES + 2];
        size_t n_prefix = PREFIX_BYTES;
        if (source->n_bytes < n_prefix)
                return dci_fail(DCI_ERR_FORMAT, "%s has %zu bytes, a .npy file begins with %zu", source->name,
                                source->n_bytes, n_prefix);
        DCI_TRY(dci_source_read(source, prefix, n_prefix));
        if (memcmp(prefix, magic, sizeof magic) != 0)
                return dci_fail(
                        DCI_ERR_FORMAT,
                        "%s begins with bytes %02x %02x %02x %02x %02x %02x, a .npy file with 93 4e 55 4d 50 59",
                        source->name, prefix[0], prefix[1], prefix[2], prefix[3], prefix[4], prefix[5]);
        if (prefix[6] < 1 || prefix[6] > 3 || prefix[7] != 0)
                return dci_fail(DCI_ERR_UNSUPPORTED, "%s has .npy version %d.%d, readable are 1.0, 2.0 and 3.0",
                                source->name, prefix[6], prefix[7]);
        size_t n_header = (size_t)prefix[8] | (size_t)prefix[9] << 8;
        if (prefix[6] > 1) {
                n_prefix += 2;
                if (source->n_bytes < n_prefix)
                        return dci_fail(DCI_ERR_FORMAT, "%s has %zu bytes, a .npy file of version %d.0 begins with %zu",
                                        source->name, source->n_bytes, prefix[6], n_prefix);
                DCI_TRY(dci_source_read(source, prefix + PREFIX_BYTES, 2));
                n_header = dci_load_le32(prefix + 8);
        }
        if (n_header > source->n_bytes - n_prefix)
                return dci_fail(DCI_ERR_FORMAT, "%s claims a header of %zu bytes, %zu follow", source->name, n_header,
                                source->n_bytes - n_prefix);
        if (n_header > MAX_HEADER_BYTES)
                return dci_fail(DCI_ERR_LIMIT, "%s has a header of %zu bytes, at most %zu are read", source->name,
                                n_header, MAX_HEADER_BYTES);
        *out_n = n_header;
        *out_left = source->n_bytes - n_prefix - n_header;
        return dci_source_read(source, header, n_header);
}

static void reverse_bytes(dci_npy *npy)
{
        const size_t size = dci_npy_type_size(npy->type);
        unsigned char *at = npy->data;
        for (size_t i = 0; i < npy->n_bytes; i += size)
                for (size_t j = 0; j < size / 2; j++) {
                        const unsigned char byte = at[i + j];
                        at[i + j] = at[i + size - 1 - j];
                        at[i + size - 1 - j] = byte;
                }
}

static dci_status read_array(dci_context *context, dci_source *source, dci_npy *out_npy)
{
        char header[MAX_HEADER_BYTES];
        size_t n_header = 0, left = 0;
        DCI_TRY(read_header(source, header, &n_header, &left));
        dci_npy npy = {.context = context};
        parser p = {source->name, header, header, header + n_header, &npy, false};
        DCI_TRY(parse_header(&p));
        if (!array_bytes(dci_npy_type_size(npy.type), npy.n_dims, npy.shape, &npy.n_bytes))
                return dci_fail(DCI_ERR_FORMAT, "%s: the product of the shape overflows, %zu bytes follow the header",
                                source->name, left);
        if (npy.n_bytes != left)
                return dci_fail(DCI_ERR_FORMAT, "%s: the shape needs %zu bytes, %zu follow the header", source->name,
                                npy.n_bytes, left);
        npy.data = dci_alloc(context, npy.n_bytes, 1);
        if (npy.data == NULL)
                return DCI_ERR_MEMORY;
        dci_status status = dci_source_read(source, npy.data, npy.n_bytes);
        if (status != DCI_OK) {
                dci_free(context, npy.data, npy.n_bytes, 1);
                return status;
        }
        if (p.big_endian)
                reverse_bytes(&npy);
        dci_context_retain(context);
        *out_npy = npy;
        return DCI_OK;
}

dci_status dci_npy_read(dci_context *context, const char *path, dci_npy *out_npy)
{
        if (out_npy == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_npy is NULL");
        memset(out_npy, 0, sizeof *out_npy);
        if (context == NULL)
                return dci_fail(DCI_ERR_INVALID, "context is NULL");
        dci_source source;
        DCI_TRY(dci_source_open(path, &source));
        dci_status status = read_array(context, &source, out_npy);
        dci_source_close(&source);
        return status;
}

void dci_npy_free(dci_npy *npy)
{
        if (npy == NULL)
                return;
        if (npy->data != NULL) {
                dci_free(npy->context, npy->data, npy->n_bytes, 1);
                dci_context_destroy(npy->context);
        }
        memset(npy, 0, sizeof *npy);
}

/* --- writing ---------------------------------------------------------------------------------------------------- */

/* Prefix and dictionary, padded with blanks so that the elements begin at a multiple of 64. Returns the length. */
static size_t format_header(const struct type_row *row, size_t n_dims, const size_t *shape, char header[256])
{
        /* At most 10 + 51 + 4 * 22 + 4 bytes: no snprintf is cut. */
        size_t n = PREFIX_BYTES;
        n += (size_t)snprintf(header + n, 256 - n, "{'descr': '%c%s', 'fortran_order': False, 'shape': (",
                              row->size == 1 ? '|' : '<', row->text);
        for (size_t i = 0; i < n_dims; i++)
                n += (size_t)snprintf(header + n, 256 - n, i == 0 ? "%zu," : " %zu,", shape[i]);
        if (n_dims > 1)
                n--; /* (3,) but (3, 4) */
        n += (size_t)snprintf(header + n, 256 - n, "), }");
        while ((n + 1) % ALIGNMENT != 0)
                header[n++] = ' ';
        header[n++] = '\n';
        memcpy(header, magic, sizeof magic);
        header[6] = 1;
        header[7] = 0;
        header[8] = (char)((n - PREFIX_BYTES) & 255);
        header[9] = (char)((n - PREFIX_BYTES) >> 8);
        return n;
}

dci_status dci_npy_write(const char *path, dci_npy_type type, size_t n_dims, const size_t *shape, const void *data)
{
        const struct type_row *row = row_of(type);
        size_t n_bytes;
        if (row == NULL)
                return dci_fail(DCI_ERR_INVALID, "type is %" PRId32 ", known are %d to %d", type, DCI_NPY_F32,
                                DCI_NPY_BOOL);
        if (n_dims > DCI_NPY_MAX_DIMS)
                return dci_fail(DCI_ERR_LIMIT, "n_dims is %zu, at most %d are possible", n_dims, DCI_NPY_MAX_DIMS);
        if (n_dims > 0 && shape == NULL)
                return dci_fail(DCI_ERR_INVALID, "shape is NULL, n_dims is %zu", n_dims);
        if (!array_bytes(row->size, n_dims, shape, &n_bytes))
                return dci_fail(DCI_ERR_LIMIT, "the product of the %zu dimensions and %zu bytes overflows", n_dims,
                                row->size);
        if (n_bytes > 0 && data == NULL)
                return dci_fail(DCI_ERR_INVALID, "data is NULL, the shape needs %zu bytes", n_bytes);
        char header[256];
        size_t n_header = format_header(row, n_dims, shape, header);
        dci_replacement replacement;
        DCI_TRY(dci_replace_begin(path, &replacement));
        dci_status status = dci_replace_write(&replacement, header, n_header);
        if (status == DCI_OK)
                status = dci_replace_write(&replacement, data, n_bytes);
        return dci_replace_end(&replacement, status);
}
