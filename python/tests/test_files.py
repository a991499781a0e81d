# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Files that cannot be opened are Python's own exceptions, and file objects are files."""

from __future__ import annotations

import errno
import gzip
import io
import os
import pickle
import resource
import signal
import socket
import threading

import numpy as np
import pytest
from conftest import normal
from kv_model import Text, kv_of, started

import dci


def made(n=50, dim=8, **options):
    index = dci.Index(dim, **options)
    index.add(normal(n, dim))
    return index


def saved_kv(path):
    kv, name = started(Text(100))
    kv.save(name, path)


# Everything that opens a path for reading, and for writing.
READERS = {
    "Index.load": dci.Index.load,
    "Index.map": dci.Index.map,
    "KVCache.load": lambda path: kv_of().load(path),
}
WRITERS = {"Index.save": lambda path: made().save(path), "KVCache.save": saved_kv}


def refused_by(call, path, kind, number):
    with pytest.raises(kind) as caught:
        call(path)
    error = caught.value
    assert isinstance(error, dci.FileError) and isinstance(error, dci.DciError)
    assert (error.errno, error.filename, error.strerror) == (number, os.fspath(path), os.strerror(number))
    assert error.name in ("DCI_ERR_IO", "DCI_ERR_INVALID") and os.path.basename(os.fspath(path))[-100:] in str(error)
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), again.errno, again.filename, str(again)) == (type(error), number, error.filename, str(error))


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_cannot_be_read_says_why(name, tmp_path):
    call = READERS[name]
    refused_by(call, tmp_path / "absent", FileNotFoundError, errno.ENOENT)
    refused_by(call, str(tmp_path / "no folder" / "file"), FileNotFoundError, errno.ENOENT)
    (tmp_path / "plain").write_bytes(b"x")
    refused_by(call, tmp_path / "plain" / "file", NotADirectoryError, errno.ENOTDIR)
    refused_by(call, tmp_path, IsADirectoryError, errno.EISDIR)
    with pytest.raises(ValueError, match="a directory"):  # as before 0.2
        call(tmp_path)
    (tmp_path / "round").symlink_to("round")
    refused_by(call, tmp_path / "round", OSError, errno.ELOOP)
    refused_by(call, tmp_path / ("x" * 300), OSError, errno.ENAMETOOLONG)
    with pytest.raises(dci.FormatError):
        call(tmp_path / "plain")


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_that_cannot_be_written_says_why(name, tmp_path):
    call = WRITERS[name]
    refused_by(call, tmp_path / "no folder" / "file", FileNotFoundError, errno.ENOENT)
    refused_by(call, tmp_path, IsADirectoryError, errno.EISDIR)
    refused_by(call, tmp_path / ("x" * 300), OSError, errno.ENAMETOOLONG)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read and write everything")
def test_a_permission_that_is_missing(tmp_path):
    made().save(tmp_path / "index")
    (tmp_path / "index").chmod(0)
    refused_by(dci.Index.load, tmp_path / "index", PermissionError, errno.EACCES)
    tmp_path.chmod(0o500)
    refused_by(made().save, tmp_path / "other", PermissionError, errno.EACCES)
    tmp_path.chmod(0o700)


def test_a_disk_that_is_full_says_so(tmp_path):
    """The limit of a file's size stands for it: it fails the same write."""
    index, former = made(5000, 64), resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, former[1]))
        refused_by(index.save, tmp_path / "index", OSError, errno.EFBIG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, former)
        signal.signal(signal.SIGXFSZ, ignored)
    assert list(tmp_path.iterdir()) == []


def test_the_errno_of_one_failure_is_not_that_of_the_next(tmp_path):
    with pytest.raises(FileNotFoundError):
        dci.Index.load(tmp_path / "absent")
    with pytest.raises(dci.FormatError) as caught:
        dci.Index.from_bytes(b"no index")
    assert not isinstance(caught.value, OSError)
    with pytest.raises(dci.InvalidError) as refused:
        dci.Index(0)
    assert not isinstance(refused.value, OSError)


@pytest.mark.parametrize("bad", [None, 3, 2.5, ["a"], object()])
def test_what_is_neither_path_nor_file_is_refused_by_type(bad):
    for call in (made().save, *READERS.values()):
        with pytest.raises(TypeError, match=f"path is {type(bad).__name__}, wanted the path of a file"):
            call(bad)


# --- file objects ----------------------------------------------------------------------------------------------------

INDEXES = {
    "flat": made,
    "empty": lambda: dci.Index(8),
    "tree with codes": lambda: made(300, 16, kind="mdci", sketch_bits=4),
    "several pieces": lambda: made(6000, 128, dtype="float32"),
    "borrowed": lambda: made(storage="borrowed"),
}


@pytest.mark.parametrize("name", INDEXES)
def test_a_file_object_gets_and_gives_the_bytes_of_a_file(name, tmp_path):
    index = INDEXES[name]()
    buffer = io.BytesIO(b"before")
    buffer.seek(6)
    index.save(buffer)
    buffer.write(b"after")
    assert buffer.getvalue() == b"before" + index.to_bytes() + b"after"
    buffer.seek(6)
    again = dci.Index.load(buffer, context=dci.Context(threads=1))
    assert buffer.read() == b"after"  # no byte too many
    assert again.to_bytes() == index.to_bytes() and again.context.threads == 1
    with open(tmp_path / "plain", "wb") as file:
        index.save(file)
    assert dci.Index.load(tmp_path / "plain").to_bytes() == index.to_bytes()
    with open(tmp_path / "raw", "wb", buffering=0) as file:
        index.save(file)
    with open(tmp_path / "raw", "rb", buffering=0) as file:
        assert dci.Index.load(file).to_bytes() == index.to_bytes()
    with gzip.open(tmp_path / "zipped", "wb", compresslevel=1) as file:
        index.save(file)
    with gzip.open(tmp_path / "zipped") as file:
        assert dci.Index.load(file).to_bytes() == index.to_bytes()


