/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Config structs with any numbers in their fields: a call is refused with a sentence, or what it makes works with a little data. Pointers are
 * NULL or point to what they should, sizes that decide how much is read stay small or are larger than allowed, and memory ends at 64 MiB.
 */
#include <math.h>
#include <string.h>

#include "dci/dci.h"
#include "tests/fuzz/fuzz.h"

enum { SMALL = 48 };

/* Small, or more than is allowed; what is allowed and large takes minutes and shows nothing. */
static size_t sane(size_t value, size_t most)
{
        return value <= SMALL || value > most ? value : 1 + value % SMALL;
}

/* --- contexts --------------------------------------------------------------------------------------------------------------- */

static void *plain_alloc(void *ctx, size_t size, size_t alignment)
{
        (void)ctx;
        return aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
}
static void plain_free(void *ctx, void *pointer, size_t size)
{
        (void)ctx, (void)size;
        free(pointer);
}
static void plain_for(void *ctx, size_t n, void (*fn)(void *arg, size_t i), void *arg)
{
        (void)ctx;
        for (size_t i = n; i > 0; i--)
                fn(arg, i - 1);
}
static void no_log(void *ctx, int32_t level, const char *line)
{
        (void)ctx, (void)level;
        ck_assert(line != NULL && strchr(line, '\n') == NULL);
}

static void contexts(fuzz_bytes *from)
{
        dci_context_config c;
        dci_context *context = NULL;
        const size_t size = fuzz_one_in(from, 4) ? fuzz_odd_size(from) : sizeof c;
        if (!fuzz_worked(dci_context_config_init(&c, fuzz_struct_size(size, sizeof c))))
                return;
        const size_t hooks = fuzz_below(from, 16);
        c.allocator.alloc = hooks & 1 ? plain_alloc : NULL;
        c.allocator.free = hooks & 2 ? plain_free : NULL;
        c.executor.parallel_for = hooks & 4 ? plain_for : NULL;
        c.log.fn = hooks & 8 ? no_log : NULL;
        c.executor_kind = fuzz_odd_int(from);
        c.n_threads = fuzz_odd_int(from);
        if (c.n_threads > 4 && c.n_threads <= 1024)
                c.n_threads = 4;
        c.isa = fuzz_odd_int(from);
        if (c.executor_kind == DCI_EXECUTOR_OPENMP)
                c.executor_kind = DCI_EXECUTOR_PTHREADS; /* its threads do not end with the context */
        if (fuzz_one_in(from, 8))
                c.struct_size = fuzz_struct_size(fuzz_odd_size(from), sizeof c);
        if (!fuzz_worked(dci_context_create(&c, &context))) {
                ck_assert_ptr_null(context);
                return;
        }
        ck_assert(dci_context_isa(context) > 0);
        const int32_t wanted = fuzz_odd_int(from);
        if (fuzz_worked(dci_context_set_threads(context, wanted)))
                ck_assert_int_eq(dci_context_threads(context), wanted);
        dci_context_destroy(context);
}

/* --- indexes ----------------------------------------------------------------------------------------------------------------- */

enum { ROWS = 30, K = 7 };
static float numbers[ROWS * (SMALL + 1)];

static int32_t odd_ids(void *ctx, int64_t id)
{
        (void)ctx;
        return id % 2 != 0;
}

static void draw_params(fuzz_bytes *from, dci_search_params *p, dci_filter *filter)
{
        static const int64_t ids[] = {-3, 0, 1, 5, 1000};
        static const uint64_t bits[] = {0x5555555555555555u, 3};
        ck_ok(dci_search_params_init(p, sizeof *p));
        ck_ok(dci_filter_init(filter, sizeof *filter));
        double *const shares[] = {&p->prop_to_visit, &p->prop_to_retrieve, &p->rerank, &p->guarantee};
        size_t *const sizes[] = {&p->num_to_visit, &p->num_to_retrieve, &p->field_of_view, &p->struct_size};
        for (size_t i = fuzz_below(from, 4); i > 0; i--) {
                const size_t which = fuzz_below(from, 8);
                if (which < 4)
                        *shares[which] = fuzz_odd_double(from);
                else if (which < 7 || fuzz_one_in(from, 4))
                        *sizes[which - 4] = fuzz_odd_size(from);
        }
        p->struct_size = fuzz_struct_size(p->struct_size, sizeof *p);
        if (fuzz_one_in(from, 2))
                return;
        filter->kind = fuzz_odd_int(from);
        filter->ids = fuzz_one_in(from, 4) ? NULL : ids;
        filter->bits = fuzz_one_in(from, 4) ? NULL : bits;
        filter->n = fuzz_below(from, filter->kind == DCI_FILTER_IDS ? 6 : 129);
        filter->fn = fuzz_one_in(from, 4) ? NULL : odd_ids;
        filter->first_id = (int64_t)fuzz_odd_size(from);
        filter->flags = fuzz_one_in(from, 8) ? fuzz_odd_int(from) : 0;
        p->filter = filter;
}

