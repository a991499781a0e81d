/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A model of the choice that computes relevances in double precision and sorts all of them. */
#include "tests/gpu_select_model.h"

#include <float.h>
#include <math.h>
#include <string.h>

#define CLOSE 2e-5

int32_t *choose_in_chunks(const choose_chunks *c, int32_t row, int32_t head, int32_t at, size_t width)
{
        const int32_t number = ints(c->numbers)[row * (int32_t)c->args.stride + at / DCI_GPU_CHUNK];
        unsigned char *chunk = c->image_pieces[0] + 128 + (uint64_t)number * c->args.chunk_bytes;
        return (int32_t *)(void *)(chunk + (uint64_t)(head / c->head_lists) * c->args.head_bytes) +
               (size_t)(at % DCI_GPU_CHUNK) * width;
}

dci_gpu_view choose_view_of(const choose_state *s, int32_t i)
{
        dci_gpu_view view;
        DCI_GPU_VIEW(view, s->sizes, ints(s->n_tokens)[i], ints(s->n_grouped)[i]);
        return view;
}

int32_t choose_static_of(const choose_state *s, int32_t i)
{
        return s->w->listed == ORDER ? ints(s->n_static)[i] : 0;
}

int32_t choose_groups_of(const choose_state *s, int32_t i, int32_t h, const dci_gpu_view *view)
{
        const int32_t per = 1 << s->w->shift, ordered = s->w->listed == ORDER ? ints(s->n_ordered)[i] / per : 0,
                      pages = (view->n_candidates + per - 1) / per;
        if (s->w->listed != CLUSTERS)
                return ordered > pages ? ordered : pages;
        return ints(s->n_clusters)[(ints(s->rows)[i] * s->w->n_heads + h) / s->head_lists];
}

static const double *sorted_by;

static int by_relevance(const void *a, const void *b)
{
        const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
        if (sorted_by[x] != sorted_by[y])
                return sorted_by[x] > sorted_by[y] ? -1 : 1;
        return (x > y) - (x < y);
}

/* The group's members that are candidates; out may be NULL. */
static int32_t members_of(const choose_state *s, int32_t i, int32_t h, const dci_gpu_view *view, int32_t g,
                          int32_t *out, int32_t most)
{
        int32_t n = 0;
        const int32_t ordered = s->w->listed == ORDER ? ints(s->n_ordered)[i] : 0;
        if (s->w->listed != CLUSTERS) {
                for (int32_t c = g << s->w->shift; c < (g + 1) << s->w->shift && n < most; c++) {
                        const int32_t id = c < ordered ? *choose_in_chunks(&s->ids, ints(s->rows)[i], h, c, 1) : c;
                        if (id >= view->n_candidates)
                                continue;
                        if (out != NULL)
                                out[n] = id;
                        n++;
                }
                return n;
        }
        const int32_t row = ints(s->rows)[i], *span = choose_in_chunks(&s->spans, row, h, g, 2);
        for (int32_t m = 0; m < span[1] && n < most; m++) {
                const int32_t id = *choose_in_chunks(&s->ids, row, h, span[0] + m, 1);
                if (id >= view->n_candidates)
                        break;
                if (out != NULL)
                        out[n] = id;
                n++;
        }
        return n;
}

