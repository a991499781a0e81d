# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The package's idea of the headers is the compiler's, and it loads only a library of its own version."""

from __future__ import annotations

import ctypes
import inspect
import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from conftest import ROOT

import dci
from dci import _gpu_structs, _kv_config, _kv_structs, _structs, gpu
from dci._errors import ERRORS
from dci._library import PROTOTYPES, lib, prepared
from dci._tree import PAGE
from dci.clusters import OUTPUTS, ROUND
from dci.index import _KIND_OF

HEADERS = sorted((ROOT / "include" / "dci").glob("*.h"))
COMPILER = next(filter(None, map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))), None)

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler")

CONSTANTS = {
    **{"DCI_METRIC_" + name.upper(): value for name, value in _structs.METRICS.items()},
    **{"DCI_KIND_" + name.upper(): value for name, value in _structs.KINDS.items()},
    **{"DCI_ROWS_" + name.upper(): value for name, value in _structs.STORAGES.items()},
    **{"DCI_ZERO_" + name.upper(): value for name, value in _structs.ZERO_ROWS.items()},
    **{"DCI_EXECUTOR_" + name.upper(): value for name, value in _structs.EXECUTORS.items()},
    **{"DCI_ISA_" + name.upper(): value for name, value in _structs.ISAS.items()},
    **{error.name: status for status, error in ERRORS.items()},
    **dict(zip(("DCI_F32", "DCI_F16", "DCI_BF16"), map(_structs.DTYPES.get, ("float32", "float16", "bfloat16")))),
    **{"DCI_KMEANS_INIT_" + name.upper(): value for name, value in _structs.KMEANS_INITS.items()},
    **{"DCI_KMEANS_STOP_" + name.upper(): value for name, value in _structs.KMEANS_STOPS.items()},
    **{"DCI_CENTROID_" + name.upper(): value for name, value in _structs.CENTROIDS.items()},
    **{"DCI_MEAN_" + name.upper(): value for name, value in _structs.MEANS.items()},
    **{"DCI_SKETCH_" + name.upper(): value for name, value in _structs.SKETCH_TRANSFORMS.items()},
    **{"DCI_CENTRE_" + name.upper(): value for name, value in _structs.CENTRES.items()},
    **{"DCI_KV_" + name.upper().replace("+", "_"): value for name, value in _kv_structs.KV_PRESETS.items()},
    **{
        f"DCI_KV_{what}{name.upper()}": value
        for what, names in {
            "GROUP_": _kv_structs.KV_GROUPS,
            "SUMMARY_": _kv_structs.KV_SUMMARIES,
            "SELECT_": _kv_structs.KV_CHOICES,
            "": _kv_structs.KV_SCHEDULES,
            "TAIL_": _kv_structs.KV_TAILS,
            "COMBINE_": _kv_structs.KV_COMBINES,
            "CLUSTER_": _kv_structs.KV_CLUSTERS,
            "LAYER_": _kv_structs.KV_LAYERS,
            "BLOCKS_": _kv_structs.KV_BLOCKS,
        }.items()
        for name, value in names.items()
    },
    "DCI_KV_PRESETS": len(_kv_structs.KV_PRESETS),
    "DCI_KV_GROUPS": len(_kv_structs.KV_GROUPS),
    "DCI_KV_SUMMARIES": len(_kv_structs.KV_SUMMARIES),
    "DCI_KV_CHOICES": len(_kv_structs.KV_CHOICES),
    "DCI_KV_SCHEDULES": len(_kv_structs.KV_SCHEDULES),
    "DCI_KV_TAILS": len(_kv_structs.KV_TAILS),
    "DCI_KV_COMBINES": len(_kv_structs.KV_COMBINES),
    **{"DCI_GPU_GATHER_" + name.upper(): value for name, value in _gpu_structs.GPU_GATHERS.items()},
    "DCI_GPU_GATHERS": len(_gpu_structs.GPU_GATHERS),
    **{"DCI_GPU_PLAN_" + name.upper(): value for name, value in _gpu_structs.GPU_PLANNERS.items()},
    "DCI_GPU_HOST": _gpu_structs.GPU_HOST,
    "DCI_FILTER_IDS": _structs.FILTER_IDS,
    "DCI_FILTER_BITMAP": _structs.FILTER_BITMAP,
    "DCI_FILTER_CALLBACK": _structs.FILTER_CALLBACK,
    "DCI_FILTER_NOT": _structs.FILTER_NOT,
    "DCI_GROUP_EACH": _structs.GROUP_EACH,
    "DCI_GROUP_UNION": _structs.GROUP_UNION,
    "DCI_MAX_LEVELS": _structs.MAX_LEVELS,
    "DCI_SKETCH_MAX_DIM": _structs.SKETCH_MAX_DIM,
    "DCI_SKETCH_MAX_FIT_DIM": _structs.SKETCH_MAX_FIT_DIM,
    "DCI_SKETCH_GROUP": _structs.SKETCH_GROUP,
}


