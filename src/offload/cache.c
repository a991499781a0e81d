/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* A KV cache on a device: its config, its life, and its numbers. */
#include "core/internal.h"

#include <string.h>

#include "core/arena.h"
#include "core/fields.h"
#include "kv/config.h"
#include "kv/stages/stages.h"
#include "offload/clusters.h"
#include "offload/copies.h"
#include "offload/fetch_baselines.h"
#include "offload/history.h"
#include "offload/layout.h"
#include "offload/learned_codes.h"
#include "offload/offload_internal.h"
#include "offload/orders.h"
#include "offload/planner.h"
#include "offload/pool.h"
#include "offload/prompt.h"
#include "offload/prompt_kmeans.h"
#include "offload/resident.h"
#include "offload/schedule.h"
#include "offload/swap.h"
#include "offload/tail.h"
#include "offload/tree.h"

#define LAYER_OF_PIECE ((size_t)8 << 20)
#define MIN_PIECE ((size_t)64 << 20)

static const char *const gathers[DCI_GPU_GATHERS] = {"MAPPED", "STAGED", "BATCHED", "COPIES", "DIRECT"},
                         *const planners[] = {"DCI_GPU_PLAN_AUTO", "DCI_GPU_PLAN_HOST", "DCI_GPU_PLAN_DEVICE"};

#define FIELD(field, ...) DCI_FIELD(dci_gpu_kv_config, field, __VA_ARGS__)
static const dci_field fields[] = {
        FIELD(max_sequences, 1, 1, DCI_GPU_KV_MAX_SEQUENCES),
        FIELD(max_tokens, (size_t)1 << 17, 1, DCI_KV_MAX_TOKENS),
        FIELD(ring_tokens, 0, 0, (size_t)1 << 24),
        FIELD(hot_tokens, -1, 0, DCI_GPU_MAX_FRAMES),
        FIELD(piece_bytes, 0, 0, (size_t)1 << 40),
        FIELD(device_resident_bytes, 0, 0, (size_t)1 << 48),
        FIELD(gather, DCI_GPU_GATHER_MAPPED, DCI_GPU_GATHER_MAPPED, DCI_GPU_GATHERS, .names = gathers),
        FIELD(out_dtype, DCI_F32, DCI_F32, DCI_BF16, .names = dci_dtype_names),
        FIELD(reserved, 0, 0, 0),
        FIELD(planner, DCI_GPU_PLAN_AUTO, DCI_GPU_PLAN_AUTO, DCI_GPU_PLAN_DEVICE, .names = planners),
};

dci_status dci_gpu_kv_config_init(dci_gpu_kv_config *config, size_t struct_size)
{
        const dci_status status = dci_struct_init("dci_gpu_kv_config", config, struct_size, sizeof *config);
        if (status == DCI_OK)
                dci_fields_init(DCI_FIELDS(fields), config);
        return status;
}

dci_status dci_gpu_kv_info_init(dci_gpu_kv_info *info, size_t struct_size)
{
        return dci_struct_init("dci_gpu_kv_info", info, struct_size, sizeof *info);
}

/* --- checks ------------------------------------------------------------------------------------------------------- */

/* Checks the shapes that kernels are built for. */
static dci_status check_shape(const dci_kv_config *c)
{
        const size_t group = c->n_query_heads / c->n_kv_heads;
        if (c->layout != NULL || c->hook.taken != NULL || c->hook.given_back != NULL)
                return dci_fail(DCI_ERR_UNSUPPORTED, "the %s is set, but on a device the library's own memory is used",
                                c->layout != NULL ? "layout" : "hook");
        if (c->dtype != DCI_F16 && c->dtype != DCI_BF16)
                return dci_fail(DCI_ERR_UNSUPPORTED, "dtype is %d, on a device it is DCI_F16 or DCI_BF16",
                                (int)c->dtype);
        if (c->dim_k != c->dim_v || (c->dim_k != 64 && c->dim_k != 96 && c->dim_k != 128 && c->dim_k != 256))
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "dim_k is %zu and dim_v %zu, on a device both are 64, 96, 128 or 256", c->dim_k,
                                c->dim_v);
        if (group > DCI_GPU_MAX_GROUP)
                return dci_fail(DCI_ERR_UNSUPPORTED, "%zu query heads share a kv head, on a device at most %d do",
                                group, DCI_GPU_MAX_GROUP);
        if (c->budget > DCI_GPU_MAX_LIST)
                return dci_fail(DCI_ERR_UNSUPPORTED, "budget is %zu, on a device it is at most %d", c->budget,
                                DCI_GPU_MAX_LIST);
        return DCI_OK;
}

