/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Attention over tokens that were not selected, by low-bit values.
 *
 * A warp takes blocks of 128 tokens in turns, with the running maximum of online softmax. Values are "across"
 * (src/kv/stages/tail_lowbit.c): a word holds one coordinate of 32 / BITS tokens, four consecutive ones in its bytes by
 * a shift. So words go from memory straight into the registers that the integer tensor cores read (m16n8k32), and a
 * shift and a mask make four codes of them: with g = lane / 4 and c = lane % 4,
 *
 *      A = codes (16 coordinates x 32 tokens): lane g,c loads words of coordinates 4 g to 4 g + 3, lines c, 4 + c, ..
 *      B = weights (32 tokens x 8 columns): column 2 q is the upper byte of query q's weights, 2 q + 1 the lower one
 *
 * and lane g,c receives both bytes' sums of its query c. Which token is which k is free, as long as codes and weights
 * agree.
 *
 * A weight is exp(score - most) times its row's scale, as a 16-bit number against the greatest of its block and query:
 * sums are exact but for that rounding, to 2^-17 of the greatest. A row of ones sums the weights, for codes are counted
 * from their middle.
 *
 * Blocks are not skipped where weights are small: in 128 tokens there is one that counts, on text as on records. So all
 * codes are requested before it is known what they are worth. */
#ifndef DCI_GPU_CUDA_TAIL_TAIL_CUH
#define DCI_GPU_CUDA_TAIL_TAIL_CUH

#include <float.h>

#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/tail/tail_merge.cuh"

constexpr int TOKENS = 128;         /* of a block */
constexpr float STEPS = 65000.0f;   /* of weights: the greatest one stays below 2^16 however it is rounded */
constexpr float TOO_SMALL = 1e-33f; /* STEPS / TOO_SMALL is still a number */
constexpr int QUERY_WORDS = 104, BYTE_WORDS = 48; /* of weights in shared memory, 32 used: apart for the banks' sake */

template <int D, int BITS> struct Shape {
        static constexpr int COORDS = D / 32;    /* blocks of 32 coordinates */
        static constexpr int AT_ONCE = 8 / BITS; /* of them, for 128 bytes a lane */
        static constexpr int SLOTS =
                COORDS % AT_ONCE == 0 ? AT_ONCE : COORDS; /* that are in registers or on their way */
        static constexpr int COORD_BYTES = 32 * TOKENS * BITS / 8, BLOCK_BYTES = COORDS * COORD_BYTES;
        static constexpr int SCALES_AT = DCI_GPU_CHUNK / TOKENS * BLOCK_BYTES;
        static constexpr int PART = D == 96 ? 64 : D; /* the largest power of two that is not above D */
};

template <int D, int TILES> struct Shared {
        alignas(16) uint32_t weights[WARPS][TILES][4 * QUERY_WORDS];
        alignas(16) float out[WARPS][4 * TILES][D];
        float most[WARPS][4 * TILES], sum[WARPS][4 * TILES], total[DCI_GPU_MAX_GROUP];
        bool last;
};

struct Job {
        int list, row, head, query; /* query: the first of the block's */
        int n, first, last;         /* candidates; blocks of tokens of this part */
        bool sparse;
};

template <int TILES> static __device__ __forceinline__ Job job_of(const dci_gpu_tail_args &a)
{
        const int n_sets = (a.group + 4 * TILES - 1) / (4 * TILES);
        Job job;
        job.head = DCI_GPU_HEAD_OF(&a, blockIdx.y / n_sets);
        job.query = blockIdx.y % n_sets * 4 * TILES;
        job.list = blockIdx.z * (gridDim.y / n_sets) + blockIdx.y / n_sets;
        job.row = __ldcg(a.rows + blockIdx.z);
        dci_gpu_view view;
        DCI_GPU_VIEW(view, a.sizes, __ldcg(a.n_tokens + blockIdx.z), __ldcg(a.n_grouped + blockIdx.z));
        job.n = view.n_candidates;
        job.sparse = view.sparse != 0;
        const uint32_t n_blocks = (uint32_t)(job.n + TOKENS - 1) / TOKENS; /* times 64 parts: below 2^31 */
        job.first = (int)(n_blocks * blockIdx.x / gridDim.x);
        job.last = (int)(n_blocks * (blockIdx.x + 1) / gridDim.x);
        return job;
}

