/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Plans by trees (args/tree.h), in two kernels.
 *
 *  nodes   (tree_nodes.cuh) one block for each list scores the means of cells by tensor cores, as
 *          cuda/score/score_codes.cuh, and marks the nodes that query heads open, as bits: other blocks' scores would
 *          have to be waited for, and read, for longer than it takes to make them
 *  pages   (tree_pages.cuh) some blocks for each list take units of 32 rows (64, where pages are that long) in turns, and score those of
 *          opened nodes; the last block ranks the pages of each head and interleaves them
 *
 * What takes time is a dozen steps that wait for each other, and not scores. What the kernel
 * before does not write is read before a kernel's turn: codes of nodes, the nodes of pages. */
#ifndef DCI_GPU_CUDA_TREE_TREE_CUH
#define DCI_GPU_CUDA_TREE_TREE_CUH

#include "gpu/cuda/tree/tree_nodes.cuh"
#include "gpu/cuda/tree/tree_pages.cuh"

/* Words that are kept in shared memory: n, or what is left of it. */
static inline int words_of(size_t n, size_t most, size_t shared_bytes, size_t taken)
{
        const size_t used = TREE_OWN_BYTES + taken, left = used < shared_bytes ? (shared_bytes - used) / 16 * 4 : 0,
                     fit = left < most ? left : most;
        return (int)(n < fit ? n : fit);
}

template <int D, int BITS, int Q>
static cudaError_t launch_search(const dci_gpu_tree_args &args, const GpuStream &stream, size_t shared_bytes)
{
        const int group = args.score.group, stride = args.select.stride, shift = args.page_shift,
                  n_ranked = (stride >> shift) * group;
        /* Scores of all nodes; a score for each head and the number of all pages; or of as many as there is room for. */
        const size_t taken = list_bytes(stride, shift, group, 0) - rank_bytes(n_ranked, 0) + ranked_bytes(n_ranked);
        const int for_nodes = words_of((size_t)args.score.max_groups * group, SIZE_MAX, shared_bytes, 0),
                  for_pages = words_of((size_t)args.max_pages * (group + 1), TREE_STAGED, shared_bytes, taken);
        static_assert(sizeof(PagesShared<D, Q>) <= TREE_OWN_BYTES && sizeof(NodesShared<D, Q>) <= TREE_OWN_BYTES,
                      "what a launch may need");
        const dim3 nodes(1, (unsigned)args.score.n_heads, (unsigned)args.score.n_sequences),
                pages((unsigned)args.page_parts, (unsigned)args.score.n_heads, (unsigned)args.score.n_sequences);
        const cudaError_t error = launch_shared(stream, nodes, SCORE_THREADS, (size_t)for_nodes * sizeof(float),
                                                nodes_kernel<D, BITS, Q>, args, for_nodes);
        return error != cudaSuccess
                       ? error
                       : launch_shared(stream, pages, SCORE_THREADS, list_bytes(stride, shift, group, for_pages),
                                       pages_kernel<D, BITS, Q>, args, for_pages);
}

template <int BITS>
static cudaError_t launch_tree(const dci_gpu_tree_args &args, const GpuStream &stream, size_t shared_bytes)
{
        return with_dim(args.score.dim, cudaErrorInvalidValue, [&](auto dim) {
                constexpr int D = dim.value;
                return args.score.group <= 4   ? launch_search<D, BITS, 4>(args, stream, shared_bytes)
                       : args.score.group <= 8 ? launch_search<D, BITS, 8>(args, stream, shared_bytes)
                                               : launch_search<D, BITS, 16>(args, stream, shared_bytes);
        });
}

#endif
