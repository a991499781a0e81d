#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# The C example that README.md shows is tests/install/consumer.c, which tests/install/run.sh builds and runs: the first C block
# of the README must be that file without its two-line head. The README also stays short, and every file that it links exists.
# Usage: tests/install/readme.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

diff -u --label "README.md, first C block" --label "tests/install/consumer.c from line 3" \
    <(awk '/^```/ { if (inside) exit; inside = ($0 == "```c"); next } inside' README.md) \
    <(tail -n +3 tests/install/consumer.c)
lines=$(wc -l <README.md)
[[ $lines -le 120 ]] || { echo "readme: README.md has $lines lines, expected at most 120" >&2; exit 1; }
while read -r file; do
    [[ -e $file ]] || { echo "readme: README.md links $file, which does not exist" >&2; exit 1; }
done < <(grep -oE '\]\([^):]+\)' README.md | sed -E 's/^\]\(//; s/\)$//; s/#.*//')
echo "readme: the C example is tests/install/consumer.c"