/* --- loads -------------------------------------------------------------------------------------------------------- */

/* Codes are read once: they need no place in the first-level cache. */
static __device__ __forceinline__ uint4 load_codes(const unsigned char *at)
{
        return ptx_load16_once_128(at);
}

/* The chunk that a block of tokens is in. */
static __device__ __forceinline__ int chunk_of(const dci_gpu_tail_args &a, const Job &job, int block)
{
        return __ldcg(a.chunks.numbers + (int64_t)job.row * a.chunks.stride + block / (DCI_GPU_CHUNK / TOKENS));
}

/* What the tail has of this head there. */
static __device__ __forceinline__ const unsigned char *place_of(const dci_gpu_tail_args &a, const Job &job, int chunk)
{
        const int shift = a.chunks.piece_shift;
        const unsigned long long piece =
                __ldcg(reinterpret_cast<const unsigned long long *>(a.chunks.pieces) + (chunk >> shift));
        return reinterpret_cast<const unsigned char *>(piece) + a.chunks.layer_at +
               (uint64_t)(chunk & ((1 << shift) - 1)) * a.chunks.chunk_bytes +
               (uint64_t)job.head * a.chunks.head_bytes + a.tail_at;
}

/* Scores of one block: lane g,c has tokens 32 i + 4 g + u of query c of each tile. */
template <int TILES> struct Scores {
        float x[TILES][4][4];
        uint2 scales[4]; /* of tokens 32 i + 4 g .. + 3, as bf16 */

        template <int GROUP, bool WHOLE>
        __device__ __forceinline__ void load_scores(const float *from, int group, int query, int left, int g)
        {
#pragma unroll
                for (int t = 0; t < TILES; t++)
#pragma unroll
                        for (int i = 0; i < 4; i++)
#pragma unroll
                                for (int u = 0; u < 4; u++) {
                                        const int token = 32 * i + u;
                                        x[t][i][u] = -FLT_MAX;
                                        if ((GROUP > 0 || query + 4 * t < group) && (WHOLE || token + 4 * g < left))
                                                x[t][i][u] = __ldca(from + token * group + 4 * t);
                                }
        }

        template <int GROUP>
        __device__ __forceinline__ void load(const dci_gpu_tail_args &a, const Job &job, int block,
                                             const unsigned char *scales_at, int g, int c)
        {
                const int group = GROUP > 0 ? GROUP : a.group, left = job.n - block * TOKENS;
                const float *from =
                        a.scores + ((int64_t)job.list * a.max_groups + block * TOKENS + 4 * g) * group + job.query + c;
#pragma unroll
                for (int i = 0; i < 4; i++)
                        scales[i] = __ldcg(reinterpret_cast<const uint2 *>(scales_at + 64 * i + 8 * g));
                if (left >= TOKENS)
                        load_scores<GROUP, true>(from, group, job.query + c, left, g);
                else
                        load_scores<GROUP, false>(from, group, job.query + c, left, g);
                if (left >= TOKENS)
                        return;
                        /* Behind the last candidate there may be anything. */
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        const int here = left - 32 * i - 4 * g;
                        scales[i].x = here >= 2 ? scales[i].x : here == 1 ? scales[i].x & 0xffffu : 0;
                        scales[i].y = here >= 4 ? scales[i].y : here == 3 ? scales[i].y & 0xffffu : 0;
                }
        }

        __device__ __forceinline__ float scale(int i, int u) const
        {
                const uint32_t word = u < 2 ? scales[i].x : scales[i].y;
                return __uint_as_float((u & 1) != 0 ? word & 0xffff0000u : word << 16);
        }
};

/* --- weights ------------------------------------------------------------------------------------------------------ */

/* Over the lanes that share c: those of one query. */
static __device__ __forceinline__ float greatest_of(float x)
{
#pragma unroll
        for (int d = 4; d < 32; d *= 2)
                x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, d));
        return x;
}

