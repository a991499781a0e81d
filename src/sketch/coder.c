/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "core/internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/file.h"
#include "sketch/coder.h"

/* The positive Lloyd-Max levels of the standard normal distribution (Max 1960, table I). */
static const float normal_levels[5][8] = {{0},
                                          {0.7979f},
                                          {0.4528f, 1.510f},
                                          {0.2451f, 0.7560f, 1.344f, 2.152f},
                                          {0.1284f, 0.3881f, 0.6568f, 0.9424f, 1.256f, 1.618f, 2.069f, 2.733f}};

/* Squared lengths between these are exact enough in binary32; others may have vanished or overflowed. */
#define MIN_SQUARE 0x1p-80f
#define MAX_SQUARE 0x1p100f
/* What is shorter is taken for nothing: its inverse would overflow. */
#define NOTHING 0x1p-110f

static size_t padded(size_t n, size_t to)
{
        return (n + to - 1) / to * to;
}

static int section_of(int32_t bits)
{
        return dci_code_is_wide(bits) ? DCI_CODE_8 : 5 - (int)bits;
}

/* Even steps for the normal distribution (Max 1960, table II), and other factors of a row: least error at 4 bits. */
static const float even_step[5] = {0.0f, 1.596f, 0.9957f, 0.0f, 0.3352f};
static const float stretches[DCI_CODE_STRETCHES] = {1.0f, 0.82f, 0.91f, 1.12f};
/* A row's unit, in deviations of its coordinates, where ranks matter. */
#define WIDER 1.1f
/* A step in the whole numbers from which codes are chosen, and the largest of these numbers, the length of a row. */
#define WHOLE_STEP 512.0
#define MAX_WHOLE 32700.0

/* What one unit of a byte of levels is, in units of a deviation, and twice the byte that stands for zero. */
float dci_coder_unit(int bits)
{
        switch (bits) { /* from 5 bits on even steps for the normal distribution (Max 1960, table II), at 8 some more */
        case 5:
                return 0.1881f / 4.0f;
        case 6:
                return 0.1041f / 2.0f;
        case 8:
                return 7.0f / 255.0f;
        default:
                return normal_levels[bits][(1 << bits) / 2 - 1] / 63.0f;
        }
}

static bool is_even(const dci_coder *coder, int bits)
{
        return !dci_code_is_wide(bits) && coder->layout.even[section_of(bits)];
}

static int32_t twice_zero(const dci_coder *coder, int bits)
{
        return dci_code_is_wide(bits) || is_even(coder, bits) ? ((1 << bits) - 1) << dci_code_rise(bits) : 128;
}

size_t dci_coder_bytes(int32_t kind, size_t dim)
{
        size_t n_bytes = dci_lines(dim * sizeof(float));
        if (kind == DCI_CODER_ROTATED)
                n_bytes += dci_lines(dci_rotation_bytes(dim));
        if (kind == DCI_CODER_LEARNED) {
                const size_t wide = padded(dim, DCI_CODE_GROUP);
                n_bytes += 2 * dci_lines(wide * dim * sizeof(float)) + dci_lines(wide * sizeof(float));
        }
        return n_bytes;
}

size_t dci_coder_scratch_bytes(size_t dim)
{
        return 4 * dci_lines(padded(dim, 32) * sizeof(float));
}

/* Levels as the bytes that the sums take: 64 is zero, the largest are 1 and 127. Their rounding is part of the
 * levels. */
static void make_levels(dci_coder *coder)
{
        dci_code_levels *levels = &coder->levels;
        for (int bits = 1; bits <= 4; bits++) {
                const int half = (1 << bits) / 2;
                const float unit = dci_coder_unit(bits);
                float before = 0.0f;
                for (int i = 0; i < half; i++) {
                        const int level = (int)lrintf(normal_levels[bits][i] / unit);
                        coder->layout.levels[section_of(bits)][half + i] = (uint8_t)(64 + level);
                        coder->layout.levels[section_of(bits)][half - 1 - i] = (uint8_t)(64 - level);
                        levels->limits[bits][i] = 0.5f * unit * ((float)level + before);
                        levels->more[bits][i] = (float)level - before;
                        before = (float)level;
                }
                levels->least[bits] = levels->more[bits][0];
                levels->per_unit[bits] = 1.0f / unit;
        }
        levels->per_unit[5] = 1.0f / dci_coder_unit(5);
        levels->per_unit[6] = 1.0f / dci_coder_unit(6);
        levels->per_unit[8] = 1.0f / dci_coder_unit(8);
        levels->unit = dci_coder_unit(coder->bits);
}

