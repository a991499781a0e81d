/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Scores of preselection (args/select.h, dci_gpu_units): of means, by the kernel of all codes, and of the tokens in a
 * list's units. A warp takes two units at a time in the place of a block of 32 rows: lanes with g < 4 read the first
 * one's half of its block, 64 bytes of each line pair, the others the second one's.
 *
 * Units come from the last kernel, and are few: what takes time is steps that wait for each other. So all but the units
 * themselves is read, and queries are transformed, before the kernel's turn. */
#ifndef DCI_GPU_CUDA_SCORE_SCORE_UNITS_CUH
#define DCI_GPU_CUDA_SCORE_SCORE_UNITS_CUH

#include "gpu/cuda/score/score_codes.cuh"

#define UNITS_OF_CHUNK (DCI_GPU_CHUNK / DCI_GPU_UNIT)

/* Where units are. */
struct UnitPlaces {
        const unsigned char *const *table; /* of the first chunks */
        const int32_t *list;               /* NULL: all units */
        int n_units, last;                 /* units that are looked up; the last one of all */

        /* Of a lane that reads number 2 block, or the next one. There may be a unit less than n_units: then another one
         * stands in, whose scores are not stored. */
        __device__ __forceinline__ int unit_of(int block, int g) const
        {
                const int number = min(2 * block + (g >> 2), n_units - 1);
                return list == nullptr ? number : (int)min((uint32_t)__ldcg(list + number), (uint32_t)last);
        }
        template <int LOADS, int Q>
        __device__ __forceinline__ void load(const dci_gpu_score_args &a, const ScoreJob &job, int block_bytes,
                                             int n_lines, int unit, int g, int c, uint64_t policy,
                                             CodedRows<LOADS, Q> &rows) const
        {
                const int chunk = unit / UNITS_OF_CHUNK, block = unit / 2 % CODE_BLOCKS, half = unit & 1;
                const unsigned char *base = chunk < SCORE_TABLE ? table[chunk] : chunk_at(a, job, chunk);
                rows.load_at(base + block * block_bytes + 128 * c + 64 * half + 16 * (g & 3),
                             base + CODE_BLOCKS * block_bytes + 64 * block + 32 * half + 8 * (g & 3), n_lines, c,
                             policy);
        }
};

template <int D, int BITS, int Q>
static __global__ void __launch_bounds__(SCORE_THREADS, at_once<D, BITS, Q>)
        units_kernel(const __grid_constant__ dci_gpu_score_args a)
{
        constexpr int LINES = Shape<D, BITS>::LINES, BLOCK_BYTES = Shape<D, BITS>::BLOCK_BYTES, R = Q == 4 ? 2 : 4;
        __shared__ __align__(16) unsigned char memory[sizeof(CodesShared<D, Q>)];
        auto &s = reinterpret_cast<CodesShared<D, Q> *>(memory)->scan;
        const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, c = lane & 3;
        const ScoreJob job = score_job_of(a);
        if (!job.sparse || (a.due != nullptr && __ldcg(a.due + job.list) != a.due_is)) {
                ptx_take_turn();
                return;
        }
        if (blockIdx.x == (unsigned)a.n_parts) {
                ptx_take_turn();
                keep(a, job, reinterpret_cast<CodesShared<D, Q> *>(memory)->kept);
                return;
        }
        const uint64_t policy = once_policy();
        const bool some = job.n_candidates > a.units.wanted * DCI_GPU_UNIT;
        UnitPlaces places;
        places.table = s.table.at;
        places.list = some ? a.units.lists + (uint64_t)job.list * a.units.stride : nullptr;
        places.last = (job.n_candidates - 1) / DCI_GPU_UNIT;
        places.n_units = some ? a.units.wanted + 1 : places.last + 1;
        Turned<D> turned;
        if (warp < Q) {
                turned.load(a, job, lane);
                turned.raw.load(a, job.list, warp, lane, D / 32);
        }
        s.table.fill(a.summaries, job, 0, min(places.last / UNITS_OF_CHUNK + 1, SCORE_TABLE));
        if (warp < Q)
                turned.put(a, s.queries, warp, BITS, lane);
        __syncthreads();
        Operands<D, BITS, Q> queries;
        CodedRows<Shape<D, BITS>::LOADS, Q> codes;
        Scores<Q> scores;
        queries.take(s.queries, lane);
        const ScoreRange range = score_range_of((places.n_units + 1) / 2, blockIdx.x, a.n_parts);
        ptx_take_turn();
        int block = range.first + warp;
        const auto load = [&](int unit) { places.load(a, job, BLOCK_BYTES, LINES, unit, g, c, policy, codes); };
        const int n_scored = some ? __ldcg(a.units.n_scored + job.list) : job.n_candidates;
        if (block < range.last)
                load(places.unit_of(block, g));
        scores.begin(a, job, n_scored, c);
        while (block < range.last) {
                const int next = block + SCORE_WARPS, unit = next < range.last ? places.unit_of(next, g) : 0;
                CodedSums<Q> sums;
                float scale[4];
#pragma unroll
                for (int i = 0; i < R; i++)
                        scale[i] = codes.scale(i);
                queries.multiply(codes.words, sums);
                if (next < range.last)
                        load(unit);
                finish_codes<D, Q>(a, s.queries, sums, scale, block, lane, scores);
                block = next;
        }
        scores.leave(a, job, s.tops);
}

template <int BITS> static cudaError_t launch_units(const dci_gpu_score_args &args, const GpuStream &stream)
{
        return with_dim(args.dim, cudaErrorInvalidValue, [&](auto dim) {
                constexpr int D = dim.value;
                const int q = args.group <= 4 ? 0 : args.group <= 8 ? 1 : 2;
                const ScoreKernel means[] = {codes_kernel<D, BITS, 4, true>, codes_kernel<D, BITS, 8, true>,
                                             codes_kernel<D, BITS, 16, true>},
                                  units[] = {units_kernel<D, BITS, 4>, units_kernel<D, BITS, 8>,
                                             units_kernel<D, BITS, 16>};
                return launch_scores(args.units.of_means != 0 ? means[q] : units[q], args, stream);
        });
}

#endif