static __device__ __forceinline__ void multiply(int32_t (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
        ptx_mma_u8u8(d, a[0], a[1], a[2], a[3], b0, b1);
}

/* Weights of a block and one tile of four queries as B fragments, four steps of 32 tokens. */
template <int BITS> struct Weights {
        uint32_t b[4][2];
        float worth;     /* half of what a unit of a weight counts */
        int32_t nothing; /* what codes in the middle would sum up to, twice */

        /* From shared memory. A lane's tokens of a step are those of two quarters of a word, by line 4 j + c. */
        __device__ __forceinline__ void read(const uint32_t *words, int g, int c)
        {
                const uint32_t *of_column = words + (g >> 1) * QUERY_WORDS + (g & 1) * BYTE_WORDS;
                if constexpr (BITS == 4) {
#pragma unroll
                        for (int j = 0; j < 4; j++) {
                                const uint2 x = *reinterpret_cast<const uint2 *>(of_column + 8 * j + 2 * c);
                                b[j][0] = x.x;
                                b[j][1] = x.y;
                        }
                } else {
#pragma unroll
                        for (int j = 0; j < 2; j++) {
                                const uint4 x = *reinterpret_cast<const uint4 *>(
                                        of_column + (BITS == 2 ? 16 * j + 4 * c : 8 * c + 4 * j));
                                b[2 * j][0] = x.x;
                                b[2 * j][1] = x.y;
                                b[2 * j + 1][0] = x.z;
                                b[2 * j + 1][1] = x.w;
                        }
                }
                const uint32_t ones[4] = {0x01010101u, 0x01010101u, 0x01010101u, 0x01010101u};
                int32_t sums[4] = {0, 0, 0, 0};
#pragma unroll
                for (int j = 0; j < 4; j++)
                        multiply(sums, ones, b[j][0], b[j][1]);
                nothing = ((1 << BITS) - 1) * (256 * sums[0] + sums[1]);
        }
};

/* Weights of four tokens, the lower bits of these words, into a word of their upper and one of their lower bytes. */
static __device__ __forceinline__ void put_bytes(const uint32_t (&w)[4], uint32_t *upper, uint32_t *lower)
{
        const uint32_t first = __byte_perm(w[0], w[1], 0x5140), second = __byte_perm(w[2], w[3], 0x5140);
        *lower = __byte_perm(first, second, 0x5410);
        *upper = __byte_perm(first, second, 0x7632);
}

/* --- sums --------------------------------------------------------------------------------------------------------- */

template <int D, int BITS, int TILES> struct Running {
        using S = Shape<D, BITS>;
        float most[TILES], sum[TILES];  /* of query c of each tile; sum: of this lane's tokens */
        float out[TILES][S::COORDS][4]; /* coordinates 32 x + 4 g .. + 3 */
        uint4 codes[S::SLOTS][BITS];

        __device__ __forceinline__ void begin()
        {
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                        most[t] = LEAST;
                        sum[t] = 0.0f;
#pragma unroll
                        for (int x = 0; x < S::COORDS; x++)
                                out[t][x][0] = out[t][x][1] = out[t][x][2] = out[t][x][3] = 0.0f;
                }
        }

        /* 32 coordinates of a block; from: its codes, this lane's first. */
        __device__ __forceinline__ void fetch(int x, const unsigned char *from)
        {
#pragma unroll
                for (int j = 0; j < BITS; j++)
                        codes[x % S::SLOTS][j] = load_codes(from + x * S::COORD_BYTES + 512 * j);
        }

        /* Weights of one tile of queries go to shared memory; earlier sums are scaled down where the maximum grew. */
        __device__ __forceinline__ float weigh(int t, Scores<TILES> &scores, uint32_t *words, int g, int c)
        {
                float(&x)[4][4] = scores.x[t];
                float top = most[t];
#pragma unroll
                for (int i = 0; i < 4; i++)
                        top = fmaxf(top, fmaxf(fmaxf(x[i][0], x[i][1]), fmaxf(x[i][2], x[i][3])));
                top = greatest_of(top);
                if (__any_sync(0xffffffffu, top > most[t])) {
                        const float factor = exp2_of((most[t] - top) * CUDART_L2E_F);
                        sum[t] *= factor;
#pragma unroll
                        for (int k = 0; k < S::COORDS; k++)
#pragma unroll
                                for (int e = 0; e < 4; e++)
                                        out[t][k][e] *= factor;
                        most[t] = top;
                }
                float here = 0.0f, greatest = 0.0f;
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int u = 0; u < 4; u++) {
                                const float weight = exp2_of((x[i][u] - top) * CUDART_L2E_F);
                                here += weight;
                                x[i][u] = weight * scores.scale(i, u);
                                greatest = fmaxf(greatest, x[i][u]);
                        }
                sum[t] += here;
                greatest = greatest_of(greatest);
                const float unit = greatest > TOO_SMALL ? __fdividef(STEPS, greatest) : 0.0f;
#pragma unroll
                for (int i = 0; i < 4; i++) {
                        uint32_t w[4];
#pragma unroll
                        for (int u = 0; u < 4; u++) /* 2^23 makes the sum's lower bits the rounded weight */
                                w[u] = __float_as_uint(fmaf(x[i][u], unit, 8388608.0f));
                        put_bytes(w, words + c * QUERY_WORDS + g + 8 * i,
                                  words + c * QUERY_WORDS + BYTE_WORDS + g + 8 * i);
                }
                return greatest > TOO_SMALL ? greatest * (0.5f / STEPS) : 0.0f;
        }

        /* 32 coordinates: two tiles of 16, of words x and y, z and w. */
        __device__ __forceinline__ void add(int x, const Weights<BITS> (&weights)[TILES])
        {
                constexpr uint32_t MASK = BITS == 4 ? 0x0f0f0f0fu : BITS == 2 ? 0x03030303u : 0x01010101u;
                constexpr int STEPS_OF_WORD = 4 / BITS;
#pragma unroll
                for (int half = 0; half < 2; half++) {
                        int32_t sums[TILES][4];
#pragma unroll
                        for (int t = 0; t < TILES; t++)
                                sums[t][0] = sums[t][1] = sums[t][2] = sums[t][3] = 0;
#pragma unroll
                        for (int j = 0; j < BITS; j++) {
                                const uint4 &words = codes[x % S::SLOTS][j];
                                const uint32_t one = half == 0 ? words.x : words.z, two = half == 0 ? words.y : words.w;
#pragma unroll
                                for (int k = 0; k < STEPS_OF_WORD; k++) {
                                        const uint32_t a[4] = {
                                                one >> (2 * k * BITS) & MASK, two >> (2 * k * BITS) & MASK,
                                                one >> ((2 * k + 1) * BITS) & MASK, two >> ((2 * k + 1) * BITS) & MASK};
#pragma unroll
                                        for (int t = 0; t < TILES; t++)
                                                multiply(sums[t], a, weights[t].b[j * STEPS_OF_WORD + k][0],
                                                         weights[t].b[j * STEPS_OF_WORD + k][1]);
                                }
                        }
#pragma unroll
                        for (int t = 0; t < TILES; t++)
#pragma unroll
                                for (int e = 0; e < 2; e++) {
                                        const int32_t twice =
                                                512 * sums[t][2 * e] + (2 * sums[t][2 * e + 1] - weights[t].nothing);
                                        out[t][x][2 * half + e] =
                                                fmaf(weights[t].worth, (float)twice, out[t][x][2 * half + e]);
                                }
                }
        }

        __device__ __forceinline__ void leave(Shared<D, TILES> &s, int warp, int g, int c)
        {
#pragma unroll
                for (int t = 0; t < TILES; t++) {
                        float all = sum[t];
#pragma unroll
                        for (int d = 4; d < 32; d *= 2)
                                all += __shfl_xor_sync(0xffffffffu, all, d);
                        if (g == 0) {
                                s.most[warp][4 * t + c] = most[t];
                                s.sum[warp][4 * t + c] = all;
                        }
#pragma unroll
                        for (int x = 0; x < S::COORDS; x++)
                                *reinterpret_cast<float4 *>(&s.out[warp][4 * t + c][32 * x + 4 * g]) =
                                        make_float4(out[t][x][0], out[t][x][1], out[t][x][2], out[t][x][3]);
                }
        }
};