static void init_turn(dci_coder *coder)
{
        coder->turn = (dci_code_transpose_block){.dim = coder->dim,
                                                 .centre = coder->centre,
                                                 .part = coder->rotation.part,
                                                 .signs = coder->rotation.signs,
                                                 .n_rounds = 2 * (size_t)DCI_ROTATE_ROUNDS};
        coder->levels.layout = &coder->layout;
        coder->levels.n_coords = coder->n_coords;
        coder->levels.n_coded = coder->n_coded;
        coder->levels.worth = coder->worth;
        coder->levels.nearest = !coder->alone;
        coder->levels.wider = coder->alone ? 1.0f : WIDER;
}

/* A row of n coordinates has n units of |row| / sqrt(n) in all, so none exceeds sqrt(n) of them. */
int32_t dci_coder_even_steps(size_t dim, int32_t bits, float *out_spread, uint16_t *out_inverse)
{
        const double step = (double)even_step[bits == 8 ? 0 : bits], root = sqrt((double)dim);
        if (step == 0.0)
                return 0;
        const double unit = fmin(WHOLE_STEP / step, MAX_WHOLE / root);
        *out_spread = (float)(unit * root);
        for (size_t i = 0; i < DCI_CODE_STRETCHES; i++)
                out_inverse[i] = (uint16_t)lrint(65536.0 / (unit * step * (double)stretches[i]));
        return bits;
}

static void init_even(dci_coder *coder)
{
        dci_code_even even = {.turn = coder->turn};
        even.bits = (int)dci_coder_even_steps(coder->dim, coder->bits, &even.spread, even.inverse);
        if (even.bits != 0)
                coder->even = even;
}

void dci_coder_init(const dci_context *context, int32_t kind, size_t dim, int32_t bits, uint64_t seed,
                    const float *centre, void *memory, dci_coder *out)
{
        *out = (dci_coder){.kernels = context->kernels,
                           .reader = dci_code_reader_for(context),
                           .writer = dci_code_writer_for(context, DCI_CODE_ROWS),
                           .narrow = dci_code_writer_for(context, 1),
                           .single = dci_code_writer_one(context),
                           .dim = dim,
                           .kind = kind,
                           .bits = bits,
                           .centre = memory};
        const int w = section_of(bits);
        make_levels(out);
        out->n_coded = out->n_coords = dim;
        out->layout.even[w] = bits <= 4 && even_step[bits] > 0.0f;
        out->layout.n_coords[w] = padded(dim, dci_code_step[w]);
        dci_code_layout_finish(&out->layout);
        if (centre == NULL)
                memset(out->centre, 0, dim * sizeof *out->centre);
        else
                memcpy(out->centre, centre, dim * sizeof *out->centre);
        if (kind == DCI_CODER_ROTATED) {
                dci_rng rng;
                dci_rng_seed(&rng, seed);
                dci_rotation_init(&rng, dim, (unsigned char *)memory + dci_lines(dim * sizeof(float)), &out->rotation);
        }
        init_turn(out);
        init_even(out);
}

