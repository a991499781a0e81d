/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/fuzz_life.h"
#include "tests/common.h"

dci_context *fuzz_context(fuzz_bytes *from)
{
        static dci_context *kept[3];
        const size_t which = fuzz_below(from, 3);
        if (from->seeded)
                return test_context(1 + (int32_t)(which * which));
        if (kept[which] == NULL)
                kept[which] = test_context(1 + (int32_t)(which * which));
        dci_context_retain(kept[which]);
        return kept[which];
}
