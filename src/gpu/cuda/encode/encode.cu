/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* What scores are made from. A tile is 32 candidates of one head, a block of their codes, and four warps make it: each
 * eight rows, four threads to a row (cuda/encode/encode_row.cuh). Words of keys go straight to memory, eight rows and
 * so a sector at a time; values, whose words are of one coordinate of many tokens, go through shared memory.
 *
 * A decode step usually encodes nothing: then blocks read `from` and `to` of all sequences and end. */
#include "gpu/cuda/encode/encode_pages.cuh"
#include "gpu/cuda/encode/encode_row.cuh"
#include "gpu/cuda/encode/encode_votes.cuh"
#include "gpu/cuda/launch.cuh"

constexpr int n_threads = 128;
constexpr int tile_rows = 32, chunk_tiles = DCI_GPU_CHUNK / tile_rows;
constexpr int sum_rows = 64;     /* of a partial sum of keys */
constexpr int sums_ahead = 8;    /* loads of a thread in flight */
constexpr int value_block = 128; /* tokens of a block of values */
constexpr int prompt_tiles = 2;  /* of a block */

/* Keys, values, or means of keys: what is encoded of each, and from what. */
struct Side {
        const unsigned char *rows;
        uint64_t row_step, head_step,
                layer_step; /* bytes from one row, head (of a prompt) or layer (of lanes) to the next */
        const float *signs;
        float *centres;
        Steps steps;
        int32_t is_value, at, shift; /* at: bytes into a head's part; rows are means of 2^shift candidates */
};

/* Means come last: they have the keys' centres. */
struct Sides {
        Side side[3];
        int32_t n;
};

template <int DIM> struct Shared {
        __align__(16) float centre[4 * Shape<DIM>::centre_ld];
        __align__(16) float signs[4 * Shape<DIM>::rounds * Shape<DIM>::sign_ld];
        uint32_t codes[tile_rows * 4 * Shape<DIM>::n_packed];
};

static __device__ __forceinline__ unsigned char *part_at(const dci_gpu_chunks &chunks, uint64_t layer_at, int row,
                                                         int chunk, int head)
{
        const int number = __ldca(chunks.numbers + (uint64_t)row * chunks.stride + chunk);
        return chunks.pieces[number >> chunks.piece_shift] + layer_at +
               (uint64_t)(number & ((1 << chunks.piece_shift) - 1)) * chunks.chunk_bytes +
               (uint64_t)head * chunks.head_bytes;
}

static __host__ __device__ inline int codes_bytes(int dim, int bits)
{
        return DCI_GPU_CHUNK * dim * bits / 8;
}

static __host__ __device__ inline int width_of(int kind, int dim)
{
        return kind == DCI_GPU_MEANS ? dim : 2 * dim;
}

/* --- codes -------------------------------------------------------------------------------------------------------- */

/* A head's centre and the signs of rounds that are gone through, by the threads that read them. Needs all. */
template <int DIM>
static __device__ __forceinline__ void share_frame(Shared<DIM> &s, const float *centre, const float *signs)
{
        constexpr int part = Shape<DIM>::part, every = part == DIM ? 2 : 1;
        __syncthreads(); /* what was there has been read */
        for (int j = threadIdx.x; j < DIM && centre != nullptr; j += n_threads)
                s.centre[j % 4 * Shape<DIM>::centre_ld + j / 4] = centre[j];
        for (int j = threadIdx.x; j < Shape<DIM>::rounds * part; j += n_threads)
                s.signs[(j / part * 4 + j % 4) * Shape<DIM>::sign_ld + j % part / 4] =
                        __ldca(signs + j / part * every * part + j % part);
        __syncthreads();
}

/* Words of values: of one coordinate, of as many tokens as a line has. Rows [first, end) of the tile are there; others
 * stay as they are but with `fill`. Needs all threads. */
