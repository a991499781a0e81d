# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The structs, callbacks and constants of include/dci/*.h. tests/test_abi.py compares them with what a C compiler says."""

from __future__ import annotations

import ctypes
from ctypes import CFUNCTYPE, c_char_p, c_double, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

# Names of the Python interface for the C enums.
METRICS = {"l2": 1, "ip": 2, "cosine": 3}
# Other words for a metric. Scores are those of the metric: "euclidean" orders rows as squared distances do.
METRIC_ALIASES = {
    "euclidean": "l2",
    "sqeuclidean": "l2",
    "inner_product": "ip",
    "dot": "ip",
    "cos": "cosine",
    "angular": "cosine",
}
KINDS = {"flat": 1, "pdci": 2, "mdci": 3, "auto": 4}
FLOATS = {"float32": 1, "float16": 2, "bfloat16": 3}
DTYPES = {**FLOATS, "int8": 4, "uint8": 5}
STORAGES = {"owned": 0, "borrowed": 1}
ZERO_ROWS = {"refuse": 0, "keep": 1}
EXECUTORS = {"openmp": 0, "pthreads": 1}
CHECK_STRUCTURE, CHECK_FULL = 1, 2
ISAS = {"auto": 0, "scalar": 1, "avx2": 2, "avx512": 3, "amx": 4, "neon": 5}
KMEANS_INITS = {"random": 1, "plusplus": 2, "even": 3, "given": 4}
KMEANS_INIT_ALIASES = {"k-means++": "plusplus"}
KMEANS_STOPS = {"rounds": 1, "stable": 2, "tolerance": 3}
CENTROIDS = {"unit": 0, "mean": 1}
MEANS = {"none": 0, "own": 1, "given": 2}
SKETCH_TRANSFORMS = {"none": 1, "random": 2}
CENTRES = {"none": 1, "running": 2, "given": 3}
CALIBRATED = {0: "none", 1: "rows", 2: "queries"}
TUNE_COSTS = {"time": 1, "distances": 2}
FILTER_IDS, FILTER_BITMAP, FILTER_CALLBACK = 1, 2, 3
FILTER_NOT = 1
GROUP_EACH, GROUP_UNION = 0, 1
MAX_LEVELS = 16
SKETCH_MAX_DIM, SKETCH_MAX_FIT_DIM, SKETCH_GROUP = 2**15 - 32, 1024, 8

FILTER_FN = CFUNCTYPE(c_int32, c_void_p, c_int64)
WRITE_FN = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t)
READ_FN = CFUNCTYPE(c_int32, c_void_p, c_void_p, c_size_t)
PROGRESS_FN = CFUNCTYPE(c_int32, c_void_p, c_size_t, c_size_t)


class Progress(ctypes.Structure):
    _fields_ = [("ctx", c_void_p), ("fn", PROGRESS_FN)]


class Allocator(ctypes.Structure):
    _fields_ = [("ctx", c_void_p), ("alloc", c_void_p), ("free", c_void_p)]


class Log(ctypes.Structure):
    _fields_ = [("ctx", c_void_p), ("fn", c_void_p)]


class Executor(ctypes.Structure):
    _fields_ = [("ctx", c_void_p), ("parallel_for", c_void_p)]


class ContextConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("allocator", Allocator),
        ("log", Log),
        ("executor_kind", c_int32),
        ("n_threads", c_int32),
        ("executor", Executor),
        ("isa", c_int32),
    ]


class IndexConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("dim", c_size_t),
        ("kind", c_int32),
        ("metric", c_int32),
        ("dtype", c_int32),
        ("add_dtype", c_int32),
        ("query_dtype", c_int32),
        ("storage", c_int32),
        ("zero_rows", c_int32),
        ("sketch_bits", c_int32),
        ("num_comp_indices", c_size_t),
        ("num_simp_indices", c_size_t),
        ("seed", c_uint64),
        ("promotion_prob", c_double),
        ("promotion_prob_subseq", c_double),
        ("page_rows", c_size_t),
        ("top_nodes", c_size_t),
        ("cell_simp_indices", c_size_t),
        ("reserved", c_size_t),
        ("target_recall", c_double),
    ]


class Filter(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("kind", c_int32),
        ("flags", c_int32),
        ("n", c_size_t),
        ("ids", c_void_p),
        ("bits", c_void_p),
        ("first_id", c_int64),
        ("fn", FILTER_FN),
        ("ctx", c_void_p),
    ]


class Stats(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("queries", c_uint64),
        ("visited", c_uint64),
        ("distances", c_uint64),
        ("proposed", c_uint64),
        ("candidates", c_uint64),
        ("target_recall", c_double),
        ("prop_to_visit", c_double),
        ("prop_to_retrieve", c_double),
        ("rerank", c_double),
        ("field_of_view", c_size_t),
        ("calibrated_on", c_int32),
        ("reserved", c_int32),
    ]


class SearchParams(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("prop_to_visit", c_double),
        ("prop_to_retrieve", c_double),
        ("filter", c_void_p),
        ("stats", c_void_p),
        ("progress", Progress),
        ("num_to_visit", c_size_t),
        ("num_to_retrieve", c_size_t),
        ("rerank", c_double),
        ("guarantee", c_double),
        ("field_of_view", c_size_t),
        ("target_recall", c_double),
    ]


class RangeResult(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_queries", c_size_t),
        ("offsets", c_void_p),
        ("ids", c_void_p),
        ("scores", c_void_p),
        ("memory", c_void_p),
    ]


