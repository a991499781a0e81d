/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* When lists are decided again: one block for a sequence, a warp for a query head. And lists from what is kept: one
 * block for a list, which puts candidates in order as the selection does. */
#include <math_constants.h>

#include "gpu/cuda/launch.cuh"
#include "gpu/cuda/score/score_ptx.cuh"
#include "gpu/cuda/select/select_order.cuh"

constexpr int gate_threads = 1024, gate_warps = gate_threads / 32;

/* --- the gate ----------------------------------------------------------------------------------------------------- */

static __device__ __forceinline__ float query_at(const dci_gpu_gate_args &a, uint64_t at)
{
        if (a.query_dtype == DCI_F32)
                return static_cast<const float *>(a.queries)[at];
        const unsigned short half = static_cast<const unsigned short *>(a.queries)[at];
        return a.query_dtype == DCI_F16 ? __half2float(__ushort_as_half(half)) : __uint_as_float((unsigned)half << 16);
}

static __device__ __forceinline__ double sum_of_warp(double x)
{
#pragma unroll
        for (int d = 16; d > 0; d /= 2)
                x += __shfl_xor_sync(all_lanes, x, d);
        return x;
}

constexpr int most_elements = DCI_GPU_MAX_DIM / 32; /* of a lane */

/* A lane's part of the query that is kept. Plans since have long ended, so this needs no turn. */
static __device__ __forceinline__ void load_kept(const dci_gpu_gate_args &a, const float *kept,
                                                 float (&y)[most_elements])
{
#pragma unroll
        for (int e = 0; e < most_elements; e++)
                y[e] = e < a.dim / 32 ? __ldcg(kept + 32 * e + (threadIdx.x & 31)) : 0.0f;
}

/* Sums of two numbers over a warp: of x in the lower half of the lanes, of y in the upper one; added up as sum_of_warp
 * does. */
static __device__ __forceinline__ double sums_of_warp(double x, double y)
{
        const bool upper = (threadIdx.x & 16) != 0;
        double sum = (upper ? y : x) + __shfl_xor_sync(all_lanes, upper ? x : y, 16);
#pragma unroll
        for (int d = 8; d > 0; d /= 2)
                sum += __shfl_xor_sync(all_lanes, sum, d);
        return sum;
}

/* The length of the query that is kept, squared; all lanes have it. */
static __device__ __forceinline__ float length_of(const float (&y)[most_elements])
{
        double sum = 0.0;
#pragma unroll
        for (int e = 0; e < most_elements; e++)
                sum += (double)y[e] * (double)y[e];
        return __double2float_rn(sum_of_warp(sum));
}

/* The cosine of a query with the one that is kept, y of squared length `before`, whose place it takes; by one warp. */
static __device__ __forceinline__ double turn_query(const dci_gpu_gate_args &a, uint64_t from,
                                                    const float (&y)[most_elements], float before, float *kept)
{
        const int lane = threadIdx.x & 31, n = a.dim / 32;
        float x[most_elements];
        double of_now = 0.0, of_both = 0.0;
#pragma unroll
        for (int e = 0; e < most_elements; e++)
                x[e] = e < n ? query_at(a, from + 32 * e + lane) : 0.0f;
#pragma unroll
        for (int e = 0; e < most_elements; e++) {
                x[e] = __fmul_rn(x[e], a.scale);
                of_now += (double)x[e] * (double)x[e];
                of_both += (double)x[e] * (double)y[e];
                if (e < n)
                        kept[32 * e + lane] = x[e];
        }
        const double sums = sums_of_warp(of_now, of_both);
        const float now = __double2float_rn(__shfl_sync(all_lanes, sums, 0)),
                    both = __double2float_rn(__shfl_sync(all_lanes, sums, 16));
        if (now == 0.0f || before == 0.0f)
                return now == before ? 1.0 : 0.0;
        return __ddiv_rn((double)both, sqrt(__dmul_rn((double)now, (double)before)));
}

/* x / n; where n is a power of two, the same by a product, which takes a tenth of the time. */
static __device__ __forceinline__ double over(double x, int n)
{
        if ((n & (n - 1)) == 0)
                return __dmul_rn(x, __hiloint2double((1023 - (31 - __clz(n))) << 20, 0));
        return __ddiv_rn(x, (double)n);
}

/* What a sequence has of the last plan. */
struct Last {
        bool listed;
        int since;
};