C_NAMES = {**_structs.C_NAMES, **_kv_structs.C_NAMES, **_gpu_structs.C_NAMES}


def layout():
    """What Python believes: C expression -> value."""
    out = dict(CONSTANTS)
    for struct, name in C_NAMES.items():
        out[f"sizeof({name})"] = ctypes.sizeof(struct)
        for field, kind in struct._fields_:
            out[f"offsetof({name}, {field})"] = getattr(struct, field).offset
            out[f"sizeof((({name} *)0)->{field})"] = ctypes.sizeof(kind)
    return out


def compiled(folder, source, *options):
    path = folder / "probe.c"
    path.write_text(source)
    out = folder / "probe"
    subprocess.run([COMPILER, *options, "-o", str(out), str(path)], check=True)
    return out


@needs_compiler
def test_layouts_and_constants_are_the_compilers(tmp_path):
    wanted = layout()
    lines = "".join(f'        printf("%lld\\n", (long long)({expression}));\n' for expression in wanted)
    source = (
        f"#include <stddef.h>\n#include <stdio.h>\n#include <dci/dci.h>\nint main(void)\n{{\n{lines}        return 0;\n}}\n"
    )
    probe = compiled(tmp_path, source, "-std=c11", f"-I{ROOT / 'include'}")
    said = subprocess.run([probe], check=True, capture_output=True, text=True).stdout.split()
    assert dict(zip(wanted, map(int, said))) == wanted


def declared_names(line):
    """The names in a C declaration: of a function pointer, or of plain fields and arrays."""
    pointer = re.search(r"\(\*(\w+)\)", line)
    if pointer:
        return [pointer.group(1)]
    return [re.search(r"(\w+)(\[\w+\])?$", part.strip()).group(1) for part in line.split(",")]


def test_every_field_of_every_struct_is_declared():
    text = "\n".join(path.read_text() for path in HEADERS)
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)
    for struct, name in C_NAMES.items():
        body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", text, re.S).group(1)
        fields = [field for line in body.split(";") if line.strip() for field in declared_names(line)]
        assert [field for field, _ in struct._fields_] == fields, name


def test_pages_are_the_same_to_numpy_and_ctypes():
    wanted = np.dtype(_structs.Page)
    names = [name for name in wanted.names if name != "reserved"]
    assert list(PAGE.names) == names and PAGE.itemsize == wanted.itemsize
    assert {name: PAGE.fields[name] for name in names} == {name: wanted.fields[name] for name in names}


def test_rounds_are_the_same_to_numpy_and_ctypes():
    wanted = np.dtype(_structs.KMeansRound)
    assert wanted == ROUND and ROUND.names == wanted.names


