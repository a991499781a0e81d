/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A prompt's learned codes (args/learned.h). A tile is 64 candidates of one head. Their keys come from the pool in host
 * memory, all of a tile's at once, since the bus is what takes longest; then
 *
 *  - a matrix product transforms them: each thread has eight rows and some columns, and goes through the coordinates of
 *    rows in ascending order, as the CPU does, so that each sum has the CPU's bits;
 *  - two threads make a row's codes: one has the even coordinates and one the odd ones, as the CPU's sums are
 *    adjacent.
 *
 * Every product and sum outside of the transform is rounded once, in the CPU's order: no contraction. */
#include <cuda_fp16.h>

#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/ptx.cuh"
#include "gpu/cuda/rows.cuh"

constexpr unsigned all_lanes = 0xffffffffu;
constexpr int tile_rows = 64, code_rows = 32; /* code_rows: of a block of codes */
constexpr int chunk_tiles = DCI_GPU_CHUNK / tile_rows;
constexpr int rows_each = 8; /* of a thread, in the product */
constexpr int row_groups = tile_rows / rows_each;
constexpr int at_once = 16; /* coordinates of rows whose transform is in shared memory */
constexpr int x_ld = tile_rows;
constexpr int y_ld = 84;           /* threads of a product write to other banks, and of a row nearly */
constexpr float far_off = 0x1p60f; /* as simd/codes/encode_levels.h */
constexpr float min_square = 0x1p-80f, max_square = 0x1p100f; /* as simd/codes/encode_template.h */

template <int DIM> struct Shape {
        static constexpr int column_groups = DIM == 256 ? 32 : 16;
        static constexpr int threads = row_groups * column_groups;
        static constexpr int pairs = DIM / column_groups / 2; /* of columns of a thread: 2 group + 2 column_groups i */
        static constexpr int pieces = DIM / 8;                /* of 16 bytes of a row */
        static constexpr int loads = tile_rows * pieces / threads;
        static constexpr int shared_bytes =
                (int)sizeof(float) * (DIM * y_ld + at_once * DIM) + (int)sizeof(dci_gpu_writer);
};

/* Shared memory: rows, [coordinate][row], later transformed rows; a part of the transform; the head's record. */
template <int DIM> struct Shared {
        float *rows, *to;
        const dci_gpu_writer *writer;
};

/* --- keys --------------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float half_of(uint32_t pair, int upper, bool is_f16)
{
        const unsigned short bits = (unsigned short)(upper ? pair >> 16 : pair & 0xffff);
        return is_f16 ? __half2float(__ushort_as_half(bits)) : __uint_as_float((uint32_t)bits << 16);
}

/* Where coordinate i of a row is: threads with one row's coordinates write to different banks, and four rows stay
 * together. */
static __device__ __forceinline__ int x_at(int i, int row)
{
        return i * x_ld + (row ^ ((i >> 3 & 15) << 2));
}

/* Keys of a tile less their centre; past the end the last one is repeated. Needs all threads. */
template <int DIM>
static __device__ __forceinline__ void bring_rows(const dci_gpu_encode_learned_args &args, int head, int first,
                                                  const float *centre, float *x)
{
        constexpr int loads = Shape<DIM>::loads, pieces = Shape<DIM>::pieces;
        const bool is_f16 = args.dtype == DCI_F16;
        const int32_t *blocks = args.tables.blocks + (uint64_t)args.row * args.tables.stride;
        uint4 raw[loads];
#pragma unroll
        for (int k = 0; k < loads; k++) {
                const int task = threadIdx.x + k * Shape<DIM>::threads, candidate = first + task / pieces;
                const int position = args.sink + (candidate < args.n_candidates ? candidate : args.n_candidates - 1);
                const int block = __ldca(blocks + (position >> args.pool.page_shift));
                const RowPair row = pool_rows(args.pool, block, head, position & ((1 << args.pool.page_shift) - 1));
                raw[k] = __ldcg(reinterpret_cast<const uint4 *>(row.key) + task % pieces);
        }
#pragma unroll
        for (int k = 0; k < loads; k++) {
                const int task = threadIdx.x + k * Shape<DIM>::threads, row = task / pieces, i = task % pieces * 8;
                const uint32_t words[4] = {raw[k].x, raw[k].y, raw[k].z, raw[k].w};
#pragma unroll
                for (int j = 0; j < 8; j++)
                        x[x_at(i + j, row)] = __fsub_rn(half_of(words[j / 2], j % 2, is_f16), __ldca(centre + i + j));
        }
}

/* --- the transform ------------------------------------------------------------------------------------------------ */

template <bool FUSED> static __device__ __forceinline__ float add_product(float a, float b, float sum)
{
        return FUSED ? __fmaf_rn(a, b, sum) : __fadd_rn(__fmul_rn(a, b), sum);
}

