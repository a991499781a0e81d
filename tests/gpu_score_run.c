/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include <stdlib.h>
#include <string.h>

#include "tests/gpu_score_fixture.h"

static const int32_t rows[2][SCORE_SEQUENCES] = {{2, 0, 1}, {1, 2, 0}};

static void call(score_state *s, const dci_gpu_score_args *args)
{
        ck_ok(s->t->ops->score(s->t->gpu, s->t->stream, args));
        ck_ok(s->t->ops->stream_wait(s->t->gpu, s->t->stream));
}

static void repeat(score_state *s)
{
        dci_gpu_score_args args = score_arguments(s);
        const size_t n = s->scores->n_bytes, n_parts = s->parts->n_bytes;
        unsigned char *scores = malloc(n), *parts = malloc(n_parts);
        ck_assert(scores != NULL && parts != NULL);
        memcpy(scores, s->scores->back, n);
        memcpy(parts, s->parts->back, n_parts);
        gpu_send(s->t, s->scores);
        gpu_send(s->t, s->parts);
        call(s, &args);
        gpu_fetch(s->t, s->scores);
        gpu_fetch(s->t, s->parts);
        ck_assert_msg(memcmp(scores, s->scores->back, n) == 0, "%s: other scores", s->c->name);
        ck_assert_msg(memcmp(parts, s->parts->back, n_parts) == 0, "%s: other parts", s->c->name);
        args.n_parts = s->c->n_parts > 1 ? s->c->n_parts - 1 : 1;
        gpu_send(s->t, s->scores);
        call(s, &args);
        gpu_fetch(s->t, s->scores);
        ck_assert_msg(memcmp(scores, s->scores->back, n) == 0, "%s: other scores with fewer parts", s->c->name);
        test_free(scores, parts);
}

void score_go(gpu_test *t, const score_case *c, uint64_t seed)
{
        score_state s;
        score_make(&s, t, c, seed);
        score_set_lengths(&s, rows[seed % 2], INT32_MAX);
        const dci_gpu_score_args args = score_arguments(&s);
        call(&s, &args);
        ck_assert_uint_gt(score_compare(&s, "a call") + (c->data == BAD_QUERIES), 0);
        repeat(&s);
        score_unmake(&s);
}

void score_replay(gpu_test *t, const score_case *c, uint64_t seed)
{
        static const int32_t most[] = {200, 300, 512, 1000, 1337};
        score_state s;
        void *graph = NULL;
        score_make(&s, t, c, seed);
        score_set_lengths(&s, rows[0], most[0]);
        const dci_gpu_score_args args = score_arguments(&s);
        ck_ok(t->ops->capture_begin(t->gpu, t->stream));
        ck_ok(t->ops->score(t->gpu, t->stream, &args));
        ck_ok(t->ops->capture_end(t->gpu, t->stream, &graph));
        for (size_t i = 0; i < sizeof most / sizeof *most; i++) {
                score_set_lengths(&s, rows[i % 2], most[i]);
                score_fill_queries(&s);
                gpu_send(t, s.queries);
                ck_ok(t->ops->graph_launch(t->gpu, graph, t->stream));
                ck_ok(t->ops->stream_wait(t->gpu, t->stream));
                /* Two of the sequences are longer than the budget, once they may be. */
                ck_assert_uint_eq(score_compare(&s, "a replay"), (size_t)c->n_heads * (i == 0 ? 0 : 2));
        }
        t->ops->graph_destroy(t->gpu, graph);
        score_unmake(&s);
}
