#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# Holds three lists against each other: tests/abi/symbols.txt, what the headers declare with DCI_API, and what the built shared
# library exports. Then the SONAME against the version, the archive's names, which meet those of whole programs, and what it calls of
# others: nothing that prints, ends the process, starts programs, opens sockets, or sets what belongs to the whole process (SECURITY.md).
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

# Also as the compiler's checked forms of them, such as __printf_chk. The environment is read in one place.
never='(v?f?d?w?printf|v?sprintf|f?puts|f?putc|putchar|fwrite|perror|std(out|err)|_?_?[eE]xit|quick_exit|abort|_?_?assert.*|raise|kill|signal|sigaction'
never+='|system|popen|v?fork|posix_spawnp?|(f?exec)[lv]?[ep]*|dl(m?open|sym)|socket|connect|bind|listen|accept4?|send(to|msg)?|recv(from|msg)?'
never+='|getaddrinfo|gets|str(cpy|cat|tok)|stpcpy|mktemp|tmpnam|s?rand(om)?|(set|put|unset|clear|secure_get)env|setlocale|umask|chdir'
never+='|openblas_set_num_threads|omp_set_.*|pthread_atfork|atexit)'
called() {
    nm --print-file-name --undefined-only "$archive" 2>/dev/null | awk '{ print $1, $NF }' | sed 's/^.*:\([^:]*\): /\1 /'
}
if [[ -n $archive ]]; then
    calls=$(called)
    grep -q ' memcpy$' <<<"$calls" || { echo "abi: what the archive calls cannot be read" >&2 && exit 1; }
    if grep -E " (__)?$never(_chk)?\$" <<<"$calls" || grep ' getenv$' <<<"$calls" | grep -v '^cpu\.c'; then
        echo "abi: the objects above call functions that a library has no business with" >&2
        exit 1
    fi
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
