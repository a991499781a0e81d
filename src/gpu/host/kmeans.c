/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/kmeans: clusters a prompt's keys row by row, with the CPU's own row kernels. */
#include "gpu/gpu_internal.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "simd/cpu.h"
#include "simd/kernels.h"

/* As src/cluster/kmeans_internal.h and kmeans_step.c. */
#define MAX_NORM2 (FLT_MAX / 256.0f)
#define MIN_NORM2 0x1p-80f
#define MIN_FIT 0x1p-36f

/* One problem, or a segment of it: a view of its rows and clusters, which labels, order and starts number as within the
 * problem. */
typedef struct problem {
        const dci_gpu_kmeans_args *args;
        const dci_kernels *kernels;
        size_t n, k, dim;
        size_t first_row, end_row, first_cluster, end_cluster;
        const unsigned char *rows, *values;
        const int32_t *first;
        float *scales, *fits, *centres, *offsets, *middle, *row_mean;
        int32_t *labels, *order, *starts, *state;
} problem;

static problem problem_of(const dci_gpu_kmeans_args *a, size_t number)
{
        const dci_gpu_kmeans_parts parts = dci_gpu_kmeans_work(a);
        const dci_gpu_kmeans_sizes sizes = dci_gpu_kmeans_sizes_of(a);
        const int32_t part = (int32_t)number % sizes.n_parts;
        const size_t head = number / (size_t)sizes.n_parts, first = (size_t)dci_gpu_kmeans_part(&sizes, part),
                     n = (size_t)dci_gpu_kmeans_part(&sizes, part + 1) - first, most = (size_t)a->n_clusters,
                     fewer = n < (size_t)a->n_rows ? n / (size_t)a->cluster_rows : most, k = fewer > 0 ? fewer : 1,
                     dim = (size_t)a->dim, slot = number * (size_t)sizes.padded, at = number * (size_t)a->n_rows;
        return (problem){.args = a,
                         .kernels = dci_kernels_for((dci_isa)a->isa),
                         .n = n,
                         .k = k,
                         .dim = dim,
                         .end_row = n,
                         .end_cluster = k,
                         .rows = a->rows + head * a->head_step + first * a->row_step,
                         .values = a->values != NULL ? a->values + head * a->value_head_step + first * a->value_step
                                                     : NULL,
                         .first = a->first + number * most,
                         .scales = (float *)(void *)(a->work + parts.scales) + at,
                         .fits = (float *)(void *)(a->work + parts.fits) + at,
                         .centres = (float *)(void *)(a->work + parts.centres) + slot * dim,
                         .offsets = (float *)(void *)(a->work + parts.offsets) + slot,
                         .middle = (float *)(void *)(a->work + parts.middles) + number * dim,
                         .row_mean = (float *)(void *)(a->work + parts.row_means) + number * dim,
                         .labels = (int32_t *)(void *)(a->work + parts.labels) + at,
                         .order = a->order + head * (size_t)sizes.all_rows + first,
                         .starts = a->starts + number * (most + 1),
                         .state = a->states + number * DCI_GPU_KMEANS_STATES};
}

static const void *row_at(const problem *p, size_t i)
{
        return p->rows + i * p->args->row_step;
}

/* Less the mean. */
static void centred_row(const problem *p, size_t i, float *out)
{
        p->kernels->to_f32[p->args->dtype - 1](row_at(p, i), p->dim, out);
        for (size_t j = 0; j < p->dim && p->args->centred != 0; j++)
                out[j] -= p->row_mean[j];
}

static void unit_row(const problem *p, size_t i, float *out)
{
        centred_row(p, i, out);
        for (size_t j = 0; j < p->dim; j++)
                out[j] *= p->scales[i];
}

static void point_at(const problem *p, size_t i, float *out)
{
        unit_row(p, i, out);
        for (size_t j = 0; j < p->dim; j++)
                out[j] -= p->middle[j];
}

