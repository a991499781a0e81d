/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Every row to the best centre (args/kmeans.h), where all centres of a view fit into shared memory. A group of four
 * warps has 64 rows, as points rounded to f16 in registers, and multiplies them by a chunk of centres at a time, by the
 * instructions of whole groups where the GPU has them (ptx.cuh). While they run it compares the products of the chunk
 * before. Rows in doubt are kept until the block has seen all of its rows, and then decided by canonical sums. */
#include "gpu/cuda/bulk.cuh"
#include "gpu/cuda/kmeans/kmeans.cuh"
#include "gpu/cuda/kmeans/kmeans_decide.cuh"
#include "gpu/cuda/ptx.cuh"

constexpr int wide_threads = 512, wide_warps = wide_threads / 32, wide_groups = wide_warps / 4;
constexpr int wide_rows = 64; /* of a group */
constexpr int wide_most_chunks = 32;
constexpr int wide_doubts = 20; /* that a warp keeps */
constexpr int wide_most_turns = 12;

/* Centres that are multiplied at a time, and those that are left where their number is no multiple; bytes of one. */
template <int DIM> struct KmWide {
        static constexpr int chunk = DIM == 256 ? 32 : 64, rest = 32, bytes = 2 * DIM;
};

template <int DIM> struct KmWideShared {
        uint64_t arrived[wide_most_chunks]; /* chunks of centres */
        float middle[DIM], row_mean[DIM];
        KmDoubt doubts[wide_warps][wide_doubts];
        int32_t n_doubts[wide_warps];
        uint16_t labels[wide_most_turns * wide_groups * wide_rows];
        __align__(16) float2 bounds[wide_warps][DCI_GPU_KMEANS_GROUP];
};

/* Centres and their offsets come first. */
template <int DIM> static size_t wide_shared_bytes(int padded)
{
        return (size_t)padded * (KmWide<DIM>::bytes + 4) + sizeof(KmWideShared<DIM>);
}