static size_t power_of_two(size_t n)
{
        size_t out = 1;
        while (out < n)
                out *= 2;
        return out;
}

/* Pages begin after the sink, so a unit of fetching must divide both. */
static int32_t unit_shift(const dci_kv_config *c)
{
        int32_t shift = 0;
        if (c->contiguous != 0)
                return dci_gpu_kv_copies_unit(c);
        if (c->group != DCI_KV_GROUP_PAGE)
                return 0;
        while (((size_t)2 << shift) <= c->page_tokens && c->sink % ((size_t)2 << shift) == 0)
                shift++;
        return shift;
}

/* The default of piece_bytes, as the header documents it. */
static size_t usual_piece(const dci_kv_config *c, const dci_gpu_kv_config *config)
{
        size_t n_bytes = c->n_layers * LAYER_OF_PIECE, need;
        const size_t of_token = c->n_layers * c->n_kv_heads * 2 * c->dim_k * dci_dtype_size(c->dtype);
        const size_t tokens = (config->max_tokens + c->page_tokens - 1) / c->page_tokens * c->page_tokens;
        if (n_bytes < MIN_PIECE)
                n_bytes = MIN_PIECE;
        if (dci_mul(config->max_sequences, tokens, &need) && dci_mul(need, of_token, &need) && need < n_bytes)
                n_bytes = need;
        return c->max_bytes > 0 && c->max_bytes / 4 < n_bytes ? c->max_bytes / 4 + 1 : n_bytes;
}

/* Checks the planner, and replaces AUTO by what is supported. */
static dci_status check_planner(const dci_kv_config *shape, dci_gpu_kv_config *config)
{
        if (config->planner == DCI_GPU_PLAN_DEVICE)
                return dci_gpu_kv_can_plan(shape, config);
        if (config->planner == DCI_GPU_PLAN_AUTO) {
                dci_may_fail(true);
                config->planner =
                        dci_gpu_kv_can_plan(shape, config) == DCI_OK ? DCI_GPU_PLAN_DEVICE : DCI_GPU_PLAN_HOST;
                dci_may_fail(false);
        }
        return DCI_OK;
}

/* The ring has the keys of tokens that leave the window, and recent tokens are read from it. */
static size_t least_ring(const dci_kv_config *shape)
{
        const size_t recent = dci_kv_max_recent(shape);
        return recent > shape->budget && recent != SIZE_MAX ? recent : shape->budget;
}

/* A device searches trees by codes: the default where it plans. */
static void set_tree_keys(const dci_gpu_kv_config *config, dci_kv_config *shape)
{
        dci_kv_config coded = *shape;
        if (shape->select != DCI_KV_SELECT_TREE || config->planner == DCI_GPU_PLAN_HOST)
                return;
        coded.tree_keys = DCI_KV_TREE_CODES;
        dci_may_fail(true);
        if (config->planner == DCI_GPU_PLAN_DEVICE || dci_gpu_kv_can_plan(&coded, config) == DCI_OK)
                shape->tree_keys = coded.tree_keys;
        dci_may_fail(false);
}

