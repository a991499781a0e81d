# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Which nvcc a build of the package takes: dci_nvcc.py, which needs neither a compiler nor the network for that."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT

CUDA = {"cmake.define.DCI_CUDA": "ON"}
VARIABLES = ("CMAKE_ARGS", "SKBUILD_CMAKE_ARGS", "SKBUILD_CMAKE_DEFINE", "CUDACXX", "CUDA_HOME", "CUDA_PATH", "DCI_NVCC")
COMPILER = "cmake.define.CMAKE_CUDA_COMPILER"


@pytest.fixture
def nvcc(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module, on a machine without a toolkit, and in an environment without settings."""
    spec = importlib.util.spec_from_file_location("dci_nvcc", ROOT / "python" / "dci_nvcc.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "packages")])
    monkeypatch.setattr(module, "DEFAULT_ROOT", tmp_path / "default")
    return module


def toolkit(root: Path, version: str | None, folder: str = "bin") -> Path:
    """A toolkit's nvcc that only says its version; None: that fails."""
    program = root / folder / "nvcc"
    program.parent.mkdir(parents=True)
    said = f"Cuda compilation tools, release {version}, V{version}.0" if version else ""
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    return program


def pip_nvcc(folder: Path) -> Path:
    return toolkit(folder / "packages" / "nvidia" / "cu13", "13.0")


@pytest.mark.parametrize(
    "settings",
    [
        CUDA,
        {"skbuild.cmake.define.DCI_CUDA": "on"},
        {"cmake.define.DCI_CUDA": ["OFF", "1"]},
        {"cmake.args": "-DDCI_OPENMP=OFF;-DDCI_CUDA=ON"},
        {"cmake.args": ["-DDCI_CUDA:BOOL=TRUE"]},
    ],
)
def test_settings_turn_cuda_on(nvcc: Any, settings: dict[str, Any]) -> None:
    assert nvcc.requirements(settings) == nvcc.REQUIREMENTS


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CMAKE_ARGS", "-DCMAKE_C_FLAGS='-O1 -g' -DDCI_CUDA=ON"),
        ("SKBUILD_CMAKE_ARGS", "-DDCI_CUDA=ON"),
        ("SKBUILD_CMAKE_DEFINE", "DCI_OPENMP=OFF;DCI_CUDA=YES"),
    ],
)
def test_the_environment_turns_cuda_on(nvcc: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    assert nvcc.requirements(None) == []
    monkeypatch.setenv(name, value)
    assert nvcc.requirements(None) == nvcc.REQUIREMENTS
    assert nvcc.requirements({"cmake.define.DCI_CUDA": "OFF"}) == []  # what is asked for last counts


@pytest.mark.parametrize("value", ["OFF", "", "0", "NO", "DCI_CUDA-NOTFOUND"])
def test_without_cuda_nothing_changes(nvcc: Any, tmp_path: Path, value: str) -> None:
    pip_nvcc(tmp_path)
    settings = {"cmake.define.DCI_CUDA": value, "cmake.define.DCI_OPENMP": "ON"}
    for given in (None, {}, {"cmake.build-type": "Debug"}, settings):
        assert nvcc.requirements(given) == []
        assert nvcc.settings_with_nvcc(given) is given


def test_the_first_toolkit_that_is_new_enough_compiles(nvcc: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pip_nvcc(tmp_path)
    found = [toolkit(tmp_path / name, "13.1") for name in ("home", "other")]
    found += [toolkit(tmp_path, "12.0", "path"), toolkit(tmp_path / "default", "12.9")]
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("CUDA_PATH", str(tmp_path / "other"))
    for program in found:
        assert nvcc.requirements(CUDA) == []
        assert nvcc.settings_with_nvcc(CUDA) == {**CUDA, COMPILER: str(program)}
        program.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 11.8, V11.8.89'\n")
    assert nvcc.requirements(CUDA) == nvcc.REQUIREMENTS


@pytest.mark.parametrize("version", [None, "11.8"])
def test_pip_compiles_where_no_toolkit_does(nvcc: Any, tmp_path: Path, version: str | None) -> None:
    toolkit(tmp_path / "default", version)
    assert nvcc.requirements(CUDA) == nvcc.REQUIREMENTS
    program = pip_nvcc(tmp_path)
    assert nvcc.settings_with_nvcc(CUDA) == {**CUDA, COMPILER: str(program)}


def test_pip_compiles_where_it_is_asked_for(nvcc: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    toolkit(tmp_path / "default", "13.0")
    assert nvcc.requirements(CUDA) == []
    monkeypatch.setenv("DCI_NVCC", "pip")
    assert nvcc.requirements(CUDA) == nvcc.REQUIREMENTS
    program = pip_nvcc(tmp_path)
    assert nvcc.settings_with_nvcc(CUDA) == {**CUDA, COMPILER: str(program)}


def test_a_named_compiler_is_left_to_cmake(nvcc: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    named = {**CUDA, COMPILER: "/opt/none/nvcc"}
    assert nvcc.requirements(named) == []
    assert nvcc.settings_with_nvcc(named) is named
    monkeypatch.setenv("CUDACXX", "/opt/none/nvcc")
    assert nvcc.requirements(CUDA) == []
    assert nvcc.settings_with_nvcc(CUDA) is CUDA


def test_a_build_that_cannot_have_nvcc_says_so(nvcc: Any) -> None:
    with pytest.raises(SystemExit, match=r"there is no nvcc 12.0 or later.*pip install 'nvidia-cuda-nvcc==13\.0\.\*' "):
        nvcc.settings_with_nvcc(CUDA)


def test_what_is_asked_for_has_one_version(nvcc: Any) -> None:
    assert {requirement.partition("==")[2] for requirement in nvcc.REQUIREMENTS} == {"13.0.*"}
    assert all(requirement.startswith("nvidia-") for requirement in nvcc.REQUIREMENTS)


def test_archives_carry_the_module() -> None:
    backend = (ROOT / "python" / "dci_build.py").read_text(encoding="utf-8")
    packed = backend.split("PACKAGE = ", 1)[1].split("\n", 1)[0]
    assert "dci_nvcc.py" in packed and os.path.exists(ROOT / "python" / "dci_nvcc.py")
