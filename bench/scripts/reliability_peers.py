#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What libraries for nearest neighbours do with damaged files, adds beside searches, NaN and removed rows.

    python3 bench/scripts/reliability_peers.py --rows keys.npy --mutations 2000 --json reliability.json \\
        --into docs/measurements/reliability.md

Every trial runs in a process of its own (forked, limited in time and memory), so that a crash is a figure and not the
end. Rows are real ones: a trace's keys. Libraries that are not installed are left out, and the table says so.

- **Damaged files.** A saved index of --n rows is changed in one place: a bit, a byte, a word, a length that is huge, a
  piece cut off, a block moved or zeroed; half of the changes hit the first 512 bytes, where headers are. It is loaded
  and asked for the neighbours of rows that it holds. `refused`: an exception; `same`: the same answers as before (what
  changed was not used, or not read); `other answers`: it loads, and answers differ without a word; `crash`: a signal or
  an abort; `hang`: over --seconds of the processor, or ten times as long in all; `memory`: more than 4 GiB asked for.
  Files of dci are changed a second time with right checksums over the change, so that what a checksum would have refused
  is read.
- **Adds beside searches.** One thread adds, two search for rows whose add is over. `missed beside` and `missed after`
  are shares of rows that a search for themselves does not find, while adds run and when all is quiet.
- **NaN.** A batch with one NaN is added, then a NaN is asked for; and what becomes of the other rows.
- **Removed rows.** All rows are removed and others added, in turn: memory after the last round over memory after the
  first.