static void put_centre(const problem *p, size_t c, const float *centre)
{
        memcpy(p->centres + c * p->dim, centre, p->dim * sizeof *centre);
        p->offsets[c] = 0.5f * p->kernels->norm2[DCI_F32 - 1](centre, p->dim);
}

/* The mean of all rows, DCI_GPU_KMEANS_SUMMED of them in binary32. */
static void find_row_mean(const problem *p)
{
        double total[DCI_GPU_MAX_DIM] = {0.0};
        float part[DCI_GPU_MAX_DIM];
        for (size_t first = 0; first < p->n; first += DCI_GPU_KMEANS_SUMMED) {
                memset(part, 0, sizeof part);
                for (size_t i = first; i < p->n && i < first + DCI_GPU_KMEANS_SUMMED; i++) {
                        const void *row = row_at(p, i);
                        p->kernels->add_rows[p->args->dtype - 1](&row, NULL, 1, p->dim, part);
                }
                for (size_t j = 0; j < p->dim; j++)
                        total[j] += (double)part[j];
        }
        for (size_t j = 0; j < p->dim; j++)
                p->row_mean[j] = (float)(total[j] / (double)p->n);
}

static void find_middle(const problem *p)
{
        const size_t step = p->n / DCI_GPU_KMEANS_MIDDLE + 4;
        float row[DCI_GPU_MAX_DIM];
        size_t n_used = 0;
        memset(p->middle, 0, p->dim * sizeof *p->middle);
        for (size_t i = 0; i < p->n; i += step, n_used++) {
                unit_row(p, i, row);
                for (size_t j = 0; j < p->dim; j++)
                        p->middle[j] += row[j];
        }
        const float scale = 1.0f / (float)n_used;
        for (size_t j = 0; j < p->dim; j++)
                p->middle[j] *= scale;
}

static bool prepare(const problem *p)
{
        float row[DCI_GPU_MAX_DIM];
        if (p->args->centred != 0)
                find_row_mean(p);
        for (size_t i = 0; i < p->n; i++) {
                const float length2 = p->kernels->norm2[p->args->dtype - 1](row_at(p, i), p->dim);
                centred_row(p, i, row);
                const float norm2 = p->args->centred != 0 ? p->kernels->norm2[DCI_F32 - 1](row, p->dim) : length2;
                if (!(length2 <= MAX_NORM2) || !(norm2 >= MIN_NORM2))
                        return false;
                p->scales[i] = 1.0f / sqrtf(norm2);
                p->labels[i] = -1;
        }
        find_middle(p);
        for (size_t c = 0; c < p->k; c++) {
                point_at(p, (size_t)p->first[c], row);
                put_centre(p, c, row);
        }
        return true;
}

/* order and starts from labels. */
static void sort(const problem *p)
{
        int32_t *starts = p->starts;
        memset(starts + p->first_cluster, 0, (p->end_cluster - p->first_cluster + 1) * sizeof *starts);
        for (size_t i = p->first_row; i < p->end_row; i++)
                starts[p->labels[i] + 1]++;
        starts[p->first_cluster] = (int32_t)p->first_row;
        for (size_t c = p->first_cluster; c < p->end_cluster; c++)
                starts[c + 1] += starts[c];
        for (size_t i = p->first_row; i < p->end_row; i++)
                p->order[starts[p->labels[i]]++] = (int32_t)i;
        for (size_t c = p->end_cluster; c > p->first_cluster; c--)
                starts[c] = starts[c - 1];
        starts[p->first_cluster] = (int32_t)p->first_row;
}

