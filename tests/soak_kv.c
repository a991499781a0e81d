/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/soak.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool soak_prepare_cache(soak_world *w, soak_cache *cache, int32_t preset)
{
        dci_context *context = NULL;
        dci_kv *kv = NULL;
        int64_t sequence = -1;
        uint64_t hash = WORK_HASH;
        (void)w;
        cache->work = work_prepare(preset);
        bool good = dci_context_create(NULL, &context) == DCI_OK &&
                    dci_kv_create(context, &cache->work.config, &kv) == DCI_OK &&
                    work_prompt(kv, &cache->work, &sequence) == DCI_OK;
        cache->hash[0] = hash;
        for (size_t t = 0; t < SOAK_STEPS && good; t++) {
                good = work_decode(kv, &cache->work, sequence, WORK_PROMPT + t, &hash) == DCI_OK;
                cache->hash[t + 1] = hash;
        }
        dci_kv_destroy(kv);
        dci_context_destroy(context);
        return good;
}

/* Goes on with a fork of what there is, or with what a file holds of it. */
static bool replace(soak_part *p, soak_cache *cache, int64_t *sequence, size_t n_tokens, bool by_file)
{
        char path[128];
        int64_t other = -1;
        bool good;
        if (by_file) {
                snprintf(path, sizeof path, "%s/sequence-%zu", p->world->folder, p->number);
                good = SOAK_OK(p, dci_kv_save(cache->kv, *sequence, n_tokens, path)) &&
                       SOAK_OK(p, dci_kv_load(cache->kv, path, &other));
                unlink(path);
        } else {
                good = SOAK_OK(p, dci_kv_fork(cache->kv, *sequence, n_tokens, &other));
        }
        p->counts[by_file ? SOAK_LOADS : SOAK_FORKS]++;
        good = good && SOAK_OK(p, dci_kv_close(cache->kv, *sequence));
        *sequence = other;
        return good;
}

/* A step that is begun and taken back. */
static bool think_better(soak_part *p, soak_cache *cache, int64_t sequence)
{
        return SOAK_OK(p, dci_kv_reserve(cache->kv, 1, &sequence, NULL)) &&
               SOAK_OK(p, dci_kv_step_abort(cache->kv, 1, &sequence));
}

static bool live(soak_part *p, soak_cache *cache)
{
        const size_t steps = 1 + soak_below(p, SOAK_STEPS);
        int64_t sequence = -1;
        uint64_t hash = WORK_HASH;
        bool good = SOAK_OK(p, work_prompt(cache->kv, &cache->work, &sequence));
        p->counts[SOAK_SEQUENCES]++;
        for (size_t t = 0; t < steps && good; t++) {
                const size_t turn = soak_below(p, 16);
                if (turn < 2)
                        good = replace(p, cache, &sequence, WORK_PROMPT + t, turn == 0);
                else if (turn == 2)
                        good = think_better(p, cache, sequence);
                good = good && SOAK_OK(p, work_decode(cache->kv, &cache->work, sequence, WORK_PROMPT + t, &hash));
                p->counts[SOAK_TOKENS]++;
                if (good && hash != cache->hash[t + 1])
                        good = soak_wrong(p, "preset %d: token %zu of a sequence is not what it is alone",
                                          (int)cache->work.config.preset, WORK_PROMPT + t);
        }
        return good && SOAK_OK(p, dci_kv_close(cache->kv, sequence));
}

void *soak_decode(void *part)
{
        soak_part *p = part;
        while (soak_goes_on(p) && live(p, &p->world->caches[soak_below(p, SOAK_CACHES)]))
                continue;
        return NULL;
}