/* --- the kernel --------------------------------------------------------------------------------------------------- */

template <int D, int BITS, int TILES, int GROUP>
static __device__ __forceinline__ void sum_blocks(const dci_gpu_tail_args &a, const Job &job, Shared<D, TILES> &s)
{
        using S = Shape<D, BITS>;
        constexpr int PER_CHUNK = DCI_GPU_CHUNK / TOKENS;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c = lane & 3;
        Running<D, BITS, TILES> running;
        Scores<TILES> scores;
        const unsigned char *here = nullptr; /* this lane's first codes of the block */
        int block = job.first + warp, later = 0;
        const unsigned char *first = nullptr;
        running.begin();
        /* Codes are on their way before the selection has been made. */
        if (block < job.last) {
                first = place_of(a, job, chunk_of(a, job, block));
                here = first + block % PER_CHUNK * S::BLOCK_BYTES + 128 * c + 16 * g;
#pragma unroll
                for (int x = 0; x < S::SLOTS; x++)
                        running.fetch(x, here);
        }
        if (block + WARPS < job.last)
                later = chunk_of(a, job, block + WARPS);
        ptx_take_turn();
        if (block < job.last)
                scores.template load<GROUP>(a, job, block, first + S::SCALES_AT + block % PER_CHUNK * 2 * TOKENS, g, c);
        while (block < job.last) {
                const int next = block + WARPS;
                const bool more = next < job.last;
                /* Nothing waits for a table: it was read a block ago. */
                const unsigned char *place = nullptr, *there = nullptr;
                if (more) {
                        place = place_of(a, job, later);
                        there = place + next % PER_CHUNK * S::BLOCK_BYTES + 128 * c + 16 * g;
                }
                if (next + WARPS < job.last)
                        later = chunk_of(a, job, next + WARPS);
                Weights<BITS> weights[TILES];
                __syncwarp(); /* the last weights have been read */
#pragma unroll
                for (int t = 0; t < TILES; t++)
                        weights[t].worth = running.weigh(t, scores, s.weights[warp][t], g, c);
                __syncwarp();
                if (more)
                        scores.template load<GROUP>(a, job, next, place + S::SCALES_AT + next % PER_CHUNK * 2 * TOKENS,
                                                    g, c);
#pragma unroll
                for (int t = 0; t < TILES; t++)
                        weights[t].read(s.weights[warp][t], g, c);
                        /* The next codes take the place of those that are used. */
#pragma unroll
                for (int x = 0; x < S::COORDS; x++) {
                        running.add(x, weights);
                        if (x + S::SLOTS < S::COORDS)
                                running.fetch(x + S::SLOTS, here);
                        else if (more)
                                running.fetch(x + S::SLOTS - S::COORDS, there);
                }
                block = next;
                here = there;
        }
        running.leave(s, warp, g, c);
}