/* Assigns every row to its best centre; returns the number of empty clusters. */
static size_t assign(const problem *p, size_t *out_moved)
{
        float point[DCI_GPU_MAX_DIM], scores[64];
        size_t n_empty = 0;
        *out_moved = 0;
        for (size_t i = p->first_row; i < p->end_row; i++) {
                float best = -INFINITY;
                int32_t label = 0;
                point_at(p, i, point);
                for (size_t c = p->first_cluster; c < p->end_cluster; c += 64) {
                        const size_t here = p->end_cluster - c < 64 ? p->end_cluster - c : 64;
                        p->kernels->score_strided[DCI_F32 - 1][DCI_FORM_DOT](
                                point, p->centres + c * p->dim, p->dim * sizeof *p->centres, here, p->dim, scores);
                        for (size_t s = 0; s < here; s++) {
                                const float score = scores[s] - p->offsets[c + s];
                                label = score > best ? (int32_t)(c + s) : label;
                                best = score > best ? score : best;
                        }
                }
                *out_moved += p->labels[i] != label;
                p->labels[i] = label;
        }
        sort(p);
        for (size_t c = p->first_cluster; c < p->end_cluster; c++)
                n_empty += p->starts[c + 1] == p->starts[c];
        return n_empty;
}

/* Gives each empty cluster, ascending, the row that fits worst in a cluster of two or more; as dci_km_repair. */
static size_t repair(const problem *p)
{
        float point[DCI_GPU_MAX_DIM];
        size_t n_repaired = 0;
        int32_t *sizes = p->starts;
        for (size_t i = p->first_row; i < p->end_row; i++) {
                point_at(p, i, point);
                p->kernels->score_strided[DCI_F32 - 1][DCI_FORM_L2](p->centres + (size_t)p->labels[i] * p->dim, point,
                                                                    0, 1, p->dim, &p->fits[i]);
        }
        for (size_t c = p->first_cluster; c < p->end_cluster; c++)
                sizes[c] = sizes[c + 1] - sizes[c];
        for (size_t c = p->first_cluster; c < p->end_cluster; c++) {
                size_t worst = p->n;
                if (sizes[c] != 0)
                        continue;
                for (size_t i = p->first_row; i < p->end_row; i++)
                        if (sizes[p->labels[i]] >= 2 && (worst == p->n || p->fits[i] > p->fits[worst]))
                                worst = i;
                if (worst == p->n || !(p->fits[worst] > MIN_FIT))
                        break;
                sizes[p->labels[worst]]--;
                sizes[c]++;
                p->labels[worst] = (int32_t)c;
                point_at(p, worst, point);
                put_centre(p, c, point);
                n_repaired++;
        }
        sort(p);
        return n_repaired;
}

/* The mean of a cluster's rows, or, rows NULL, of their points: binary32 sums of `piece` of them, binary64 beyond. */
static void mean_of(const problem *p, size_t c, size_t piece, const unsigned char *rows, uint64_t step, double *sum)
{
        float part[DCI_GPU_MAX_DIM], point[DCI_GPU_MAX_DIM];
        const size_t begin = (size_t)p->starts[c], end = (size_t)p->starts[c + 1];
        memset(sum, 0, p->dim * sizeof *sum);
        for (size_t i = begin; i < end; i += piece) {
                memset(part, 0, sizeof part);
                for (size_t r = i; r < end && r < i + piece; r++) {
                        const size_t at = (size_t)p->order[r];
                        const void *row = rows == NULL ? (const void *)point : rows + at * step;
                        if (rows == NULL)
                                point_at(p, at, point);
                        p->kernels->add_rows[rows == NULL ? DCI_F32 - 1 : p->args->dtype - 1](&row, NULL, 1, p->dim,
                                                                                              part);
                }
                for (size_t j = 0; j < p->dim; j++)
                        sum[j] += (double)part[j];
        }
        for (size_t j = 0; j < p->dim; j++)
                sum[j] /= (double)(end - begin);
}

