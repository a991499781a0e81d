/* SPDX-License-Identifier: Apache-2.0 */
/* Copyright (c) 2026 the dci authors */
#include "tests/persist_seal.h"

#include "core/file.h"

void persist_reseal(const persist_bytes *bytes)
{
        unsigned char *data = bytes->data, *table = data + DCI_FILE_HEADER_BYTES;
        if (bytes->n < DCI_FILE_HEADER_BYTES)
                return;
        const size_t room = (bytes->n - DCI_FILE_HEADER_BYTES) / 32, claimed = dci_load_le32(data + 24);
        const size_t n = claimed < room ? claimed : room;
        for (size_t i = 0; i < n; i++) {
                unsigned char *entry = table + 32 * i;
                const uint64_t offset = dci_load_le64(entry + 8), length = dci_load_le64(entry + 16);
                if (offset <= bytes->n && length <= bytes->n - offset)
                        dci_store_le32(entry + 24, dci_crc32c(0, data + offset, (size_t)length));
        }
        dci_store_le32(data + 40, dci_crc32c(0, table, 32 * n));
        dci_store_le32(data + 44, dci_crc32c(0, data, 44));
}