/* What all parts sum up to, to shared memory: outputs [query][D], and sums of weights. */
template <int D>
static __device__ __forceinline__ void collect(const dci_gpu_tail_args &a, const Job &job, float *out, float *total)
{
        for (int i = 2 * threadIdx.x; i < a.group * D; i += 2 * WARPS * 32) {
                const Merged merged = merge_parts<D>(a, job.list, i / D, i % D);
                *reinterpret_cast<float2 *>(out + i) = mean_of(merged);
                if (i % D != 0)
                        continue;
                total[i / D] = merged.sum;
                a.lse[(int64_t)job.list * a.group + i / D] = log_of(merged);
        }
}

/* The Hadamard transform of N / 32 registers from `first` on, coordinate 32 i + lane in register i; unscaled. */
template <int R, int N> static __device__ __forceinline__ void hadamard(float (&y)[R], int first, int lane)
{
#pragma unroll
        for (int d = 1; d < 32; d *= 2)
#pragma unroll
                for (int i = 0; i < N / 32; i++) {
                        const float other = __shfl_xor_sync(0xffffffffu, y[first + i], d);
                        y[first + i] = (lane & d) != 0 ? other - y[first + i] : y[first + i] + other;
                }
#pragma unroll
        for (int d = 1; d < N / 32; d *= 2)
#pragma unroll
                for (int i = 0; i < N / 32; i++)
                        if ((i & d) == 0) {
                                const float low = y[first + i], high = y[first + i + d];
                                y[first + i] = low + high;
                                y[first + i + d] = low - high;
                        }
}

