# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Reads a saved index as docs/format.md describes it, with struct and NumPy alone. Usage: read_index.py FILE"""

import struct
import sys

import numpy as np

DTYPES = {1: "<f4", 2: "<f2", 3: "<u2"}  # bfloat16 as its bits
FIELDS = {
    "dim": "Q", "n_rows": "Q", "kind": "I", "metric": "I", "dtype": "I", "add_dtype": "I", "query_dtype": "I",
    "zero_rows": "I", "num_comp_indices": "Q", "num_simp_indices": "Q", "seed": "Q", "next_id": "q", "prop_to_visit": "d",
    "prop_to_retrieve": "d", "num_to_visit": "Q", "num_to_retrieve": "Q", "c_squared": "f",
}  # fmt: skip


def _crc_table():
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0x82F63B78, table >> 1)
    return table.tolist()


CRC_TABLE = _crc_table()


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def read_sections(data):
    """Sections of a container: name -> bytes."""
    magic, container, order, kind, version, n, _, length, table_crc, header_crc = struct.unpack_from("<8sII4sIIIQII", data)
    assert (magic, container, order, kind, version) == (b"dciFILE\n", 1, 0x01020304, b"INDX", 1)
    assert length == len(data)
    assert header_crc == crc32c(data[:44])
    assert table_crc == crc32c(data[48 : 48 + 32 * n])
    sections = {}
    for name, offset, size, crc, _ in struct.iter_unpack("<8sQQII", data[48 : 48 + 32 * n]):
        sections[name.rstrip(b"\0").decode()] = data[offset : offset + size]
        assert offset % 64 == 0 and crc == crc32c(data[offset : offset + size]), name
    return sections


def read_index(data):
    """The config as a dict; rows, ids, norms (or None), projections (or None) as arrays."""
    sections = read_sections(data)
    assert len(sections["config"]) == 256
    config = dict(zip(FIELDS, struct.unpack_from("<" + "".join(FIELDS.values()), sections["config"])))
    n, dim = config["n_rows"], config["dim"]
    rows = np.frombuffer(sections["rows"], DTYPES[config["dtype"]]).reshape(n, dim)
    ids = np.frombuffer(sections["ids"], "<i8") if "ids" in sections else np.arange(n)
    norms = np.frombuffer(sections["norms"], "<f4") if "norms" in sections else None
    simple = config["num_comp_indices"] * config["num_simp_indices"]
    projections = np.frombuffer(sections["proj"], "<f4").reshape(simple, n) if "proj" in sections else None
    return config, rows, ids, norms, projections


if __name__ == "__main__":
    with open(sys.argv[1], "rb") as file:
        print(*read_index(file.read()), sep="\n")