/* Twice the budgets of a lane's lists. */
static size_t usual_hot(const dci_kv_config *shape)
{
        const size_t lists = shape->query_head_lists != 0 ? shape->n_query_heads / shape->n_kv_heads : 1;
        return 2 * lists * shape->budget < DCI_GPU_MAX_FRAMES ? 2 * lists * shape->budget : DCI_GPU_MAX_FRAMES;
}

/* keys_open: the caller left tree_keys to the library. */
static dci_status check_config(const dci_gpu_kv_config *config, bool keys_open, dci_kv_config *shape,
                               dci_gpu_kv_config *out)
{
        if (config == NULL) {
                dci_gpu_kv_config_init(out, sizeof *out);
        } else {
                DCI_TRY(dci_check_struct_size("dci_gpu_kv_config", config, config->struct_size, sizeof *config));
                *out = *config;
        }
        const size_t ring = least_ring(shape);
        if (out->ring_tokens == 0)
                out->ring_tokens = ring;
        if (out->hot_tokens == DCI_KV_PRESET)
                out->hot_tokens = usual_hot(shape);
        DCI_TRY(dci_fields_check(DCI_FIELDS(fields), out));
        if (out->ring_tokens < ring)
                return dci_fail(DCI_ERR_INVALID, "ring_tokens is %zu, expected %zu (%s) to %zu", out->ring_tokens, ring,
                                ring == shape->budget ? "the budget" : "recent tokens, which the budget does not count",
                                (size_t)1 << 24);
        if (out->device_resident_bytes > 0 && out->gather != DCI_GPU_GATHER_MAPPED)
                return dci_fail(DCI_ERR_UNSUPPORTED,
                                "device_resident_bytes is %zu, which needs gather MAPPED, but gather is %s",
                                out->device_resident_bytes, gathers[out->gather - 1]);
        if (keys_open)
                set_tree_keys(out, shape);
        DCI_TRY(dci_gpu_kv_can_copy(shape, out));
        DCI_TRY(check_planner(shape, out));
        out->ring_tokens = power_of_two(out->ring_tokens);
        if (out->piece_bytes == 0)
                out->piece_bytes = usual_piece(shape, out);
        const size_t unit = (size_t)1 << unit_shift(shape);
        out->hot_tokens = out->gather == DCI_GPU_GATHER_DIRECT ? 0 : (out->hot_tokens + unit - 1) / unit * unit;
        return DCI_OK;
}

/* --- creation and destruction ------------------------------------------------------------------------------------- */

static void set_sizes(dci_gpu_kv *kv)
{
        const dci_kv_config *c = &kv->shape;
        kv->dim = c->dim_k;
        kv->es = dci_dtype_size(c->dtype);
        kv->query_es = dci_dtype_size(c->query_dtype);
        kv->row_bytes = kv->dim * kv->es;
        kv->share = c->n_query_heads / c->n_kv_heads;
        kv->group = c->query_head_lists != 0 ? 1 : kv->share;
        kv->head_lists = kv->share / kv->group;
        kv->stride = c->budget;
        while (((size_t)1 << kv->page_shift) < c->page_tokens)
                kv->page_shift++;
        kv->unit_shift = unit_shift(c);
        kv->max_blocks = dci_gpu_kv_blocks(kv, kv->config.max_tokens);
        kv->n_frames = kv->config.hot_tokens >> kv->unit_shift;
        kv->n_slots = c->sink + kv->config.ring_tokens + kv->config.hot_tokens;
        kv->n_lanes = kv->config.max_sequences * c->n_kv_heads;
        kv->row_lists = c->n_kv_heads * kv->head_lists;
        kv->n_lists = kv->config.max_sequences * kv->row_lists;
        kv->resolves_on_host = kv->config.gather == DCI_GPU_GATHER_STAGED ||
                               kv->config.gather == DCI_GPU_GATHER_BATCHED ||
                               kv->config.gather == DCI_GPU_GATHER_COPIES;
}

