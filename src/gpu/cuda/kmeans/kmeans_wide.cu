/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Every row to the best centre (args/kmeans.h), where all centres of a view fit into shared memory. A group of four
 * warps has 64 rows, as points rounded to f16 in registers, and multiplies them by a chunk of centres at a time, by the
 * instructions of whole groups where the machine has them (ptx.cuh). Groups of a block do not wait for each other, so
 * that one multiplies while others look at what they got. Rows in doubt are kept until the block has seen all of its
 * rows, and then decided by canonical sums. */
#include "gpu/cuda/bulk.cuh"
#include "gpu/cuda/kmeans/kmeans.cuh"
#include "gpu/cuda/kmeans/kmeans_decide.cuh"
#include "gpu/cuda/ptx.cuh"

constexpr int wide_threads = 512, wide_warps = wide_threads / 32, wide_groups = wide_warps / 4;
constexpr int wide_rows = 64;      /* of a group */
constexpr int wide_most_chunks = 32;
#ifndef KM_WIDE_TURNS
#define KM_WIDE_TURNS 3
#endif
constexpr int wide_turns = KM_WIDE_TURNS; /* tiles of wide_rows that a group goes through */
constexpr int wide_block_rows = wide_groups * wide_rows * wide_turns;

template <int DIM> struct KmWide {
        static constexpr int chunk = DIM == 256 ? 32 : 96, rest = 32; /* centres that are multiplied at a time */
        static constexpr int centre_bytes = 2 * DIM, eight_bytes = 8 * centre_bytes;
};

/* Centres and their offsets come first. */
template <int DIM> struct KmWideShared {
        uint64_t arrived[wide_most_chunks]; /* chunks of centres */
        float middle[DIM], row_mean[DIM];
        KmDoubt doubts[wide_block_rows];
        int32_t n_doubts;
};

template <int DIM> static __host__ __device__ constexpr size_t wide_shared_bytes(int padded)
{
        return (size_t)padded * (KmWide<DIM>::centre_bytes + 4) + sizeof(KmWideShared<DIM>);
}

/* The copy engine brings all centres, a chunk after another. By one thread. */
template <int DIM>
static __device__ __forceinline__ void bring_centres(KmWideShared<DIM> &s, const KmView &h, unsigned char *centres,
                                                     float *offsets)
{
        constexpr int chunk = KmWide<DIM>::chunk, bytes = KmWide<DIM>::centre_bytes;
        for (int i = 0, first = 0; first < h.padded; i++, first += chunk)
                bulk_begin<1>(shared_address(&s.arrived[i]));
        bulk_begun();
        for (int i = 0, first = 0; first < h.padded; i++, first += chunk) {
                const uint32_t barrier = shared_address(&s.arrived[i]);
                const int n = min(chunk, h.padded - first);
                bulk_expect(barrier, (uint32_t)(n * (bytes + 4)));
                bulk_fetch(shared_address(centres + first * bytes),
                           reinterpret_cast<const unsigned char *>(h.packed) + (uint64_t)first * bytes,
                           (uint32_t)(n * bytes), barrier);
                bulk_fetch(shared_address(offsets + first), h.offsets + first, (uint32_t)(n * 4), barrier);
        }
}

/* Proposals of N centres from `first` on. */
template <int DIM, int N>
static __device__ __forceinline__ void propose(const uint4 (&points)[2][DIM / 32], const unsigned char *centres,
                                               const float *offsets, int first, uint32_t keep, KmProposals (&tops)[2])
{
        const int c = (int)threadIdx.x & 3;
        const unsigned char *at = centres + (uint32_t)first * KmWide<DIM>::centre_bytes;
        float sums[N / 2];
        ptx_group_begin(sums);
#pragma unroll
        for (int j = 0; j < DIM / 32; j++) {
                const uint4 &x = points[0][j], &y = points[1][j];
                ptx_group_mma_f16<N, KmWide<DIM>::eight_bytes>(sums, x.x, y.x, x.y, y.y, at + 512 * j, j == 0);
                ptx_group_mma_f16<N, KmWide<DIM>::eight_bytes>(sums, x.z, y.z, x.w, y.w, at + 512 * j + 256, false);
        }
        ptx_group_end(sums);
#pragma unroll
        for (int eight = 0; eight < N / 8; eight++) {
                const float2 offset = reinterpret_cast<const float2 *>(offsets + first)[4 * eight + c];
                const uint32_t number = (uint32_t)(first / 8 + eight);
#pragma unroll
                for (int r = 0; r < 2; r++)
                        tops[r].take(sums[4 * eight + 2 * r] - offset.x, sums[4 * eight + 2 * r + 1] - offset.y, keep,
                                     number);
        }
}

