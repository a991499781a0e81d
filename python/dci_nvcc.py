# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Which nvcc compiles the kernels of a package that is built with DCI_CUDA.

DCI_CUDA may be set in each way that scikit-build-core takes definitions of CMake: `-C cmake.define.DCI_CUDA=ON`,
-DDCI_CUDA=ON in `-C cmake.args` or in the variables CMAKE_ARGS and SKBUILD_CMAKE_ARGS, DCI_CUDA=ON in SKBUILD_CMAKE_DEFINE.

The first of these that there is compiles:
1. CMAKE_CUDA_COMPILER, defined in the same ways, or CUDACXX in the environment, of whatever version;
2. $CUDA_HOME/bin/nvcc, $CUDA_PATH/bin/nvcc, nvcc on the PATH, /usr/local/cuda/bin/nvcc, if its version is 12.0 or later;
3. nvcc from the package index, which the build asks for (REQUIREMENTS). DCI_NVCC=pip in the environment skips 1 and 2.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

# The compiler, what it starts, headers and the static runtime, all of one version. It is the oldest of its major version,
# since PTX runs with drivers of the compiler's minor version and later ones.
REQUIREMENTS = [f"nvidia-{name}==13.0.*" for name in ("cuda-nvcc", "cuda-crt", "nvvm", "cuda-runtime", "cuda-cccl")]
FOLDER = Path("nvidia", "cu13")  # where they are in site-packages
OLDEST = 12
DEFAULT_ROOT = Path("/usr/local/cuda")


def _arguments(text: Any) -> list[str]:
    """Arguments of cmake, in any form that scikit-build-core takes."""
    if isinstance(text, str):
        return text.split(";")
    return [str(part) for part in text]


def _definitions(settings: Mapping[str, Any] | None) -> Iterator[tuple[str, str]]:
    """Definitions of CMake in a build's settings and environment; the last one of a name counts."""
    settings = {name.removeprefix("skbuild."): value for name, value in (settings or {}).items()}
    arguments = shlex.split(os.environ.get("CMAKE_ARGS", ""))
    arguments += _arguments(settings.get("cmake.args", os.environ.get("SKBUILD_CMAKE_ARGS", "")))
    for argument in arguments:
        found = re.fullmatch(r"-D\s*(\w+)(?::\w+)?=(.*)", argument)
        if found:
            yield found[1], found[2]
    for part in os.environ.get("SKBUILD_CMAKE_DEFINE", "").split(";"):
        name, equals, value = part.partition("=")
        if equals:
            yield name, value
    for name, value in settings.items():
        if name.startswith("cmake.define."):
            yield name.removeprefix("cmake.define."), str(value[-1] if isinstance(value, list) else value)


def is_wanted(settings: Mapping[str, Any] | None) -> bool:
    """Whether DCI_CUDA is what CMake takes for true."""
    value = dict(_definitions(settings)).get("DCI_CUDA", "").upper()
    return value in ("ON", "YES", "TRUE", "Y") or (value.isdecimal() and int(value) != 0)


def _version(nvcc: Path) -> tuple[int, int] | None:
    """Of a compiler; None where it does not run."""
    try:
        said = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=False).stdout
    except OSError:
        return None
    found = re.search(r"release (\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else None


def _is_chosen(settings: Mapping[str, Any] | None) -> bool:
    """Whether the caller names the compiler; CMake then finds it, or says that it is not there."""
    return bool(dict(_definitions(settings)).get("CMAKE_CUDA_COMPILER") or os.environ.get("CUDACXX"))


def of_toolkit() -> Path | None:
    """nvcc of a toolkit on this machine that is new enough."""
    roots = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if os.environ.get(name)]
    on_path = [Path(found) for found in [shutil.which("nvcc")] if found]
    for nvcc in [*(root / "bin" / "nvcc" for root in roots), *on_path, DEFAULT_ROOT / "bin" / "nvcc"]:
        version = _version(nvcc)
        if version is not None and version[0] >= OLDEST:
            return nvcc
    return None


def of_pip() -> Path | None:
    """nvcc of pip's packages in the environment that this runs in."""
    for folder in sys.path:
        nvcc = Path(folder) / FOLDER / "bin" / "nvcc"
        if nvcc.is_file():
            return nvcc
    return None


def _by_pip(settings: Mapping[str, Any] | None) -> bool:
    """Whether pip's packages compile."""
    return os.environ.get("DCI_NVCC") == "pip" or not (_is_chosen(settings) or of_toolkit())


def requirements(settings: Mapping[str, Any] | None) -> list[str]:
    """What a build needs of the package index for its kernels."""
    return REQUIREMENTS if is_wanted(settings) and _by_pip(settings) else []


def settings_with_nvcc(settings: dict[str, Any] | None) -> dict[str, Any] | None:
    """The settings, with CMAKE_CUDA_COMPILER where a build with CUDA does not have it."""
    if not is_wanted(settings):
        return settings
    if not _by_pip(settings):
        nvcc = None if _is_chosen(settings) else of_toolkit()
    else:
        nvcc = of_pip()
        if nvcc is None:
            raise SystemExit(
                "DCI_CUDA is ON, but there is no nvcc 12.0 or later in CUDA_HOME, on the PATH or in /usr/local/cuda, and a "
                f"build without isolation gets none: pip install {' '.join(map(shlex.quote, REQUIREMENTS))}"
            )
    return settings if nvcc is None else {**(settings or {}), "cmake.define.CMAKE_CUDA_COMPILER": str(nvcc)}