static void weigh(choose_state *s, int32_t i, int32_t h, const dci_gpu_view *view, int32_t n)
{
        const choose_case *w = s->w;
        const size_t list = (size_t)(i * w->n_heads + h), group = (size_t)w->group,
                     first = (size_t)choose_static_of(s, i);
        const float *scores = floats(s->scores) + list * (size_t)s->max_groups * group;
        const float *kept = floats(s->parts) + (list * (size_t)(w->n_parts + 1) + (size_t)w->n_parts) * group * 2;
        memset(s->relevance, 0, (size_t)n * sizeof *s->relevance);
        for (size_t q = 0; q < group; q++) {
                double most = -INFINITY, sum = 0;
                for (size_t g = first; g < (size_t)n; g++)
                        most = scores[g * group + q] > most ? scores[g * group + q] : most;
                for (size_t g = first; g < (size_t)n; g++)
                        sum += exp(scores[g * group + q] - most);
                /* Where kept tokens outweigh all, by the same for all heads, what they have in common is of no account. */
                if (w->weigh == KEPT && w->data == OUTWEIGHED)
                        sum = exp((double)kept[2 * q] - 150 - most);
                else if (w->weigh == KEPT)
                        sum += (double)kept[2 * q + 1] * exp((double)kept[2 * q] - most);
                for (size_t g = 0; g < (size_t)n; g++)
                        s->relevance[g] += w->weigh == EVEN ? (double)scores[g * group + q] / w->group
                                                            : exp(scores[g * group + q] - most) / sum;
        }
        for (int32_t g = 0; g < n; g++) {
                if (g < choose_static_of(s, i))
                        s->relevance[g] = INFINITY;
                if (w->listed && members_of(s, i, h, view, g, NULL, 1) == 0)
                        s->relevance[g] = -FLT_MAX;
                s->order[g] = g;
        }
        sorted_by = s->relevance;
        qsort(s->order, (size_t)n, sizeof *s->order, by_relevance);
}

static bool close_to(const choose_state *s, double a, double b)
{
        const double size = fabs(a) > fabs(b) ? fabs(a) : fabs(b);
        return a == b || fabs(a - b) <= CLOSE * (s->w->weigh == EVEN ? fmax(size, 1) : size) ||
               (size < 1e-36 && s->w->weigh != EVEN);
}

void choose_look_at_list(choose_state *s, int32_t i, int32_t h, const char *what)
{
        const int32_t list = i * s->w->n_heads + h;
        const dci_gpu_view view = choose_view_of(s, i);
        const int32_t *ranked = got(s->ranked) + (size_t)list * (size_t)s->stride, n_ranked = got(s->n_ranked)[list];
        const int32_t *positions = got(s->positions) + (size_t)list * (size_t)s->stride, count = got(s->counts)[list];
        if (!view.sparse || view.room == 0) {
                ck_assert_msg(count == 0 && n_ranked == 0, "%s: list %d has %d of %d groups", what, list, count,
                              n_ranked);
                return;
        }
        const int32_t n = choose_groups_of(s, i, h, &view);
        const bool is_bad = s->w->data == BAD;
        int32_t filled = 0;
        unsigned char *seen = calloc((size_t)n + 1, 1);
        ck_assert_ptr_nonnull(seen);
        if (!is_bad)
                weigh(s, i, h, &view, n);
        ck_assert_msg(n_ranked > 0 && n_ranked <= s->stride, "%s: list %d has %d groups", what, list, n_ranked);
        for (int32_t r = 0; r < n_ranked; r++) {
                const int32_t g = ranked[r];
                ck_assert_msg(g >= 0 && g < n && seen[g] == 0, "%s: list %d, rank %d is group %d", what, list, r, g);
                seen[g] = 1;
                const int32_t taken = members_of(s, i, h, &view, g, s->members + filled, view.room - filled);
                ck_assert_msg(taken > 0, "%s: list %d, rank %d adds nothing", what, list, r);
                filled += taken;
                if (is_bad)
                        continue;
                const double own = s->relevance[g], model = s->relevance[s->order[r]];
                ck_assert_msg(close_to(s, own, model),
                              "%s: list %d, rank %d is group %d of relevance %.9g, not %d of %.9g", what, list, r, g,
                              own, s->order[r], model);
                if (s->w->data == LEVELS || s->w->data == EQUAL || g < choose_static_of(s, i))
                        ck_assert_msg(g == s->order[r], "%s: list %d, rank %d is group %d, not %d", what, list, r, g,
                                      s->order[r]);
        }
        int32_t n_more = 0; /* what would still be there */
        for (int32_t g = 0; g < n && filled < view.room; g++)
                n_more += seen[g] == 0 ? members_of(s, i, h, &view, g, NULL, 1) : 0;
        ck_assert_msg(filled == view.room || n_more == 0, "%s: list %d has %d tokens of %d", what, list, filled,
                      view.room);
        ck_assert_msg(count == filled, "%s: list %d has %d positions, its groups have %d", what, list, count, filled);
        qsort(s->members, (size_t)filled, sizeof *s->members, test_int32s_ascend);
        for (int32_t c = 0; c < count; c++)
                ck_assert_msg(positions[c] == s->sizes.sink + s->members[c], "%s: list %d, entry %d is %d, not %d",
                              what, list, c, positions[c], s->sizes.sink + s->members[c]);
        free(seen);
}

