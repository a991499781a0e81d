#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The order of files inside src/kv, src/offload and src/index: a file includes headers of, and calls functions of, its own
part and of parts that stand on later lines of order.txt. With --objects also by the symbols of what was built; --rings lists
calls that run in a ring.

    tests/deps/check.py [--objects build/release] [--rings]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ORDER = Path(__file__).with_name("order.txt")


class Folder:
    """Parts of one folder: levels by name, counted from the top, and exceptions."""

    def __init__(self, name: str) -> None:
        self.name, self.levels, self.allowed = name, {}, set()

    def refuses(self, user: str, used: str) -> bool:
        return user != used and self.levels[used] <= self.levels[user] and (user, used) not in self.allowed


def read_order(path: Path) -> dict[str, Folder]:
    """The folders of the list: "[name]", then a line of parts for each level, and lines "allow part -> part: reason"."""
    folders, folder, level = {}, None, 0
    for line in path.read_text().splitlines():
        text = line.split("#")[0].strip()
        if text.startswith("["):
            folder, level = folders.setdefault(text[1:-1], Folder(text[1:-1])), 0
        elif text.startswith("allow "):
            user, used = re.match(r"allow (\S+) -> (\S+): \S", text).groups()
            folder.allowed.add((user, used))
        elif text:
            level += 1
            for part in text.split():
                if part in folder.levels:
                    sys.exit(f"{path}: {folder.name}/{part} stands there twice")
                folder.levels[part] = level
    return folders


def part_of(path: Path, folder: str) -> str:
    return path.relative_to(ROOT / "src" / folder).with_suffix("").as_posix()


def includes(folder: Folder) -> list[tuple[str, str, str]]:
    """What uses what, and where: by the includes."""
    found = []
    for path in sorted((ROOT / "src" / folder.name).rglob("*.[ch]")):
        for n, line in enumerate(path.read_text().splitlines(), 1):
            header = re.match(rf'\s*#\s*include "{folder.name}/([^"]+)\.h"', line)
            if header:
                found.append((part_of(path, folder.name), header[1], f"{path.relative_to(ROOT)}:{n}"))
    return found


def symbols(objects: Path) -> tuple[dict[str, Path], dict[Path, list[str]]]:
    """Which source defines a symbol, and what each source takes from others."""
    defined, taken = {}, {}
    base = objects / "CMakeFiles" / "dci_objects.dir" / "src"
    for path in sorted(base.rglob("*.c.o")):
        source = ROOT / "src" / path.relative_to(base).with_suffix("")
        if not source.exists():
            continue  # left over from another commit
        for line in subprocess.run(["nm", path], check=True, capture_output=True, text=True).stdout.splitlines():
            kind, name = line.split()[-2:]
            if kind == "U":
                taken.setdefault(source, []).append(name)
            elif kind in "TDBRV":
                defined[name] = source
    if not defined:
        sys.exit(f"{base} has no objects: build dci_objects first")
    return defined, taken


def calls(folder: Folder, defined: dict[str, Path], taken: dict[Path, list[str]]) -> list[tuple[str, str, str]]:
    """What uses what, and how: by the symbols."""
    root = ROOT / "src" / folder.name
    return [
        (part_of(source, folder.name), part_of(defined[name], folder.name), f"{source.relative_to(ROOT)}: {name}")
        for source, names in taken.items()
        if source.is_relative_to(root)
        for name in names
        if name in defined and defined[name].is_relative_to(root)
    ]


def rings(uses: list[tuple[str, str, str]]) -> list[list[str]]:
    """Parts that reach each other (Tarjan's strongly connected components of more than one)."""
    graph: dict[str, set[str]] = {}
    for user, used, _ in uses:
        graph.setdefault(user, set()).add(used)
    reach = {}
    for start in graph:
        seen, todo = set(), [start]
        while todo:
            for part in graph.get(todo.pop(), ()):
                if part not in seen:
                    seen.add(part)
                    todo.append(part)
        reach[start] = seen
    found = {tuple(sorted({a} | {b for b in reach[a] if a in reach.get(b, ()) and b != a})) for a in graph}
    return sorted(list(ring) for ring in found if len(ring) > 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--objects", type=Path, help="a build folder, whose objects are looked at, too")
    parser.add_argument("--rings", action="store_true", help="print the rings of files, by calls")
    options = parser.parse_args()
    built = symbols(options.objects.resolve()) if options.objects else None
    wrong = n = 0
    for folder in read_order(ORDER).values():
        sources = {part_of(path, folder.name) for path in (ROOT / "src" / folder.name).rglob("*.[ch]")}
        for part in sorted(sources ^ folder.levels.keys()):
            wrong += 1
            reason = "has no line" if part in sources else "is no file"
            print(f"{ORDER.name}: {folder.name}/{part} {reason}", file=sys.stderr)
        called = calls(folder, *built) if built else []
        for user, used, where in includes(folder) + called:
            n += 1
            if user in folder.levels and used in folder.levels and folder.refuses(user, used):
                wrong += 1
                print(f"{where}: {folder.name}/{user} may not use {folder.name}/{used}, which stands above or beside it",
                      file=sys.stderr)
        if options.rings:
            print(f"{folder.name}: rings of files: {rings(called) or 'none'}")
    print(f"order: {n} uses, {wrong} against {ORDER.name}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
