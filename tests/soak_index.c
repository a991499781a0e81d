/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/soak.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PRESENT = 2 }; /* of state % 4 */

/* --- the world -------------------------------------------------------------------------------------------------------------------------- */

static dci_status make_index(dci_context *context, soak_index *s)
{
        dci_index_config config;
        dci_index_config_init(&config, sizeof config);
        config.dim = TRACE_DIM;
        config.target_recall = 1.0;
        config.kind = s->kind;
        config.metric = s->metric;
        config.sketch_bits = s->sketch_bits;
        return dci_index_create(context, &config, &s->index);
}

/* Every score there can be, from an index of kind FLAT. */
static bool score_all(soak_world *w, soak_index *s)
{
        static int64_t ids[SOAK_QUERIES * SOAK_UNIVERSE];
        static float scores[SOAK_QUERIES * SOAK_UNIVERSE];
        const soak_index flat = {.kind = DCI_KIND_FLAT, .metric = s->metric};
        soak_index all = flat;
        dci_context *context = NULL;
        bool good = dci_context_create(NULL, &context) == DCI_OK && make_index(context, &all) == DCI_OK &&
                    dci_index_add(all.index, SOAK_UNIVERSE, w->rows, TRACE_DIM, NULL, NULL) == DCI_OK &&
                    dci_index_search(all.index, SOAK_QUERIES, w->queries, TRACE_DIM, SOAK_UNIVERSE, NULL, ids,
                                     scores) == DCI_OK;
        for (size_t i = 0; i < (size_t)SOAK_QUERIES * SOAK_UNIVERSE && good; i++)
                s->score[i / SOAK_UNIVERSE][ids[i]] = scores[i];
        dci_index_destroy(all.index);
        dci_context_destroy(context);
        return good;
}

bool soak_prepare(soak_world *w)
{
        static const dci_index_kind kinds[SOAK_KINDS] = {DCI_KIND_FLAT, DCI_KIND_PDCI, DCI_KIND_MDCI};
        static const dci_metric metrics[SOAK_KINDS] = {DCI_METRIC_L2, DCI_METRIC_IP, DCI_METRIC_COSINE};
        static const int32_t presets[SOAK_CACHES] = {DCI_KV_SKETCH_LOWBIT, DCI_KV_ICECACHE};
        const char *base = getenv("TMPDIR");
        snprintf(w->folder, sizeof w->folder, "%.40s/dci-soak-XXXXXX", base != NULL && base[0] != '\0' ? base : "/tmp");
        bool good = mkdtemp(w->folder) != NULL;
        w->rows = pdci_trace("keys", SOAK_UNIVERSE);
        w->queries = pdci_trace("queries", SOAK_QUERIES);
        for (size_t i = 0; i < SOAK_KINDS && good; i++) {
                w->indexes[i].kind = kinds[i];
                w->indexes[i].metric = metrics[i];
                w->indexes[i].sketch_bits = kinds[i] == DCI_KIND_MDCI ? 4 : 0;
                good = score_all(w, &w->indexes[i]);
        }
        for (size_t i = 0; i < SOAK_CACHES && good; i++)
                good = soak_prepare_cache(w, &w->caches[i], presets[i]);
        return good;
}

void soak_forget(soak_world *w)
{
        for (size_t i = 0; i < SOAK_CACHES; i++)
                work_free(&w->caches[i].work);
        test_free(w->rows, w->queries);
        rmdir(w->folder);
}

bool soak_make(soak_world *w, dci_context *context)
{
        bool good = true;
        for (size_t i = 0; i < SOAK_KINDS && good; i++)
                good = make_index(context, &w->indexes[i]) == DCI_OK;
        for (size_t i = 0; i < SOAK_CACHES && good; i++)
                good = dci_kv_create(context, &w->caches[i].work.config, &w->caches[i].kv) == DCI_OK;
        return good;
}

void soak_unmake(soak_world *w)
{
        for (size_t i = 0; i < SOAK_KINDS; i++) {
                dci_index_destroy(w->indexes[i].index);
                w->indexes[i].index = NULL;
                for (size_t id = 0; id < SOAK_UNIVERSE; id++)
                        atomic_store(&w->indexes[i].state[id], 0);
        }
        for (size_t i = 0; i < SOAK_CACHES; i++) {
                dci_kv_destroy(w->caches[i].kv);
                w->caches[i].kv = NULL;
        }
}

/* --- what is found ---------------------------------------------------------------------------------------------------------------------- */

static bool better(const soak_index *s, const float *score, size_t a, size_t b)
{
        if (score[a] == score[b])
                return a < b;
        return s->metric == DCI_METRIC_L2 ? score[a] < score[b] : score[a] > score[b];
}