"""
import argparse
import datetime
import importlib
import json
import os
import random
import re
import resource
import signal
import struct
import sys
import tempfile
import threading
import time
from importlib import metadata

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # a child that is forked has one thread

import numpy as np  # noqa: E402

try:  # of use where checksums are made right: the one below takes longer than all that is measured
    from google_crc32c import value as fast_crc32c
except ImportError:
    fast_crc32c = None

K = 10
GIB = 1 << 30


class Dci:
    """dci.Index of a kind; the other classes have the same methods."""

    def __init__(self, dim, kind, **options):
        self.dci = dci = importlib.import_module("dci")
        self.context = dci.Context(threads=1)
        self.index = dci.Index(dim, "l2", kind=kind, context=self.context, **options)

    def add(self, rows, ids):
        self.index.add(rows, ids)

    def remove(self, ids):
        self.index.remove(ids)

    def search(self, queries):
        return self.index.search(queries, K)[0]

    def save(self, path):
        self.index.save(path)

    def load(self, path):
        self.index = self.dci.Index.load(path, context=self.context)


class Faiss:
    """A factory string; rows are added with ids where the index takes them."""

    def __init__(self, dim, factory, train=None):
        self.faiss = faiss = importlib.import_module("faiss")
        faiss.omp_set_num_threads(1)
        self.named = not factory.startswith("HNSW")
        self.index = faiss.index_factory(dim, factory, faiss.METRIC_L2)
        if train is not None:
            self.index.train(train)

    def add(self, rows, ids):
        if self.named:
            self.index.add_with_ids(rows, ids)
        else:
            self.index.add(rows)

    def remove(self, ids):
        if self.index.remove_ids(ids) != len(ids):
            raise RuntimeError("not all were removed")

    def search(self, queries):
        return self.index.search(queries, K)[1]

    def save(self, path):
        self.faiss.write_index(self.index, path)

    def load(self, path):
        self.index = self.faiss.read_index(path)


class Hnswlib:
    def __init__(self, dim, most):
        self.hnswlib = importlib.import_module("hnswlib")
        self.dim, self.most = dim, most
        self.index = self.hnswlib.Index(space="l2", dim=dim)
        self.index.init_index(max_elements=most, ef_construction=200, M=16, allow_replace_deleted=True)
        self.index.set_ef(100)
        self.index.set_num_threads(1)

    def add(self, rows, ids):
        self.index.add_items(rows, ids, num_threads=1, replace_deleted=True)

    def remove(self, ids):
        for i in ids:
            self.index.mark_deleted(i)

    def search(self, queries):
        return self.index.knn_query(queries, k=K, num_threads=1)[0].astype(np.int64)

    def save(self, path):
        self.index.save_index(path)

    def load(self, path):
        self.index = self.hnswlib.Index(space="l2", dim=self.dim)
        self.index.load_index(path, max_elements=self.most)
        self.index.set_ef(100)


class Usearch:
    def __init__(self, dim):
        self.index = importlib.import_module("usearch.index").Index(
            ndim=dim, metric="l2sq", dtype="f32", connectivity=16, expansion_add=128, expansion_search=100
        )

    def add(self, rows, ids):
        self.index.add(ids, rows, threads=1)

    def remove(self, ids):
        self.index.remove(ids, threads=1)

    def search(self, queries):
        found = self.index.search(queries, K, threads=1)
        return np.asarray(found.keys).astype(np.int64).reshape(len(queries), -1)

    def save(self, path):
        self.index.save(path)

    def load(self, path):
        self.index.load(path)


class Annoy:
    """Rows cannot come once there are trees."""

    fixed = True

    def __init__(self, dim):
        self.annoy = importlib.import_module("annoy")
        self.dim = dim
        self.index = self.annoy.AnnoyIndex(dim, "euclidean")
        self.index.set_seed(1)

    def add(self, rows, ids):
        for i, row in zip(ids, rows):
            self.index.add_item(int(i), row)
        self.index.build(20, n_jobs=1)

    def search(self, queries):
        return np.array([self.index.get_nns_by_vector(q, K, search_k=2000) for q in queries])

    def save(self, path):
        self.index.save(path)

    def load(self, path):
        self.index = self.annoy.AnnoyIndex(self.dim, "euclidean")
        self.index.load(path)


def arms(rows):
    """Name: how an empty index is made."""
    dim = rows.shape[1]
    return {
        "dci flat": lambda: Dci(dim, "flat"),
        "dci pdci": lambda: Dci(dim, "pdci"),
        "dci mdci, 4-bit codes": lambda: Dci(dim, "mdci", sketch_bits=4, promotion_prob=0.05, top_nodes=16),
        "faiss IVF": lambda: Faiss(dim, "IVF16,Flat", rows),
        "faiss HNSW": lambda: Faiss(dim, "HNSW16"),
        "hnswlib": lambda: Hnswlib(dim, 4 * len(rows)),
        "usearch": lambda: Usearch(dim),
        "annoy": lambda: Annoy(dim),
    }


# --- processes ------------------------------------------------------------

OUTCOMES = ("refused", "same", "other answers", "memory", "crash", "hang")


def memory_of(column):
    """Bytes of this process: 0 mapped, 1 resident."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[column]) * os.sysconf("SC_PAGE_SIZE")