template <int DIM>
static __device__ __forceinline__ void store_across(Shared<DIM> &s, int bits, unsigned char *tail, int tile, int first,
                                                    int end, bool fill)
{
        constexpr int n_blocks = DIM / 32;
        const int lane = threadIdx.x & 31, per_line = 32 / bits, token = tile % chunk_tiles * tile_rows;
        unsigned char *to = tail + (uint64_t)(token / value_block) * n_blocks * (4 * value_block * bits);
        for (int task = threadIdx.x >> 5; task < bits * n_blocks; task += n_threads / 32) {
                const int line = task / n_blocks, block = task % n_blocks;
                const uint32_t ones = (1u << bits) - 1;
                uint32_t word = 0, mask = 0;
                for (int j = 0; j < per_line; j++) {
                        const int row = line * per_line + j, shift = 8 * (j % 4) + bits * (j / 4);
                        const uint32_t codes = s.codes[(row * 4 + lane % 4) * Shape<DIM>::n_packed + block];
                        const uint32_t here = row >= first && row < end ? ones : 0;
                        word |= (codes >> (4 * (lane / 4)) & here) << shift;
                        mask |= here << shift;
                }
                uint32_t *at = reinterpret_cast<uint32_t *>(to + block * (4 * value_block * bits) +
                                                            (token % value_block / per_line + line) * 128 + lane * 4);
                if (mask != 0xffffffffu && !fill)
                        word |= *at & ~mask;
                if (mask != 0 || fill)
                        *at = word;
        }
}

template <int DIM>
static __device__ __forceinline__ void load_row(const Rows &rows, bool is_f16, int candidate, int i,
                                                float (&y)[Shape<DIM>::k])
{
        const uint4 *from = reinterpret_cast<const uint4 *>(row_at(rows, candidate)) + i;
        uint4 raw[Shape<DIM>::n_loads];
#pragma unroll
        for (int m = 0; m < Shape<DIM>::n_loads; m++)
                raw[m] = __ldca(from + 4 * m);
        spread_row<DIM>(raw, is_f16, i, y);
}

/* The mean of up to 2^shift candidates before `to`, added up in their order. Needs whole warps. */
template <int DIM>
static __device__ __forceinline__ void load_mean(const Rows &rows, bool is_f16, int mean, int shift, int to, int i,
                                                 float (&y)[Shape<DIM>::k])
{
        const int first = mean << shift, n = min(1 << shift, to - first);
        load_row<DIM>(rows, is_f16, first, i, y);
#pragma unroll 1
        for (int t = 1; t < 1 << shift; t++) {
                float x[Shape<DIM>::k];
                load_row<DIM>(rows, is_f16, first + min(t, n - 1), i, x);
#pragma unroll
                for (int k = 0; k < Shape<DIM>::k; k++)
                        y[k] = t < n ? __fadd_rn(y[k], x[k]) : y[k];
        }
#pragma unroll
        for (int k = 0; k < Shape<DIM>::k; k++)
                y[k] = __fdiv_rn(y[k], (float)n);
}

/* Rows of one tile among those of candidates [from, to), of which there is one at least; with `fill`, others become
 * zeros. Needs all threads. */