void dci_coder_init_learned(const dci_context *context, size_t dim, int32_t bits, bool alone, void *memory,
                            dci_coder *out)
{
        const size_t wide = padded(dim, DCI_CODE_GROUP);
        unsigned char *at = memory;
        *out = (dci_coder){.kernels = context->kernels,
                           .reader = dci_code_reader_for(context),
                           .writer = dci_code_writer_for(context, DCI_CODE_ROWS),
                           .narrow = dci_code_writer_for(context, 1),
                           .single = dci_code_writer_one(context),
                           .dim = dim,
                           .alone = alone,
                           .kind = DCI_CODER_LEARNED,
                           .bits = bits};
        make_levels(out);
        out->n_coords = wide;
        out->centre = (float *)(void *)at;
        at += dci_lines(dim * sizeof(float));
        out->worth = (float *)(void *)at;
        at += dci_lines(wide * sizeof(float));
        out->to = (float *)(void *)at;
        out->from = (float *)(void *)(at + dci_lines(wide * dim * sizeof(float)));
}

void dci_coder_finish_learned(dci_coder *coder)
{
        dci_code_layout_finish(&coder->layout);
        coder->n_coded = coder->layout.n_all;
        init_turn(coder);
}

bool dci_coder_is_sound(const dci_context *context, const dci_coder *coder, uint64_t seed, void *memory)
{
        const size_t dim = coder->dim;
        if (coder->kind == DCI_CODER_LEARNED)
                return dci_floats_finite(coder->worth, coder->n_coords) &&
                       dci_floats_finite(coder->to, coder->n_coords * dim) &&
                       dci_floats_finite(coder->from, coder->n_coords * dim);
        dci_coder wanted;
        dci_coder_init(context, DCI_CODER_ROTATED, dim, coder->bits, seed, coder->centre, memory, &wanted);
        return coder->kind == DCI_CODER_ROTATED && coder->rotation.part == wanted.rotation.part &&
               memcmp(coder->rotation.signs, wanted.rotation.signs, dci_rotation_bytes(dim)) == 0;
}

int dci_coder_width(const dci_coder *coder, size_t coord)
{
        const dci_code_layout *layout = &coder->layout;
        for (int w = 0; w < DCI_CODE_WIDTHS; coord -= layout->n_coords[w++])
                if (coord < layout->n_coords[w])
                        return dci_code_bits[w];
        return layout->groups[coord / DCI_CODE_GROUP].bits;
}

/* The coordinates from `first` on that have one width; returns where they end. */
static size_t same_width(const dci_coder *coder, size_t first, int *out_bits)
{
        size_t end = 0;
        for (int w = 0; w < DCI_CODE_WIDTHS; w++) {
                end += coder->layout.n_coords[w];
                if (first < end) {
                        *out_bits = dci_code_bits[w];
                        return end < coder->n_coded ? end : coder->n_coded;
                }
        }
        *out_bits = coder->layout.groups[(first - end) / DCI_CODE_GROUP].bits;
        return first + DCI_CODE_GROUP < coder->n_coded ? first + DCI_CODE_GROUP : coder->n_coded;
}

/* Levels of codes as the sums see them: whole numbers, or halves at 8 bits, around zero. */
static void centred(const dci_coder *coder, const uint8_t *codes, float *out)
{
        int bits;
        for (size_t first = 0, end; first < coder->n_coded; first = end) {
                end = same_width(coder, first, &bits);
                const uint8_t *levels = coder->layout.levels[section_of(bits)];
                const float zero = 0.5f * (float)twice_zero(coder, bits);
                const bool itself = dci_code_is_wide(bits) || is_even(coder, bits);
                for (size_t j = first; j < end; j++)
                        out[j] = (float)(itself ? codes[j] << dci_code_rise(bits) : levels[codes[j]]) - zero;
        }
}

static float dot(const dci_coder *coder, const float *a, const float *b, size_t n)
{
        float out;
        coder->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](a, b, 0, 1, n, &out);
        return out;
}

static float norm2(const dci_coder *coder, const float *a, size_t n)
{
        return n == 0 ? 0.0f : coder->kernels->norm2[DCI_F32 - 1](a, n);
}

/* The same for numbers of any size. */
static double square_of(const dci_coder *coder, const float *a, size_t n)
{
        const float fast = norm2(coder, a, n);
        if (fast >= MIN_SQUARE && fast <= MAX_SQUARE)
                return (double)fast;
        double sum = 0.0;
        for (size_t j = 0; j < n; j++)
                sum += (double)a[j] * (double)a[j];
        return sum;
}