def isolated(work, seconds):
    """work() in a child: what it returned, or "crash", "hang", "memory"."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        devnull = os.open(os.devnull, os.O_WRONLY)
        os.dup2(devnull, 1)
        os.dup2(devnull, 2)
        used = memory_of(0)
        resource.setrlimit(resource.RLIMIT_AS, (used + 4 * GIB, used + 4 * GIB))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))  # on a busy machine all takes longer
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10 * seconds)
        try:
            answer = work()
        except MemoryError:
            answer = "memory"
        except BaseException as error:  # whatever a binding raises is a refusal
            answer = "memory" if re.search("bad_alloc|[Mm]emory|bad array", str(error)) else "refused"
        os.write(write, json.dumps(answer).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        said = pipe.read()
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) in (signal.SIGALRM, signal.SIGXCPU) else "crash"
    return json.loads(said) if said else "crash"


# --- damaged files ------------------------------------------------------------


def damaged(data, chance):
    """A copy that is changed in one place."""
    data = bytearray(data)
    at = chance.randrange(min(len(data), 512) if chance.random() < 0.5 else len(data))
    how = chance.randrange(8)
    if how == 0:
        data[at] ^= 1 << chance.randrange(8)
    elif how == 1:
        data[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF))
    elif how in (2, 3):
        word = chance.choice((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 20, chance.randrange(1 << 32)))
        data[at : at + 4] = struct.pack("<I", word)[: len(data) - at]
    elif how == 4:
        word = chance.choice((0, 1 << 31, 1 << 40, 1 << 62, (1 << 64) - 1))
        data[at : at + 8] = struct.pack("<Q", word)[: len(data) - at]
    elif how == 5:
        del data[at:]
    elif how == 6:
        n = min(chance.randrange(1, 65), len(data) - at)
        other = chance.randrange(len(data) - n + 1)
        data[at : at + n] = data[other : other + n]
    else:
        n = min(chance.randrange(1, 257), len(data) - at)
        data[at : at + n] = bytes(n)
    return bytes(data)


HEADER = 48  # bytes of a file of dci before the table of sections
CRC32C = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    CRC32C.append(_byte)


def crc32c(data):
    if fast_crc32c:
        return fast_crc32c(bytes(data))
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF


def sealed(data):
    """docs/format.md: the checksums of all sections, of their table, and of the header."""
    if len(data) < HEADER:
        return data
    data = bytearray(data)
    n = min(struct.unpack_from("<I", data, 24)[0], (len(data) - HEADER) // 32)
    for entry in range(HEADER, HEADER + 32 * n, 32):
        offset, length = struct.unpack_from("<QQ", data, entry + 8)
        if offset + length <= len(data):
            struct.pack_into("<I", data, entry + 24, crc32c(data[offset : offset + length]))
    struct.pack_into("<I", data, 40, crc32c(data[HEADER : HEADER + 32 * n]))
    struct.pack_into("<I", data, 44, crc32c(data[:44]))
    return bytes(data)


def ask_file(make, path, queries, wanted):
    def work():
        index = make()
        index.load(path)
        found = index.search(queries)
        return "same" if found.shape == wanted.shape and np.array_equal(found, wanted) else "other answers"

    return work


def mutate(make, rows, args, folder, seal=False):
    path = os.path.join(folder, "index")
    index = make()
    index.add(rows, np.arange(len(rows)))
    index.save(path)
    index.load(path)
    queries = rows[:: max(1, len(rows) // 40)]
    wanted = index.search(queries)
    with open(path, "rb") as file:
        whole = file.read()
    if seal and sealed(whole) != whole:
        sys.exit("the file's checksums are not where this script looks for them")
    chance = random.Random(args.seed)
    counts = dict.fromkeys(OUTCOMES, 0)
    counts["bytes"] = len(whole)
    for _ in range(args.mutations):
        changed = whole
        while changed == whole:
            changed = damaged(whole, chance)
            changed = sealed(changed) if seal else changed
        with open(path, "wb") as file:
            file.write(changed)
        counts[isolated(ask_file(make, path, queries, wanted), args.seconds)] += 1
    return counts


# --- adds beside searches ------------------------------------------------------------


def beside(make, rows, batch):
    """In a child: shares of rows that are not found, and errors."""

    def work():
        index = make()
        order = np.random.default_rng(1).permutation(len(rows))
        first = len(rows) // 10
        index.add(rows[order[:first]], np.arange(first))
        there, over = [first], threading.Event()
        asked, missed, errors = [0, 0], [0, 0], [0, 0]

        def search(me):
            random_ids = np.random.default_rng(me)
            while not over.is_set():
                ids = random_ids.integers(0, there[0], 16)
                try:
                    found = index.search(rows[order[ids]])
                    missed[me] += int((found != ids[:, None]).all(axis=1).sum())
                except Exception:
                    errors[me] += 1
                asked[me] += len(ids)

        threads = [threading.Thread(target=search, args=(i,)) for i in range(2)]
        for thread in threads:
            thread.start()
        for at in range(first, len(rows), batch):
            ids = np.arange(at, min(at + batch, len(rows)))
            index.add(rows[order[ids]], ids)
            there[0] = int(ids[-1]) + 1
        over.set()
        for thread in threads:
            thread.join()
        found = index.search(rows[order])
        after = int((found != np.arange(len(rows))[:, None]).all(axis=1).sum())
        return [sum(missed) / max(1, sum(asked)), after / len(rows), sum(errors)]

    return work


def stress(make, rows, args):
    runs = [isolated(beside(make, rows, 50), 20 * args.seconds) for _ in range(args.rounds)]
    good = [run for run in runs if isinstance(run, list)]
    return {
        "runs": args.rounds,
        "crash": runs.count("crash"),
        "hang": runs.count("hang"),
        "refused": runs.count("refused"),
        "errors": sum(run[2] for run in good),
        "beside": float(np.mean([run[0] for run in good])) if good else None,
        "after": float(np.mean([run[1] for run in good])) if good else None,
    }


# --- NaN ------------------------------------------------------------


def found_share(index, rows):
    return float((index.search(rows) == np.arange(len(rows))[:, None]).any(axis=1).mean())


def with_nan(make, rows):
    """What the add said, the share of good rows that are found before and after, what the query said."""

    def work():
        index = make()
        half = len(rows) // 2
        if not getattr(index, "fixed", False):
            index.add(rows[:half], np.arange(half))
        bad = rows[half:].copy()
        bad[len(bad) // 2, 3] = np.nan
        before = 1.0 if getattr(index, "fixed", False) else found_share(index, rows[:half])
        try:
            if getattr(index, "fixed", False):
                bad = np.concatenate([rows[:half], bad])
                index.add(bad, np.arange(len(bad)))
            else:
                index.add(bad, np.arange(half, len(rows)))
            add = "accepted"
        except Exception as error:
            add = "refused, row named" if re.search(rf"row {len(bad) // 2}\b", str(error)) else "refused"
        after = found_share(index, rows[:half]) if add == "accepted" or before < 1 else before
        query = rows[:1].copy()
        query[0, 0] = np.nan
        try:
            index.search(query)
            asked = "answered"
        except Exception:
            asked = "refused"
        return [add, before, after, asked]

    return work


# --- removed rows ------------------------------------------------------------


def churn(make, rows, n_rounds):
    def work():
        index, began = make(), memory_of(1)
        first, ids = None, np.arange(len(rows))
        for turn in range(n_rounds):
            shuffled = rows[np.random.default_rng(turn).permutation(len(rows))] * np.float32(1 + turn / 1000)
            index.add(shuffled, ids)
            if first is None:
                first = max(1, memory_of(1) - began)
            if turn + 1 < n_rounds:
                index.remove(ids)
                ids = ids + len(rows)
        found = float((index.search(shuffled) == ids[:, None]).any(axis=1).mean())
        return [(memory_of(1) - began) / first, found]

    return work


# --- the table ------------------------------------------------------------


def percent(x):
    return "-" if x is None else f"{100 * x:.2f} %"


def row(*cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def head(*cells):
    return ["", row(*cells), "|---" * len(cells) + "|"]


def beside_row(name, s):
    if s is None:
        return row(name, "not offered", "", "", "", "", "")
    errors = s["errors"] + s["refused"]
    return row(name, s["runs"], s["crash"], s["hang"], errors, percent(s["beside"]), percent(s["after"]))


def nan_row(name, nan, removed):
    nan = [nan, "", ""] if isinstance(nan, str) else [nan[0], f"{percent(nan[1])}, {percent(nan[2])}", nan[3]]
    if removed is None:
        removed = ["not offered", ""]
    elif isinstance(removed, str):
        removed = [removed, ""]
    else:
        removed = [f"{removed[0]:.1f} x", percent(removed[1])]
    return row(name, *nan, *removed)


def tables(report):
    arms_of = report["arms"].items()
    lines = [
        f"{report['date']}; {', '.join(report['versions'])}; {report['rows']:,} rows of {report['dim']} elements, "
        "one thread each."
    ]
    lines += head("damaged files", "files", *OUTCOMES)
    for name, arm in arms_of:
        for key, label in (("files", name), ("sealed", f"{name}, checksums made right")):
            if key in arm:
                lines.append(row(label, f"{report['mutations']:,}", *(f"{arm[key][o]:,}" for o in OUTCOMES)))
    lines += head("adds beside searches", "runs", "crash", "hang", "errors", "missed beside", "missed after")
    lines += [beside_row(name, arm.get("beside")) for name, arm in arms_of]
    lines += head("NaN and removed rows", "NaN added", "good rows found before, after", "NaN asked",
                  "memory, last round / first", "found in the last")
    lines += [nan_row(name, arm["nan"], arm.get("churn")) for name, arm in arms_of]
    return "\n".join(lines) + "\n"


def versions():
    named = []
    for package in ("dci", "faiss-cpu", "hnswlib", "usearch", "annoy"):
        try:
            named.append(f"{package} {metadata.version(package)}")
        except metadata.PackageNotFoundError:
            named.append(f"{package} as built" if package == "dci" else f"{package} not installed")
    return named


def measure(name, make, rows, args, folder):
    kind = type(make())
    fixed = getattr(kind, "fixed", False)
    arm = {"files": mutate(make, rows[: args.n], args, folder)}
    if kind is Dci:
        arm["sealed"] = mutate(make, rows[: args.n], args, folder, seal=True)
    print(f"{name}: files {arm['files']}" + (f", sealed {arm['sealed']}" if "sealed" in arm else ""), flush=True)
    if not fixed:
        arm["beside"] = stress(make, rows, args)
    arm["nan"] = isolated(with_nan(make, rows[: 2 * args.n]), 10 * args.seconds)
    if not fixed and "HNSW" not in name:
        arm["churn"] = isolated(churn(make, rows, 20), 30 * args.seconds)
    print(f"{name}: beside {arm.get('beside')}, NaN {arm['nan']}, churn {arm.get('churn')}", flush=True)
    return arm


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", required=True, help="keys, .npy")
    parser.add_argument("--n", type=int, default=500, help="rows of the files that are damaged")
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5, help="runs of adds beside searches")
    parser.add_argument("--seconds", type=int, default=10, help="a load that takes longer hangs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="names of arms, with commas between them")
    parser.add_argument("--json", help="where figures are kept; libraries that it has already are not run again")
    parser.add_argument("--into", help="a page with <!-- table reliability --> in it")
    args = parser.parse_args()
    rows = np.ascontiguousarray(np.load(args.rows).astype(np.float32))
    asked = {"versions": versions(), "rows": len(rows), "dim": rows.shape[1], "n": args.n, "mutations": args.mutations,
             "rounds": args.rounds, "seed": args.seed}
    report = {"date": datetime.date.today().isoformat(), **asked, "seconds": 0, "arms": {}}
    if args.json and os.path.exists(args.json):
        with open(args.json, encoding="utf-8") as file:
            earlier = json.load(file)
        if any(earlier.get(key) != value for key, value in asked.items()):
            sys.exit(f"{args.json} has figures of another run")
        report = earlier
    with tempfile.TemporaryDirectory() as folder:
        for name, make in arms(rows).items():
            if name in report["arms"] or (args.only and name.split(",")[0] not in args.only.split(",")):
                continue
            began = time.time()
            try:
                make()
            except ImportError:
                continue
            report["arms"][name] = measure(name, make, rows, args, folder)
            report["seconds"] += round(time.time() - began)
            if args.json:
                with open(args.json, "w", encoding="utf-8") as file:
                    json.dump(report, file, indent=1)
    table = tables(report)
    print(table)
    if args.into:
        with open(args.into, encoding="utf-8") as file:
            page = file.read()
        marks = r"(<!-- table reliability -->\n).*?(<!-- end of table -->)"
        if not re.search(marks, page, re.S):
            sys.exit(f"{args.into} has no <!-- table reliability -->")
        with open(args.into, "w", encoding="utf-8") as file:
            file.write(re.sub(marks, lambda m: m[1] + table + m[2], page, flags=re.S))


if __name__ == "__main__":
    main()
