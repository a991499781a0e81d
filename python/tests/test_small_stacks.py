# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Calls in threads with 48 KiB of stack. They run in a child, which a stack that is too small would end."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import sys, threading
import numpy as np
sys.path[:] = {path!r}
import dci

rows = np.random.default_rng(0).standard_normal((2000, 64), dtype=np.float32)
threading.stack_size(48 * 1024)


def run(function, *arguments, **options):
    errors = []

    def work():
        try:
            function(*arguments, **options)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


for metric in "l2", "ip", "cosine":
    for bits in 0, 4:
        index = dci.Index(64, metric, kind={kind!r}, sketch_bits=bits)
        run(index.add, rows[:1900])
        run(index.add, rows[1900:])
        run(index.search, rows[0], k=5)
        run(index.search, rows[:50], k=5, **(dict(guarantee=0.9) if bits else dict()))
        run(index.search_group, rows[:48].reshape(6, 8, 64), 5, union=True)
        run(index.range_search, rows[:20], 60.0 if metric == "l2" else 0.5)
        run(index.tune, rows[:50], 5, 0.9)
        if bits:
            run(index.fit, rows[:50])
run(dci.kmeans, rows, 20)
print("done")
"""


@pytest.mark.parametrize("kind", ["flat", "pdci", "mdci"])
def test_calls_run_on_small_stacks(kind: str) -> None:
    program = PROGRAM.format(path=sys.path, kind=kind)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