static void take_states(soak_index *s, unsigned *out)
{
        for (size_t id = 0; id < SOAK_UNIVERSE; id++)
                out[id] = atomic_load(&s->state[id]);
}

/* One query's answer of n rows (fewer than k: there were no more). before, after: states about the call. last: what the worst row wanted
 * could be, SOAK_UNIVERSE: any. */
static bool check_answer(soak_part *p, soak_index *s, size_t query, const int64_t *ids, const float *scores, size_t n,
                         const unsigned *before, const unsigned *after, bool exact, bool full)
{
        const float *score = s->score[query];
        bool found[SOAK_UNIVERSE] = {false};
        for (size_t i = 0; i < n; i++) {
                const size_t id = (size_t)ids[i];
                if (ids[i] < 0 || id >= SOAK_UNIVERSE || found[id])
                        return soak_wrong(p, "kind %d: id %lld at rank %zu", (int)s->kind, (long long)ids[i], i);
                if (memcmp(&scores[i], &score[id], sizeof *scores) != 0)
                        return soak_wrong(p, "kind %d: id %zu has score %.9g, wanted %.9g", (int)s->kind, id,
                                          (double)scores[i], (double)score[id]);
                if (i > 0 && !better(s, score, (size_t)ids[i - 1], id))
                        return soak_wrong(p, "kind %d: ranks %zu and %zu", (int)s->kind, i - 1, i);
                if (before[id] == after[id] && before[id] % 4 == 0)
                        return soak_wrong(p, "kind %d: id %zu was found and not there", (int)s->kind, id);
                found[id] = true;
        }
        for (size_t id = 0; id < SOAK_UNIVERSE && exact; id++)
                if (before[id] == after[id] && before[id] % 4 == PRESENT && !found[id] &&
                    (!full || better(s, score, id, (size_t)ids[n - 1])))
                        return soak_wrong(p, "kind %d: id %zu was there and not found", (int)s->kind, id);
        return true;
}

static bool search_once(soak_part *p, soak_index *s)
{
        const size_t first = soak_below(p, SOAK_QUERIES), n_queries = 1 + soak_below(p, SOAK_QUERIES - first);
        const bool exact = soak_below(p, 2) == 0;
        int64_t ids[SOAK_QUERIES * SOAK_K];
        float scores[SOAK_QUERIES * SOAK_K];
        unsigned before[SOAK_UNIVERSE], after[SOAK_UNIVERSE];
        dci_search_params params;
        dci_search_params_init(&params, sizeof params);
        params.target_recall = 1.0; /* whatever tune has set */
        if (!exact)
                params.prop_to_visit = params.prop_to_retrieve = 0.2;
        take_states(s, before);
        if (!SOAK_OK(p, dci_index_search(s->index, n_queries, p->world->queries + first * TRACE_DIM, TRACE_DIM, SOAK_K,
                                         &params, ids, scores)))
                return false;
        take_states(s, after);
        bool good = true;
        for (size_t q = 0; q < n_queries && good; q++) {
                size_t n = 0;
                while (n < SOAK_K && ids[q * SOAK_K + n] >= 0)
                        n++;
                good = check_answer(p, s, first + q, ids + q * SOAK_K, scores + q * SOAK_K, n, before, after,
                                    exact || s->kind == DCI_KIND_FLAT, n == SOAK_K);
        }
        p->counts[SOAK_SEARCHES] += n_queries;
        p->counts[SOAK_EXACT] += exact ? n_queries : 0;
        return good;
}

static bool range_once(soak_part *p, soak_index *s)
{
        const size_t query = soak_below(p, SOAK_QUERIES), at = soak_below(p, SOAK_UNIVERSE);
        const float radius = s->score[query][at];
        unsigned before[SOAK_UNIVERSE], after[SOAK_UNIVERSE];
        dci_range_result result;
        dci_search_params params;
        dci_search_params_init(&params, sizeof params);
        params.target_recall = 1.0;
        dci_range_result_init(&result, sizeof result);
        take_states(s, before);
        if (!SOAK_OK(p, dci_index_range_search(s->index, 1, p->world->queries + query * TRACE_DIM, TRACE_DIM, radius,
                                               &params, &result)))
                return false;
        take_states(s, after);
        /* Rows beyond the radius count as absent. */
        for (size_t id = 0; id < SOAK_UNIVERSE; id++)
                if (s->metric == DCI_METRIC_L2 ? s->score[query][id] > radius : s->score[query][id] < radius)
                        before[id] = after[id] = 0;
        const bool good =
                check_answer(p, s, query, result.ids, result.scores, result.offsets[1], before, after, true, false);
        dci_range_result_free(&result);
        p->counts[SOAK_RANGES]++;
        return good;
}

