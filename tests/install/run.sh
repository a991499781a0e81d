#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# Installs a build folder into a temporary prefix, moves the prefix, and uses it as a stranger would: each header alone, the
# CMake package and dci.pc, the shared and the static library. Usage: tests/install/run.sh BUILD_DIR
set -euo pipefail

build=$(realpath "$1")
here=$(realpath "$(dirname "$0")")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
prefix=$work/moved
wanted=$'id 2, inner product 6\nid 1, inner product 2'

cache_value() {
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}
cc=$(cache_value CMAKE_C_COMPILER)

fail() {
    echo "install: $*" >&2
    exit 1
}

# $1 what, $2 program, $3 whether it must load libdci.so
runs() {
    local got needs=no
    got=$("$2") || fail "$1: exit code $?"
    [[ $got == "$wanted" ]] || fail "$1 printed: $got"
    if readelf -d "$2" | grep -q 'NEEDED.*libdci\.so'; then
        needs=yes
    fi
    [[ $needs == "$3" ]] || fail "$1: loads libdci.so: $needs, wanted: $3"
    echo "install: $1 builds and finds the nearest keys"
}

cmake --install "$build" --prefix "$work/first" >"$work/log"
mv "$work/first" "$prefix"
pc_dir=$(dirname "$(find "$prefix" -name dci.pc)")
lib_dir=$(dirname "$pc_dir")
if grep -rIl -e "$work/first" -e "$build" -e "$(realpath "$here/../..")" "$prefix"; then
    fail "the files above name a folder of the build; the prefix could not be moved"
fi
echo "install: no installed text file names a folder of the build"

# What does not go together is said when it is configured, before anything is looked for.
source=$(realpath "$here/../..")
refused() { # sentence, options
    if cmake --fresh -S "$source" -B "$work/refused" -DCMAKE_C_COMPILER="$cc" "${@:2}" >"$work/log" 2>&1; then fail "taken: ${*:2}"; fi
    tr -s ' \n' ' ' <"$work/log" | grep -qF "$1" || { cat "$work/log"; fail "not said: $1"; }
}
refused "DCI_SHARED and DCI_STATIC are both OFF" -DDCI_SHARED=OFF -DDCI_STATIC=OFF
refused "DCI_STATIC is OFF and DCI_TESTS is ON" -DDCI_STATIC=OFF -DDCI_BENCH=OFF
refused "DCI_STATIC is OFF and DCI_BENCH is ON" -DDCI_STATIC=OFF -DDCI_TESTS=OFF
echo "install: options that do not go together are refused"

for header in "$prefix"/include/dci/*.h; do
    for language in "c -std=c11" "c++ -std=c++11"; do
        # Not <dci/...>: the file itself must stand alone, and as a main file it may not rely on what was included before.
        # shellcheck disable=SC2086 # the language is two words
        echo "#include \"$header\"" | "$cc" -x $language -Wall -Wextra -Wundef -Wpedantic -Werror -fsyntax-only \
            -I"$prefix/include" -
    done
done
echo "install: every header compiles alone, as C11 and as C++11"

# The package must look for nothing else: whoever links the shared library has no use for OpenBLAS's development files.
cmake -S "$here" -B "$work/cmake" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_Threads=ON >"$work/log" 2>&1 || { cat "$work/log"; fail "find_package(dci)"; }
cmake --build "$work/cmake" >"$work/log" 2>&1 || { cat "$work/log"; fail "building with the CMake package"; }
runs "CMake, dci::dci" "$work/cmake/consumer_shared" yes
runs "CMake, dci::dci_static" "$work/cmake/consumer_static" no

# PKG_CONFIG_LIBDIR hides every other .pc file, so that dci.pc is seen to need none.
export PKG_CONFIG_LIBDIR=$pc_dir
[[ $(pkg-config --modversion dci) == "$(cache_value CMAKE_PROJECT_VERSION)" ]] || fail "dci.pc states another version"
# shellcheck disable=SC2046 # flags are words
"$cc" -std=c11 -o "$work/pc_shared" "$here/consumer.c" $(pkg-config --cflags --libs dci) -Wl,-rpath,"$lib_dir"
runs "pkg-config, shared" "$work/pc_shared" yes

# The commands that README.md prints after its install line, as printed, in a clean shell whose home has the library where they want it.
if [[ $lib_dir == "$prefix/lib" ]]; then
    mkdir "$work/home"
    mv "$prefix" "$work/home/dci"
    tail -n +3 "$here/consumer.c" >"$work/first.c"
    awk '/^```/ { if (inside && text ~ /first\.c/) printf "%s", text; inside = !inside && $0 == "```sh"; text = ""; next }
        inside { text = text $0 "\n" }' "$here/../../README.md" >"$work/commands"
    grep -q pkg-config "$work/commands" || fail "README.md prints no commands that compile first.c"
    (cd "$work" && env -i HOME="$work/home" PATH="$PATH" bash -eu commands) >"$work/log" 2>&1 || { cat "$work/log"; fail "README's commands"; }
    [[ $(cat "$work/log") == "$wanted" ]] || { cat "$work/log"; fail "README's commands print something else"; }
    echo "install: the commands of README.md compile and run its program"
    mv "$work/home/dci" "$prefix"
fi

if grep -q '/[^ ]*\.so' "$pc_dir/dci.pc"; then
    # Of LLVM's OpenMP runtime Debian has no archive: then the library alone is linked as one.
    # shellcheck disable=SC2046
    "$cc" -std=c11 -o "$work/pc_static" "$here/consumer.c" $(pkg-config --static --cflags --libs dci | sed 's/-ldci\b/-l:libdci.a/') \
        -Wl,-rpath,"$(sed -nE 's|.* (/[^ ]*)/[^/ ]*\.so.*|\1|p' "$pc_dir/dci.pc")"
    runs "pkg-config, libdci.a" "$work/pc_static" no
    exit
fi
# shellcheck disable=SC2046
"$cc" -std=c11 -static -o "$work/pc_static" "$here/consumer.c" $(pkg-config --static --cflags --libs dci) 2>"$work/log" ||
    { cat "$work/log"; fail "linking with pkg-config --static"; }
runs "pkg-config, --static" "$work/pc_static" no
