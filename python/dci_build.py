# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The build backend: scikit-build-core's, source archives that carry the C sources, and nvcc for builds with CUDA.

In a checkout the C sources lie one folder above this one, where an archive of this folder would not have them. The archive
is therefore made of a copy of this folder that has them in csrc/, and whose pyproject.toml looks for them there.

A build with DCI_CUDA (dci_nvcc.py) uses the machine's nvcc, or asks for pip's packages of it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scikit_build_core.build import build_editable as _build_editable
from scikit_build_core.build import build_sdist as _build_sdist
from scikit_build_core.build import build_wheel as _build_wheel
from scikit_build_core.build import get_requires_for_build_editable as _get_requires_for_build_editable
from scikit_build_core.build import get_requires_for_build_sdist as _get_requires_for_build_sdist
from scikit_build_core.build import get_requires_for_build_wheel as _get_requires_for_build_wheel
from scikit_build_core.build import prepare_metadata_for_build_editable, prepare_metadata_for_build_wheel

import dci_nvcc

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

HERE = Path(__file__).resolve().parent
PACKAGE = ("pyproject.toml", "dci_build.py", "dci_nvcc.py", "README.md", "dci")
C_SOURCES = ("CMakeLists.txt", "LICENSE", "cmake", "include", "src")
# What pyproject.toml says of the C sources, here and in an archive.
PLACES = {'source-dir = ".."': 'source-dir = "csrc"', 'input = "../include': 'input = "csrc/include'}
_LEFT_OUT = shutil.ignore_patterns("__pycache__", "*.pyc", "_lib")


def _copy(source: Path, names: tuple[str, ...], target: Path) -> None:
    for name in names:
        if (source / name).is_dir():
            shutil.copytree(source / name, target / name, ignore=_LEFT_OUT)
        else:
            shutil.copyfile(source / name, target / name)


def _redirect(pyproject: Path) -> None:
    text = pyproject.read_text(encoding="utf-8")
    for here, there in PLACES.items():
        if text.count(here) != 1:
            raise RuntimeError(f"dci_build.py expects {here!r} once in pyproject.toml")
        text = text.replace(here, there)
    pyproject.write_text(text, encoding="utf-8")


@contextmanager
def _archived() -> Iterator[None]:
    """Goes to a folder of what the archive is to hold. An unpacked archive is one."""
    if (HERE / "csrc").is_dir():
        yield
        return
    before = Path.cwd()
    with tempfile.TemporaryDirectory(prefix="dci-sdist-") as made:
        folder = Path(made)
        (folder / "csrc").mkdir()
        _copy(HERE, PACKAGE, folder)
        _redirect(folder / "pyproject.toml")
        _copy(HERE.parent, C_SOURCES, folder / "csrc")
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def get_requires_for_build_sdist(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What scikit-build-core wants."""
    with _archived():
        return list(_get_requires_for_build_sdist(config_settings))


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    """An archive from which wheels can be built without the checkout."""
    target = os.path.abspath(sdist_directory)
    with _archived():
        return str(_build_sdist(target, config_settings))


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """What scikit-build-core wants, and nvcc where a build with CUDA finds none."""
    return [*_get_requires_for_build_wheel(config_settings), *dci_nvcc.requirements(config_settings)]


def get_requires_for_build_editable(config_settings: dict[str, Any] | None = None) -> list[str]:
    """The same."""
    return [*_get_requires_for_build_editable(config_settings), *dci_nvcc.requirements(config_settings)]


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """A wheel with the library in it, with kernels for GPUs where DCI_CUDA is ON."""
    return str(_build_wheel(wheel_directory, dci_nvcc.settings_with_nvcc(config_settings), metadata_directory))


def build_editable(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    """The same for an editable install."""
    return str(_build_editable(wheel_directory, dci_nvcc.settings_with_nvcc(config_settings), metadata_directory))