def test_the_packages_defaults_are_the_librarys():
    config = prepared(_structs.IndexConfig)
    given = inspect.signature(dci.Index).parameters
    assert _structs.METRICS[given["metric"].default] == config.metric
    assert given["seed"].default == config.seed
    assert given["sketch_bits"].default == config.sketch_bits
    for name in _KIND_OF:  # not given, and described
        assert given[name].default is None, name
        told = re.search(rf"\n    {name}\n? .*?None(: | or )([0-9.]+)", dci.Index.__doc__, re.DOTALL)
        assert told and float(told[2].rstrip(".")) == getattr(config, name), name
    assert given["recall"].default == config.target_recall


def test_the_defaults_of_kmeans_are_the_librarys():
    config, source = prepared(_structs.KMeansConfig), prepared(_structs.KMeansInput)
    given = {name: parameter.default for name, parameter in inspect.signature(dci.kmeans).parameters.items()}
    for name in ("n_iter", "tolerance", "n_redo", "seed", "n_iter_global"):
        assert given[name] == getattr(config, name), name
    for name in ("first_row", "first_cluster", "first_problem"):
        assert given[name] == getattr(source, name), name
    for name in ("capacity", "segment_rows"):
        assert given[name] is None and getattr(config, name) == 0, name
    assert _structs.METRICS[given["metric"]] == config.metric
    assert _structs.KMEANS_INITS[given["init"]] == config.init
    assert given["centroid"] is None and _structs.CENTROIDS["unit"] == config.centroid
    assert given["zero_rows"] is None and _structs.ZERO_ROWS["refuse"] == config.zero_rows
    assert _structs.MEANS["none"] == config.subtract_mean
    assert source.n_problems == 1


def test_the_defaults_of_a_sketch_are_the_librarys():
    config = prepared(_structs.SketchConfig)
    given = {name: parameter.default for name, parameter in inspect.signature(dci.Sketch).parameters.items()}
    assert (given["bits"], given["seed"]) == (config.bits, config.seed)
    assert _structs.SKETCH_TRANSFORMS[given["transform"]] == config.transform
    assert _structs.CENTRES[given["centre"]] == config.centre
    assert _structs.DTYPES[given["dtype"]] == config.dtype
    assert given["query_dtype"] is None and config.query_dtype == 0


def test_the_figures_of_a_sketch_are_those_of_its_info():
    assert [name for name, _ in _structs.SketchInfo._fields_] == ["struct_size", *dci.SketchInfo._fields]


def test_the_defaults_of_a_kv_cache_are_the_librarys():
    config = prepared(_kv_structs.KVConfig)
    given = {name: parameter.default for name, parameter in inspect.signature(dci.KVCache).parameters.items()}
    # None is what the library starts with; whatever else stands there is the same.
    for name, _ in _kv_structs.KVConfig._fields_:
        if given.get(name) not in (None, inspect.Parameter.empty) and not isinstance(given[name], str):
            assert given[name] == getattr(config, name), name
    assert _kv_structs.KV_PRESETS[given["preset"]] == config.preset
    assert (_structs.DTYPES[given["dtype"]], _structs.DTYPES[given["query_dtype"]]) == (config.dtype, config.query_dtype)


def test_every_option_of_a_kv_cache_reaches_the_config():
    no_options = {"struct_size", "reserved", "reserved_more", "reserved_last", "reserved_end", "hook", "layer_stride"}
    fields = {name for name, _ in _kv_structs.KVConfig._fields_} - no_options
    assert fields == set(inspect.signature(dci.KVCache).parameters) - {"context", "choose", "published"}
    written = {*_kv_config.CHOICES, *_kv_config.SIZES, *_kv_config.NUMBERS, *_kv_config.FLAGS, *_kv_config.REALS}
    assert fields - written == {"preset", "dtype", "query_dtype", "seed", "layers", "layout"}


def test_the_figures_of_a_kv_cache_are_those_of_its_info():
    for struct, figures in ((_kv_structs.KVInfo, dci.KVInfo), (_kv_structs.KVSequenceInfo, dci.KVSequenceInfo)):
        assert [name for name, _ in struct._fields_] == ["struct_size", *figures._fields]