class MemoryReport(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("rows", c_size_t),
        ("ids", c_size_t),
        ("norms", c_size_t),
        ("projections", c_size_t),
        ("codes", c_size_t),
        ("other", c_size_t),
        ("total", c_size_t),
    ]


class TuneResult(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_queries", c_size_t),
        ("recall", c_double),
        ("recall_held_out", c_double),
        ("distances", c_double),
        ("exact_distances", c_double),
        ("n_efforts", c_size_t),
        ("prop_to_visit", c_double),
        ("prop_to_retrieve", c_double),
        ("rerank", c_double),
        ("seconds", c_double),
        ("exact_seconds", c_double),
        ("finished", c_int32),
        ("reserved", c_int32),
    ]


class TuneOptions(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("cost", c_int32),
        ("reserved", c_int32),
        ("progress", Progress),
        ("deadline", c_double),
    ]


class Page(ctypes.Structure):
    _fields_ = [
        ("page", c_int32),
        ("cell", c_int32),
        ("n_rows", c_uint32),
        ("reserved", c_uint32),
        ("version", c_uint64),
    ]


class TreeStats(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_rows", c_size_t),
        ("n_levels", c_size_t),
        ("n_nodes", c_size_t * MAX_LEVELS),
        ("page_rows", c_size_t),
        ("n_pages", c_size_t),
        ("free_pages", c_size_t),
        ("page_fill", c_double),
        ("empty_cells", c_size_t),
        ("median_cell", c_size_t),
        ("p99_cell", c_size_t),
        ("largest_cell", c_size_t),
        ("version", c_uint64),
        ("rebuilds", c_uint64),
    ]


class Writer(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("write", WRITE_FN), ("ctx", c_void_p)]


class Reader(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("read", READ_FN), ("ctx", c_void_p), ("n_bytes", c_size_t)]


class KMeansConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("dim", c_size_t),
        ("n_clusters", c_size_t),
        ("metric", c_int32),
        ("dtype", c_int32),
        ("init", c_int32),
        ("centroid", c_int32),
        ("zero_rows", c_int32),
        ("subtract_mean", c_int32),
        ("n_iter", c_size_t),
        ("tolerance", c_double),
        ("n_redo", c_size_t),
        ("seed", c_uint64),
        ("capacity", c_size_t),
        ("segment_rows", c_size_t),
        ("n_iter_global", c_size_t),
    ]


class KMeansInput(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_problems", c_size_t),
        ("n", c_size_t),
        ("rows", c_void_p),
        ("ld", c_size_t),
        ("problem_ld", c_size_t),
        ("centroids", c_void_p),
        ("means", c_void_p),
        ("values", c_void_p),
        ("value_dim", c_size_t),
        ("value_dtype", c_int32),
        ("reserved", c_int32),
        ("value_ld", c_size_t),
        ("value_problem_ld", c_size_t),
        ("first_row", c_size_t),
        ("first_cluster", c_size_t),
        ("first_problem", c_size_t),
    ]


class KMeansRound(ctypes.Structure):
    _fields_ = [
        ("objective", c_double),
        ("seconds", c_double),
        ("n_moved", c_size_t),
        ("n_empty", c_size_t),
    ]


class KMeansReport(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("objective", c_double),
        ("objective_free", c_double),
        ("n_rounds", c_size_t),
        ("n_empty", c_size_t),
        ("n_repaired", c_size_t),
        ("largest", c_size_t),
        ("seconds", c_double),
        ("stop", c_int32),
        ("best_redo", c_int32),
        ("rounds", c_void_p),
        ("rounds_room", c_size_t),
        ("n_recorded", c_size_t),
    ]


class KMeansResult(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("labels", c_void_p),
        ("centroids", c_void_p),
        ("means", c_void_p),
        ("sizes", c_void_p),
        ("offsets", c_void_p),
        ("ids", c_void_p),
        ("value_sums", c_void_p),
        ("row_means", c_void_p),
        ("reports", c_void_p),
    ]


class SketchConfig(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("dim", c_size_t),
        ("dtype", c_int32),
        ("query_dtype", c_int32),
        ("bits", c_int32),
        ("transform", c_int32),
        ("centre", c_int32),
        ("reserved", c_int32),
        ("seed", c_uint64),
        ("given_centre", c_void_p),
    ]


class SketchInfo(ctypes.Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("n_rows", c_size_t),
        ("bytes", c_size_t),
        ("row_bytes", c_size_t),
        ("transforms", c_size_t),
        ("centres", c_size_t),
        ("drift", c_double),
        ("isa", c_char_p),
    ]


# The C type behind each class, and with it the init function: <name>_init. Those without one are parts of others.
C_NAMES: dict[type[ctypes.Structure], str] = {
    Progress: "dci_progress",
    Allocator: "dci_allocator",
    Log: "dci_log",
    Executor: "dci_executor",
    ContextConfig: "dci_context_config",
    IndexConfig: "dci_index_config",
    Filter: "dci_filter",
    Stats: "dci_search_stats",
    SearchParams: "dci_search_params",
    RangeResult: "dci_range_result",
    MemoryReport: "dci_memory_report",
    TuneResult: "dci_tune_result",
    TuneOptions: "dci_tune_options",
    Page: "dci_page",
    TreeStats: "dci_tree_stats",
    Writer: "dci_writer",
    Reader: "dci_reader",
    KMeansConfig: "dci_kmeans_config",
    KMeansInput: "dci_kmeans_input",
    KMeansRound: "dci_kmeans_round",
    KMeansReport: "dci_kmeans_report",
    KMeansResult: "dci_kmeans_result",
    SketchConfig: "dci_sketch_config",
    SketchInfo: "dci_sketch_info",
}
