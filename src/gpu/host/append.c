/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Reference of cuda/append.cu: stores new tokens, packs whole blocks, and updates the table of resident pages. */
#include "gpu/gpu_internal.h"

#include <string.h>

#include "gpu/host/reference.h"

/* Whether a row of 16-bit floats has NaN or infinity: all bits of the exponent are set. */
static bool is_bad(const unsigned char *row, size_t n_bytes, int32_t dtype)
{
        const uint16_t exponent = dtype == DCI_F16 ? 0x7c00 : 0x7f80;
        for (size_t i = 0; i < n_bytes; i += 2) {
                uint16_t value;
                memcpy(&value, row + i, sizeof value);
                if ((value & exponent) == exponent)
                        return true;
        }
        return false;
}

/* Bytes of a row: the same in all places. */
static void row_bytes(const dci_gpu_append_args *args, uint32_t *key, uint32_t *value)
{
        if (args->lanes.keys != NULL) {
                *key = args->lanes.key_bytes;
                *value = args->lanes.value_bytes;
        } else {
                const dci_gpu_pool *pool = args->device.pieces != NULL ? &args->device : &args->host;
                *key = pool->key_bytes;
                *value = pool->value_bytes;
        }
}

static void to_lane(const dci_gpu_lanes *lanes, uint64_t list, int32_t slot, const unsigned char *key,
                    const unsigned char *value)
{
        const dci_gpu_place place = dci_gpu_lane_place(lanes, list, slot);
        memcpy(place.key, key, lanes->key_bytes);
        memcpy(place.value, value, lanes->value_bytes);
}

static void to_place(const dci_gpu_pool *pool, dci_gpu_place place, const unsigned char *key,
                     const unsigned char *value)
{
        memcpy(place.key, key, pool->key_bytes);
        memcpy(place.value, value, pool->value_bytes);
}

static void to_pool(const dci_gpu_pool *pool, const dci_gpu_tables *tables, int32_t row, int32_t position, int32_t head,
                    const unsigned char *key, const unsigned char *value)
{
        to_place(pool, dci_gpu_pool_place(pool, tables, row, position, head), key, value);
}

/* Token j of sequence i of the call. */
static void append_token(const dci_gpu_append_args *args, int32_t i, int32_t j)
{
        const dci_gpu_batch *batch = &args->batch;
        const dci_gpu_lanes *lanes = &args->lanes;
        const int32_t row = batch->rows[i], position = batch->first[i] + j, end = batch->first[i] + batch->n_new[i];
        const uint64_t token = (uint64_t)batch->begin[i] + (uint64_t)j;
        uint32_t key_bytes, value_bytes;
        row_bytes(args, &key_bytes, &value_bytes);
        bool skip = false;
        if (args->host.pieces != NULL && args->host_skip != NULL) {
                const int32_t block = position >> args->host.page_shift;
                skip = block >= args->host_skip[2 * i] && block < args->host_skip[2 * i + 1];
        }
        for (int32_t h = 0; h < args->n_heads; h++) {
                const unsigned char *key = args->keys + token * args->key_token + (uint64_t)h * args->key_head;
                const unsigned char *value = args->values + token * args->value_token + (uint64_t)h * args->value_head;
                if (is_bad(key, key_bytes, args->dtype) || is_bad(value, value_bytes, args->dtype))
                        args->bad[row] = 1;
                const uint64_t list = (uint64_t)row * (uint64_t)args->n_heads + (uint64_t)h;
                if (lanes->keys != NULL && position < lanes->sink)
                        to_lane(lanes, list, position, key, value);
                /* Only the last `ring` tokens are written, so that no two of a call share a slot. */
                if (lanes->keys != NULL && position >= end - lanes->ring)
                        to_lane(lanes, list, lanes->sink + (position & (lanes->ring - 1)), key, value);
                if (args->device.pieces != NULL) {
                        to_pool(&args->device, &args->tables, row, position, h, key, value);
                } else if (args->host.pieces != NULL) {
                        const dci_gpu_place place =
                                dci_gpu_resident_place(&args->resident, &args->host, &args->tables, row, position, h);
                        if (place.key != NULL)
                                to_place(&args->host, place, key, value);
                }
                if (args->host.pieces != NULL && !skip)
                        to_pool(&args->host, &args->tables, row, position, h, key, value);
        }
}

void dci_gpu_ref_append(const dci_gpu_append_args *args)
{
        for (int32_t i = 0; i < args->batch.n; i++)
                for (int32_t j = 0; j < args->batch.n_new[i]; j++)
                        append_token(args, i, j);
}

void dci_gpu_ref_reside(const dci_gpu_reside_args *args)
{
        for (int32_t i = 0; i < args->n; i++)
                args->places[args->changes[2 * i]] = args->changes[2 * i + 1];
}

void dci_gpu_ref_pack(const dci_gpu_pack_args *args)
{
        const uint64_t page = (uint64_t)1 << args->page_shift;
        for (uint64_t b = 0; b < (uint64_t)args->n_blocks; b++)
                for (uint64_t h = 0; h < (uint64_t)args->n_heads; h++) {
                        unsigned char *keys = args->out + b * args->block_bytes + h * args->head_bytes;
                        unsigned char *values = keys + args->value_at;
                        for (uint64_t s = 0; s < page; s++) {
                                const uint64_t token = (uint64_t)args->token + b * page + s;
                                memcpy(keys + s * args->key_bytes,
                                       args->keys + token * args->key_token + h * args->key_head, args->key_bytes);
                                memcpy(values + s * args->value_bytes,
                                       args->values + token * args->value_token + h * args->value_head,
                                       args->value_bytes);
                        }
                }
}