void choose_look_at_members(choose_state *s, int32_t i, int32_t h, const char *what)
{
        const int32_t list = i * s->w->n_heads + h;
        const dci_gpu_view view = choose_view_of(s, i);
        const int32_t *taken = got(s->taken) + (size_t)list * (size_t)s->max_groups;
        const int32_t *ranked = got(s->ranked) + (size_t)list * (size_t)s->stride;
        const int32_t n_ranked = got(s->n_ranked)[list], n = choose_groups_of(s, i, h, &view);
        int32_t n_selected = 0, n_estimated = 0, left = view.room;
        for (int32_t g = view.sparse ? n : 0; g < s->max_groups; g++)
                ck_assert_msg(taken[g] == -1, "%s: list %d, cluster %d is not written", what, list, g);
        if (!view.sparse)
                return;
        for (int32_t r = 0; r < n_ranked; r++) {
                const int32_t here = members_of(s, i, h, &view, ranked[r], NULL, left);
                ck_assert_msg(taken[ranked[r]] == here, "%s: list %d, rank %d has %d members of cluster %d, not %d",
                              what, list, r, taken[ranked[r]], ranked[r], here);
                left -= here;
        }
        if (s->w->data == BAD)
                return;
        weigh(s, i, h, &view, n);
        const int32_t wanted = s->w->estimated >= 1.0 ? n : (int32_t)(s->w->estimated * (double)n + 0.5),
                      reach = n_ranked + wanted < n ? n_ranked + wanted : n;
        for (int32_t g = 0; g < n; g++) {
                ck_assert_msg(taken[g] >= DCI_GPU_DROPPED, "%s: list %d, cluster %d", what, list, g);
                n_selected += taken[g] > 0;
                n_estimated += taken[g] == 0;
                const double edge = s->relevance[s->order[reach > 0 ? reach - 1 : 0]];
                if (reach == 0 || !close_to(s, s->relevance[g], edge))
                        ck_assert_msg((taken[g] >= 0) == (reach > 0 && s->relevance[g] > edge),
                                      "%s: list %d, cluster %d of relevance %.9g has %d, the edge is %.9g", what, list,
                                      g, s->relevance[g], taken[g], edge);
        }
        ck_assert_msg(n_selected == n_ranked && n_selected + n_estimated == reach,
                      "%s: list %d has %d selected clusters of %d, and %d estimated ones, not %d", what, list,
                      n_selected, n_ranked, n_estimated, reach - n_ranked);
        for (int32_t r = 0; r < n && (s->w->data == LEVELS || s->w->data == EQUAL); r++)
                ck_assert_msg((taken[s->order[r]] >= 0) == (r < reach), "%s: list %d, rank %d is cluster %d: %d", what,
                              list, r, s->order[r], taken[s->order[r]]);
}

void choose_look_at_rest(const choose_state *s, const char *what)
{
        for (int32_t i = 0; i < s->n; i++) {
                const dci_gpu_view view = choose_view_of(s, i);
                const int32_t sink_end = view.sparse ? s->sizes.sink : 0;
                ck_assert_msg(got(s->header)[i] == sink_end &&
                                      got(s->header)[s->n + i] ==
                                              (view.sparse ? s->sizes.sink + view.n_candidates : 0) &&
                                      got(s->header)[2 * s->n + i] == ints(s->n_tokens)[i],
                              "%s: header of sequence %d", what, i);
                for (int32_t h = 0; h < s->w->n_heads; h++) {
                        const int32_t list = i * s->w->n_heads + h;
                        for (int32_t c = got(s->counts)[list]; c < s->stride; c++)
                                ck_assert_msg(got(s->positions)[list * s->stride + c] == -1, "%s: list %d, entry %d",
                                              what, list, c);
                        for (int32_t c = got(s->n_ranked)[list]; c < s->stride; c++)
                                ck_assert_msg(got(s->ranked)[list * s->stride + c] == -1, "%s: list %d, rank %d", what,
                                              list, c);
                }
        }
}