/* A centre stays where it is if its mean cancels out. */
static void move(const problem *p)
{
        const bool centred = p->args->centred != 0;
        double sum[DCI_GPU_MAX_DIM];
        float mean[DCI_GPU_MAX_DIM];
        for (size_t c = p->first_cluster; c < p->end_cluster; c++) {
                if (p->starts[c + 1] == p->starts[c])
                        continue;
                mean_of(p, c, DCI_GPU_KMEANS_SUMMED, centred ? NULL : p->rows, p->args->row_step, sum);
                for (size_t j = 0; j < p->dim; j++)
                        mean[j] = (float)(centred ? sum[j] + (double)p->middle[j] : sum[j]);
                const float norm2 = p->kernels->norm2[DCI_F32 - 1](mean, p->dim);
                if (!(norm2 >= MIN_NORM2))
                        continue;
                const float scale = 1.0f / sqrtf(norm2);
                for (size_t j = 0; j < p->dim; j++) {
                        mean[j] *= scale;
                        mean[j] -= p->middle[j];
                }
                put_centre(p, c, mean);
        }
}

/* Returns whether the labels belong to the final centres. */
static bool run_rounds(const problem *p)
{
        bool repaired = false;
        for (int32_t i = 0; i < p->args->n_rounds; i++) {
                size_t n_moved;
                const size_t n_empty = assign(p, &n_moved);
                const bool stable = i > 0 && n_moved == 0 && !repaired;
                p->state[DCI_GPU_KMEANS_ROUNDS] =
                        p->state[DCI_GPU_KMEANS_ROUNDS] > i + 1 ? p->state[DCI_GPU_KMEANS_ROUNDS] : i + 1;
                if (stable)
                        return true;
                repaired = n_empty > 0 && repair(p) > 0;
                move(p);
        }
        return false;
}

/* Rounds within segments leave the labels to be found among all centres. */
static bool run_segments(const problem *p)
{
        const dci_gpu_kmeans_sizes sizes = dci_gpu_kmeans_sizes_of(p->args);
        if (sizes.n_segments == 1)
                return run_rounds(p);
        for (size_t first = 0; first < p->n; first += (size_t)sizes.segment) {
                problem view = *p;
                view.first_row = first;
                view.end_row = p->n - first < (size_t)sizes.segment ? p->n : first + (size_t)sizes.segment;
                view.first_cluster = p->k * first / p->n;
                view.end_cluster = p->k * view.end_row / p->n;
                if (view.end_cluster > view.first_cluster)
                        run_rounds(&view);
        }
        return false;
}

/* The means that stay, of keys or of values. */
static void write_means(const problem *p, const unsigned char *rows, uint64_t step, unsigned char *out)
{
        double sum[DCI_GPU_MAX_DIM];
        float mean[DCI_GPU_MAX_DIM];
        for (size_t c = 0; c < p->k; c++) {
                if (p->starts[c + 1] == p->starts[c])
                        continue;
                mean_of(p, c, DCI_GPU_KMEANS_MEANT, rows, step, sum);
                for (size_t j = 0; j < p->dim; j++)
                        mean[j] = (float)sum[j];
                p->kernels->narrow[p->args->dtype - 1](mean, p->dim, out + c * p->dim * 2);
        }
}

static void cluster(const problem *p, size_t number)
{
        const dci_gpu_kmeans_args *a = p->args;
        const size_t at = number * (size_t)a->n_clusters * p->dim * 2;
        size_t n_moved;
        memset(p->state, 0, DCI_GPU_KMEANS_STATES * sizeof *p->state);
        if (!prepare(p)) {
                p->state[DCI_GPU_KMEANS_BAD] = 1;
                return;
        }
        bool settled = run_segments(p);
        for (int i = 0; !settled; i++)
                settled = assign(p, &n_moved) == 0 || i == DCI_GPU_KMEANS_LAST_TRIES || repair(p) == 0;
        p->state[DCI_GPU_KMEANS_DONE] = 1;
        write_means(p, p->rows, a->row_step, a->means + at);
        if (p->values != NULL)
                write_means(p, p->values, a->value_step, a->value_means + at);
}

void dci_gpu_ref_kmeans(const dci_gpu_kmeans_args *args)
{
        const size_t n = (size_t)dci_gpu_kmeans_sizes_of(args).n_problems;
        for (size_t i = 0; i < n; i++) {
                const problem p = problem_of(args, i);
                cluster(&p, i);
        }
}
