/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
/* Tiles of rows and queries as 16-bit integers, for instructions that add products of pairs of these, or, with TOGETHER 1, single
 * products. */
#define E int16_t
#ifndef TOGETHER
#define TOGETHER 2
#endif
#define PADDING 2
#define PIECE(dim_padded) (dim_padded)
#define PIECE_AT(rows, r, p, dim_padded) ((E *)(rows) + (r) * (dim_padded) + (p))
#define BIAS_I8 0
#define BIAS_U8 0
#define QUERY_BIAS 0
#define BEGIN NULL
#define END NULL
#include "simd/integers/tiles_template.h"