template <int DIM>
static __global__ void __launch_bounds__(wide_threads, 1) wide_kernel(const __grid_constant__ KmCall call)
{
        constexpr int chunk = KmWide<DIM>::chunk, rest = KmWide<DIM>::rest;
        PTX_DYNAMIC_SHARED(128, unsigned char, memory);
        unsigned char *centres = memory;
        float *offsets = reinterpret_cast<float *>(centres + (size_t)call.padded * KmWide<DIM>::centre_bytes);
        KmWideShared<DIM> &s = *reinterpret_cast<KmWideShared<DIM> *>(offsets + call.padded);
        const KmView h = km_view(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5, group = warp >> 2;
        const int first_tile = (int)blockIdx.x * (wide_groups * wide_turns),
                  n_tiles = min((h.n + wide_rows - 1) / wide_rows, first_tile + wide_groups * wide_turns);
        const uint32_t keep = ~0u << km_number_bits(call.padded);
        if (km_done(h) || first_tile >= n_tiles) /* the same for all */
                return;
        if (threadIdx.x == 0) {
                s.n_doubts = 0;
                bring_centres<DIM>(s, h, centres, offsets);
        }
        for (int i = (int)threadIdx.x; i < DIM; i += wide_threads) {
                s.middle[i] = h.middle[i];
                s.row_mean[i] = h.row_mean[i];
        }
        const float longest = __int_as_float(h.state[DCI_GPU_KMEANS_LONGEST]),
                    most_lost = __int_as_float(h.state[DCI_GPU_KMEANS_LOST]);
        __syncthreads();
        for (int tile = first_tile + group; tile < n_tiles; tile += wide_groups) {
                const int row = tile * wide_rows + (warp & 3) * 16 + (lane >> 2), last = h.n - 1;
                uint4 points[2][DIM / 32];
                /* Rows past the end repeat some others. */
                const uint4 *from = h.points +
                                    (uint64_t)min(row / DCI_GPU_KMEANS_GROUP, last / DCI_GPU_KMEANS_GROUP) * (2 * DIM) +
                                    lane;
#pragma unroll
                for (int r = 0; r < 2; r++)
#pragma unroll
                        for (int j = 0; j < DIM / 32; j++)
                                points[r][j] = __ldcg(from + (r * (DIM / 32) + j) * 32);
                KmProposals tops[2];
                tops[0].begin();
                tops[1].begin();
                if (tile + wide_groups < n_tiles) /* the next one, whose last groups may not be there */
                        ptx_prefetch(reinterpret_cast<const unsigned char *>(
                                             h.points + (uint64_t)min((tile + wide_groups) * 4 + (warp & 3),
                                                                      last / DCI_GPU_KMEANS_GROUP) *
                                                                (2 * DIM)) +
                                     lane * (DIM * 32 / 32));
                int first = 0;
                for (; first + chunk <= call.padded; first += chunk) {
                        bulk_wait(shared_address(&s.arrived[first / chunk]), 0);
                        propose<DIM, chunk>(points, centres, offsets, first, keep, tops);
                }
                if (first < call.padded)
                        bulk_wait(shared_address(&s.arrived[first / chunk]), 0);
                for (; first < call.padded; first += rest)
                        propose<DIM, rest>(points, centres, offsets, first, keep, tops);
                km_find_labels<DIM>(h, tops, row, longest, most_lost, keep, s.doubts, &s.n_doubts);
        }
        __syncthreads();
        const int n_doubts = s.n_doubts;
        for (int i = warp; i < n_doubts; i += wide_warps)
                km_decide<DIM>(h, s.doubts[i], s.row_mean, s.middle);
        if (threadIdx.x == 0 && n_doubts > 0)
                atomicAdd(h.state + DCI_GPU_KMEANS_EXACT, n_doubts);
}

extern "C" bool dci_gpu_cuda_kmeans_wide_takes(const dci_gpu_cuda *cuda, int dim, int padded)
{
        return cuda->major == 9 && with_dim(dim, false, [&](auto d) {
                return wide_shared_bytes<d.value>(padded) <= cuda->shared_bytes &&
                       (padded - 1) / KmWide<d.value>::chunk < wide_most_chunks;
        });
}

extern "C" cudaError_t dci_gpu_cuda_kmeans_wide(const KmCall *call, cudaStream_t stream)
{
        const dim3 grid((unsigned)((call->segment - 1) / wide_block_rows + 1),
                        (unsigned)(call->sizes.n_problems * call->n_segments));
        return with_dim(call->args.dim, cudaErrorInvalidValue, [&](auto dim) {
                return launch_shared({stream, false}, grid, wide_threads, wide_shared_bytes<dim.value>(call->padded),
                                     wide_kernel<dim.value>, *call);
        });
}