/* Notes which layers attend to everything. The host exists. */
static void set_layers(dci_gpu_kv *kv)
{
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                dci_gpu_kv_layer *layer = &kv->layers[l];
                layer->dense = kv->host->layer_modes[l] == DCI_KV_LAYER_DENSE || kv->shape.select == DCI_KV_SELECT_ALL;
                layer->index = layer->dense ? kv->n_dense++ : kv->n_sparse++;
                kv->groups = kv->groups || dci_kv_groups(kv->host, l);
        }
}

enum { ALONE = 9, N_EVENTS = ALONE + DCI_GPU_KV_RECORDS + DCI_GPU_KV_STAGING };

/* Lists the events of the object, but for those of its layers. */
static void find_events(dci_gpu_kv *kv, void **out[N_EVENTS])
{
        void **const alone[ALONE] = {&kv->main_event,
                                     &kv->side_event,
                                     &kv->step_event,
                                     &kv->query_event,
                                     &kv->baselines->fetched,
                                     &kv->history->buffers[0].copied,
                                     &kv->history->buffers[0].released,
                                     &kv->history->buffers[1].copied,
                                     &kv->history->buffers[1].released};
        memcpy(out, alone, sizeof alone);
        for (size_t i = 0; i < DCI_GPU_KV_RECORDS; i++)
                out[ALONE + i] = &kv->record_events[i];
        for (size_t i = 0; i < DCI_GPU_KV_STAGING; i++)
                out[ALONE + DCI_GPU_KV_RECORDS + i] = &kv->staging_events[i];
}

static dci_status create_events(dci_gpu_kv *kv)
{
        void **events[N_EVENTS];
        find_events(kv, events);
        DCI_TRY(kv->ops->stream_create(kv->gpu, &kv->side));
        DCI_TRY(kv->ops->stream_create(kv->gpu, &kv->history_stream));
        for (size_t i = 0; i < N_EVENTS; i++)
                DCI_TRY(kv->ops->event_create(kv->gpu, false, events[i]));
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                DCI_TRY(kv->ops->event_create(kv->gpu, false, &kv->layers[l].arrived));
                for (size_t i = 0; i < 2; i++)
                        DCI_TRY(kv->ops->event_create(kv->gpu, false, &kv->layers[l].stored[i]));
        }
        return DCI_OK;
}

static void destroy_events(dci_gpu_kv *kv)
{
        void **events[N_EVENTS];
        find_events(kv, events);
        for (size_t i = 0; i < N_EVENTS; i++)
                if (*events[i] != NULL)
                        kv->ops->event_destroy(kv->gpu, *events[i]);
        for (size_t l = 0; l < kv->shape.n_layers; l++) {
                void *const of_layer[] = {kv->layers[l].arrived, kv->layers[l].stored[0], kv->layers[l].stored[1]};
                for (size_t i = 0; i < sizeof of_layer / sizeof *of_layer; i++)
                        if (of_layer[i] != NULL)
                                kv->ops->event_destroy(kv->gpu, of_layer[i]);
        }
        if (kv->side != NULL)
                kv->ops->stream_destroy(kv->gpu, kv->side);
        if (kv->history_stream != NULL)
                kv->ops->stream_destroy(kv->gpu, kv->history_stream);
}

/* The object and its parts are one allocation, which layers, rows and hints follow. */
typedef struct whole {
        dci_gpu_kv kv;
        dci_gpu_kv_pool pool;
        dci_gpu_kv_resident resident;
        dci_gpu_kv_copies copies;
        dci_gpu_kv_store summaries, ids;
        dci_gpu_kv_schedule schedule;
        dci_gpu_kv_cluster_lists clusters;
        dci_gpu_kv_orders orders;
        dci_gpu_kv_trees trees;
        dci_gpu_kv_prompt_kmeans prompt_kmeans;
        dci_gpu_kv_learned learned;
        dci_gpu_kv_tail tail;
        dci_gpu_kv_baselines baselines;
        dci_gpu_kv_prompts prompts;
        dci_gpu_kv_history_buffers history;
} whole;