static void use_index(fuzz_bytes *from, dci_index *index, size_t dim)
{
        int64_t ids[8 * K];
        float scores[8 * K];
        dci_search_params params;
        dci_filter filter;
        dci_range_result range;
        const size_t n = fuzz_below(from, ROWS);
        if (fuzz_one_in(from, 8))
                fuzz_worked(dci_index_reserve(index, fuzz_odd_size(from)));
        const size_t ld = fuzz_one_in(from, 8) ? fuzz_odd_size(from) : dim;
        if (!fuzz_worked(dci_index_add(index, ld > SMALL && ld < SIZE_MAX - 200 ? 1 : n, numbers, ld, NULL, NULL)))
                return;
        for (size_t i = 0; i < 3; i++) {
                draw_params(from, &params, &filter);
                const size_t k = fuzz_one_in(from, 8) ? fuzz_odd_size(from) : 1 + fuzz_below(from, K);
                if (k > K && k <= (size_t)1 << 24)
                        continue;
                fuzz_worked(dci_index_search(index, 1, numbers, dim, k, &params, ids, scores));
                const size_t group = fuzz_odd_size(from);
                fuzz_worked(dci_index_search_group(index, 1, group, numbers, dim, k, fuzz_odd_int(from), &params, ids,
                                                   scores));
                ck_ok(dci_range_result_init(&range, sizeof range));
                fuzz_worked(dci_index_range_search(index, 2, numbers, dim, fuzz_odd_float(from), &params, &range));
                dci_range_result_free(&range);
                params.filter = fuzz_one_in(from, 4) ? &filter : NULL;
                fuzz_worked(dci_index_set_defaults(index, &params));
        }
        const size_t n_asked = fuzz_below(from, 4), k = 1 + fuzz_below(from, K);
        fuzz_worked(dci_index_tune(index, n_asked, numbers, dim, k, fuzz_odd_double(from), NULL));
        fuzz_worked(dci_index_fit(index, fuzz_below(from, 4), numbers, dim));
        size_t n_bytes;
        if (fuzz_worked(dci_index_save_memory(index, 0, NULL, &n_bytes))) {
                void *bytes = malloc(n_bytes);
                dci_index *again = NULL;
                dci_context *context = index != NULL ? fuzz_limited_context() : NULL;
                ck_assert_ptr_nonnull(bytes);
                ck_ok(dci_index_save_memory(index, n_bytes, bytes, &n_bytes));
                const dci_status status = dci_index_load_memory(context, bytes, n_bytes, &again);
                ck_assert_msg(status == DCI_OK || status == DCI_ERR_MEMORY, "%s", dci_last_error());
                dci_index_destroy(again);
                dci_context_destroy(context);
                free(bytes);
        }
}

