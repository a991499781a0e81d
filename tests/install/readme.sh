#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# The C example that README.md shows is tests/install/consumer.c, which tests/install/run.sh builds and runs: the first C block
# of the README must be that file without its two-line head. Usage: tests/install/readme.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

diff -u --label "README.md, first C block" --label "tests/install/consumer.c from line 3" \
    <(awk '/^```/ { if (inside) exit; inside = ($0 == "```c"); next } inside' README.md) \
    <(tail -n +3 tests/install/consumer.c)
echo "readme: the C example is tests/install/consumer.c"
