#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# Two OpenMP runtimes and OpenBLAS's threads in one process (runtimes.c): a program that clang builds with its own runtime loads a
# libdci.so that gcc built with its. Usage: tests/install/runtimes.sh LIBDCI; exit code 77 where there is no clang with OpenMP.
set -euo pipefail

library=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

if ! command -v clang >/dev/null || ! clang -std=c11 -fopenmp=libomp -I"$here/../../include" -o "$work/runtimes" \
    "$here/runtimes.c" -ldl >"$work/log" 2>&1; then
    echo "runtimes: left out, there is no clang with OpenMP"
    cat "$work/log" 2>/dev/null || true
    exit 77
fi
readelf -d "$work/runtimes" | grep -q 'NEEDED.*libomp' || { echo "runtimes: the program has no runtime of its own" >&2; exit 1; }
for way in local deep; do
    timeout 300 "$work/runtimes" "$library" "$way"
done