/* Turned rows in the place of rows. Needs all threads. */
template <int DIM, bool FUSED> static __device__ __forceinline__ void turn_rows(const Shared<DIM> &s, const float *to)
{
        constexpr int groups = Shape<DIM>::column_groups, pairs = Shape<DIM>::pairs;
        const int column = threadIdx.x % groups * 2, row = threadIdx.x / groups * rows_each;
        float sum[2 * pairs][rows_each] = {};
        for (int first = 0; first < DIM; first += at_once) {
                __syncthreads(); /* rows are there, and the part before has been read */
                for (int j = threadIdx.x; j < at_once * DIM / 4; j += Shape<DIM>::threads)
                        reinterpret_cast<float4 *>(s.to)[j] =
                                __ldca(reinterpret_cast<const float4 *>(to + first * DIM) + j);
                __syncthreads();
#pragma unroll 4
                for (int i = 0; i < at_once; i++) {
                        const float4 a = *reinterpret_cast<const float4 *>(s.rows + x_at(first + i, row)),
                                     b = *reinterpret_cast<const float4 *>(s.rows + x_at(first + i, row + 4));
                        const float x[rows_each] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
                        for (int p = 0; p < pairs; p++) {
                                const float2 c =
                                        *reinterpret_cast<const float2 *>(s.to + i * DIM + column + 2 * groups * p);
#pragma unroll
                                for (int r = 0; r < rows_each; r++) {
                                        sum[2 * p][r] = add_product<FUSED>(x[r], c.x, sum[2 * p][r]);
                                        sum[2 * p + 1][r] = add_product<FUSED>(x[r], c.y, sum[2 * p + 1][r]);
                                }
                        }
                }
        }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < 2 * pairs; c++) {
                float4 *out = reinterpret_cast<float4 *>(s.rows + (column + 2 * groups * (c / 2) + c % 2) * y_ld + row);
                out[0] = make_float4(sum[c][0], sum[c][1], sum[c][2], sum[c][3]);
                out[1] = make_float4(sum[c][4], sum[c][5], sum[c][6], sum[c][7]);
        }
        __syncthreads();
}

/* --- codes -------------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float greater(float a, float b)
{
        return a > b ? a : b; /* as the CPU: b where a is no number */
}

struct Coded {
        uint32_t code;
        float level; /* around zero */
};

/* Of one to four bits. */
template <int BITS> static __device__ __forceinline__ Coded code_narrow(const dci_gpu_writer &w, float x)
{
        constexpr uint32_t half = (1u << BITS) / 2;
        const float magnitude = greater(x, __fsub_rn(0.0f, x));
        const bool negative = 0.0f > x;
        float level = w.least[BITS];
        uint32_t m = 0;
#pragma unroll
        for (int i = 1; i < (int)half; i++) {
                const bool over = magnitude > w.limits[BITS][i];
                level = __fadd_rn(level, over ? w.more[BITS][i] : 0.0f);
                m += over ? 1 : 0;
        }
        return {negative ? half - 1 - m : half + m, negative ? __fsub_rn(0.0f, level) : level};
}

static __device__ __forceinline__ Coded code_wide(const dci_gpu_writer &w, float x, int bits)
{
        const float most = (float)((1 << bits) - 1), half = 0.5f * most,
                    rise = bits == 8 ? 1.0f : (float)(1 << (7 - bits));
        float at = greater(__fadd_rn(__fmul_rn(x, w.to_codes[bits]), half), 0.0f);
        at = at > most ? most : at;
        const float code = rintf(at);
        return {(uint32_t)code, __fmul_rn(__fsub_rn(code, half), rise)};
}

/* All threads of a block have the same width. */
static __device__ __forceinline__ Coded code_of(const dci_gpu_writer &w, float x, int bits)
{
        switch (bits) {
        case 1:
                return code_narrow<1>(w, x);
        case 2:
                return code_narrow<2>(w, x);
        case 3:
                return code_narrow<3>(w, x);
        case 4:
                return code_narrow<4>(w, x);
        default:
                return code_wide(w, x, bits);
        }
}

/* Both threads' sums; addition commutes. */
static __device__ __forceinline__ float sum_of_both(float x)
{
        return __fadd_rn(x, __shfl_xor_sync(all_lanes, x, 1));
}

/* y: the row's transformed coordinates, y_ld apart. */
static __device__ __forceinline__ float unit_of(const dci_gpu_writer &w, const float *y, int odd)
{
        float sum = 0.0f;
        for (int c = odd; c < w.n_coded; c += 2) {
                const float x = y[c * y_ld];
                const float size = greater(__fsub_rn(0.0f, greater(x, __fsub_rn(0.0f, x))), -far_off);
                sum = __fadd_rn(sum, __fmul_rn(size, size));
        }
        return greater(__fsqrt_rn(__fmul_rn(sum_of_both(sum), w.share)), 1.0f);
}

