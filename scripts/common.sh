#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# What demo, check and lint share: packages, the private Python environment, steps with a log. Sourced, not run.
set -euo pipefail
# Where the script that sources this lies, for its own words.
# shellcheck disable=SC2034 # used by the scripts that source this file
self=$(realpath "$0")
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# To build everything and to install the Python package; check and lint add theirs.
# shellcheck disable=SC2034 # used by the scripts that source this file
build_packages=(build-essential cmake ninja-build pkg-config libopenblas-dev check libsubunit-dev libhdf5-dev libjansson-dev
    libyaml-dev zlib1g-dev python3-venv python3-dev)
logs=build/logs
export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

as_root() {
    if [[ $EUID == 0 ]]; then
        "$@"
    else
        sudo "$@"
    fi
}

# Prints those packages that dpkg does not know as installed.
missing_packages() {
    local package
    for package in "$@"; do
        dpkg-query -W -f='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed || echo "$package"
    done
}

# Whether the packages are there, or can be installed without asking for a password: for steps that may be left out.
can_have_packages() {
    command -v dpkg-query >/dev/null || return 0 # taken to be installed, as need_packages has it
    [[ -z $(missing_packages "$@") || $EUID == 0 ]] || sudo -n true 2>/dev/null
}

# Installs what is missing; asks for nothing, and for no password, when all is there.
need_packages() {
    local missing
    if ! command -v dpkg-query >/dev/null; then
        echo "This is not a Debian system; these packages' counterparts are taken to be installed: $*"
        return
    fi
    mapfile -t missing < <(missing_packages "$@")
    if [[ ${#missing[@]} -gt 0 ]]; then
        step_or_stop "installing ${missing[*]}" packages install_packages "${missing[@]}"
    fi
}

install_packages() {
    as_root apt-get update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends "$@"
}

# Packages for Python go into .venv in the checkout. The first python3 may be one without venv or pip (pyenv, conda).
make_venv() {
    local python
    for python in python3 /usr/bin/python3; do
        if .venv/bin/python -m pip --version >/dev/null 2>&1; then
            break
        fi
        rm -rf .venv
        "$python" -m venv .venv || true
    done
    .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"
}

failed_steps=()
last_step=0

# Runs a command with its output in a log: step HEADING LOG-NAME COMMAND... prints one line with the time it took; on failure the
# end of the log, too, and the step is noted in failed_steps. Never call it in a condition: set -e would not hold inside.
step() {
    local heading=$1 log=$logs/$2.log began=$SECONDS
    shift 2
    mkdir -p "$logs"
    printf '%s ... ' "$heading"
    set +e
    (
        set -e
        "$@"
    ) >"$log" 2>&1
    last_step=$?
    set -e
    if [[ $last_step == 0 ]]; then
        echo "$((SECONDS - began)) s"
    else
        echo "FAILED after $((SECONDS - began)) s"
        tail -n 40 "$log" | sed 's/^/    /'
        echo "    The whole log: $log"
        failed_steps+=("$heading")
    fi
}

# The same for what all later steps build on: a failure ends the script.
step_or_stop() {
    step "$@"
    [[ $last_step == 0 ]] || stop_if_failed
}

stop_if_failed() {
    if [[ ${#failed_steps[@]} -gt 0 ]]; then
        printf 'FAILED: %s\n' "${failed_steps[@]}"
        exit 1
    fi
}