static float length_of(const dci_coder *coder, const float *a, size_t n)
{
        return (float)sqrt(square_of(coder, a, n));
}

static void to_coordinates(const dci_coder *coder, const float *matrix, const float *row, size_t n, float *out)
{
        coder->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](row, matrix, coder->dim * sizeof *matrix, n,
                                                                 coder->dim, out);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

#define PAIR (2 * DCI_CODE_LINE)
#define ONE_LANES ((size_t)8) /* of a writer for few rows, at most */

/* Rows on their way: coordinates before a learned transform and after it (or, of even steps, a writer's scratch),
 * levels, words of codes, and lines of as many rows as a writer takes. */
typedef struct encoding {
        float *x, *y, *z;
        uint32_t *words;
        unsigned char *lines;
        bool whole; /* with what is left over */
} encoding;

static size_t lanes_for(bool one)
{
        return one ? ONE_LANES : DCI_CODE_LANES;
}

/* Bytes of coordinates of the rows that are multiplied with a learned transform at once. */
static size_t tile_bytes(size_t dim, bool one)
{
        return padded(dim, 32) * sizeof(float) * (one || dim > DCI_LEARNED_DIM ? lanes_for(one) : DCI_CODE_ROWS);
}

size_t dci_coder_encode_bytes(size_t dim, bool one)
{
        return 2 * tile_bytes(dim, one) + padded(dim, 32) * lanes_for(one) * (sizeof(float) + 2);
}

static encoding place(size_t dim, bool one, void *memory)
{
        const size_t tile = tile_bytes(dim, one), each = padded(dim, 32) * lanes_for(one);
        unsigned char *at = (unsigned char *)memory + 2 * tile;
        return (encoding){.x = memory,
                          .y = (float *)(void *)(at - tile),
                          .z = (float *)(void *)at,
                          .words = (uint32_t *)(void *)(at + each * sizeof(float)),
                          .lines = at + each * (sizeof(float) + 1)};
}

/* The words of those rows that there are, from lines of n rows to a block. */
static void copy_words(const dci_coder *coder, const unsigned char *lines, size_t n, const float *const *rows,
                       unsigned char *words)
{
        for (size_t line = 0; line < coder->layout.n_bytes / PAIR; line++)
                for (size_t r = 0; r < n; r++)
                        if (rows[r] != NULL)
                                memcpy(words + line * PAIR + r * 4, lines + (line * n + r) * 4, 4);
}

/* Of a row whose coordinates overflow, codes say and exclude nothing: numbers in a file may be anything. */
static dci_coded_row row_of(const dci_code_written *written, size_t r)
{
        const dci_coded_row row = {written->scale[r], written->residual[r], written->reach[r]};
        if (isfinite(row.scale) && isfinite(row.residual) && isfinite(row.reach))
                return row;
        return (dci_coded_row){.scale = 0.0f, .residual = FLT_MAX, .reach = 0.0f};
}

/* As many rows as a writer takes: here[] has another where one is missing. */
static void encode_lanes(const dci_coder *coder, const dci_code_writer *writer, const float *const *rows,
                         const float *const *here, const encoding *e, size_t first, size_t ld, unsigned char *block,
                         dci_coded_row *out)
{
        const size_t n = writer->lanes;
        unsigned char *words = block + dci_code_word(first), *lines = words;
        size_t stride = PAIR;
        dci_code_written written;
        for (size_t r = 0; r < n; r++)
                if (rows[first + r] == NULL) {
                        lines = e->lines;
                        stride = n * 4;
                }
        if (coder->even.bits != 0) {
                writer->even(&coder->even, here, e->x, lines, stride, &written);
        } else {
                dci_code_levels levels = coder->levels;
                if (!e->whole) /* what is left over is summed over these */
                        levels.n_coords = 0;
                writer->levels(&levels, e->y + (ld > n ? first : 0), ld, e->z, e->words, &written);
                dci_code_put_words(&coder->layout, lines, stride, n, e->words);
        }
        if (lines != words)
                copy_words(coder, lines, n, rows + first, words);
        for (size_t r = 0; r < n; r++)
                if (rows[first + r] != NULL)
                        out[first + r] = row_of(&written, r);
}

