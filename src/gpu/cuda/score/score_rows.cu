/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores of rows (means, extremes, cuboids, deviations), with tensor cores (m16n8k16). A warp takes tiles of 16 rows, of each 64
 * elements at a time (96 of dimension 96): lane g,c loads of rows g and g + 8 the elements 32 j + 8 c .. + 7, which
 * serve two products.
 *
 * A query is made for its kind in binary32, brought near 1 by a power of two, and split into what the rows' type holds
 * of it and what that leaves: up to 4 query heads both are in the 8 columns of B, else they are two products. Of
 * deviations the two halves of a row have products of their own, with the query and with its squares. */
#include "gpu/cuda/score/score_attended.cuh"

#define ROW_TILE 16

/* Of P elements of a row: 64, of rows of up to 512, or 96, of rows of up to 192. */
template <int P> constexpr int max_pieces = P == 96 ? 2 : 8;

template <int P, int Q> struct RowQueries {
        static constexpr int CHAINS = Q == 4 ? 1 : Q == 8 ? 2 : 4;
        uint4 b[CHAINS][max_pieces<P> * P / 32][32]; /* registers of B by lane */
        float back[Q];                               /* powers of two */
};

typedef RawQuery<DCI_GPU_MAX_DIM / 32> RowQuery;

template <class T, int P, int Q>
static __device__ __forceinline__ void put_query(const dci_gpu_score_args &a, const RowQuery &query,
                                                 RowQueries<P, Q> &out, int q, int lane)
{
        constexpr int MOST = DCI_GPU_MAX_DIM / 32;
        const int n = a.dim / 32;
        float most = 0.0f;
#pragma unroll
        for (int e = 0; e < MOST; e++)
                most = fmaxf(most, fabsf(query.get(a, e)));
        most = warp_most(most);
        const uint32_t exponent = min(max(__float_as_uint(most) >> 23, 1u), 253u);
        const float near = __uint_as_float((254 - exponent) << 23);
        if (lane == 0)
                out.back[q] = __uint_as_float(exponent << 23);
        const auto put = [&](int j, float y) {
                const uint16_t high = T::narrow(y), low = T::narrow(y - T::to_f32(high));
                const int chain = Q == 4 ? 0 : 2 * (q / 8), column = Q == 4 ? q : q % 8;
                uint16_t *first = reinterpret_cast<uint16_t *>(&out.b[chain][j][4 * column + lane / 8]);
                uint16_t *second =
                        Q == 4 ? reinterpret_cast<uint16_t *>(&out.b[0][j][4 * (column + 4) + lane / 8])
                               : reinterpret_cast<uint16_t *>(
                                         &out.b[(chain + 1) % RowQueries<P, Q>::CHAINS][j][4 * column + lane / 8]);
                first[lane % 8] = high;
                second[lane % 8] = low;
        };
#pragma unroll
        for (int e = 0; e < MOST; e++) {
                if (e >= n)
                        break;
                const float y = query.get(a, e) * near;
                put(e, a.kind == DCI_GPU_MINMAX ? fmaxf(y, 0.0f) : y);
                if (a.kind != DCI_GPU_MEANS)
                        put(n + e, a.kind == DCI_GPU_MINMAX       ? fminf(y, 0.0f)
                                   : a.kind == DCI_GPU_DEVIATIONS ? y * y
                                                                  : fabsf(y));
        }
}

/* Where rows are: row r of chunk c is row (c << shift) + r of the list. */
struct RowPlaces {
        int shift, first_chunk, n_rows, row_bytes;
};

/* A piece of a tile on its way. */
template <int P> struct RowPiece {
        uint4 x[2][P / 32];

        __device__ __forceinline__ void load(const ScoreTable &table, const RowPlaces &places, int tile, int piece,
                                             int lane, uint64_t policy)
        {
                const int g = lane >> 2, c = lane & 3;
#pragma unroll
                for (int h = 0; h < 2; h++) {
                        /* Rows past the end repeat the last one. */
                        const int row = min(ROW_TILE * tile + g + 8 * h, places.n_rows - 1);
                        const unsigned char *from = table.at[(row >> places.shift) - places.first_chunk] +
                                                    (row & ((1 << places.shift) - 1)) * places.row_bytes +
                                                    piece * P * 2 + 16 * c;
#pragma unroll
                        for (int j = 0; j < P / 32; j++)
                                x[h][j] = load_once(from + 64 * j, policy);
                }
        }

        template <class T, int Q>
        __device__ __forceinline__ void multiply(const RowQueries<P, Q> &queries, int piece, int lane,
                                                 float (&sums)[Q == 16 ? 2 : 1][4]) const
        {
#pragma unroll
                for (int j = 0; j < P / 32; j++)
#pragma unroll
                        for (int k = 0; k < RowQueries<P, Q>::CHAINS; k++) {
                                const uint4 b = queries.b[k][piece * (P / 32) + j][lane];
                                T::mma(sums[k / 2], x[0][j].x, x[1][j].x, x[0][j].y, x[1][j].y, b.x, b.y);
                                T::mma(sums[k / 2], x[0][j].z, x[1][j].z, x[0][j].w, x[1][j].w, b.z, b.w);
                        }
        }
};