def test_the_defaults_of_gpus_are_the_librarys():
    config = prepared(_gpu_structs.GPUKVConfig)
    given = {name: parameter.default for name, parameter in inspect.signature(gpu.GPUKVCache).parameters.items()}
    for name, _ in _gpu_structs.GPUKVConfig._fields_[1:]:
        if name == "reserved":
            continue
        assert name in given, name
        if given[name] is not None and not isinstance(given[name], str):
            assert given[name] == getattr(config, name), name
    assert _gpu_structs.GPU_GATHERS[given["gather"]] == config.gather
    assert _gpu_structs.GPU_PLANNERS[given["planner"]] == config.planner
    assert _structs.DTYPES[given["out_dtype"]] == config.out_dtype
    assert inspect.signature(gpu.GPU).parameters["device"].default == prepared(_gpu_structs.GPUConfig).device


def test_a_gpus_kv_cache_takes_the_options_of_the_cpus():
    own, other = (set(inspect.signature(of).parameters) for of in (gpu.GPUKVCache, dci.KVCache))
    assert gpu.OPTIONS.keys() | own == other - {"context"} | own
    assert not gpu.OPTIONS.keys() & own


def test_the_figures_of_gpus_are_those_of_their_infos():
    fields = [name for name, _ in _gpu_structs.GPUKVInfo._fields_]
    assert [name for name in fields if name != "reserved"] == ["struct_size", *gpu.GPUKVInfo._fields]
    fields = [name for name, _ in _gpu_structs.GPUInfo._fields_]
    assert fields == ["struct_size", *gpu.GPUInfo._fields[:8], "reserved", *gpu.GPUInfo._fields[8:]]


def test_the_outputs_of_kmeans_are_the_arrays_of_the_result():
    assert [name for name, _ in _structs.KMeansResult._fields_] == ["struct_size", *OUTPUTS]


def test_every_called_function_has_the_headers_argument_count():
    text = "\n".join(path.read_text() for path in HEADERS)
    for name, (_, arguments) in PROTOTYPES.items():
        declared = re.search(rf"DCI_API [^;]*?\b{name}\(([^;]*)\);", text).group(1)
        count = 0 if declared.strip() == "void" else declared.count(",") + 1
        assert len(arguments) == count, name


def run_python(code, **environment):
    return subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_the_loaded_library_has_the_packages_version():
    assert lib.dci_version().decode() == dci.__version__
    header = (ROOT / "include" / "dci" / "base.h").read_text()
    assert dci.__version__ == ".".join(
        re.search(rf"#define DCI_VERSION_{part} (\d+)", header).group(1) for part in ("MAJOR", "MINOR", "PATCH")
    )


def test_dci_library_names_the_file_and_has_no_substitute(tmp_path):
    wrong = str(tmp_path / "nothing.so")
    done = run_python("import dci", DCI_LIBRARY=wrong)
    assert done.returncode != 0
    assert "ImportError" in done.stderr and f"{wrong}: cannot open" in done.stderr
    assert "DCI_LIBRARY names this file" in done.stderr
    done = run_python("import dci; print(dci._library.lib._name)", DCI_LIBRARY=lib._name)
    assert done.stdout.strip() == lib._name


@needs_compiler
def test_a_library_of_another_version_is_refused(tmp_path):
    other = compiled(tmp_path, 'const char *dci_version(void) { return "9.8.7"; }\n', "-shared", "-fPIC")
    done = run_python("import dci", DCI_LIBRARY=str(other))
    assert done.returncode != 0
    assert "9.8.7" in done.stderr and dci.__version__ in done.stderr


def test_the_process_ends_cleanly_with_objects_alive():
    done = run_python("import dci, numpy\nindex = dci.Index(4)\nindex.add(numpy.eye(4, dtype='float32'))\nprint(index)")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Index(dim=4")