static size_t lay_out(const dci_kv_config *shape, const dci_gpu_kv_config *config, void *memory)
{
        whole *w = NULL;
        dci_gpu_kv_layer *layers;
        dci_gpu_kv_row *rows;
        uint16_t *hints;
        const dci_arena_part parts[] = {{sizeof *w, &w},
                                        {shape->n_layers * sizeof *layers, &layers},
                                        {config->max_sequences * sizeof *rows, &rows},
                                        {power_of_two(config->max_sequences) * sizeof *hints, &hints}};
        const size_t n_bytes = DCI_ARENA(parts, memory);
        if (memory != NULL)
                w->kv = (dci_gpu_kv){.layers = layers,
                                     .rows = rows,
                                     .row_hints = hints,
                                     .n_row_hints = power_of_two(config->max_sequences),
                                     .shape = *shape,
                                     .config = *config,
                                     .pool = &w->pool,
                                     .resident = &w->resident,
                                     .copies = &w->copies,
                                     .summaries = &w->summaries,
                                     .ids = &w->ids,
                                     .schedule = &w->schedule,
                                     .clusters = &w->clusters,
                                     .orders = &w->orders,
                                     .trees = &w->trees,
                                     .prompt_kmeans = &w->prompt_kmeans,
                                     .learned = &w->learned,
                                     .tail = &w->tail,
                                     .baselines = &w->baselines,
                                     .prompts = &w->prompts,
                                     .history = &w->history};
        return n_bytes;
}

static dci_status check_fits(const dci_gpu_kv *kv, bool plans)
{
        const dci_kv_config *c = &kv->shape;
        const bool sparse = kv->n_sparse > 0;
        const dci_gpu_needs needs = {.dim = (int32_t)kv->dim,
                                     .group = (int32_t)kv->share,
                                     .stride = (int32_t)kv->stride,
                                     .n_frames = (int32_t)kv->n_frames,
                                     .n_lists = kv->n_lanes,
                                     .resolves = sparse && !kv->resolves_on_host,
                                     .gathers = sparse && kv->n_frames > 0 &&
                                                (!kv->resolves_on_host || kv->config.gather == DCI_GPU_GATHER_STAGED),
                                     .places = sparse && c->contiguous != 0,
                                     .plans = sparse && plans,
                                     .tree_shift = c->group == DCI_KV_GROUP_TREE ? kv->page_shift : 0,
                                     .keeps = kv->host->stages->schedule.lists,
                                     .codes = c->summary == DCI_KV_SUMMARY_LEARNED && c->tail == DCI_KV_TAIL_DROP};
        return kv->ops->fits(kv->gpu, &needs);
}

/* A launch that fails in the middle of a step cannot be undone, so the device is asked for all launches before anything
 * is allocated. may_fall_back: the host plans if only the planner's kernels are missing. */
static dci_status select_planner(dci_gpu_kv *kv, bool may_fall_back)
{
        if (kv->config.planner == DCI_GPU_PLAN_DEVICE && may_fall_back) {
                dci_may_fail(true);
                if (check_fits(kv, true) != DCI_OK)
                        kv->config.planner = DCI_GPU_PLAN_HOST;
                dci_may_fail(false);
        }
        return check_fits(kv, kv->config.planner == DCI_GPU_PLAN_DEVICE);
}

static dci_status create(dci_gpu_kv *kv, const dci_kv_config *config, bool may_fall_back)
{
        dci_kv_config host = *config;
        host.hook = dci_gpu_kv_hook(kv);
        host.piece_bytes = kv->config.piece_bytes;
        host.tree_keys = kv->shape.tree_keys;
        DCI_TRY(dci_kv_create(kv->gpu->context, &host, &kv->host));
        set_layers(kv);
        DCI_TRY(select_planner(kv, may_fall_back));
        DCI_TRY(create_events(kv));
        return dci_gpu_kv_alloc_all(kv);
}