template <int DIM>
static __device__ __forceinline__ void form_tile(Shared<DIM> &s, const Rows &rows, const Side &side, bool is_f16,
                                                 unsigned char *part, int tile, int from, int to, bool fill)
{
        const Steps &steps = side.steps;
        const bool is_value = side.is_value != 0;
        const int first = from >> side.shift, end = ((to - 1) >> side.shift) + 1;
        const int chunk_rows = DCI_GPU_CHUNK >> side.shift, in_chunk = tile % (chunk_tiles >> side.shift);
        const int i = threadIdx.x & 3, row = threadIdx.x >> 2, candidate = tile * tile_rows + row;
        const bool present = candidate >= first && candidate < end;
        unsigned char *scales = part + (codes_bytes(DIM, steps.bits) >> side.shift);
        uint32_t packed[Shape<DIM>::n_packed] = {};
        float scale = 0.0f;
        if (__any_sync(all_lanes, present)) {
                /* Where there is no row another one stands in. */
                const int stand_in = candidate < first ? first : candidate < end ? candidate : end - 1;
                float y[Shape<DIM>::k];
                if (side.shift == 0) /* the same for all threads */
                        load_row<DIM>(rows, is_f16, stand_in, i, y);
                else
                        load_mean<DIM>(rows, is_f16, stand_in, side.shift, to, i, y);
                centre_row<DIM>(s.centre, i, y);
                rotate_row<DIM>(y, s.signs, i);
                const Turned made = encode_row<DIM>(y, steps, packed);
                scale = is_value ? nearest_scale(made) : made.scale;
        }
        if (!present) {
                scale = 0.0f;
#pragma unroll
                for (int g = 0; g < Shape<DIM>::n_packed; g++)
                        packed[g] = 0;
        }
        if (i == 0 && (present || fill))
                *reinterpret_cast<unsigned short *>(scales + candidate % chunk_rows * 2) = to_bf16(scale);
        if (!is_value) {
                store_words<DIM>(packed, steps.bits, i, part + in_chunk * (codes_bytes(DIM, steps.bits) / chunk_tiles),
                                 row, present || fill);
                return;
        }
        __syncthreads(); /* the codes of the last tile have been read */
#pragma unroll
        for (int g = 0; g < Shape<DIM>::n_packed; g++)
                s.codes[(row * 4 + i) * Shape<DIM>::n_packed + g] = packed[g];
        __syncthreads();
        store_across<DIM>(s, steps.bits, part, tile, first - tile * tile_rows, end - tile * tile_rows, fill);
}

/* The same of blocks' codes, whose signs are there. */
template <int DIM>
static __device__ __forceinline__ void form_votes(const Shared<DIM> &s, const Rows &rows, bool is_f16,
                                                  unsigned char *part, int tile, int from, int to, bool fill)
{
        const int i = threadIdx.x & 3, candidate = tile * tile_rows + (threadIdx.x >> 2);
        const bool present = candidate >= from && candidate < to;
        if (!__any_sync(all_lanes, present || fill))
                return;
        float y[Shape<DIM>::k];
        load_row<DIM>(rows, is_f16, candidate < from ? from : candidate < to ? candidate : to - 1, i, y);
        const float most = in_own_units(y);
        rotate_row<DIM>(y, s.signs, i);
        store_blocks<DIM>(y, most, i, part, candidate % DCI_GPU_CHUNK, present, present || fill);
}

