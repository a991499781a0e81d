#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# Holds three lists against each other: tests/abi/symbols.txt, what the headers declare with DCI_API, and what the built shared
# library exports. Then the SONAME against the version, and the archive's names, which meet those of whole programs.
# Usage: tests/abi/check.sh LIBDCI.SO [LIBDCI.A]
set -euo pipefail

library=$1
archive=${2:-}
here=$(realpath "$(dirname "$0")")
include=$here/../../include/dci
export LC_ALL=C

# Comment lines of the list begin with #.
listed() {
    grep -v '^#' "$here/symbols.txt"
}
# Every name that stands before the "(" of a declaration; declarations may span lines.
declared() {
    grep -hv '^ *#' "$include"/*.h | tr '\n' ' ' | grep -oE 'DCI_API [^;(]*\(' | grep -oE '[A-Za-z0-9_]+ *\($' | tr -d ' (' | sort
}
exported() {
    nm -D --defined-only "$library" | awk '{ print $3 }' | sort
}

differ=0
compare() {
    if ! diff -u --label "$1" --label "$2" <($3) <($4) >&2; then
        echo "abi: $1 and $2 differ" >&2
        differ=1
    fi
}
compare "tests/abi/symbols.txt" "the headers' DCI_API declarations" listed declared
compare "tests/abi/symbols.txt" "the library's exports" listed exported
if listed | grep -v '^dci_'; then
    echo "abi: the names above do not begin with dci_" >&2
    differ=1
fi
[[ $differ == 0 ]] || exit 1

if [[ -n $archive ]] && nm --defined-only --extern-only "$archive" | awk 'NF == 3 && $3 !~ /^dci_/ { print $3 }' | grep .; then
    echo "abi: the archive defines the names above, which do not begin with dci_" >&2
    exit 1
fi

version_part() {
    sed -n "s/^#define DCI_VERSION_$1 //p" "$include/base.h"
}
wanted=libdci.so.$(version_part MAJOR).$(version_part MINOR)
soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
if [[ $soname != "$wanted" ]]; then
    echo "abi: SONAME is $soname, wanted $wanted" >&2
    exit 1
fi
echo "abi: $(listed | wc -l) functions, as listed, declared and exported; SONAME $soname"
