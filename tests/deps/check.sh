#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# The dependency order: core, simd | transform | sketch | index, cluster, gpu (not each other) | kv | offload. A folder under src includes
# only itself and folders to its left; a public header counts as a part of its folder. Usage: tests/deps/check.sh
set -euo pipefail
cd "$(dirname "$0")/../.."

declare -A left=(
    [core]="core simd"
    [simd]="core simd"
    [transform]="core simd transform"
    [sketch]="core simd transform sketch"
    [index]="core simd transform sketch index"
    [cluster]="core simd transform sketch cluster"
    [gpu]="core simd transform sketch gpu"
    [kv]="core simd transform sketch index cluster kv"
    [offload]="core simd transform sketch index cluster gpu kv offload"
)
declare -A folder_of_header=(
    [base]=core [check]=core [transform]=transform [sketch]=sketch [index]=index [file]=index [kmeans]=cluster [kv]=kv [gpu]=gpu [offload]=offload
)

wrong=0
complain() {
    echo "$1: $2" >&2
    wrong=1
}

# $1 file:line, $2 folder of the including file, $3 what stands between the quotes
check_include() {
    local header=${3#dci/} to=${3%%/*}
    if [[ $3 != */* ]]; then
        complain "$1" "includes \"$3\": write the folder, too"
        return
    fi
    if [[ $to == dci ]]; then
        to=${folder_of_header[${header%.h}]:-}
        if [[ -z $to ]]; then
            complain "$1" "includes \"$3\", which belongs to no folder of src"
            return
        fi
    fi
    if [[ " ${left[$2]} " != *" $to "* ]]; then
        complain "$1" "$2 includes \"$3\", but may use only: ${left[$2]}"
    fi
}

# $1 folder, then files
check_files() {
    local folder=$1 file line text
    shift
    if [[ -z ${left[$folder]:-} ]]; then
        complain "$1" "the folder $folder has no place in the dependency order (tests/deps/check.sh)"
        return
    fi
    while IFS=: read -r file line text; do
        [[ $text =~ \"(.*)\" ]]
        check_include "$file:$line" "$folder" "${BASH_REMATCH[1]}"
    done < <(grep -HnE '^ *# *include *"' "$@" || true)
    # Every source begins with core/internal.h, or with its folder's own internal header, which begins with it.
    for file in "$@"; do
        if [[ $file == src/*.c || $file == *_internal.h ]]; then
            text=$(grep -m1 -E '^ *# *include' "$file" || true)
            if [[ $text != '#include "core/internal.h"' && ($file != *.c || $text != "#include \"$folder/${folder}_internal.h\"") ]]
            then
                complain "$file" "its first include must be \"core/internal.h\" or \"$folder/${folder}_internal.h\""
            fi
        fi
    done
}

shopt -s nullglob
n=0
for path in src/*/; do
    mapfile -t files < <(find "$path" -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' | sort)
    n=$((n + ${#files[@]}))
    folder=$(basename "$path")
    if [[ ${#files[@]} -gt 0 ]]; then
        check_files "$folder" "${files[@]}"
    fi
done
for header in include/dci/*.h; do
    name=$(basename "$header" .h)
    # dci.h is the collection of all.
    if [[ $name != dci ]]; then
        n=$((n + 1))
        check_files "${folder_of_header[$name]:-$name}" "$header"
    fi
done
[[ $wrong == 0 ]] || exit 1
echo "arrows: $n files include only their own folder and folders to its left"