static void indexes(fuzz_bytes *from, dci_context *context)
{
        dci_index_config c;
        dci_index *index = NULL;
        ck_ok(dci_index_config_init(&c, sizeof c));
        int32_t *const ints[] = {&c.kind,        &c.metric,  &c.dtype,     &c.add_dtype,
                                 &c.query_dtype, &c.storage, &c.zero_rows, &c.sketch_bits};
        size_t *const sizes[] = {&c.num_comp_indices,  &c.num_simp_indices, &c.page_rows,  &c.top_nodes,
                                 &c.cell_simp_indices, &c.reserved,         &c.struct_size};
        c.dim = 1 + fuzz_below(from, SMALL);
        c.kind = 1 + (int32_t)fuzz_below(from, 3);
        c.metric = 1 + (int32_t)fuzz_below(from, 3);
        c.seed = fuzz_next(from);
        for (size_t i = fuzz_below(from, 5); i > 0; i--) {
                const size_t which = fuzz_below(from, 18);
                if (which < 8)
                        *ints[which] = fuzz_odd_int(from);
                else if (which < 15)
                        *sizes[which - 8] = fuzz_odd_size(from);
                else if (which == 15)
                        c.promotion_prob = fuzz_odd_double(from);
                else if (which == 16)
                        c.promotion_prob_subseq = fuzz_odd_double(from);
                else
                        c.dim = sane(fuzz_odd_size(from), DCI_MAX_DIM);
        }
        c.struct_size = fuzz_struct_size(c.struct_size, sizeof c);
        c.num_comp_indices = sane(c.num_comp_indices, DCI_MAX_SIMPLE_INDICES);
        c.num_simp_indices = sane(c.num_simp_indices, DCI_MAX_SIMPLE_INDICES);
        c.cell_simp_indices = sane(c.cell_simp_indices, DCI_MAX_SIMPLE_INDICES);
        if (!fuzz_worked(dci_index_create(context, &c, &index))) {
                ck_assert_ptr_null(index);
                return;
        }
        dci_index_config got;
        ck_ok(dci_index_config_init(&got, sizeof got));
        ck_ok(dci_index_get_config(index, &got));
        ck_assert(got.dim == c.dim && got.add_dtype > 0 && got.query_dtype > 0);
        use_index(from, index, c.dim);
        dci_index_destroy(index);
}

/* --- sketches ----------------------------------------------------------------------------------------------------------------- */

static void sketches(fuzz_bytes *from, dci_context *context)
{
        dci_sketch_config c;
        dci_sketch *sketch = NULL;
        ck_ok(dci_sketch_config_init(&c, sizeof c));
        int32_t *const ints[] = {&c.dtype, &c.query_dtype, &c.bits, &c.transform, &c.centre, &c.reserved};
        c.dim = 1 + fuzz_below(from, SMALL);
        for (size_t i = fuzz_below(from, 5); i > 0; i--) {
                const size_t which = fuzz_below(from, 9);
                if (which < 6)
                        *ints[which] = fuzz_odd_int(from);
                else if (which == 6)
                        c.dim = sane(fuzz_odd_size(from), DCI_SKETCH_MAX_DIM);
                else if (which == 7)
                        c.struct_size = fuzz_struct_size(fuzz_odd_size(from), sizeof c);
                else
                        c.given_centre = numbers;
        }
        if (!fuzz_worked(dci_sketch_create(context, &c, &sketch))) {
                ck_assert_ptr_null(sketch);
                return;
        }
        const size_t ld = fuzz_one_in(from, 8) ? fuzz_odd_size(from) : c.dim;
        const size_t n = ld > SMALL ? 1 : fuzz_below(from, ROWS);
        float scores[ROWS * 2];
        int64_t ids[K];
        fuzz_worked(dci_sketch_append(sketch, n, numbers, ld));
        const size_t there = dci_sketch_count(sketch);
        if (fuzz_worked(dci_sketch_bound(sketch, 1, numbers, c.dim, 0, there, fuzz_odd_double(from), scores, there)))
                for (size_t i = 0; i < there; i++)
                        ck_assert(scores[i] >= 0.0f);
        const size_t first = fuzz_odd_size(from), some = fuzz_odd_size(from);
        fuzz_worked(dci_sketch_score(sketch, 1, numbers, c.dim, first, some, scores, some));
        const size_t k = fuzz_odd_size(from);
        if (k <= K || k > (size_t)1 << 24)
                fuzz_worked(dci_sketch_search(sketch, 1, numbers, c.dim, k, ids, NULL));
        ids[0] = (int64_t)fuzz_odd_size(from);
        float row[SMALL];
        fuzz_worked(dci_sketch_decode(sketch, 1, ids, row, c.dim));
        fuzz_worked(dci_sketch_truncate(sketch, fuzz_odd_size(from)));
        fuzz_worked(dci_sketch_reserve(sketch, fuzz_odd_size(from)));
        dci_sketch_destroy(sketch);
}

/* --- KV caches ---------------------------------------------------------------------------------------------------------------- */

typedef struct kv_fields {
        dci_layer_config layers[4];
        void *bases[4];
        dci_kv_layout layout;
} kv_fields;

