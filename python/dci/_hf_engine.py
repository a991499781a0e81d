# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What the caches of a transformers model on a device share: a GPUKVCache, its places, and the lock of a forward."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Callable

from ._errors import DciError, OutOfMemoryError
from .gpu import GPU, GPUKVCache

if TYPE_CHECKING:
    from ._hf_device import DeviceSession


def host_bytes() -> int | None:
    """Of memory that could be taken now; None: the system does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":") for line in file)
        free = int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
    try:  # a container's limit
        folder = "/sys/fs/cgroup/memory"
        with open(f"{folder}.max", encoding="ascii") as most, open(f"{folder}.current", encoding="ascii") as now:
            return min(free, int(most.read()) - int(now.read()))
    except (OSError, ValueError):
        return free


def check_host_memory(n_tokens: int, token_bytes: int, there: int) -> None:
    """Refuses tokens for which host memory will not suffice. there: bytes that are taken for some of them already."""
    needed, free = n_tokens * token_bytes, host_bytes()
    if free is not None and needed > free + there:
        raise OutOfMemoryError(
            f"{n_tokens} tokens of {token_bytes} bytes need {needed / 2**30:.1f} GiB of host memory, but there are "
            f"{(free + there) / 2**30:.1f}: ask for fewer tokens (max_new_tokens, max_tokens, max_sequences)"
        )


class Shared:
    """A GPUKVCache that caches of one model share, and the graphs captured on it."""

    def __init__(self, kv: GPUKVCache, scaling: float) -> None:
        self.kv, self.scaling = kv, scaling
        self.sessions: weakref.WeakSet[DeviceSession] = weakref.WeakSet()
        self.n_open = 0  # sequences
        self.n_placed = 0  # of these, on the device
        self.graphs: dict[Any, Any] = {}  # of _hf_graph.py
        self.warm: set[Any] = set()  # what has run once
        self.pool: Any = None  # the graphs' memory
        self.armed: tuple[DeviceSession, int] | None = None  # whose next step is begun already, and what it is sized for
        self.rest = 0  # steps that are not begun early, since several sessions take turns

    def arm(self, session: DeviceSession, bound: int, replays: bool) -> None:
        """Begins the next step of a session while the device computes this one. What cannot be had is asked for in time."""
        if self.rest > 0:
            self.rest -= 1
            return
        try:
            self.kv.reserve(session.sequences, 1)
            if replays:
                self.kv.replay(bound)
            self.armed = session, bound
        except DciError:
            if self.kv.in_step:
                self.kv.step_abort()

    def disarm(self, rest: int = 0) -> None:
        """Takes back a step that was begun early."""
        if self.armed is not None:
            self.armed, self.rest = None, rest
            self.kv.step_abort()

    def make_room(self, n: int, keep: DeviceSession | None) -> None:
        """Has n places of the device free: the sessions that were used longest ago are swapped out, `keep` never."""
        self.disarm()
        idle = sorted((one for one in self.sessions if one.placed and one is not keep), key=lambda one: one.used)
        for session in idle:
            if self.kv.max_sequences - self.n_placed >= n:
                return
            session.swap_out()

    def close(self) -> None:
        """Gives everything back."""
        self.armed = None
        self.graphs.clear()
        self.kv.close()


class Engine:
    """What the caches of one model share: the GPU, the KV cache that new sequences are opened in, and the lock of a forward.

    make        a GPUKVCache for so many sequences and tokens, and of this scale
    token_bytes of keys and values, of one token in all layers
    max_tokens, max_sequences
                what there is room for at least; more where a generation asks for more
    """

    def __init__(
        self,
        gpu: GPU,
        make: Callable[[int, int, float], GPUKVCache],
        token_bytes: int,
        max_tokens: int,
        max_sequences: int,
    ) -> None:
        self.gpu, self.make, self.token_bytes = gpu, make, token_bytes
        self.max_tokens, self.max_sequences = max_tokens, max_sequences
        self.lock = threading.RLock()
        self.generating = 0  # calls of generate() under way
        self.clock = itertools.count()
        self.current: Shared | None = None
        self.dropped: deque[tuple[Shared, list[int], bool]] = deque()  # of caches that nobody has any more

    def acquire(self, batch: int, n_sequences: int, n_tokens: int, scaling: float) -> Shared:
        """A KV cache with n_sequences free places, for a batch of sequences of that many tokens, if host memory suffices."""
        self.collect()
        check_host_memory(batch * n_tokens, self.token_bytes, self.free_bytes())
        now = self.current
        if now is not None and now.scaling == scaling:
            if now.kv.max_tokens >= n_tokens and now.kv.max_sequences >= n_sequences:
                now.make_room(n_sequences, None)
                return now
            n_sequences, n_tokens = max(n_sequences, now.kv.max_sequences), max(n_tokens, now.kv.max_tokens)
        if now is not None and now.n_open == 0:  # before memory is asked for again
            self.current = None
            now.close()
        made = self.make(max(n_sequences, self.max_sequences), max(n_tokens, self.max_tokens), scaling)
        self.current = Shared(made, scaling)
        return self.current

    def free_bytes(self) -> int:
        """Of the KV cache's memory for keys and values, without any."""
        if self.current is None:
            return 0
        info = self.current.kv.host_info()
        return info.row_bytes * info.n_free_blocks // max(info.n_blocks, 1)

    def release(self, shared: Shared, sequences: Iterable[int], placed: bool) -> None:
        """Ends sequences. The last one of a KV cache that another has replaced closes it."""
        shared.disarm()
        for sequence in list(sequences):
            shared.kv.free(sequence)
            shared.n_open -= 1
            shared.n_placed -= placed
        if shared is not self.current and shared.n_open == 0:
            shared.close()

    def collect(self) -> None:
        """Ends the sequences of caches that were dropped without being closed."""
        while self.dropped:
            self.release(*self.dropped.popleft())

    def close(self) -> None:
        """Gives back what no sequence uses."""
        with self.lock:
            self.collect()
            now, self.current = self.current, None
            if now is not None:
                now.disarm()
            if now is not None and now.n_open == 0:
                now.close()