/* Decides, by the cosines of all queries; by one warp. turns: [n_heads]. */
static __device__ __forceinline__ void decide(const dci_gpu_gate_args &a, int sequence, int row, int n,
                                              const dci_gpu_view &view, const Last &last, const double *cosines,
                                              double *turns)
{
        const int lane = threadIdx.x & 31;
        int32_t *state = part_of_row(a.selection.state, a.selection, row),
                *due = a.due + (uint64_t)sequence * a.n_heads;
        bool again = !last.listed || a.how == DCI_GPU_GATE_HEAD;
        for (int h = lane; h < a.n_heads && a.how != DCI_GPU_GATE_PERIOD; h += 32) {
                double sum = 0.0;
                for (int q = 0; q < a.group; q++)
                        sum = __dadd_rn(sum, cosines[h * a.group + q]);
                turns[h] = over(sum, a.group);
        }
        __syncwarp();
        if (a.how == DCI_GPU_GATE_PERIOD) {
                again = again || last.since >= a.period;
        } else if (a.how == DCI_GPU_GATE_BOUNDARY) {
                double sum = 0.0;
                for (int h = 0; h < a.n_heads; h++)
                        sum = __dadd_rn(sum, turns[h]);
                /* What is no number, of queries that are too large, decides. */
                again = again || !(over(sum, a.n_heads) >= a.tau);
        }
        for (int h = lane; h < a.n_heads; h += 32) {
                const bool keeps = a.how == DCI_GPU_GATE_HEAD && last.listed && turns[h] >= a.tau;
                due[h] = !again ? 0 : keeps ? DCI_GPU_DUE_LATER : DCI_GPU_DUE_NOW;
        }
        if (lane > 0)
                return;
        state[DCI_GPU_SELECTION_SINCE] = again ? 1 : last.since + 1;
        /* Marks where the host's next segment begins. */
        if (again && last.listed && a.boundaries != nullptr)
                a.boundaries[(uint64_t)row * a.boundary_step + (uint64_t)((n - 1) & a.boundary_mask)] = 1;
        if (again) {
                state[DCI_GPU_SELECTION_LISTED] = 1;
                state[DCI_GPU_SELECTION_END] = view.n_candidates;
        }
}

static __global__ void __launch_bounds__(gate_threads, 1) gate_kernel(const __grid_constant__ dci_gpu_gate_args a)
{
        __shared__ double cosines[DCI_GPU_MAX_HEADS], turns[DCI_GPU_MAX_HEADS];
        const int sequence = blockIdx.x, warp = threadIdx.x >> 5;
        const int row = __ldcg(a.rows + sequence), n = __ldcg(a.n_tokens + sequence),
                  n_grouped = __ldcg(a.n_grouped + sequence), n_queries = a.n_heads * a.group;
        const int32_t *state = part_of_row(a.selection.state, a.selection, row);
        const Last last = {__ldcg(state + DCI_GPU_SELECTION_LISTED) != 0, __ldcg(state + DCI_GPU_SELECTION_SINCE)};
        const bool compares = a.how != DCI_GPU_GATE_PERIOD;
        float *kept = compares ? part_of_row(a.selection.queries, a.selection, row) : nullptr, y[most_elements],
              length = 0.0f;
        if (compares && warp < n_queries) {
                load_kept(a, kept + (uint64_t)warp * a.dim, y);
                length = length_of(y);
        }
        ptx_take_turn();
        dci_gpu_view view;
        DCI_GPU_VIEW(view, a.sizes, n, n_grouped);
        if (!view.sparse) {
                for (int h = threadIdx.x; h < a.n_heads; h += gate_threads)
                        a.due[(uint64_t)sequence * a.n_heads + h] = 0;
                return;
        }
        for (int q = warp; compares && q < n_queries; q += gate_warps) {
                if (q != warp) {
                        load_kept(a, kept + (uint64_t)q * a.dim, y);
                        length = length_of(y);
                }
                const double cosine = turn_query(a, ((uint64_t)sequence * n_queries + q) * a.query_ld, y, length,
                                                 kept + (uint64_t)q * a.dim);
                if ((threadIdx.x & 31) == 0)
                        cosines[q] = cosine;
        }
        __syncthreads();
        if (warp == 0)
                decide(a, sequence, row, n, view, last, cosines, turns);
}