static int32_t taken(void *ctx, void *memory, size_t n_bytes)
{
        (void)memory, (void)n_bytes;
        return *(const int32_t *)ctx;
}
static void given_back(void *ctx, void *memory, size_t n_bytes)
{
        (void)ctx, (void)memory, (void)n_bytes;
}

static void odd_fields(fuzz_bytes *from, dci_kv_config *c)
{
        int32_t *const ints[] = {&c->group,      &c->summary,     &c->select,      &c->schedule,      &c->tail,
                                 &c->combine,    &c->key_bits,    &c->value_bits,  &c->foreground,    &c->frozen_prompt,
                                 &c->cluster_by, &c->reserved,    &c->tree_tokens, &c->sums_whole,    &c->reserved_more,
                                 &c->dtype,      &c->query_dtype, &c->preset,      &c->budget_counts, &c->observed_keep,
                                 &c->tree_keys};
        size_t *const sizes[] = {&c->page_tokens,
                                 &c->observed_pool,
                                 &c->segment_least,
                                 &c->budget,
                                 &c->sink,
                                 &c->window,
                                 &c->rollback,
                                 &c->dense_layers,
                                 &c->layer_stride,
                                 &c->max_bytes,
                                 &c->resident_bytes,
                                 &c->cluster_tokens,
                                 &c->cluster_every,
                                 &c->cluster_segment,
                                 &c->cluster_rounds,
                                 &c->cluster_most,
                                 &c->period,
                                 &c->anchor_first,
                                 &c->anchor_period,
                                 &c->ring,
                                 &c->segment_buffer,
                                 &c->tree_field_of_view,
                                 &c->preselect_tokens,
                                 &c->preselect_least,
                                 &c->piece_bytes,
                                 &c->struct_size,
                                 &c->n_layers,
                                 &c->n_query_heads,
                                 &c->n_kv_heads,
                                 &c->dim_k,
                                 &c->dim_v,
                                 &c->tree_simple_indices};
        double *const doubles[] = {&c->scale,
                                   &c->refit,
                                   &c->estimate_share,
                                   &c->tau,
                                   &c->tree_promotion,
                                   &c->verify,
                                   &c->static_share,
                                   &c->preselect,
                                   &c->tree_promotion_subseq,
                                   &c->tree_retrieve,
                                   &c->deviation_weight,
                                   &c->budget_share,
                                   &c->vote_share,
                                   &c->candidate_share};
        enum { INTS = sizeof ints / sizeof ints[0], SIZES = sizeof sizes / sizeof sizes[0] };
        const size_t which = fuzz_below(from, INTS + SIZES + sizeof doubles / sizeof doubles[0]);
        if (which < INTS)
                *ints[which] = fuzz_odd_int(from);
        else if (which < INTS + SIZES)
                *sizes[which - INTS] = fuzz_odd_size(from);
        else
                *doubles[which - INTS - SIZES] = fuzz_odd_double(from);
}

static void layers_and_hooks(fuzz_bytes *from, dci_kv_config *c, kv_fields *f)
{
        static int32_t answer;
        const size_t what = fuzz_below(from, 16);
        answer = what == 15;
        if (what >= 12)
                c->hook = (dci_kv_hook){&answer, taken, given_back};
        if (what < 10)
                return;
        for (size_t i = 0; i < 4; i++) {
                ck_ok(dci_layer_config_init(&f->layers[i], sizeof f->layers[i]));
                f->layers[i].mode = fuzz_odd_int(from);
                if (fuzz_one_in(from, 8))
                        f->layers[i].logit_cap = fuzz_odd_double(from);
                if (fuzz_one_in(from, 8))
                        f->layers[i].struct_size = fuzz_struct_size(fuzz_odd_size(from), sizeof f->layers[i]);
        }
        c->layers = f->layers;
        if (c->layer_stride != 0 && c->layer_stride != sizeof f->layers[0])
                c->n_layers = c->n_layers > 1 && c->n_layers <= DCI_KV_MAX_LAYERS ? 1 : c->n_layers;
        if (c->n_layers > 4 && c->n_layers <= DCI_KV_MAX_LAYERS)
                c->n_layers = 4;
}