void *soak_read(void *part)
{
        soak_part *p = part;
        while (soak_goes_on(p)) {
                soak_index *s = &p->world->indexes[soak_below(p, SOAK_KINDS)];
                if (!(soak_below(p, 8) == 0 ? range_once(p, s) : search_once(p, s)))
                        break;
        }
        return NULL;
}

/* --- what is changed -------------------------------------------------------------------------------------------------------------------- */

static void count_up(soak_index *s, size_t first, size_t n)
{
        for (size_t id = first; id < first + n; id++)
                atomic_fetch_add(&s->state[id], 1);
}

/* A block comes or goes. */
static bool toggle(soak_part *p, soak_index *s)
{
        const size_t first = soak_below(p, SOAK_BLOCKS) * SOAK_BLOCK;
        const bool adds = atomic_load(&s->state[first]) % 4 == 0;
        int64_t ids[SOAK_BLOCK];
        for (size_t i = 0; i < SOAK_BLOCK; i++)
                ids[i] = (int64_t)(first + i);
        count_up(s, first, SOAK_BLOCK);
        const bool good = adds ? SOAK_OK(p, dci_index_add(s->index, SOAK_BLOCK, p->world->rows + first * TRACE_DIM,
                                                          TRACE_DIM, ids, NULL))
                               : SOAK_OK(p, dci_index_remove(s->index, SOAK_BLOCK, ids));
        count_up(s, first, SOAK_BLOCK);
        p->counts[adds ? SOAK_ADDS : SOAK_REMOVES]++;
        return good;
}

/* The writer knows what there is. */
static bool check_ids(soak_part *p, soak_index *s, const dci_index *index)
{
        int64_t ids[SOAK_UNIVERSE];
        size_t n = 0, at = 0;
        if (!SOAK_OK(p, dci_index_ids(index, SOAK_UNIVERSE, ids, &n)))
                return false;
        for (size_t id = 0; id < SOAK_UNIVERSE; id++)
                if (atomic_load(&s->state[id]) % 4 == PRESENT && (at >= n || ids[at++] != (int64_t)id))
                        return soak_wrong(p, "kind %d: id %zu is missing", (int)s->kind, id);
        return at == n || soak_wrong(p, "kind %d: %zu ids, wanted %zu", (int)s->kind, n, at);
}

/* A search at the index's defaults finds in both the same. */
static bool check_file(soak_part *p, soak_index *s, const char *path, bool mapped)
{
        int64_t ids[2][SOAK_QUERIES * SOAK_K];
        float scores[2][SOAK_QUERIES * SOAK_K];
        dci_index *loaded = NULL;
        bool good = SOAK_OK(p, (mapped ? dci_index_map : dci_index_load)(s->index->context, path, &loaded)) &&
                    check_ids(p, s, loaded);
        for (int side = 0; side < 2 && good; side++)
                good = SOAK_OK(p, dci_index_search(side == 0 ? s->index : loaded, SOAK_QUERIES, p->world->queries,
                                                   TRACE_DIM, SOAK_K, NULL, ids[side], scores[side]));
        if (good && (memcmp(ids[0], ids[1], sizeof ids[0]) != 0 || memcmp(scores[0], scores[1], sizeof scores[0]) != 0))
                good = soak_wrong(p, "kind %d: what was %s answers otherwise", (int)s->kind,
                                  mapped ? "mapped" : "loaded");
        dci_index_destroy(loaded);
        return good;
}

static bool save_and_load(soak_part *p, soak_index *s)
{
        char path[128];
        snprintf(path, sizeof path, "%s/index-%zu", p->world->folder, p->number);
        const bool good = SOAK_OK(p, dci_index_save(s->index, path)) && check_file(p, s, path, soak_below(p, 2) == 0);
        unlink(path);
        p->counts[SOAK_FILES]++;
        return good;
}

static bool tune(soak_part *p, soak_index *s)
{
        if (dci_index_count(s->index) == 0)
                return true;
        p->counts[SOAK_TUNES]++;
        return (s->sketch_bits == 0 ||
                SOAK_OK(p, dci_index_fit(s->index, SOAK_QUERIES, p->world->queries, TRACE_DIM))) &&
               SOAK_OK(p, dci_index_tune(s->index, SOAK_QUERIES, p->world->queries, TRACE_DIM, SOAK_K, 0.9, NULL));
}

void *soak_write(void *part)
{
        soak_part *p = part;
        soak_index *s = &p->world->indexes[p->number];
        bool good = true;
        for (size_t i = 1; good && soak_goes_on(p); i++) {
                good = toggle(p, s);
                if (good && i % 16 == 0)
                        good = check_ids(p, s, s->index);
                if (good && i % 64 == 0)
                        good = save_and_load(p, s);
                if (good && i % 400 == 0)
                        good = tune(p, s);
        }
        return NULL;
}