/* The copy engine brings all centres, a chunk after another. By one thread. */
template <int DIM>
static __device__ __forceinline__ void bring_centres(KmWideShared<DIM> &s, const KmView &h, unsigned char *centres,
                                                     float *offsets)
{
        constexpr int chunk = KmWide<DIM>::chunk, bytes = KmWide<DIM>::bytes;
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

/* A group's 64 rows and the centres: what a lane has of two rows, and of the proposals for them. */
template <int DIM> struct KmGroup {
        uint4 points[2][DIM / 32];
        KmProposals tops[2];
        const unsigned char *centres;
        const float *offsets;
        uint32_t keep;

        /* Begins to multiply by centres from `first` on. */
        template <int N> __device__ __forceinline__ void multiply(float (&sums)[N], int first) const
        {
                const unsigned char *at = centres + (uint32_t)first * KmWide<DIM>::bytes;
                ptx_group_begin(sums);
#pragma unroll
                for (int j = 0; j < DIM / 32; j++) {
                        const uint4 &x = points[0][j], &y = points[1][j];
                        ptx_group_mma_f16<2 * N, 8 * KmWide<DIM>::bytes>(sums, x.x, y.x, x.y, y.y, at + 512 * j,
                                                                         j == 0);
                        ptx_group_mma_f16<2 * N, 8 * KmWide<DIM>::bytes>(sums, x.z, y.z, x.w, y.w, at + 512 * j + 256,
                                                                         false);
                }
                ptx_group_end();
        }

        /* Waits for all products but the last LATER groups of them, and compares them. */
        template <int LATER, int N> __device__ __forceinline__ void take(float (&sums)[N], int first)
        {
                ptx_group_wait<LATER>(sums);
#pragma unroll
                for (int eight = 0; eight < N / 4; eight += 2) {
                        const float2 *at =
                                reinterpret_cast<const float2 *>(offsets + first) + 4 * eight + (threadIdx.x & 3);
                        const float2 x = at[0], y = at[4];
                        const uint32_t number = (uint32_t)(first / 8 + eight);
#pragma unroll
                        for (int r = 0; r < 2; r++) {
                                const float *sum = sums + 4 * eight + 2 * r;
                                tops[r].take(0, sum[0] - x.x, sum[4] - y.x, keep, number);
                                tops[r].take(1, sum[1] - x.y, sum[5] - y.y, keep, number);
                        }
                }
        }
};

/* All centres of a view, those of a chunk being multiplied while another one's products are looked at. */
template <int DIM> static __device__ __forceinline__ void propose(KmGroup<DIM> &group, KmWideShared<DIM> &s, int padded)
{
        constexpr int chunk = KmWide<DIM>::chunk, rest = KmWide<DIM>::rest;
        const int n = padded / chunk;
        float even[chunk / 2], odd[chunk / 2];
        const auto multiply = [&](float(&sums)[chunk / 2], int i) {
                bulk_wait(shared_address(&s.arrived[i]), 0);
                group.multiply(sums, i * chunk);
        };
        multiply(even, 0);
        if (padded % chunk != 0) {
                float left[rest / 2];
                bulk_wait(shared_address(&s.arrived[n]), 0);
                group.multiply(left, n * chunk);
                group.template take<0>(left, n * chunk);
        }
        int i = 0;
        for (; i + 2 < n; i += 2) {
                multiply(odd, i + 1);
                group.template take<1>(even, i * chunk);
                multiply(even, i + 2);
                group.template take<1>(odd, (i + 1) * chunk);
        }
        if (i + 1 < n) {
                multiply(odd, i + 1);
                group.template take<1>(even, i * chunk);
                group.template take<0>(odd, (i + 1) * chunk);
        } else {
                group.template take<0>(even, i * chunk);
        }
}

/* What all warps have kept, divided among them. */
template <int DIM>
static __device__ __forceinline__ void decide_all(KmWideShared<DIM> &s, const KmView &h, int first_row)
{
        const int warp = (int)threadIdx.x >> 5;
        int n_before = 0; /* of the warps before */
        for (int w = 0; w < wide_warps; w++) {
                const int n = s.n_doubts[w];
                for (int i = (warp + wide_warps - n_before % wide_warps) % wide_warps; i < n; i += wide_warps)
                        km_decide<DIM>(h, s.doubts[w][i], s.row_mean, s.middle,
                                       s.labels + (s.doubts[w][i].row - first_row));
                n_before += n;
        }
}

/* turns: tiles of wide_rows that a group goes through. */
template <int DIM>
static __global__ void __launch_bounds__(wide_threads, 1) wide_kernel(const __grid_constant__ KmCall call, int turns)
{
        PTX_DYNAMIC_SHARED(128, unsigned char, memory);
        KmGroup<DIM> group;
        group.centres = memory;
        group.offsets = reinterpret_cast<float *>(memory + (size_t)call.padded * KmWide<DIM>::bytes);
        group.keep = ~0u << km_number_bits(call.padded);
        KmWideShared<DIM> &s = *reinterpret_cast<KmWideShared<DIM> *>(const_cast<float *>(group.offsets) + call.padded);
        const KmView h = km_view(call, (int)blockIdx.y);
        const int lane = (int)threadIdx.x & 31, warp = (int)threadIdx.x >> 5;
        const int first_tile = (int)blockIdx.x * wide_groups * turns,
                  n_tiles = min((h.n + wide_rows - 1) / wide_rows, first_tile + wide_groups * turns);
        if (km_done(h) || first_tile >= n_tiles) /* the same for all */
                return;
        if (threadIdx.x == 0)
                bring_centres<DIM>(s, h, memory, const_cast<float *>(group.offsets));
        for (int i = (int)threadIdx.x; i < DIM; i += wide_threads) {
                s.middle[i] = h.middle[i];
                s.row_mean[i] = h.row_mean[i];
        }
        const float longest = __int_as_float(h.state[DCI_GPU_KMEANS_LONGEST]),
                    most_lost = __int_as_float(h.state[DCI_GPU_KMEANS_LOST]);
        const int first_row = first_tile * wide_rows;
        int n_doubts = 0, n_all_doubts = 0;
        __syncthreads();
        for (int tile = first_tile + (warp >> 2); tile < n_tiles; tile += wide_groups) {
                /* Groups of rows past the end repeat the last one. */
                const int last = (h.n - 1) / DCI_GPU_KMEANS_GROUP, sixteen = 4 * tile + (warp & 3);
                const uint4 *from = h.points + (uint64_t)min(sixteen, last) * (2 * DIM) + lane;
#pragma unroll
                for (int r = 0; r < 2; r++) {
                        group.tops[r].begin();
#pragma unroll
                        for (int j = 0; j < DIM / 32; j++)
                                group.points[r][j] = __ldcg(from + (r * (DIM / 32) + j) * 32);
                }
                if (lane < 8)
                        ptx_copy16_begin(shared_address(&s.bounds[warp][2 * lane]),
                                         reinterpret_cast<const unsigned char *>(
                                                 h.bounds + min(sixteen, last) * DCI_GPU_KMEANS_GROUP + 2 * lane));
                if (tile + wide_groups < n_tiles)
                        ptx_prefetch(reinterpret_cast<const unsigned char *>(
                                             h.points + (uint64_t)min(sixteen + 4 * wide_groups, last) * (2 * DIM)) +
                                     lane * DIM);
                propose(group, s, call.padded);
                ptx_copy16_wait();
                __syncwarp();
                const int n_before = n_doubts, row = DCI_GPU_KMEANS_GROUP * sixteen;
                n_doubts = km_find_labels<DIM>(group.tops, s.bounds[warp], row, h.n, longest, most_lost, group.keep,
                                               s.labels + (row - first_row), s.doubts[warp], n_doubts);
                n_all_doubts += n_doubts - n_before;
                for (; n_doubts > wide_doubts - 16; n_doubts--) /* there must be room for the next tile's */
                        km_decide<DIM>(h, s.doubts[warp][n_doubts - 1], s.row_mean, s.middle,
                                       s.labels + (s.doubts[warp][n_doubts - 1].row - first_row));
        }
        if (lane == 0)
                s.n_doubts[warp] = n_doubts;
        if (lane == 0 && n_all_doubts > 0)
                atomicAdd(h.state + DCI_GPU_KMEANS_EXACT, n_all_doubts);
        __syncthreads(); /* centres have been read, too */
        decide_all<DIM>(s, h, first_row);
        __syncthreads();
        km_leave(h, s.labels, first_row, min(h.n, n_tiles * wide_rows) - first_row, reinterpret_cast<int32_t *>(memory),
                 wide_threads);
}

extern "C" bool dci_gpu_cuda_kmeans_wide_takes(const dci_gpu_cuda *cuda, int dim, int padded)
{
        return cuda->major == 9 && with_dim(dim, false, [&](auto d) {
                       return wide_shared_bytes<d.value>(padded) <= cuda->shared_bytes &&
                              padded >= KmWide<d.value>::chunk &&
                              (padded - 1) / KmWide<d.value>::chunk < wide_most_chunks;
               });
}

/* About a block for each multiprocessor. */
extern "C" cudaError_t dci_gpu_cuda_kmeans_wide(const KmCall *call, cudaStream_t stream)
{
        const int n_views = call->sizes.n_problems * call->n_segments, n_tiles = (call->segment - 1) / wide_rows + 1,
                  most = n_views < call->multiprocessors ? call->multiprocessors / n_views : 1,
                  wanted = (n_tiles - 1) / (wide_groups * most) + 1, waves = (wanted - 1) / wide_most_turns + 1,
                  turns = (wanted - 1) / waves + 1;
        const dim3 grid((unsigned)((n_tiles - 1) / (wide_groups * turns) + 1), (unsigned)n_views);
        return with_dim(call->args.dim, cudaErrorInvalidValue, [&](auto dim) {
                return launch_shared({stream, false}, grid, wide_threads, wide_shared_bytes<dim.value>(call->padded),
                                     wide_kernel<dim.value>, *call, turns);
        });
}