/* A prompt and some steps; whatever is refused is taken back. */
static void use_kv(fuzz_bytes *from, dci_kv *kv, const dci_kv_config *c)
{
        static float out[SMALL * SMALL], lse[SMALL];
        int64_t sequence;
        dci_kv_plan plan;
        dci_kv_rows rows;
        ck_ok(dci_kv_rows_init(&rows, sizeof rows));
        ck_ok(dci_kv_plan_init(&plan, sizeof plan));
        rows.keys = rows.values = numbers;
        const size_t dim_v = c->dim_v != 0 ? c->dim_v : c->dim_k;
        const size_t row = c->n_kv_heads * (c->dim_k > dim_v ? c->dim_k : dim_v);
        const size_t asked = c->n_query_heads * c->dim_k, given = c->n_query_heads * dim_v;
        if (row > sizeof numbers / sizeof numbers[0] || asked > sizeof numbers / sizeof numbers[0] ||
            given > sizeof out / sizeof out[0] || c->n_query_heads > SMALL)
                return;
        const size_t prompt = sizeof numbers / sizeof numbers[0] / row;
        if (!fuzz_worked(dci_kv_open(kv, &sequence)))
                return;
        bool good = fuzz_worked(dci_kv_plan_create(kv, 1, &plan));
        for (size_t step = 0; step < 4 && good; step++) {
                const size_t n = step == 0 ? fuzz_below(from, prompt < 150 ? prompt : 150) : 1;
                if (!fuzz_worked(dci_kv_reserve(kv, 1, &sequence, &n)))
                        break;
                for (size_t layer = 0; layer < c->n_layers && good; layer++) {
                        good = fuzz_worked(dci_kv_append(kv, layer, 1, &sequence, &n, &rows));
                        if (good && step == 0)
                                good = fuzz_worked(dci_kv_end_prompt(kv, layer, sequence, n > 0 ? 1 : 0,
                                                                     n > 0 ? numbers : NULL, c->dim_k));
                        if (good && step > 0)
                                good = fuzz_worked(
                                               dci_kv_plan_make(kv, layer, 1, &sequence, numbers, c->dim_k, &plan)) &&
                                       fuzz_worked(dci_kv_attend(kv, layer, 1, &sequence, numbers, c->dim_k, &plan, out,
                                                                 dim_v, lse));
                }
                if (good)
                        ck_ok(dci_kv_step_end(kv, 1, &sequence));
                else
                        ck_ok(dci_kv_step_abort(kv, 1, &sequence));
                fuzz_worked(dci_kv_maintain(kv, 0, NULL));
        }
        dci_kv_plan_destroy(kv, &plan);
        ck_ok(dci_kv_close(kv, sequence));
}

static void draw_kv(fuzz_bytes *from, dci_kv_config *c, kv_fields *f)
{
        ck_ok(dci_kv_config_init(c, sizeof *c));
        memset(f, 0, sizeof *f);
        c->preset = 1 + (int32_t)fuzz_below(from, DCI_KV_PRESETS);
        c->n_layers = 1 + fuzz_below(from, 3);
        c->n_kv_heads = 1 + fuzz_below(from, 2);
        c->n_query_heads = c->n_kv_heads * (1 + fuzz_below(from, 3));
        c->dim_k = 1 + fuzz_below(from, 20);
        c->dense_layers = 0;
        c->foreground = 1;
        c->page_tokens = 8;
        c->sink = 4;
        c->window = c->rollback = 8;
        c->budget = 40;
        for (size_t i = fuzz_below(from, 6); i > 0; i--)
                odd_fields(from, c);
        c->struct_size = fuzz_struct_size(c->struct_size, sizeof *c);
        c->n_layers = sane(c->n_layers, DCI_KV_MAX_LAYERS);
        c->cluster_rounds = sane(c->cluster_rounds, 1000);
        c->foreground = c->foreground == 0 ? 1 : c->foreground; /* a worker per input is dear */
        layers_and_hooks(from, c, f);
}

static void kvs(fuzz_bytes *from, dci_context *context)
{
        dci_kv_config c;
        kv_fields fields;
        dci_kv *kv = NULL;
        double tau;
        draw_kv(from, &c, &fields);
        const size_t n_positions = 1 + fuzz_below(from, 5);
        if (c.n_query_heads * c.dim_k <= SMALL)
                fuzz_worked(
                        dci_kv_calibrate(context, &c, 1, n_positions, numbers, c.dim_k, fuzz_odd_double(from), &tau));
        if (!fuzz_worked(dci_kv_create(context, &c, &kv))) {
                ck_assert_ptr_null(kv);
                return;
        }
        use_kv(from, kv, &c);
        dci_kv_destroy(kv);
}

