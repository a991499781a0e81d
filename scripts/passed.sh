#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
# What has passed is kept, so that long runs may be interrupted and go on where they were. Sourced behind common.sh, not run.

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

# Where steps are kept, by what they were run with; none are, and none are left out, where it is empty.
state=
state_paths=()
keep_passed() { # paths that steps depend on
    state_paths=("$@")
    state=$(state_of "$@")
}

# A step of common.sh that is not run again when it has passed with these sources: its log is put in its place, and the line says when. What
# was changed while it ran it may have seen or not, so it is not kept then.
step_once() { # as step
    local kept=build/passed/$state/$2.log seconds=$SECONDS
    if [[ -n $state && -f $kept ]]; then
        # shellcheck disable=SC2154 # common.sh has it
        cp --preserve=timestamps "$kept" "$logs/$2.log"
        echo "$1 ... passed on $(date -u -r "$kept" '+%F %H:%M')"
        last_step=0
        return
    fi
    step "$@"
    if [[ $last_step == 0 && -n $state && $(state_of "${state_paths[@]}") == "$state" ]]; then
        mkdir -p "${kept%/*}"
        cp "$logs/$2.log" "$kept.part"
        mv "$kept.part" "$kept"
        printf '%s\t%s\t%s\t%s\n' "$2" "$((SECONDS - seconds))" "$(date -u '+%F %H:%M')" "$1" >>"${kept%/*}/steps.tsv"
    fi
}

# What has passed with these sources, as a table: checks are those of the suites' closing lines in a step's log.
table_of_passed() {
    local name seconds date heading checks
    echo "| step | closing lines, checks | seconds | passed (UTC) |"
    echo "|---|---|---:|---|"
    while IFS=$'\t' read -r name seconds date heading; do
        checks=$(awk '/^closing: / { gsub(/,/, ""); n++; c += $5 } END { if (n) printf "%d, %d", n, c }' "build/passed/$state/$name.log")
        echo "| $heading | $checks | $seconds | $date |"
    done <"build/passed/$state/steps.tsv"
}