/* What a tile's products are in all of a row, or in a half of it. */
template <int Q> struct RowSums {
        float x[Q == 16 ? 2 : 1][4];

        __device__ __forceinline__ void clear()
        {
#pragma unroll
                for (int t = 0; t < (Q == 16 ? 2 : 1); t++)
                        x[t][0] = x[t][1] = x[t][2] = x[t][3] = 0.0f;
        }
        /* Up to four query heads lanes with c < 2 have products with the first parts, the others with the second: they
         * trade rows. */
        __device__ __forceinline__ float traded(int j, int c) const
        {
                const float given = c < 2 ? x[0][2 + j] : x[0][j], own = c < 2 ? x[0][j] : x[0][2 + j];
                return own + __shfl_xor_sync(SCORE_ALL, given, 2);
        }
};

/* ROOT: squares are the second halves' sums; else they are not looked at. */
template <bool ROOT>
static __device__ __forceinline__ float score_of(const dci_gpu_score_args &a, float sum, float square, float back)
{
        return ROOT ? fminf((sum + a.deviation_weight * sqrtf(fmaxf(square, 0.0f))) * back, FLT_MAX) : sum * back;
}

/* Scores of static pages are no scores. */
template <int N> static __device__ __forceinline__ void leave_out(int row, int apart, int n_static, float (&x)[N][2])
{
#pragma unroll
        for (int i = 0; i < N; i++)
                if (row + i * apart < n_static)
                        x[i][0] = x[i][1] = -INFINITY;
}

/* By one block of a list. */
static __device__ __forceinline__ void store_queries(const dci_gpu_score_args &a, const ScoreJob &job)
{
        const int n = a.group * a.dim;
        const int64_t from = (int64_t)job.list * a.group,
                      to = ((int64_t)__ldcg(a.ring.slots + blockIdx.z) * a.n_heads + job.head) * n;
        unsigned char *row = a.ring.to + (uint64_t)job.row * a.ring.row_bytes;
        ptx_take_turn();
        for (int i = threadIdx.x; i < n; i += SCORE_THREADS) {
                const int64_t at = (from + i / a.dim) * (int64_t)a.query_ld + i % a.dim;
                if (a.query_dtype == DCI_F32)
                        reinterpret_cast<uint32_t *>(row)[to + i] =
                                __ldcg(static_cast<const uint32_t *>(a.queries) + at);
                else
                        reinterpret_cast<uint16_t *>(row)[to + i] =
                                __ldcg(static_cast<const uint16_t *>(a.queries) + at);
        }
}

template <int P, int Q, bool ROOT>
static __device__ __forceinline__ void finish_rows(const dci_gpu_score_args &a, const RowQueries<P, Q> &queries,
                                                   const RowSums<Q> &sums, const RowSums<Q> &squares, int tile,
                                                   int lane, int n_static, Scores<Q> &scores)
{
        const int g = lane >> 2, c = lane & 3;
        if constexpr (Q == 4) {
                float x[1][2];
#pragma unroll
                for (int j = 0; j < 2; j++) {
                        const float sum = sums.traded(j, c), square = ROOT ? squares.traded(j, c) : 0.0f;
                        x[0][j] = score_of<ROOT>(a, sum, square, queries.back[2 * (c & 1) + j]);
                }
                const int row = ROW_TILE * tile + g + (c < 2 ? 0 : 8);
                leave_out(row, 1, n_static, x);
                scores.take(a, 0, row, 1, x);
        } else {
#pragma unroll
                for (int t = 0; t < (Q == 16 ? 2 : 1); t++) {
                        float x[2][2];
#pragma unroll
                        for (int i = 0; i < 2; i++)
#pragma unroll
                                for (int j = 0; j < 2; j++)
                                        x[i][j] = score_of<ROOT>(a, sums.x[t][2 * i + j],
                                                                 ROOT ? squares.x[t][2 * i + j] : 0.0f,
                                                                 queries.back[8 * t + 2 * c + j]);
                        leave_out(ROW_TILE * tile + g, 8, n_static, x);
                        scores.take(a, t, ROW_TILE * tile + g, 8, x);
                }
        }
}

template <int P, int Q> union RowsShared {
        struct {
                ScoreTable table;
                RowQueries<P, Q> queries;
                float tops[SCORE_WARPS][16][2];
        } scan;
        KeptShared kept;
};

