/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/*
 * Stored orders (DCI_KV_GROUP_REORDERED) that a device plans with. Pages are in chunks as pages by position are
 * (summaries.h), and so the device builds later ones itself. Of a layer's order it has a copy: the summaries of its
 * pages, in the same chunks, and its members in the store `ids`, where page p is ids[p page_tokens] on. The host makes
 * orders (kv/stages/reorder.h): a prompt's when the rows have arrived, new ones as follows.
 *
 *      request   a reservation finds an order due: its candidates and the number of plans are written down
 *      start     the queries of these plans, which kernels store in locked memory, and all rows have arrived, at the
 *                latest DCI_GPU_KV_RECORDS + 1 steps later, since the host is never further ahead: workers begin
 *      publish   a reservation `reorder_delay` plans after the request uploads the order, on the step's stream
 *
 * So nothing waits for the device or for workers unless these are late, and plans do not depend on who was late.
 */
#ifndef DCI_OFFLOAD_ORDERS_H
#define DCI_OFFLOAD_ORDERS_H

#include "offload/chunk_store.h"

#define DCI_GPU_KV_ORDER_STAGES 2 /* locked buffers for uploads, in turn */

/* Of a row and sparse layer. */
typedef struct dci_gpu_kv_order {
        size_t grouped;            /* candidates that plans select from */
        size_t ordered, n_static;  /* candidates in the order, and of them static ones */
        size_t first;              /* candidates in the host's first batch: a truncation below drops all pages */
        bool lost;                 /* the order was truncated, and what the device has of its pages is worthless */
        size_t n_pushed, n_pulled; /* plans; those whose queries the host has */
        size_t before;             /* n_pushed before the open step */
        size_t due;                /* candidates of the order that is requested, 0: none */
        size_t requested;          /* plans of the layer then, as the host counts them */
        uint32_t at;               /* the step before the request */
} dci_gpu_kv_order;

typedef struct dci_gpu_kv_orders {
        size_t n_slots, slot_bytes; /* of a layer's ring of queries */
        unsigned char *ring;        /* locked: [sparse layer][row][slot][query head][dim], as they came */
        dci_gpu_kv_order *states;   /* [row][sparse layer] */
        size_t stage_bytes, next_stage;
        unsigned char *stages[DCI_GPU_KV_ORDER_STAGES]; /* locked */
        void *stage_events[DCI_GPU_KV_ORDER_STAGES];
} dci_gpu_kv_orders;

bool dci_gpu_kv_has_orders(const dci_kv_config *shape);
/* Sizes, with the stores; returns the most pages of a head. Then, with memory, events. */
size_t dci_gpu_kv_orders_init(dci_gpu_kv *kv);
dci_status dci_gpu_kv_orders_begin(dci_gpu_kv *kv);
void dci_gpu_kv_orders_destroy(dci_gpu_kv *kv);

void dci_gpu_kv_orders_open(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
/* Before a step, of a row whose prompt has ended: starts, publishes and requests. *out_stale: the device is to get all
 * that the host has. */
dci_status dci_gpu_kv_orders_renew(dci_gpu_kv *kv, dci_gpu_kv_row *row, void *stream, bool *out_stale);
/* The step's plans select from the first n candidates at least. */
void dci_gpu_kv_orders_group(dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t n);
/* The host builds what is due, and the device gets all orders and pages. Rows have arrived. */
dci_status dci_gpu_kv_orders_upload(dci_gpu_kv *kv, dci_gpu_kv_row *row, void *stream);
/* The device is idle: the host gets all queries, and starts what is requested. */
dci_status dci_gpu_kv_orders_drain(dci_gpu_kv *kv, const dci_gpu_kv_row *row);
dci_status dci_gpu_kv_orders_fork(dci_gpu_kv *kv, const dci_gpu_kv_row *from, dci_gpu_kv_row *to);
/* A swapped sequence keeps what there is of a row's orders but those themselves: bytes of that, for saving it and for
 * restoring it after an upload. */
size_t dci_gpu_kv_orders_bytes(const dci_gpu_kv *kv);
void dci_gpu_kv_orders_save(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, void *image);
/* After the host has built all pages that are due of a swapped sequence of n tokens. */
void dci_gpu_kv_orders_settle(const dci_gpu_kv *kv, void *image, size_t n);
void dci_gpu_kv_orders_restore(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, const void *image);
void dci_gpu_kv_orders_truncate(dci_gpu_kv *kv, dci_gpu_kv_row *row, size_t n);
/* A layer of the step has been planned, if it has not been before. */
void dci_gpu_kv_orders_planned(dci_gpu_kv *kv, size_t layer);
void dci_gpu_kv_orders_abort(dci_gpu_kv *kv, const dci_gpu_kv_row *row);

/* The numbers of row i of a step in its record, and where they are on the device. */
void dci_gpu_kv_orders_record(const dci_gpu_kv *kv, const dci_gpu_kv_row *row, size_t i, int32_t *numbers);
dci_gpu_order dci_gpu_kv_orders_of(const dci_gpu_kv *kv, size_t layer, size_t first);
dci_gpu_query_ring dci_gpu_kv_orders_ring(const dci_gpu_kv *kv, size_t layer, size_t first);

#endif