/* Out of the values' frame, a warp for a query. */
template <int D, int PART>
static __device__ __forceinline__ void put_outputs(const dci_gpu_tail_args &a, const Job &job, const float *from,
                                                   const float *total)
{
        constexpr int R = D / 32, ROUNDS = 6;
        const int lane = threadIdx.x & 31;
        const float *centre = a.centres + ((int64_t)job.row * a.n_heads + job.head) * D;
        for (int q = threadIdx.x >> 5; q < a.group; q += WARPS) {
                float y[R], signs[ROUNDS][PART / 32], middle[R];
#pragma unroll
                for (int r = 0; r < ROUNDS; r++)
#pragma unroll
                        for (int i = 0; i < PART / 32; i++)
                                signs[r][i] = __ldca(a.signs + r * PART + 32 * i + lane);
#pragma unroll
                for (int i = 0; i < R; i++) {
                        middle[i] = __ldca(centre + 32 * i + lane);
                        y[i] = from[q * D + 32 * i + lane];
                }
#pragma unroll
                for (int r = ROUNDS - 1; r >= 0; r--) {
                        if (r % 2 == 1 && PART == D) /* the same part again */
                                continue;
                        const int first = r % 2 == 1 ? (D - PART) / 32 : 0;
                        hadamard<R, PART>(y, first, lane);
#pragma unroll
                        for (int i = 0; i < PART / 32; i++)
                                y[first + i] *= signs[r][i];
                }
                float *out = a.out + ((int64_t)job.list * a.group + q) * D;
#pragma unroll
                for (int i = 0; i < R; i++)
                        out[32 * i + lane] = total[q] > 0.0f ? y[i] + middle[i] : 0.0f;
        }
}

template <int D, int BITS, int TILES, int GROUP>
static __global__
__launch_bounds__(WARPS * 32,
                  TILES == 1 && D <= 128 ? 2 : 1) void tail_kernel(const __grid_constant__ dci_gpu_tail_args a)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, memory);
        Shared<D, TILES> &s = *reinterpret_cast<Shared<D, TILES> *>(memory);
        const Job job = job_of<TILES>(a);
        if (!job.sparse) { /* the same for all blocks of the list */
                ptx_take_turn();
                if (blockIdx.x == 0 && job.query == 0)
                        leave_nothing(a, job.list);
                return;
        }
        sum_blocks<D, BITS, TILES, GROUP>(a, job, s);
        __syncthreads();
        leave_part(a, job.list, job.query, s.most, s.sum, s.out);
        if (!is_last(a.arrived + job.list, gridDim.x * (gridDim.y / DCI_GPU_LISTS(&a)), &s.last))
                return;
        collect<D>(a, job, &s.out[0][0][0], s.total);
        __syncthreads();
        put_outputs<D, Shape<D, BITS>::PART>(a, job, &s.out[0][0][0], s.total);
}

/* --- launch ------------------------------------------------------------------------------------------------------- */

template <int D, int BITS, int TILES, int GROUP>
static cudaError_t launch(const dci_gpu_tail_args &args, const GpuStream &stream)
{
        static_assert(sizeof(Shared<D, TILES>) <= DCI_GPU_CUDA_MIN_SHARED, "some device has less");
        const dim3 grid((unsigned)args.n_parts,
                        (unsigned)(DCI_GPU_LISTS(&args) * ((args.group + 4 * TILES - 1) / (4 * TILES))),
                        (unsigned)args.n_sequences);
        return launch_shared(stream, grid, WARPS * 32, sizeof(Shared<D, TILES>), tail_kernel<D, BITS, TILES, GROUP>,
                             args);
}

template <int D, int BITS> static cudaError_t launch_dim(const dci_gpu_tail_args &args, const GpuStream &stream)
{
        if (args.group == 4)
                return launch<D, BITS, 1, 4>(args, stream);
        return args.group < 4 ? launch<D, BITS, 1, 0>(args, stream) : launch<D, BITS, 2, 0>(args, stream);
}

template <int BITS> static cudaError_t launch_bits(const dci_gpu_tail_args &args, const GpuStream &stream)
{
        return with_dim(args.dim, cudaErrorInvalidValue,
                        [&](auto dim) { return launch_dim<dim.value, BITS>(args, stream); });
}

#endif