template <class T, int P, int Q, bool ROOT>
static __global__ void __launch_bounds__(SCORE_THREADS, P *Q > 1024 ? 1 : 2)
        rows_kernel(const __grid_constant__ dci_gpu_score_args a)
{
        __shared__ __align__(16) unsigned char memory[sizeof(RowsShared<P, Q>)];
        auto &s = reinterpret_cast<RowsShared<P, Q> *>(memory)->scan;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
        const ScoreJob job = score_job_of(a);
        if (a.ring.to != nullptr && blockIdx.x == (unsigned)a.n_parts)
                store_queries(a, job);
        if (!score_begins(a, job))
                return;
        if (blockIdx.x == (unsigned)a.n_parts) {
                ptx_take_turn();
                keep(a, job, reinterpret_cast<RowsShared<P, Q> *>(memory)->kept);
                return;
        }
        const uint64_t policy = once_policy();
        const int width = a.kind == DCI_GPU_MEANS ? a.dim : 2 * a.dim, pieces = width / P;
        RowPlaces places;
        places.shift = a.n_clusters != nullptr ? 9 : 9 - a.group_shift;
        places.row_bytes = 2 * width;
        places.n_rows = a.n_clusters != nullptr ? __ldcg(a.n_clusters + (uint64_t)job.row * a.n_heads + job.head)
                                                : (job.n_candidates + (1 << a.group_shift) - 1) >> a.group_shift;
        int n_static = 0;
        if (a.order.n_ordered != nullptr) { /* the same for all threads */
                places.n_rows = max(places.n_rows, __ldcg(a.order.n_ordered + blockIdx.z) >> a.group_shift);
                n_static = __ldcg(a.order.n_static + blockIdx.z);
        }
        const ScoreRange range = score_range_of((places.n_rows + ROW_TILE - 1) / ROW_TILE, blockIdx.x, a.n_parts);
        Scores<Q> scores;
        RowPiece<P> rows;
        RowQuery query;
        RowSums<Q> sums, means;
        sums.clear();
        if (range.first >= range.last)
                ptx_take_turn();
        scores.begin(a, job, places.n_rows, lane & 3);
        for (int first = range.first, end; first < range.last; first = end) {
                /* As many tiles as the table has chunks for. */
                places.first_chunk = first * ROW_TILE >> places.shift;
                const int64_t known = (int64_t)(places.first_chunk + SCORE_TABLE) << places.shift;
                end = (int)min((int64_t)range.last, known / ROW_TILE);
                const int last_row = min(end * ROW_TILE, places.n_rows) - 1;
                __syncthreads(); /* the table was read */
                s.table.fill(a.summaries, job, places.first_chunk, (last_row >> places.shift) + 1 - places.first_chunk);
                __syncthreads();
                int tile = first + warp, piece = 0;
                if (tile < end)
                        rows.load(s.table, places, tile, 0, lane, policy);
                if (first == range.first) { /* the same for all threads */
                        ptx_take_turn();
                        if (warp < Q)
                                query.load(a, job.list, warp, lane, a.dim / 32);
                        if (warp < Q)
                                put_query<T, P, Q>(a, query, s.queries, warp, lane);
                        __syncthreads();
                }
                while (tile < end) {
                        const int finished = piece + 1 == pieces ? tile : -1;
                        rows.template multiply<T, Q>(s.queries, piece, lane, sums.x);
                        if (ROOT && 2 * (piece + 1) == pieces) { /* the means end here */
                                means = sums;
                                sums.clear();
                        }
                        piece = finished >= 0 ? 0 : piece + 1;
                        tile = finished >= 0 ? tile + SCORE_WARPS : tile;
                        if (tile < end)
                                rows.load(s.table, places, tile, piece, lane, policy);
                        if (finished < 0)
                                continue;
                        finish_rows<P, Q, ROOT>(a, s.queries, ROOT ? means : sums, sums, finished, lane, n_static,
                                                scores);
                        sums.clear();
                }
        }
        scores.leave(a, job, s.tops);
}

template <class T, int P, bool ROOT>
static cudaError_t launch_rows_as(const dci_gpu_score_args &args, const GpuStream &stream)
{
        return launch_scores(args.group <= 4   ? rows_kernel<T, P, 4, ROOT>
                             : args.group <= 8 ? rows_kernel<T, P, 8, ROOT>
                                               : rows_kernel<T, P, 16, ROOT>,
                             args, stream);
}

template <class T, int P> static cudaError_t launch_rows_of(const dci_gpu_score_args &args, const GpuStream &stream)
{
        return args.kind == DCI_GPU_DEVIATIONS ? launch_rows_as<T, P, true>(args, stream)
                                               : launch_rows_as<T, P, false>(args, stream);
}

template <class T> static cudaError_t launch_rows(const dci_gpu_score_args &args, const GpuStream &stream)
{
        return args.dim == 96 ? launch_rows_of<T, 96>(args, stream) : launch_rows_of<T, 64>(args, stream);
}

extern "C" cudaError_t dci_gpu_cuda_score_rows(const dci_gpu_score_args *args, const GpuStream &stream)
{
        return args->dtype == DCI_F16 ? launch_rows<HalfRows>(*args, stream) : launch_rows<Bf16Rows>(*args, stream);
}