/* The rows from `first` on, or NULL if there are none; where one is missing another stands in. */
static const float *const *all_of(const float *const *rows, size_t first, size_t n, const float **out)
{
        const float *some = NULL;
        for (size_t r = 0; r < n; r++)
                some = rows[first + r] != NULL ? rows[first + r] : some;
        for (size_t r = 0; r < n; r++)
                out[r] = rows[first + r] != NULL ? rows[first + r] : some;
        return some == NULL ? NULL : out;
}

/* Many rows: their coordinates by one product of matrices; those without a code only for what is left over. */
static void transform_all(const dci_coder *coder, const dci_code_writer *writer, const float *const *rows,
                          const encoding *e)
{
        const float *stand_in[DCI_CODE_LANES];
        for (size_t first = 0; first < DCI_CODE_ROWS; first += writer->lanes) {
                const float *const *here = all_of(rows, first, writer->lanes, stand_in);
                if (here != NULL)
                        writer->turn(&coder->turn, here, e->x + first, DCI_CODE_ROWS);
                for (size_t j = 0; here == NULL && j < coder->dim; j++)
                        memset(e->x + j * DCI_CODE_ROWS + first, 0, writer->lanes * sizeof *e->x);
        }
        const size_t n = e->whole || coder->n_coded > coder->n_coords ? coder->n_coords : coder->n_coded;
        coder->kernels->products(coder->to, coder->dim, n, e->x, coder->dim, e->y);
}

/* A row alone, in even steps. */
static void encode_single(const dci_coder *coder, const float *row, const encoding *e, unsigned char *words,
                          dci_coded_row *out)
{
        float *y = e->x, *spare = y + padded(coder->dim, 32);
        dci_code_written written;
        for (size_t j = 0; j < coder->dim; j++)
                y[j] = row[j] - coder->turn.centre[j];
        if (coder->kind == DCI_CODER_ROTATED)
                dci_rotate(&coder->rotation, y, spare);
        coder->single->one(&coder->even, y, (uint32_t *)(void *)spare, words, PAIR, &written);
        *out = row_of(&written, 0);
}

static void encode(const dci_coder *coder, const float *const rows[DCI_CODE_ROWS], bool whole, void *scratch,
                   unsigned char *block, dci_coded_row out[DCI_CODE_ROWS])
{
        const bool learned = coder->kind == DCI_CODER_LEARNED;
        const float *stand_in[DCI_CODE_LANES];
        size_t n = 0, last = 0;
        for (size_t r = 0; r < DCI_CODE_ROWS; r++)
                if (rows[r] != NULL) {
                        n++;
                        last = r;
                }
        encoding e = place(coder->dim, n == 1, scratch);
        if (n == 1 && coder->even.bits != 0) {
                encode_single(coder, rows[last], &e, block + dci_code_word(last), &out[last]);
                return;
        }
        const bool few = n <= coder->narrow->lanes;
        const dci_code_writer *writer = few ? coder->narrow : coder->writer;
        e.whole = whole || !learned || few;
        if (learned && !few)
                transform_all(coder, writer, rows, &e);
        for (size_t first = 0; first < DCI_CODE_ROWS; first += writer->lanes) {
                const float *const *here = all_of(rows, first, writer->lanes, stand_in);
                if (here == NULL)
                        continue;
                if (learned && few) {
                        writer->turn(&coder->turn, here, e.x, writer->lanes);
                        writer->product(coder->to, coder->n_coords, coder->dim, e.x, e.y);
                } else if (!learned && coder->even.bits == 0) {
                        writer->turn(&coder->turn, here, e.y, writer->lanes);
                }
                encode_lanes(coder, writer, rows, here, &e, first, learned && !few ? DCI_CODE_ROWS : writer->lanes,
                             block, out);
        }
}

