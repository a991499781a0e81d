# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Keeps Python exceptions out of C stack frames, lets Ctrl-C stop a long call, and makes calls take turns where
the library wants some to run alone."""

from __future__ import annotations

import signal
import threading
from contextlib import AbstractContextManager
from itertools import count
from types import FrameType
from typing import Any, Callable, Optional

from ._structs import FILTER_FN, PROGRESS_FN, Progress

# Multiply-adds from which a search is worth watching: some tens of milliseconds on one core. An exception of a shorter one
# comes when it is over, and costs its result alone.
WATCHED_WORK = 1 << 32
# The same for an add, with 64 for each element: a millisecond or two. When an exception of a shorter one comes, its rows are
# in. Watching costs some ten microseconds.
WATCHED_ADD = 1 << 26

# All that could have a handler, and how to ask for it: the functions of `signal` make an enumerator of each answer, which
# takes twenty times as long.
_SIGNALS = tuple(int(number) for number in signal.valid_signals())
_plain: Any = getattr(signal, "_signal", signal)

Handler = Callable[[int, Optional[FrameType]], Any]


class CallGuard:
    """Wraps one library call that runs Python callbacks.

    An exception in a callback cannot travel through C: it is kept, the call is cancelled, and `raise_kept` raises it when
    the call is back. Signal handlers are such callbacks too, because Python runs them inside the next Python function,
    here a callback; a KeyboardInterrupt raised there would be printed and lost. So while the call runs, each Python
    handler is replaced by one that keeps its exception. Only the main thread does this, as only it handles signals.
    """

    def __init__(self, on_progress: Callable[[int, int], object] | None = None) -> None:
        """on_progress: gets the work done and the whole at each report of progress; a true answer cancels the call."""
        self._on_progress = on_progress
        self.error: BaseException | None = None
        self._replaced: list[tuple[int, Handler, Handler]] = []  # signal, the handler it had, the one that keeps
        self.progress = Progress(None, PROGRESS_FN(self._report))

    def _report(self, _ctx: int | None, done: int, total: int) -> int:
        if self._on_progress is None or self.error is not None:
            return self.error is not None
        try:
            return 1 if self._on_progress(done, total) else 0
        except BaseException as error:
            self.error = error
            return 1

    def filter(self, allows: Callable[[int], object]) -> Any:
        """The C callback for a Python filter; once it has failed it says no without asking."""

        def allowed(_ctx: int | None, row_id: int) -> int:
            if self.error is not None:
                return 0
            try:
                return 1 if allows(row_id) else 0
            except BaseException as error:
                self.error = error
                return 0

        return FILTER_FN(allowed)

    def _keeping(self, handler: Handler) -> Handler:
        def handle(number: int, frame: FrameType | None) -> None:
            try:
                handler(number, frame)
            except BaseException as error:
                self.error = error

        return handle

    def __enter__(self) -> CallGuard:
        if threading.current_thread() is not threading.main_thread():
            return self
        try:
            for number in _SIGNALS:
                handler = _plain.getsignal(number)
                if callable(handler):
                    keeping = self._keeping(handler)
                    self._replaced.append((number, handler, keeping))
                    _plain.signal(number, keeping)
        except BaseException as error:
            # threading takes the thread that imported it first for the main one, which handles signals, and may be wrong.
            refused = isinstance(error, ValueError) and not any(_plain.getsignal(n) is k for n, _, k in self._replaced)
            self._restore()
            if not refused:
                raise
        return self

    def __exit__(self, *_: object) -> None:
        self._restore()
        # The callback refers to this object and it to the callback: without this only the cycle collector would free both.
        self.progress = Progress()

    def _restore(self) -> None:
        try:
            while self._replaced:
                number, handler, keeping = self._replaced[-1]
                if _plain.getsignal(number) is keeping:  # else a handler has replaced it
                    _plain.signal(number, handler)
                self._replaced.pop()
        finally:
            # A handler that is back already may raise between two of these lines; the others must be put back all the same.
            if self._replaced:
                self._restore()

    def raise_kept(self) -> None:
        if self.error is not None:
            error, self.error = self.error, None
            raise error


_threads = threading.local()
_numbers = count()


class Turns:
    """For objects whose functions the library does not guard against each other: some may run side by side, others alone.

    A thread that may run concurrently with others holds one of eight locks, one that runs alone all of them; from the ninth
    thread on two may share a lock, and then wait for each other. Plain locks in plain `with` statements, because an
    exception of a signal handler cannot come between taking them and the promise to release them.
    """

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks = tuple(threading.RLock() for _ in range(8))

    def shared(self) -> AbstractContextManager[Any]:
        """Held during calls that may run concurrently with others."""
        try:
            number: int = _threads.number
        except AttributeError:
            number = _threads.number = next(_numbers) % 8
        return self._locks[number]

    def alone(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Calls a function that must run alone."""
        a, b, c, d, e, f, g, h = self._locks
        with a, b, c, d, e, f, g, h:
            return function(*arguments)