/* Keys and values in the caller's memory, strides of which no row is outside it. */
static void layouts(fuzz_bytes *from, dci_context *context)
{
        static float memory[4][4096];
        dci_kv_config c;
        kv_fields f;
        dci_kv *kv = NULL;
        draw_kv(from, &c, &f);
        ck_ok(dci_kv_layout_init(&f.layout, sizeof f.layout));
        for (size_t i = 0; i < 4; i++)
                f.bases[i] = memory[i];
        f.layout.keys = fuzz_one_in(from, 8) ? NULL : f.bases;
        f.layout.values = fuzz_one_in(from, 8) ? NULL : f.bases;
        size_t *const sizes[] = {&f.layout.n_blocks,         &f.layout.key_page_stride,   &f.layout.key_head_stride,
                                 &f.layout.key_slot_stride,  &f.layout.value_page_stride, &f.layout.value_head_stride,
                                 &f.layout.value_slot_stride};
        for (size_t i = 0; i < 7; i++)
                *sizes[i] = fuzz_odd_size(from);
        f.layout.blocks_by = fuzz_odd_int(from);
        c.layout = &f.layout;
        if (c.n_layers > 4 && c.n_layers <= DCI_KV_MAX_LAYERS)
                c.n_layers = 4;
        if (fuzz_worked(dci_kv_create(context, &c, &kv)))
                dci_kv_destroy(kv);
}

/* --- devices ------------------------------------------------------------------------------------------------------------------ */

static void devices(fuzz_bytes *from, dci_context *context)
{
        dci_gpu_config g;
        dci_gpu_kv_config d;
        dci_kv_config c;
        kv_fields fields;
        dci_gpu *gpu = NULL;
        dci_gpu_kv *kv = NULL;
        int64_t sequence;
        ck_ok(dci_gpu_config_init(&g, sizeof g));
        g.device = fuzz_one_in(from, 8) ? fuzz_odd_int(from) : DCI_GPU_HOST;
        g.reserved = fuzz_one_in(from, 8) ? fuzz_odd_int(from) : 0;
        if (g.device >= 0) /* the machine's own, if it has any */
                g.device = DCI_GPU_HOST;
        if (!fuzz_worked(dci_gpu_create(context, &g, &gpu)))
                return;
        draw_kv(from, &c, &fields);
        c.dim_k = fuzz_one_in(from, 4) ? c.dim_k : 64;
        ck_ok(dci_gpu_kv_config_init(&d, sizeof d));
        size_t *const sizes[] = {&d.max_sequences, &d.max_tokens,       &d.ring_tokens, &d.hot_tokens,
                                 &d.piece_bytes,   &d.max_device_bytes, &d.struct_size};
        int32_t *const ints[] = {&d.gather, &d.out_dtype, &d.planner, &d.reserved};
        d.max_tokens = 200;
        for (size_t i = fuzz_below(from, 4); i > 0; i--) {
                const size_t which = fuzz_below(from, 11);
                if (which < 7)
                        *sizes[which] = fuzz_odd_size(from);
                else
                        *ints[which - 7] = fuzz_odd_int(from);
        }
        d.struct_size = fuzz_struct_size(d.struct_size, sizeof d);
        if (fuzz_worked(dci_gpu_kv_create(gpu, &c, &d, &kv))) {
                if (fuzz_worked(dci_gpu_kv_open(kv, &sequence)))
                        ck_ok(dci_gpu_kv_close(kv, sequence));
                dci_gpu_kv_destroy(kv);
        } else {
                ck_assert_ptr_null(kv);
        }
        dci_gpu_destroy(gpu);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static void (*const sorts[])(fuzz_bytes * from, dci_context * context) = {indexes, kvs, sketches, layouts,
                                                                                  devices};
        fuzz_bytes from;
        fuzz_from_bytes(&from, data, size);
        for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
                numbers[i] = 0.01f * (float)(i * 37 % 101) - 0.4f;
        const size_t which = fuzz_below(&from, 8);
        if (which >= 7) {
                contexts(&from);
                return 0;
        }
        dci_context *context = fuzz_limited_context();
        sorts[which < 5 ? which : which - 5](&from, context);
        fuzz_limited_end(context);
        return 0;
}

void fuzz_seeds(void (*put)(const void *data, size_t size))
{
        fuzz_random_seeds(put, 200, 80);
}
