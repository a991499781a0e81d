#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# What SECURITY.md says of the shared library: tables of functions lie in memory that cannot be written to once it is loaded, nothing
# is bound later, no page is writable and executable, there is no state but each thread's own, functions guard their stacks.
# Usage: tests/abi/hardening.sh LIBDCI.SO
set -euo pipefail

library=$1
wrong=0
export LC_ALL=C

wants() { # sentence, command...
    if ! "${@:2}"; then
        echo "hardening: $1" >&2
        wrong=1
    fi
}
segment() { # name: its flags
    readelf --wide --program-headers "$library" | awk -v name="$1" '$1 == name { print substr($0, index($0, "0x") + 1) }'
}
read_only_after_loading() { segment GNU_RELRO | grep -q .; }
bound_at_once() { readelf --wide --dynamic "$library" | grep -Eq 'BIND_NOW|FLAGS_1.*NOW'; }
no_relocated_code() { ! readelf --wide --dynamic "$library" | grep -q TEXTREL; }
stack_without_code() { segment GNU_STACK | grep -qv 'E  '; }
no_writable_code() { ! readelf --wide --program-headers "$library" | awk '$1 == "LOAD"' | grep -q 'RWE'; }
guarded_stacks() { nm --dynamic --undefined-only "$library" | grep -q __stack_chk_fail; }

# The compiler's own start files have a handle and a flag there.
state() {
    nm "$library" | awk '$2 ~ /^[bBdD]$/ { print $1, $3 }' | sort >"$scratch/symbols"
    readelf --wide --sections "$library" | sed 's/^ *\[ *[0-9]*\] *//' |
        awk '$1 == ".data" || $1 == ".bss" { print $3, $5 }' | while read -r address bytes; do
        awk -v first="$((16#$address))" -v n="$((16#$bytes))" '
            function number(hex,    i, x) {
                for (i = 1; i <= length(hex); i++) x = 16 * x + index("0123456789abcdef", substr(hex, i, 1)) - 1
                return x
            }
            { at = number($1); if (at >= first && at < first + n) print $2 }' "$scratch/symbols"
    done | grep -Ev '^(__dso_handle|completed\.[0-9]*|__TMC_(END|LIST)__|_edata|__bss_start|_end)$' || true
}
no_state() {
    local found
    found=$(state)
    [[ -z $found ]] || { echo "$found" >&2 && return 1; }
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
wants "no segment becomes read-only after loading (-z relro)" read_only_after_loading
wants "functions of other libraries are bound late (-z now)" bound_at_once
wants "code is changed by loading it (text relocations)" no_relocated_code
wants "the stack may hold code" stack_without_code
wants "a segment is writable and executable" no_writable_code
wants "no function guards its stack (-fstack-protector-strong)" guarded_stacks
wants "the names above can be written to by all threads: make them const, or part of an object" no_state
[[ $wrong == 0 ]] || exit 1
echo "hardening: as SECURITY.md says"