static __device__ __forceinline__ unsigned short to_bf16(float x)
{
        const uint32_t bits = __float_as_uint(x);
        if ((bits & 0x7fffffffu) > 0x7f800000u)
                return (unsigned short)(bits >> 16 | 0x40);
        return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Words of a row, line by line, and its scale. present: the row is there; else its places become zeros. */
static __device__ __forceinline__ float write_row(const dci_gpu_writer &w, const float *worth, const float *y, int odd,
                                                  float inverse, float unit, int n_lines, bool present, uint32_t *words)
{
        float product = 0.0f, square = 0.0f;
        int g = 0;
        for (int line = 0; line < n_lines; line++) {
                uint32_t word = 0;
                for (; g < w.n_groups && w.groups[g].line == line; g++) {
                        const int bits = w.groups[g].bits, shift = w.groups[g].shift;
                        const float to_levels = w.to_levels[bits];
#pragma unroll
                        for (int k = 0; k < 2; k++) {
                                const int c = 4 * g + 2 * k + odd;
                                const float whole = y[c * y_ld], heavy = __ldca(worth + c);
                                const Coded here = code_of(w, __fmul_rn(whole, inverse), bits);
                                const float point = __fmul_rn(here.level, heavy),
                                            moved = __fmul_rn(whole, __fmul_rn(heavy, to_levels));
                                product = __fadd_rn(product, __fmul_rn(point, moved));
                                square = __fadd_rn(square, __fmul_rn(point, point));
                                word |= here.code << (shift + 8 * (2 * k + odd));
                        }
                }
                word |= __shfl_xor_sync(all_lanes, word, 1);
                if (odd == 0)
                        words[line * code_rows] = present ? word : 0;
        }
        const float products = sum_of_both(product), squares = sum_of_both(square);
        if (w.nearest == 0)
                return unit;
        return squares > 0.0f ? __fdiv_rn(products, squares) : 0.0f;
}

/* The residual of a coordinate. */
static __device__ __forceinline__ float left_of(const dci_gpu_writer &w, const float *worth, const float *y, int c,
                                                float inverse, float scale)
{
        const float whole = y[c * y_ld];
        if (c >= w.n_coded)
                return whole;
        const int bits = w.groups[c / 4].bits;
        const float heavy = __ldca(worth + c);
        const float point = __fmul_rn(code_of(w, __fmul_rn(whole, inverse), bits).level, heavy);
        return __fsub_rn(__fmul_rn(whole, __fmul_rn(heavy, w.to_levels[bits])), __fmul_rn(scale, point));
}

template <int DIM>
static __device__ __forceinline__ float residual_of(const dci_gpu_writer &w, const float *worth, const float *y,
                                                    int odd, float inverse, float scale)
{
        float sum = 0.0f;
        for (int c = odd; c < DIM; c += 2) {
                const float left = left_of(w, worth, y, c, inverse, scale);
                sum = __fadd_rn(sum, __fmul_rn(left, left));
        }
        const float square = sum_of_both(sum);
        if (square >= min_square && square <= max_square)
                return __fsqrt_rn(square);
        double exact = 0.0; /* rare: squares that vanished or overflowed */
        for (int c = 0; c < DIM; c++) {
                const double left = (double)left_of(w, worth, y, c, inverse, scale);
                exact = __dadd_rn(exact, __dmul_rn(left, left));
        }
        return __double2float_rn(__dsqrt_rn(exact));
}

/* --- all ---------------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ unsigned char *part_at(const dci_gpu_chunks &chunks, int row, int chunk, int head)
{
        const int number = __ldca(chunks.numbers + (uint64_t)row * chunks.stride + chunk);
        return chunks.pieces[number >> chunks.piece_shift] + chunks.layer_at +
               (uint64_t)(number & ((1 << chunks.piece_shift) - 1)) * chunks.chunk_bytes +
               (uint64_t)head * chunks.head_bytes;
}

/* Codes of a tile from its transformed rows. Warps as a whole have rows or have none. */
template <int DIM>
static __device__ __forceinline__ void code_rows_of(const dci_gpu_encode_learned_args &args, const Shared<DIM> &s,
                                                    const float *worth, int head, int tile)
{
        const dci_gpu_writer &w = *s.writer;
        const int row = threadIdx.x >> 1, odd = threadIdx.x & 1, candidate = tile * tile_rows + row,
                  block = candidate / code_rows, at = candidate % DCI_GPU_CHUNK;
        if (row >= tile_rows)
                return;
        const bool present = candidate < args.n_candidates;
        const int n_lines = DIM * args.bits / 32, block_bytes = n_lines * code_rows * 4;
        unsigned char *part = part_at(args.chunks, args.row, tile / chunk_tiles, head);
        uint32_t *words = reinterpret_cast<uint32_t *>(part + at / code_rows * block_bytes) + at % code_rows;
        const float *y = s.rows + row;
        const float unit = unit_of(w, y, odd), inverse = __fdiv_rn(1.0f, unit);
        const float scale = write_row(w, worth, y, odd, inverse, unit, n_lines, present, words);
        if (odd == 0)
                reinterpret_cast<unsigned short *>(part + DCI_GPU_CHUNK / code_rows * block_bytes)[at] =
                        present ? to_bf16(scale) : 0;
        if (args.residuals == nullptr || !DCI_GPU_IS_WATCHED(block))
                return;
        const float residual = residual_of<DIM>(w, worth, y, odd, inverse, scale);
        if (odd == 0 && present)
                args.residuals[(uint64_t)head * DCI_GPU_N_WATCHED(args.n_candidates) +
                               DCI_GPU_WATCHED(block) * code_rows + candidate % code_rows] = residual;
}

template <int DIM, bool FUSED>
static __global__ void __launch_bounds__(Shape<DIM>::threads, DIM == 256 ? 1 : 3)
        form_learned_kernel(const __grid_constant__ dci_gpu_encode_learned_args args)
{
        PTX_DYNAMIC_SHARED(16, float, shared);
        uint32_t *record = reinterpret_cast<uint32_t *>(shared + DIM * y_ld + at_once * DIM);
        const Shared<DIM> s = {shared, shared + DIM * y_ld, reinterpret_cast<const dci_gpu_writer *>(record)};
        const int n_tiles = (args.n_candidates + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK * chunk_tiles;
        for (int64_t job = blockIdx.x; job < (int64_t)args.n_heads * n_tiles; job += gridDim.x) {
                const int head = (int)(job % args.n_heads), tile = (int)(job / args.n_heads);
                const unsigned char *from = args.writers + (uint64_t)head * DCI_GPU_WRITER_BYTES(DIM);
                const float *centre = reinterpret_cast<const float *>(from + sizeof(dci_gpu_writer));
                __syncthreads(); /* the tile before is done */
                for (int j = threadIdx.x; j < (int)(sizeof(dci_gpu_writer) / 4); j += Shape<DIM>::threads)
                        record[j] = __ldca(reinterpret_cast<const uint32_t *>(from) + j);
                bring_rows<DIM>(args, head, tile * tile_rows, centre, s.rows);
                __syncthreads();
                if (s.writer->learned == 0)
                        continue;
                turn_rows<DIM, FUSED>(s, centre + 2 * DIM);
                code_rows_of<DIM>(args, s, centre + DIM, head, tile);
        }
}

template <int DIM, bool FUSED>
static cudaError_t launch(const dci_gpu_cuda *cuda, void *stream, const dci_gpu_encode_learned_args &args)
{
        const int64_t jobs =
                (int64_t)args.n_heads * ((args.n_candidates + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK) * chunk_tiles;
        const int64_t most = args.n_blocks > 0 ? args.n_blocks : (int64_t)cuda->multiprocessors * (DIM == 256 ? 2 : 3);
        return launch_shared(stream_of(nullptr, stream), dim3((unsigned)(jobs < most ? jobs : most)),
                             Shape<DIM>::threads, Shape<DIM>::shared_bytes, form_learned_kernel<DIM, FUSED>, args);
}

template <int DIM>
static cudaError_t launch_as(const dci_gpu_cuda *cuda, void *stream, const dci_gpu_encode_learned_args &args)
{
        return args.fused != 0 ? launch<DIM, true>(cuda, stream, args) : launch<DIM, false>(cuda, stream, args);
}

extern "C" size_t dci_gpu_cuda_encode_learned_bytes(int32_t dim)
{
        return with_dim(dim, SIZE_MAX, [](auto d) { return (size_t)Shape<d.value>::shared_bytes; });
}

extern "C" dci_status dci_gpu_cuda_encode_learned(struct dci_gpu *gpu, void *stream,
                                                  const dci_gpu_encode_learned_args *args)
{
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        if (args->n_candidates <= 0 || args->n_heads <= 0)
                return DCI_OK;
        if (args->bits < 1 || args->bits > 8)
                return dci_fail(DCI_ERR_UNSUPPORTED, "codes of %d bits, expected 1 to 8", args->bits);
        if (dci_gpu_cuda_encode_learned_bytes(args->dim) == SIZE_MAX)
                return dci_fail(DCI_ERR_UNSUPPORTED, "keys have %d elements, expected 64, 96, 128 or 256", args->dim);
        const cudaError_t error = with_dim(args->dim, cudaErrorInvalidValue,
                                           [&](auto dim) { return launch_as<dim.value>(cuda, stream, *args); });
        return dci_gpu_cuda_status(error, "learned codes of %d tokens cannot be queued", args->n_candidates);
}