dci_status dci_gpu_kv_create(dci_gpu *gpu, const dci_kv_config *kv, const dci_gpu_kv_config *config,
                             dci_gpu_kv **out_kv)
{
        dci_kv_config shape;
        dci_gpu_kv_config checked;
        dci_kv_stages stages;
        if (gpu == NULL || out_kv == NULL)
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", gpu == NULL ? "gpu" : "out_kv");
        DCI_TRY(dci_kv_check_config(kv, &shape, &stages));
        DCI_TRY(check_shape(&shape));
        DCI_TRY(check_config(config, kv->tree_keys == 0, &shape, &checked));
        const size_t n_bytes = lay_out(&shape, &checked, NULL);
        dci_gpu_kv *made = dci_calloc(gpu->context, n_bytes, 1);
        if (made == NULL)
                return DCI_ERR_MEMORY;
        lay_out(&shape, &checked, made);
        made->gpu = gpu;
        made->ops = gpu->ops;
        for (size_t r = 0; r < checked.max_sequences; r++)
                made->rows[r].id = -1;
        dci_gpu_retain(gpu);
        pthread_mutex_init(&made->lock, NULL);
        dci_gpu_kv_prompts_init(made);
        set_sizes(made);
        const dci_status status = create(made, kv, config == NULL || config->planner == DCI_GPU_PLAN_AUTO);
        if (status == DCI_OK)
                *out_kv = made;
        else
                dci_gpu_kv_destroy(made);
        return status;
}

void dci_gpu_kv_destroy(dci_gpu_kv *kv)
{
        if (kv == NULL)
                return;
        dci_gpu *gpu = kv->gpu;
        dci_context *context = gpu->context;
        /* A failure no longer matters, nor does its sentence. */
        dci_may_fail(true);
        if (kv->step_event != NULL)
                (void)dci_gpu_kv_drain(kv);
        if (kv->side != NULL) /* notices to the host, also where a step is captured and nothing was drained */
                (void)kv->ops->stream_wait(kv->gpu, kv->side);
        dci_may_fail(false);
        dci_gpu_kv_prompts_stop(kv);
        destroy_events(kv);
        dci_gpu_kv_prompts_destroy(kv);
        while (kv->swapped != NULL)
                dci_gpu_kv_swap_free(kv, kv->swapped);
        dci_kv_destroy(kv->host);
        dci_gpu_kv_history_free(kv);
        dci_gpu_kv_free_all(kv);
        pthread_mutex_destroy(&kv->lock);
        dci_context_retain(context);
        dci_free(context, kv, lay_out(&kv->shape, &kv->config, NULL), 1);
        dci_gpu_destroy(gpu);
        dci_context_destroy(context);
}

dci_kv *dci_gpu_kv_host(dci_gpu_kv *kv)
{
        return kv == NULL ? NULL : kv->host;
}

/* --- info --------------------------------------------------------------------------------------------------------- */

static dci_status poll_rows(dci_gpu_kv *kv, size_t n, const int64_t *sequences, int32_t *out_bad)
{
        if (n > 0 && (sequences == NULL || out_bad == NULL))
                return dci_fail(DCI_ERR_INVALID, "%s is NULL", sequences == NULL ? "sequences" : "out_bad");
        for (size_t i = 0; i < n; i++)
                if (dci_gpu_kv_find(kv, sequences[i]) == NULL && dci_gpu_kv_find_swapped(kv, sequences[i]) == NULL)
                        return dci_gpu_kv_no_row(kv, sequences[i]);
        for (size_t i = 0; i < n; i++) {
                const dci_gpu_kv_row *row = dci_gpu_kv_find(kv, sequences[i]);
                out_bad[i] = row != NULL ? dci_gpu_kv_bad(kv, row) : dci_gpu_kv_find_swapped(kv, sequences[i])->bad;
        }
        return DCI_OK;
}

dci_status dci_gpu_poll(dci_gpu_kv *kv, size_t n_sequences, const int64_t *sequences, int32_t *out_bad)
{
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, poll_rows(kv, n_sequences, sequences, out_bad));
}

