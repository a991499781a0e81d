/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Votes and estimates: the launcher. */
#include "gpu/cuda/vote/estimate.cuh"

static dci_status check_votes(const dci_gpu_vote_args *args)
{
        const dci_gpu_score_args *score = &args->score;
        const dci_status status = dci_gpu_check_shape(score->group, score->dim);
        if (status != DCI_OK)
                return status;
        if (score->kind != DCI_GPU_VOTES || score->units.lists == NULL || score->units.singles == 0)
                return dci_fail(DCI_ERR_UNSUPPORTED, "votes by summaries of kind %d, expected %d, and a list",
                                score->kind, DCI_GPU_VOTES);
        if (score->n_parts < 1 || score->n_parts > DCI_GPU_MAX_PARTS)
                return dci_fail(DCI_ERR_LIMIT, "%d parts, expected 1 to %d", score->n_parts, DCI_GPU_MAX_PARTS);
        if (score->n_sequences > UINT16_MAX || score->n_heads > UINT16_MAX)
                return dci_fail(DCI_ERR_LIMIT, "%d sequences of %d kv heads, expected at most %d of each",
                                score->n_sequences, score->n_heads, UINT16_MAX);
        return DCI_OK;
}

template <int DIM> static cudaError_t launch_votes(const GpuStream &on, const dci_gpu_vote_args &args)
{
        const unsigned n_heads = (unsigned)args.score.n_heads, n_sequences = (unsigned)args.score.n_sequences,
                       n_parts = (unsigned)args.score.n_parts + 1;
        cudaError_t error = launch_kernel(on, dim3(DIM / DCI_VOTE_BLOCK, n_heads, n_sequences), table_threads, 0,
                                          tables_kernel<DIM>, args);
        if (error == cudaSuccess)
                error = launch_kernel(on, dim3((unsigned)args.n_ranges, n_heads, n_sequences), vote_threads, 0,
                                      vote_kernel<DIM>, args);
        if (error != cudaSuccess)
                return error;
        return launch_kernel(on, dim3(n_parts, n_heads, n_sequences), SCORE_THREADS, 0,
                             args.score.group <= quad ? estimate_kernel<DIM, 1>
                                                      : estimate_kernel<DIM, DCI_GPU_MAX_GROUP / quad>,
                             args);
}

extern "C" dci_status dci_gpu_cuda_vote(struct dci_gpu *gpu, void *stream, const dci_gpu_vote_args *args)
{
        const dci_gpu_score_args *score = &args->score;
        if (score->n_sequences <= 0 || score->n_heads <= 0 || args->n_ranges <= 0)
                return DCI_OK;
        const dci_status status = check_votes(args);
        if (status != DCI_OK)
                return status;
        const GpuStream on = stream_of(dci_gpu_cuda_of(gpu), stream);
        const cudaError_t error = with_dim(score->dim, cudaErrorInvalidValue,
                                           [&](auto dim) { return launch_votes<dim.value>(on, *args); });
        return dci_gpu_cuda_status(error, "votes of %d sequences of %d kv heads and dimension %d", score->n_sequences,
                                   score->n_heads, score->dim);
}