class Dribble(io.RawIOBase):
    """A file that takes and gives a few bytes at a time, in lengths that change."""

    def __init__(self, data=b""):
        self.data, self.at, self.turn = bytearray(data), 0, 0

    def length(self, n):
        self.turn += 1
        return min(n, 1 + self.turn * 997 % 5000)

    def write(self, data):
        n = self.length(len(data))
        self.data += data[:n]
        return n

    def read(self, n=-1):
        piece = bytes(self.data[self.at : self.at + self.length(n)])
        self.at += len(piece)
        return piece


def test_short_writes_and_reads_are_gone_on_with():
    index = made(500, 32)
    file = Dribble()
    index.save(file)
    assert bytes(file.data) == index.to_bytes()
    assert dci.Index.load(Dribble(file.data)).to_bytes() == index.to_bytes()


def test_a_pipe_between_two_threads_carries_an_index():
    index = made(3000, 64)
    left, right = socket.socketpair()

    def send():
        with left, left.makefile("wb") as file:
            index.save(file)

    sender = threading.Thread(target=send)
    sender.start()
    with right, right.makefile("rb") as file:
        again = dci.Index.load(file)
    sender.join()
    assert again.to_bytes() == index.to_bytes()


class Only:
    """An object with one method, as clients of object stores have."""

    def __init__(self, **methods):
        self.__dict__.update(methods)


def test_a_write_that_returns_nothing_took_all():
    pieces = []
    index = made(6000, 128)
    index.save(Only(write=pieces.append))
    assert b"".join(pieces) == index.to_bytes() and max(map(len, pieces)) <= 1 << 20
    assert dci.Index.load(Only(read=io.BytesIO(b"".join(pieces)).read)).count == 6000


@pytest.mark.parametrize(
    "raised", [OSError(errno.ENOSPC, "full"), KeyError("bucket"), KeyboardInterrupt(), ZeroDivisionError()]
)
def test_what_a_file_object_raises_comes_out_unchanged(raised):
    calls = []

    def fail(given):
        calls.append(given)
        if len(calls) > 1:
            raise raised
        return None if isinstance(given, bytes) else data[:given]

    index = made(6000, 128)
    data = index.to_bytes()
    for call in (lambda: index.save(Only(write=fail)), lambda: dci.Index.load(Only(read=fail))):
        calls.clear()
        with pytest.raises(type(raised)) as caught:
            call()
        assert caught.value is raised and len(calls) == 2
    assert index.to_bytes() == data and index.search(normal(1, 128), 3)[0].shape == (1, 3)


def test_a_file_object_that_ends_early_is_a_damaged_file():
    data = made().to_bytes()
    for n in (0, 5, 47, 48, 200, len(data) - 1):
        with pytest.raises(dci.FormatError, match=f"ended after {n} bytes|damaged|no file"):
            dci.Index.load(io.BytesIO(data[:n]))
    with pytest.raises(dci.FormatError):
        dci.Index.load(io.BytesIO(b"x" * 1000))


def test_file_objects_for_text_are_refused_by_name(tmp_path):
    index = made()
    with open(tmp_path / "text", "w+") as file:
        for call in (index.save, dci.Index.load):
            for given in (file, io.StringIO()):
                with pytest.raises(
                    TypeError, match=f"the file object is a {type(given).__name__}, which takes text: open it in bin"
                ):
                    call(given)
    with pytest.raises(TypeError, match="returned text: open it in binary mode"):
        dci.Index.load(Only(read=lambda n: "x" * n))
    for mode, call in (("rb", index.save), ("wb", dci.Index.load)):
        with open(tmp_path / "text", mode) as file, pytest.raises(io.UnsupportedOperation):
            call(file)
    closed = io.BytesIO()
    closed.close()
    for call in (index.save, dci.Index.load):
        with pytest.raises(ValueError, match="closed"):
            call(closed)


@pytest.mark.parametrize("n", [0, -1, 10**9, "many"])
def test_a_file_object_that_miscounts_is_refused(n):
    with pytest.raises((OSError, TypeError)):
        made().save(Only(write=lambda _data: n))
    with pytest.raises(OSError, match="at most"):
        dci.Index.load(Only(read=lambda n: b"x" * (n + 1)))
    with pytest.raises(BlockingIOError):
        dci.Index.load(Only(read=lambda _n: None))


def test_an_index_cannot_be_used_from_inside_its_own_save():
    index, said = made(), []

    def write(_data):
        try:
            index.search(np.zeros(8, np.float32))
        except dci.BusyError as error:
            said.append(error)

    index.save(Only(write=write))
    assert said


def test_a_mapped_index_can_be_told(tmp_path):
    index = made()
    index.save(tmp_path / "index")
    mapped, loaded = dci.Index.map(tmp_path / "index"), dci.Index.load(tmp_path / "index")
    assert mapped.is_mapped and not loaded.is_mapped and not index.is_mapped
    assert "mapped" in repr(mapped) and "mapped" not in repr(loaded) and "mapped" not in repr(index)
    assert not pickle.loads(pickle.dumps(mapped)).is_mapped
    buffer = io.BytesIO()
    mapped.save(buffer)
    assert buffer.getvalue() == index.to_bytes()