#define BOUNCE ((size_t)8192) /* counters that are copied at once */

/* Sums n counters by their number modulo n_kinds. They are where lists are resolved; whole rounds of them are copied at
 * once. */
static dci_status add_up(dci_gpu_kv *kv, const uint64_t *counters, size_t n, size_t n_kinds, uint64_t *sums)
{
        const size_t most = BOUNCE / n_kinds * n_kinds;
        for (size_t first = 0; first < n; first += most) {
                const size_t left = n - first, here = left < most ? left : most;
                const uint64_t *from = counters + first;
                if (!kv->resolves_on_host) {
                        DCI_GPU_KV_TRY(kv, kv->ops->copy(kv->gpu, kv->side, kv->bounce, from, here * sizeof *from));
                        DCI_GPU_KV_TRY(kv, kv->ops->stream_wait(kv->gpu, kv->side));
                        from = kv->bounce;
                }
                for (size_t i = 0; i < here; i++)
                        sums[i % n_kinds] += from[i];
        }
        return DCI_OK;
}

static dci_status read_info(dci_gpu_kv *kv, dci_gpu_kv_info *out_info)
{
        uint64_t sums[3] = {0}, taken = 0;
        const size_t n_resident = kv->resident->n_slots - kv->resident->n_free,
                     page_bytes = kv->n_sparse * kv->host->pool.block_bytes,
                     buffer_bytes = kv->buffer_bytes + kv->prompt_kmeans->work_bytes + dci_gpu_kv_history_bytes(kv);
        DCI_TRY(dci_gpu_kv_drain(kv));
        DCI_TRY(add_up(kv, kv->counters, kv->n_sparse * kv->n_lanes * 3, 3, sums));
        if (kv->resident->n_slots > 0)
                DCI_TRY(add_up(kv, kv->resident->taken, kv->n_sparse * kv->n_lanes, 1, &taken));
        *out_info = (dci_gpu_kv_info){.struct_size = out_info->struct_size,
                                      .device_bytes = kv->device_bytes,
                                      .lane_bytes = kv->lane_bytes,
                                      .dense_bytes = kv->pool->dense_bytes,
                                      .table_bytes = kv->table_bytes,
                                      .buffer_bytes = buffer_bytes,
                                      .pinned_bytes = kv->pinned_bytes + kv->pool->n_bytes + kv->copies->n_bytes,
                                      .sink = kv->shape.sink,
                                      .ring = kv->config.ring_tokens,
                                      .hot = kv->config.hot_tokens,
                                      .unit_tokens = (size_t)1 << kv->unit_shift,
                                      .n_steps = kv->n_steps,
                                      .n_asked = sums[0],
                                      .n_missed = sums[1],
                                      .n_stayed = sums[2],
                                      .bytes_fetched =
                                              (((sums[1] - taken) << kv->unit_shift) + sums[2]) * 2 * kv->row_bytes +
                                              kv->bytes_refilled,
                                      .bytes_written = kv->bytes_written,
                                      .summary_bytes = kv->summary_bytes,
                                      .planner = kv->config.planner,
                                      .resident_bytes = kv->resident->n_bytes,
                                      .resident_used_bytes = n_resident * page_bytes,
                                      .resident_pages = n_resident,
                                      .n_resident = taken,
                                      .n_clustered = kv->prompt_kmeans->n_layers};
        return DCI_OK;
}

dci_status dci_gpu_kv_get_info(dci_gpu_kv *kv, dci_gpu_kv_info *out_info)
{
        if (out_info == NULL)
                return dci_fail(DCI_ERR_INVALID, "out_info is NULL");
        DCI_TRY(dci_check_struct_size("dci_gpu_kv_info", out_info, out_info->struct_size, sizeof *out_info));
        DCI_TRY(dci_gpu_kv_lock(kv));
        return dci_gpu_kv_unlock(kv, read_info(kv, out_info));
}
