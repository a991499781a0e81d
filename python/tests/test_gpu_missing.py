# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What dci.gpu says where there is no GPU to use: in one sentence what is missing, and what to do."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from test_abi import COMPILER, needs_compiler

import dci

# A driver that only answers what is asked of it before the first device is opened.
DRIVER = """
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int setting(const char *name, int otherwise)
{
        const char *text = getenv(name);
        return text != NULL ? atoi(text) : otherwise;
}

int cuDriverGetVersion(int *version)
{
        *version = setting("DRIVER_VERSION", 99000);
        return 0;
}

int cuInit(unsigned flags)
{
        (void)flags;
        return setting("DRIVER_ERROR", 100); /* CUDA_ERROR_NO_DEVICE */
}

static int not_supported(void)
{
        return 801;
}

int cuGetProcAddress_v2(const char *symbol, void **function, int version, unsigned long long flags, int *found)
{
        (void)version, (void)flags;
        if (found != NULL)
                *found = 0;
        *function = !strcmp(symbol, "cuInit") ? (void *)cuInit
                    : !strcmp(symbol, "cuDriverGetVersion") ? (void *)cuDriverGetVersion
                    : !strncmp(symbol, "cuGetProcAddress", 16) ? (void *)cuGetProcAddress_v2
                    : (void *)not_supported;
        return 0;
}

int cuGetProcAddress(const char *symbol, void **function, int version, unsigned long long flags)
{
        return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}
"""

PROGRAM = """
import dci
for call in (dci.gpu.count, dci.gpu.GPU):
    try:
        print(call())
    except dci.UnsupportedError as error:
        print(error)
"""


def has_cuda() -> bool:
    try:
        return dci.gpu.count() > 0
    except dci.UnsupportedError as error:
        return "no CUDA" not in str(error)


needs_cuda = pytest.mark.skipif(not has_cuda(), reason="the library has no CUDA")


def sentence(folder: Path, **environment: str) -> str:
    """What count() and GPU() say with the libraries of a folder."""
    own = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**own, "LD_LIBRARY_PATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    count, opened = done.stdout.splitlines()
    assert count == opened
    return count


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with that driver."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "driver.c").write_text(DRIVER)
    subprocess.run(
        [str(COMPILER), "-shared", "-fPIC", "-o", str(folder / "libcuda.so.1"), str(folder / "driver.c")], check=True
    )
    return folder


@pytest.mark.skipif(has_cuda(), reason="the library has CUDA")
def test_a_build_without_cuda_says_how_to_get_one(tmp_path: Path) -> None:
    said = sentence(tmp_path)
    assert said.startswith("this build of dci has no CUDA: build it with -DDCI_CUDA=ON ")
    assert "pip install ./python -C cmake.define.DCI_CUDA=ON" in said and "libdci-cu13" in said


@needs_cuda
def test_a_driver_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "libcuda.so.1").write_text("not a library")
    said = sentence(tmp_path)
    assert said.startswith("there is no NVIDIA driver (libcuda.so.1 is missing or cannot be loaded): install one for CUDA 1")


@needs_cuda
@needs_compiler
def test_a_driver_that_is_too_old(driver: Path) -> None:
    said = sentence(driver, DRIVER_VERSION="11040")
    assert said.startswith("the NVIDIA driver is for CUDA 11.4, this build of dci needs one for CUDA 1")
    assert ".0 or later: update the driver" in said


@needs_cuda
@needs_compiler
def test_no_gpu(driver: Path) -> None:
    assert sentence(driver) == "the NVIDIA driver finds no GPU: nvidia-smi -L should list one"


@needs_cuda
@needs_compiler
@pytest.mark.parametrize("visible", ["", "7", "none"])
def test_hidden_gpus(driver: Path, visible: str) -> None:
    said = sentence(driver, CUDA_VISIBLE_DEVICES=visible)
    assert said.startswith(f'no GPU is visible: CUDA_VISIBLE_DEVICES is "{visible}", unset it or ')


@needs_cuda
@needs_compiler
def test_other_errors_are_cudas(driver: Path) -> None:
    said = sentence(driver, DRIVER_ERROR="803")
    assert said.startswith("the GPUs cannot be counted: ") and said.endswith("(cudaErrorSystemDriverMismatch)")