extern "C" dci_status dci_gpu_cuda_gate(struct dci_gpu *gpu, void *stream, const dci_gpu_gate_args *args)
{
        if (args->n_sequences <= 0 || args->n_heads <= 0)
                return DCI_OK;
        if (args->group < 1 || args->n_heads > DCI_GPU_MAX_HEADS / args->group)
                return dci_fail(DCI_ERR_LIMIT,
                                "%d kv heads of %d query heads: the device's kernel takes %d query heads",
                                args->n_heads, args->group, DCI_GPU_MAX_HEADS);
        if (args->dim < 32 || args->dim > DCI_GPU_MAX_DIM || args->dim % 32 != 0)
                return dci_fail(DCI_ERR_UNSUPPORTED, "rows have %d elements, expected a multiple of 32 up to %d",
                                args->dim, DCI_GPU_MAX_DIM);
        if (args->how < DCI_GPU_GATE_PERIOD || args->how > DCI_GPU_GATE_HEAD)
                return dci_fail(DCI_ERR_UNSUPPORTED, "a gate of kind %d, expected %d to %d", args->how,
                                DCI_GPU_GATE_PERIOD, DCI_GPU_GATE_HEAD);
        return dci_gpu_cuda_status(launch_kernel(stream_of(dci_gpu_cuda_of(gpu), stream),
                                                 dim3((unsigned)args->n_sequences), gate_threads, 0, gate_kernel,
                                                 *args),
                                   "the gate of %d sequences cannot be queued", args->n_sequences);
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

/* Scores of n candidates are no part of what a tail sums up. */
template <typename Candidate>
static __device__ __forceinline__ void drop_scores(const dci_gpu_reuse_args &a, int list, int n, Candidate candidate)
{
        for (int i = threadIdx.x; a.scores != nullptr && i < n * a.group; i += n_threads)
                a.scores[((uint64_t)list * a.max_groups + candidate(i / a.group)) * a.group + i % a.group] = -FLT_MAX;
}

static __global__ void __launch_bounds__(n_threads, 1) take_kernel(const __grid_constant__ dci_gpu_reuse_args a)
{
        PTX_DYNAMIC_SHARED(16, unsigned char, base);
        __shared__ Shared s;
        uint32_t *bits = reinterpret_cast<uint32_t *>(base);
        int32_t *tokens = reinterpret_cast<int32_t *>(bits + window_words);
        const int head = blockIdx.x, sequence = blockIdx.y, list = sequence * a.n_heads + head, thread = threadIdx.x;
        ptx_take_turn();
        const int row = __ldca(a.rows + sequence), n = __ldca(a.n_tokens + sequence),
                  n_grouped = __ldca(a.n_grouped + sequence);
        if (a.selection.lists == nullptr) {
                const int32_t *positions = a.positions + (uint64_t)list * a.stride;
                drop_scores(a, list, a.counts[list], [&](int i) { return positions[i] - a.sizes.sink; });
                return;
        }
        dci_gpu_view view;
        DCI_GPU_VIEW(view, a.sizes, n, n_grouped);
        if (thread == 0 && head == 0)
                put_header(a, sequence, view, n);
        if (!view.sparse) {
                if (thread == 0)
                        a.counts[list] = 0;
                return;
        }
        const uint32_t taken =
                read_kept(s, a.selection, row, head, view.n_candidates, min(view.room, a.stride), tokens);
        drop_scores(a, list, (int)taken, [&](int i) { return tokens[i]; });
        __syncthreads();
        const uint32_t written = put_in_order(s, bits, tokens, (int)taken, view.n_candidates, a.sizes.sink,
                                              a.positions + (uint64_t)list * a.stride);
        if (thread == 0)
                a.counts[list] = (int32_t)written;
}

static constexpr size_t spare = sizeof(Shared) + 1024;

static size_t shared_of(int stride)
{
        return (size_t)window_words * 4 + (size_t)stride * 4;
}

extern "C" size_t dci_gpu_cuda_reuse_bytes(int32_t stride)
{
        return shared_of(stride) + spare;
}

extern "C" dci_status dci_gpu_cuda_reuse(struct dci_gpu *gpu, void *stream, const dci_gpu_reuse_args *args)
{
        const dci_gpu_cuda *cuda = dci_gpu_cuda_of(gpu);
        const size_t shared = shared_of(args->stride);
        if (args->n_sequences <= 0 || args->n_heads <= 0)
                return DCI_OK;
        if (args->stride < 1 || args->stride > DCI_GPU_MAX_LIST || args->n_sequences > 65535)
                return dci_fail(DCI_ERR_LIMIT,
                                "lists of %d of %d sequences: the device's kernel takes lists of %d of 65535",
                                args->stride, args->n_sequences, DCI_GPU_MAX_LIST);
        if (shared + spare > cuda->shared_bytes)
                return dci_fail(DCI_ERR_LIMIT, "lists of %d need %zu bytes of shared memory, this GPU has %zu",
                                args->stride, shared + spare, cuda->shared_bytes);
        return dci_gpu_cuda_status(launch_shared(stream_of(cuda, stream),
                                                 dim3((unsigned)args->n_heads, (unsigned)args->n_sequences), n_threads,
                                                 shared, take_kernel, *args),
                                   "lists of %d sequences cannot be queued", args->n_sequences);
}
