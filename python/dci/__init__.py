# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Nearest-neighbour search over attention keys, clusters of them, sketches that rank them by a few bits, and a KV cache
that attends to few of them.

    import dci
    index = dci.Index(dim=64, metric="ip")
    index.add(keys)
    ids, scores = index.search(queries, k=10)
    ids, scores = dci.knn(keys, queries, k=10, metric="ip")  # the same, once
    clusters = dci.kmeans(keys, 64)  # dci.KMeans(64).fit(keys) can be asked where other rows belong
    sketch = dci.Sketch(dim=64, bits=2)
    sketch.append(keys)
    rows, estimates = sketch.search(queries, k=10)
    kv = dci.KVCache(n_layers=30, n_query_heads=9, n_kv_heads=3, dim_k=64, preset="sketch", budget=256)
    on_gpu = dci.gpu.GPUKVCache(dci.gpu.GPU(), n_layers=30, n_query_heads=9, n_kv_heads=3, dim_k=64)

Objects are thin wrappers of the C library's; include/dci/*.h says what each call promises.
"""

from . import gpu
from ._errors import (
    BusyError,
    CancelledError,
    DciError,
    DeviceError,
    ExistsError,
    FileError,
    FormatError,
    FullError,
    InvalidError,
    LimitError,
    NotFoundError,
    NumberError,
    OutOfMemoryError,
    UnsupportedError,
)
from ._filters import Bitmap, Filter
from ._kmeans import KMeans
from ._knn import knn, knn_graph
from ._library import __version__
from ._search import SearchStats, TuneResult
from ._tree import TreeStats
from .clusters import KMeansReport, KMeansResult, kmeans
from .context import Context, default_context, isa, isa_available, version
from .index import Index
from .kv import KVCache, KVInfo, KVLayer, KVLayout, KVPlan, KVSequenceInfo
from .sketch import Sketch, SketchInfo

__all__ = [
    "Bitmap",
    "BusyError",
    "CancelledError",
    "Context",
    "DciError",
    "DeviceError",
    "ExistsError",
    "FileError",
    "Filter",
    "FormatError",
    "FullError",
    "Index",
    "InvalidError",
    "KMeans",
    "KMeansReport",
    "KMeansResult",
    "KVCache",
    "KVInfo",
    "KVLayer",
    "KVLayout",
    "KVPlan",
    "KVSequenceInfo",
    "LimitError",
    "NotFoundError",
    "NumberError",
    "OutOfMemoryError",
    "SearchStats",
    "Sketch",
    "SketchInfo",
    "TreeStats",
    "TuneResult",
    "UnsupportedError",
    "__version__",
    "default_context",
    "gpu",
    "isa",
    "isa_available",
    "kmeans",
    "knn",
    "knn_graph",
    "version",
]
