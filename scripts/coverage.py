# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What scripts/coverage counted: a table by folder and file, or the lines and branches of some sources that nothing ran."""

import collections
import json
import os
import subprocess
import sys

LINES, BRANCHES = 95.0, 85.0

# Sources of instruction sets, and what /proc/cpuinfo calls what they need.
NEEDS = {
    "src/simd/kernels_avx2.c": ["avx2", "fma", "f16c"],
    "src/simd/codes/dot_avx2.c": ["avx2"],
    "src/simd/codes/encode_avx2.c": ["avx2"],
    "src/simd/kernels_avx512.c": ["avx512bw"],
    "src/simd/codes/dot_avx512.c": ["avx512bw"],
    "src/simd/codes/dot_avx512.h": ["avx512bw"],
    "src/simd/codes/encode_avx512.c": ["avx512bw"],
    "src/simd/codes/dot_vnni.c": ["avx512_vnni"],
    "src/simd/softmax/softmax_avx512.c": ["avx512bw"],
    "src/simd/softmax/softmax_template.h": ["avx512bw"],
    "src/simd/softmax/softmax_vnni.c": ["avx512_vnni"],
    "src/simd/kernels_amx.c": ["amx_tile", "amx_bf16"],
}


def left_out(path):
    """Why a source does not count, or None."""
    if path.startswith(("src/gpu/", "src/offload/")):
        return "devices: scripts/check-gpu"
    with open("/proc/cpuinfo") as file:
        has = set(next((line for line in file if line.startswith("flags")), "").split())
    missing = [flag for flag in NEEDS.get(path, []) if flag not in has]
    return "this processor has no " + ", ".join(missing) if missing else None


def export(folder, *options):
    """llvm-cov's counts. The shared library has every object of the library and nothing of the tests."""
    command = ["llvm-cov", "export", *options, "-instr-profile", f"{folder}/profile", f"{folder}/libdci.so"]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return json.loads(done.stdout)["data"][0]


def report(folder):
    """Prints the table; 1 below the bars."""
    folders, lines, reasons = collections.defaultdict(lambda: [0, 0, 0, 0]), [], {}
    for entry in export(folder, "-summary-only")["files"]:
        path = os.path.relpath(os.path.realpath(entry["filename"]))
        if not path.startswith("src/"):
            continue
        reason = left_out(path)
        if reason:
            reasons.setdefault(reason, []).append(path)
            continue
        counts = [entry["summary"][kind][what] for kind in ("lines", "branches") for what in ("covered", "count")]
        lines.append((path, counts))
        for name in (os.path.dirname(path), "all"):
            folders[name] = [a + b for a, b in zip(folders[name], counts, strict=True)]
    print(f"{'':40}{'lines':>22}{'branches':>24}")
    for name, counts in [*sorted(lines), *sorted(folders.items(), key=lambda item: (item[0] == "all", item[0]))]:
        print(row(name, counts))
    for reason, paths in sorted(reasons.items()):
        print(f"left out ({reason}): {len(paths)} files")
    total = folders["all"]
    if total[1] == 0:
        print("coverage: no source was counted")
        return 1
    if share(total[0], total[1]) < LINES or share(total[2], total[3]) < BRANCHES:
        print(f"coverage: below {LINES:g} % of lines or {BRANCHES:g} % of branches")
        return 1
    print(f"coverage: at least {LINES:g} % of lines and {BRANCHES:g} % of branches")
    return 0


def share(covered, count):
    return 100.0 * covered / count if count else 100.0


def row(name, counts):
    lines, all_lines, branches, all_branches = counts
    return (f"{name:40}{share(lines, all_lines):8.2f} %{lines:6} /{all_lines:5}"
            f"{share(branches, all_branches):9.2f} %{branches:6} /{all_branches:5}")


def missing(folder, sources):
    """Prints the lines and branches of sources that nothing ran."""
    for entry in export(folder)["files"]:
        path = os.path.relpath(os.path.realpath(entry["filename"]))
        if path not in sources:
            continue
        notes = collections.defaultdict(list)
        for line, _, _, _, when, unless, *_ in {tuple(b) for b in entry["branches"]}:
            if when == 0 or unless == 0:
                notes[line].append("neither" if when == unless else "never true" if when == 0 else "never false")
        dark = unreached(entry["segments"])
        with open(path) as file:
            for number, text in enumerate(file, 1):
                if number in notes or number in dark:
                    mark = "-" if number in dark else " "
                    print(f"{path}:{number}: {mark} {text.rstrip()}   {'; '.join(notes[number])}".rstrip())


def unreached(segments):
    """Lines of count 0, as llvm-cov counts: the most of what runs on into a line and of the regions that begin in it."""
    here = collections.defaultdict(list)
    for segment in segments:
        here[segment[0]].append(segment)
    lines, before = set(), None
    for line in range(1, max(here, default=0) + 1):
        counts = [before[2]] if before and before[3] else []
        counts += [count for _, _, count, has_count, is_entry, is_gap in here[line] if has_count and is_entry and not is_gap]
        if counts and max(counts) == 0:
            lines.add(line)
        if here[line]:
            before = here[line][-1]
    return lines


if __name__ == "__main__":
    if len(sys.argv) > 2:
        missing(sys.argv[1], sys.argv[2:])
    else:
        sys.exit(report(sys.argv[1]))
