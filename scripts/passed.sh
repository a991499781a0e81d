#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# What has passed is kept, so that long runs may be interrupted and go on. Sourced behind common.sh, not run.

# Names what lies here in some paths, with what git does not know yet, but without documents. Nothing where there is no git.
state_of() { # paths
    local index=build/state-index.$$
    git rev-parse --git-dir >/dev/null 2>&1 || return 0
    mkdir -p build
    rm -f "$index"
    (
        export GIT_INDEX_FILE=$index
        git add -- "$@" && git rm -r --quiet --cached --ignore-unmatch -- docs '*.md' && git write-tree | cut -c 1-12
    )
    rm -f "$index"
}