void dci_coder_encode(const dci_coder *coder, const float *const rows[DCI_CODE_ROWS], void *scratch,
                      unsigned char *block, dci_coded_row out[DCI_CODE_ROWS])
{
        encode(coder, rows, true, scratch, block, out);
}

void dci_coder_encode_only(const dci_coder *coder, const float *const rows[DCI_CODE_ROWS], void *scratch,
                           unsigned char *block, dci_coded_row out[DCI_CODE_ROWS])
{
        encode(coder, rows, false, scratch, block, out);
}

void dci_coder_decode(const dci_coder *coder, const uint8_t *codes, float scale, void *scratch, float *out)
{
        const size_t dim = coder->dim;
        float *z = scratch;
        centred(coder, codes, z);
        if (coder->kind == DCI_CODER_LEARNED) {
                memcpy(out, coder->turn.centre, dim * sizeof *out);
                for (size_t j = 0; j < coder->n_coded; j++) {
                        const float *from = coder->from + j * dim, level = scale * z[j];
                        for (size_t p = 0; p < dim; p++)
                                out[p] += level * from[p];
                }
                return;
        }
        for (size_t j = 0; j < dim; j++)
                out[j] = scale * z[j];
        if (coder->kind == DCI_CODER_ROTATED)
                dci_rotate_back(&coder->rotation, out, scratch);
        for (size_t j = 0; j < dim; j++)
                out[j] += coder->turn.centre[j];
}

/* The query's coordinates in y, as far as rows have codes there, and the length of all of them. */
static float transform_query(const dci_coder *coder, const float *query, float *y, float *spare)
{
        const size_t dim = coder->dim, n = coder->n_coords;
        if (coder->kind == DCI_CODER_LEARNED) {
                to_coordinates(coder, coder->from, query, n, y);
                for (size_t j = 0; j < n; j++)
                        spare[j] = coder->worth[j] > 0.0f ? y[j] / coder->worth[j] : 0.0f;
                return length_of(coder, spare, n);
        }
        memcpy(y, query, dim * sizeof *y);
        if (coder->kind == DCI_CODER_ROTATED)
                dci_rotate(&coder->rotation, y, spare);
        return length_of(coder, query, dim);
}

void dci_coder_query_again(const dci_coder *coder, const float *query, dci_coded_query *out)
{
        const float lengths = length_of(coder, query, coder->dim) * length_of(coder, coder->centre, coder->dim);
        out->fixed = dot(coder, query, coder->centre, coder->dim);
        out->slack = dci_arithmetic_error(coder->dim) * lengths;
}

void dci_coder_query(const dci_coder *coder, const float *query, void *scratch, int8_t *bytes, dci_coded_query *out)
{
        dci_coder_query_bytes(coder, query, scratch, bytes, out);
        dci_coder_query_again(coder, query, out);
}

void dci_coder_query_bytes(const dci_coder *coder, const float *query, void *scratch, int8_t *bytes,
                           dci_coded_query *out)
{
        const size_t n = coder->n_coded;
        float *y = scratch, most = 0.0f;
        double lost2 = 0.0;
        int bits;
        out->length = transform_query(coder, query, y, y + padded(coder->dim, 32));
        for (size_t j = 0; j < n; j++)
                most = fmaxf(most, fabsf(y[j]));
        const bool some = most > NOTHING;
        const float step = some ? most / 127.0f : 0.0f, inverse = some ? 127.0f / most : 0.0f;
        out->twice_bias = 0;
        for (size_t first = 0, end; first < n; first = end) {
                end = same_width(coder, first, &bits);
                for (size_t j = first; j < end; j++) {
                        bytes[j] = (int8_t)lrintf(y[j] * inverse);
                        const double lost = (double)y[j] - (double)step * (double)bytes[j];
                        lost2 += lost * lost;
                        out->twice_bias += twice_zero(coder, bits) * bytes[j];
                }
        }
        memset(bytes + n, 0, coder->layout.n_all - n);
        out->half_step = 0.5f * step;
        out->rounding = (float)sqrt(lost2) + dci_arithmetic_error(coder->dim) * length_of(coder, y, n);
}
