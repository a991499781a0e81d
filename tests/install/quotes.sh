#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# What the documents quote is what the tests build and run. A line "<!-- quote FILE NAME -->" in docs/*.md says that the block of code
# after it is the part of FILE between the lines "/* quote: NAME */" and "/* end of quote */". Usage: tests/install/quotes.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

n=0
while IFS=: read -r doc line file name; do
    [[ -f $file ]] || { echo "quotes: $doc quotes $file, which is not there" >&2; exit 1; }
    diff -u --label "$doc, line $line" --label "$file, $name" \
        <(tail -n +"$((line + 1))" "$doc" | awk '/^```/ { if (inside++) exit; next } inside') \
        <(awk -v begin="/* quote: $name */" '$0 == begin { inside = 1; next } $0 == "/* end of quote */" { inside = 0 } inside' \
            "$file")
    n=$((n + 1))
done < <(grep -nH '^<!-- quote ' docs/*.md | sed -E 's/^([^:]+):([0-9]+):<!-- quote ([^ ]+) ([^ ]+) -->$/\1:\2:\3:\4/')
[[ $n -gt 0 ]] || { echo "quotes: the documents quote nothing" >&2; exit 1; }
echo "quotes: $n blocks of the documents are what the tests run"