/* --- a step ------------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ void clear(unsigned char *at, int n_bytes)
{
        for (int j = threadIdx.x * 16; j < n_bytes; j += n_threads * 16)
                *reinterpret_cast<uint4 *>(at + j) = make_uint4(0, 0, 0, 0);
}

/* One side of a head's candidates [from, to). Needs all threads. */
template <int DIM>
static __device__ __forceinline__ void form_some(Shared<DIM> &s, const dci_gpu_encode_args &args, const Side &side,
                                                 int row, int layer, int head, int from, int to)
{
        const bool is_f16 = args.dtype == DCI_F16, codes = side.is_value != 0 || args.kind == DCI_GPU_CODES;
        const uint64_t list = (uint64_t)row * args.n_heads + head,
                       layer_at = args.chunks.layer_at + layer * args.layer_step;
        const Rows rows = {side.rows + layer * side.layer_step +
                                   (list * args.lanes.n_slots + args.lanes.sink) * side.row_step,
                           side.row_step, (uint32_t)args.sink, (uint32_t)args.lanes.ring - 1};
        const int per_chunk = DCI_GPU_CHUNK >> args.group_shift, row_bytes = width_of(args.kind, DIM) * 2;
        const bool votes = args.kind == DCI_GPU_VOTES && side.is_value == 0;
        const int n_bytes = votes   ? DCI_GPU_CHUNK * (DIM / DCI_VOTE_BLOCK) * (1 + DCI_VOTE_RECORD(1))
                            : codes ? (codes_bytes(DIM, side.steps.bits) + 2 * DCI_GPU_CHUNK) >> side.shift
                                    : per_chunk * row_bytes;
        for (int chunk = (from + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK; chunk * DCI_GPU_CHUNK < to; chunk++)
                clear(part_at(args.chunks, layer_at, row, chunk, head) + side.at, n_bytes);
        if (votes) {
                share_frame<DIM>(s, nullptr, side.signs);
                for (int tile = from / tile_rows; tile * tile_rows < to; tile++)
                        form_votes<DIM>(s, rows, is_f16, part_at(args.chunks, layer_at, row, tile / chunk_tiles, head),
                                        tile, from, to, false);
                return;
        }
        if (!codes) {
                const int first = from >> args.group_shift, n_pages = ((to - 1) >> args.group_shift) + 1 - first;
                __syncthreads();
                for (int j = threadIdx.x; j < n_pages * (DIM / 8); j += n_threads) {
                        const int page = first + j / (DIM / 8), begin = page << args.group_shift, left = to - begin;
                        const int n = left < 1 << args.group_shift ? left : 1 << args.group_shift;
                        form_page(rows, args.kind, is_f16, begin, n, j % (DIM / 8) * 8,
                                  part_at(args.chunks, layer_at, row, page / per_chunk, head) + side.at +
                                          page % per_chunk * row_bytes,
                                  DIM);
                }
                return;
        }
        share_frame<DIM>(s, side.centres + layer * args.centres_step + list * DIM, side.signs);
        const int tile_tokens = tile_rows << side.shift, tiles = chunk_tiles >> side.shift; /* of a chunk */
        for (int tile = from / tile_tokens; tile * tile_tokens < to; tile++)
                form_tile<DIM>(s, rows, side, is_f16, part_at(args.chunks, layer_at, row, tile / tiles, head) + side.at,
                               tile, from, to, false);
}

template <int DIM>
static __global__ void __launch_bounds__(n_threads, DIM == 256 ? 2 : 4)
        form_kernel(const __grid_constant__ dci_gpu_encode_args args, const __grid_constant__ Sides sides)
{
        __shared__ Shared<DIM> s;
        __shared__ int from[n_threads], to[n_threads], rows[n_threads], of_warp[n_threads / 32];
        ptx_after_earlier(); /* later ones do not begin meanwhile: the score reads chunks before its turn */
        for (int base = 0; base < args.n_sequences; base += n_threads) {
                const int i = base + threadIdx.x, warp = threadIdx.x >> 5;
                const int begin = i < args.n_sequences ? __ldca(args.from + i) : 0;
                const int end = i < args.n_sequences ? __ldca(args.to + i) : 0;
                if (!__syncthreads_or(end > begin))
                        continue;
                /* Those with something to do, in the same order for all blocks. */
                const unsigned here = __ballot_sync(all_lanes, end > begin);
                if ((threadIdx.x & 31) == 0)
                        of_warp[warp] = __popc(here);
                __syncthreads();
                int at = __popc(here & ((1u << (threadIdx.x & 31)) - 1)), n = 0;
#pragma unroll
                for (int w = 0; w < n_threads / 32; w++) {
                        at += w < warp ? of_warp[w] : 0;
                        n += of_warp[w];
                }
                if (end > begin) {
                        from[at] = begin;
                        to[at] = end;
                        rows[at] = __ldca(args.rows + i);
                }
                __syncthreads();
                const int per_due = args.n_layers * args.n_heads * sides.n;
                for (int64_t job = blockIdx.x; job < (int64_t)n * per_due; job += gridDim.x) {
                        const int due = (int)(job / per_due), rest = (int)(job % per_due);
                        const int side = rest % sides.n, head = rest / sides.n % args.n_heads;
                        form_some<DIM>(s, args, sides.side[side], rows[due], rest / sides.n / args.n_heads, head,
                                       from[due], to[due]);
                }
                __syncthreads();
        }
}

/* --- a prompt ----------------------------------------------------------------------------------------------------- */

/* Sums of sum_rows rows one after another; eight coordinates to a thread. */
static __global__ void __launch_bounds__(n_threads)
        sums_kernel(const __grid_constant__ dci_gpu_encode_prompt_args args, const __grid_constant__ Sides sides)
{
        const int threads = args.dim / 8, per_block = n_threads / threads,
                  n_parts = (args.n_candidates + sum_rows - 1) / sum_rows;
        const int part = blockIdx.x * per_block + threadIdx.x / threads, coordinate = threadIdx.x % threads * 8;
        const bool is_f16 = args.dtype == DCI_F16;
        if (threadIdx.x >= per_block * threads || part >= n_parts)
                return;
        const Side &side = sides.side[blockIdx.z];
        const int left = args.n_candidates - part * sum_rows, n = left < sum_rows ? left : sum_rows;
        const unsigned char *from =
                side.rows + blockIdx.y * side.head_step + (uint64_t)part * sum_rows * side.row_step + coordinate * 2;
        float sum[8] = {};
        for (int r = 0; r < n; r += sums_ahead) {
                uint4 raw[sums_ahead];
#pragma unroll
                for (int a = 0; a < sums_ahead; a++)
                        raw[a] =
                                __ldca(reinterpret_cast<const uint4 *>(from + (r + a < n ? r + a : r) * side.row_step));
#pragma unroll
                for (int a = 0; a < sums_ahead; a++) {
                        const Eight x = widen_eight(raw[a], is_f16);
                        if (r + a < n)
#pragma unroll
                                for (int j = 0; j < 8; j++)
                                        sum[j] = __fadd_rn(sum[j], x.x[j]);
                }
        }
        const uint64_t at =
                ((uint64_t)(blockIdx.z * args.n_heads + blockIdx.y) * n_parts + part) * args.dim + coordinate;
        float4 *to = reinterpret_cast<float4 *>(args.sums + at);
        to[0] = make_float4(sum[0], sum[1], sum[2], sum[3]);
        to[1] = make_float4(sum[4], sum[5], sum[6], sum[7]);
}

/* The first warp adds the sums of 32 coordinates up in their order, the others bring what comes next. */
static __global__ void __launch_bounds__(256)
        centre_kernel(const __grid_constant__ dci_gpu_encode_prompt_args args, const __grid_constant__ Sides sides)
{
        constexpr int depth = 112; /* parts at a time: 16 for each of seven warps */
        __shared__ float sums[2][depth][32];
        const int n_parts = (args.n_candidates + sum_rows - 1) / sum_rows, warp = threadIdx.x >> 5,
                  lane = threadIdx.x & 31;
        const int coordinate = blockIdx.x * 32 + lane;
        const float *from =
                args.sums + (uint64_t)(blockIdx.z * args.n_heads + blockIdx.y) * n_parts * args.dim + coordinate;
        double sum = 0.0;
        for (int base = -depth; base < n_parts; base += depth) {
                const int next = base + depth;
                if (warp > 0) {
#pragma unroll 16
                        for (int p = warp - 1; p < depth; p += 7)
                                sums[next / depth & 1][p][lane] =
                                        next + p < n_parts ? __ldca(from + (uint64_t)(next + p) * args.dim) : 0.0f;
                } else if (base >= 0) {
                        const int left = n_parts - base, n = left < depth ? left : depth;
#pragma unroll 8
                        for (int p = 0; p < n; p++)
                                sum = __dadd_rn(sum, (double)sums[base / depth & 1][p][lane]);
                }
                __syncthreads();
        }
        if (warp == 0)
                sides.side[blockIdx.z]
                        .centres[((uint64_t)args.row * args.n_heads + blockIdx.y) * args.dim + coordinate] =
                        __double2float_rn(__ddiv_rn(sum, (double)args.n_candidates));
}

template <int DIM>
static __global__ void __launch_bounds__(n_threads, DIM == 256 ? 2 : 4)
        prompt_kernel(const __grid_constant__ dci_gpu_encode_prompt_args args, const __grid_constant__ Sides sides)
{
        __shared__ Shared<DIM> s;
        const Side &side = sides.side[blockIdx.z];
        const int head = blockIdx.y, tiles = chunk_tiles >> side.shift; /* of a chunk */
        const int n_tiles = (args.n_candidates + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK * tiles;
        /* Means are few, and each takes as long as its candidates. */
        const int each = side.shift == 0 ? prompt_tiles : 1, first = blockIdx.x * each;
        const Rows rows = {side.rows + head * side.head_step, side.row_step, 0, 0xffffffffu};
        if (first >= n_tiles)
                return;
        unsigned char *part = part_at(args.chunks, args.chunks.layer_at, args.row, first / tiles, head) + side.at;
        share_frame<DIM>(s, side.centres + ((uint64_t)args.row * args.n_heads + head) * DIM, side.signs);
        for (int t = 0; t < each; t++)
                form_tile<DIM>(s, rows, side, args.dtype == DCI_F16, part, first + t, 0, args.n_candidates, true);
}

template <int DIM>
static __global__ void __launch_bounds__(n_threads, DIM == 256 ? 2 : 4)
        votes_kernel(const __grid_constant__ dci_gpu_encode_prompt_args args)
{
        __shared__ Shared<DIM> s;
        const int head = blockIdx.y, first = blockIdx.x * prompt_tiles;
        const Rows rows = {args.keys + head * args.key_head, args.key_token, 0, 0xffffffffu};
        unsigned char *part = part_at(args.chunks, args.chunks.layer_at, args.row, first / chunk_tiles, head);
        share_frame<DIM>(s, nullptr, args.signs);
        for (int t = 0; t < prompt_tiles; t++)
                form_votes<DIM>(s, rows, args.dtype == DCI_F16, part, first + t, 0, args.n_candidates, true);
}

static __global__ void __launch_bounds__(n_threads)
        pages_kernel(const __grid_constant__ dci_gpu_encode_prompt_args args)
{
        const int threads = args.dim / 8, per_chunk = DCI_GPU_CHUNK >> args.group_shift,
                  row_bytes = width_of(args.kind, args.dim) * 2;
        const int at = blockIdx.x * n_threads + threadIdx.x, page = at / threads, coordinate = at % threads * 8,
                  head = blockIdx.y;
        const int n_chunks = (args.n_candidates + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
        if (page >= n_chunks * per_chunk)
                return;
        unsigned char *to = part_at(args.chunks, args.chunks.layer_at, args.row, page / per_chunk, head) +
                            page % per_chunk * row_bytes;
        const int begin = page << args.group_shift, left = args.n_candidates - begin;
        const int n = left < 1 << args.group_shift ? left : 1 << args.group_shift;
        if (n <= 0) {
                for (int half = 0; half < row_bytes; half += args.dim * 2)
                        *reinterpret_cast<uint4 *>(to + half + coordinate * 2) = make_uint4(0, 0, 0, 0);
                return;
        }
        const Rows rows = {args.keys + head * args.key_head, args.key_token, 0, 0xffffffffu};
        form_page(rows, args.kind, args.dtype == DCI_F16, begin, n, coordinate, to, args.dim);
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static bool set_steps(int dim, int bits, Steps *out)
{
        uint16_t inverse[n_stretches] = {};
        out->spread = 0.0f;
        out->bits = dci_coder_even_steps((size_t)dim, bits, &out->spread, inverse);
        for (int i = 0; i < n_stretches; i++)
                out->inverse[i] = (float)inverse[i] / 65536.0f;
        return out->bits != 0;
}

static dci_status check_shape(int dim, int kind, int bits, int value_bits, int mean_shift)
{
        const bool even = bits == 1 || bits == 2 || bits == 4;
        if (dim != 64 && dim != 96 && dim != 128 && dim != 256)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "dimension %d: the device's kernels form rows of 64, 96, 128 and 256", dim);
        if ((kind < DCI_GPU_CODES || kind > DCI_GPU_SUMMARIES) && kind != DCI_GPU_VOTES)
                return dci_fail(DCI_ERR_UNSUPPORTED, "summaries %d: the device's kernels form 1 to %d, and %d", kind,
                                DCI_GPU_SUMMARIES, DCI_GPU_VOTES);
        if ((kind == DCI_GPU_CODES && !even) ||
            (value_bits != 0 && value_bits != 1 && value_bits != 2 && value_bits != 4))
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "codes of %d bits, values of %d: the device's kernels form 4, 2 and 1", bits,
                                value_bits);
        if (mean_shift != 0 && (mean_shift < 2 || mean_shift > 4))
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "means of 2^%d keys: the device's kernels form those of 4, 8 and 16", mean_shift);
        return DCI_OK;
}

/* Means of the keys, which are the first side. */
static void add_means(int dim, int bits, int kind, int mean_shift, Sides *sides)
{
        if (kind != DCI_GPU_CODES || mean_shift == 0)
                return;
        Side *side = &sides->side[sides->n++];
        *side = sides->side[0];
        side->at = codes_bytes(dim, bits) + 2 * DCI_GPU_CHUNK;
        side->shift = mean_shift;
}

extern "C" dci_status dci_gpu_cuda_encode(struct dci_gpu *gpu, void *stream, const dci_gpu_encode_args *args)
{
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        if (args->n_layers <= 0 || args->n_sequences <= 0 || args->n_heads <= 0)
                return DCI_OK;
        const dci_status status = check_shape(args->dim, args->kind, args->bits, args->value_bits, args->mean_shift);
        if (status != DCI_OK)
                return status;
        Sides sides = {};
        Side *side = &sides.side[sides.n++];
        *side = {args->lanes.keys,
                 args->lanes.key_bytes,
                 0,
                 args->lane_step,
                 args->signs,
                 const_cast<float *>(args->centres),
                 {},
                 0,
                 0,
                 0};
        if (args->kind == DCI_GPU_CODES)
                set_steps(args->dim, args->bits, &side->steps);
        if (args->value_bits != 0) {
                side = &sides.side[sides.n++];
                *side = {args->lanes.values,
                         args->lanes.value_bytes,
                         0,
                         args->value_step,
                         args->value_signs,
                         const_cast<float *>(args->value_centres),
                         {},
                         1,
                         args->tail_at,
                         0};
                set_steps(args->dim, args->value_bits, &side->steps);
        }
        add_means(args->dim, args->bits, args->kind, args->mean_shift, &sides);
        const int64_t jobs = (int64_t)args->n_layers * args->n_sequences * args->n_heads * sides.n;
        const int64_t most = (int64_t)cuda->multiprocessors * (args->dim == 256 ? 2 : 4);
        const cudaError_t error = with_dim(args->dim, cudaErrorInvalidValue, [&](auto dim) {
                return launch_kernel(stream_of(cuda, stream), dim3((unsigned)(jobs < most ? jobs : most)), n_threads, 0,
                                     form_kernel<dim.value>, *args, sides);
        });
        return dci_gpu_cuda_status(error, "summaries of %d layers cannot be queued", args->n_layers);
}

/* Centres, then codes, of keys and values at once. */
static cudaError_t form_codes(const GpuStream &on, const dci_gpu_encode_prompt_args &args, const Sides &sides)
{
        const unsigned n_heads = (unsigned)args.n_heads, n_sides = (unsigned)sides.n;
        const unsigned n_centres = sides.side[sides.n - 1].shift > 0 ? n_sides - 1 : n_sides;
        const int n_parts = (args.n_candidates + sum_rows - 1) / sum_rows, per_block = n_threads / (args.dim / 8);
        const int n_chunks = (args.n_candidates + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
        const dim3 grid((unsigned)(n_chunks * (chunk_tiles / prompt_tiles)), n_heads, n_sides);
        cudaError_t error =
                launch_kernel(on, dim3((unsigned)((n_parts + per_block - 1) / per_block), n_heads, n_centres),
                              n_threads, 0, sums_kernel, args, sides);
        if (error == cudaSuccess)
                error = launch_kernel(on, dim3((unsigned)args.dim / 32, n_heads, n_centres), 256, 0, centre_kernel,
                                      args, sides);
        if (error != cudaSuccess)
                return error;
        return with_dim(args.dim, cudaErrorInvalidValue, [&](auto dim) {
                return launch_kernel(on, grid, n_threads, 0, prompt_kernel<dim.value>, args, sides);
        });
}

extern "C" dci_status dci_gpu_cuda_encode_prompt(struct dci_gpu *gpu, void *stream,
                                                 const dci_gpu_encode_prompt_args *args)
{
        (void)gpu;
        if (args->n_candidates <= 0 || args->n_heads <= 0)
                return DCI_OK;
        const dci_status status = check_shape(args->dim, args->kind, args->bits, args->value_bits, args->mean_shift);
        if (status != DCI_OK)
                return status;
        if (args->n_heads > 65535)
                return dci_fail(DCI_ERR_LIMIT, "%d heads: the device's kernel takes 65535", args->n_heads);
        const GpuStream on = stream_of(nullptr, stream);
        Sides sides = {};
        cudaError_t error = cudaSuccess;
        if (args->kind == DCI_GPU_CODES) {
                Side *side = &sides.side[sides.n++];
                *side = {args->keys, args->key_token, args->key_head, 0, args->signs, args->centres, {}, 0, 0, 0};
                set_steps(args->dim, args->bits, &side->steps);
        } else if (args->kind == DCI_GPU_VOTES) {
                const int n_chunks = (args->n_candidates + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
                const dim3 grid((unsigned)(n_chunks * (chunk_tiles / prompt_tiles)), (unsigned)args->n_heads);
                error = with_dim(args->dim, cudaErrorInvalidValue, [&](auto dim) {
                        return launch_kernel(on, grid, n_threads, 0, votes_kernel<dim.value>, *args);
                });
        } else {
                const int n_chunks = (args->n_candidates + DCI_GPU_CHUNK - 1) / DCI_GPU_CHUNK;
                const int64_t n = (int64_t)n_chunks * (DCI_GPU_CHUNK >> args->group_shift) * (args->dim / 8);
                const dim3 grid((unsigned)((n + n_threads - 1) / n_threads), (unsigned)args->n_heads);
                error = launch_kernel(on, grid, n_threads, 0, pages_kernel, *args);
        }
        if (args->value_bits != 0) {
                Side *side = &sides.side[sides.n++];
                *side = {args->values,
                         args->value_token,
                         args->value_head,
                         0,
                         args->value_signs,
                         args->value_centres,
                         {},
                         1,
                         args->tail_at,
                         0};
                set_steps(args->dim, args->value_bits, &side->steps);
        }
        add_means(args->dim, args->bits, args->kind, args->mean_shift, &sides);
        if (error == cudaSuccess && sides.n > 0)
                error = form_codes(on, *args, sides);
        return dci_gpu_cuda_status(error, "summaries of %d tokens cannot be queued", args->n_candidates);
}
