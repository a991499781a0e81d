# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""A model's cache as a folder (dci.transformers): a file for each row of the batch, and cache.json, which names them.

cache.json holds {"crc": of the rest, "cache": {..}}: the model's config, the KV cache's shape, and what a Session knows.
Rows whose prompt has ended are files of dci_kv_save, alike on CPU and GPU. Of prompts that have not, there are keys and
values as they are stored, [layers, heads, tokens, dim] as .npy with a checksum per layer, and the queries seen last.

Files get names that are not used again, and cache.json, which comes last, takes the place of an older one: at any moment the
folder holds the old cache or the new one.
"""

from __future__ import annotations

import json
import os
import uuid
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ._errors import DciError, FileError, FormatError, InvalidError, UnsupportedError, error_of
from ._hf_states import DTYPES, Rows
from ._paths import Path, plain

if TYPE_CHECKING:
    from ._hf_cache import Session

_LIST, _FORMAT, _VERSION = "cache.json", "dci model cache", 1
_BITS = {"float32": np.float32, "float16": np.float16, "bfloat16": np.uint16}

# Fields of a config that say nothing about keys and values.
_IGNORED = {
    "architectures",
    "dtype",
    "id2label",
    "label2id",
    "num_labels",
    "output_attentions",
    "output_hidden_states",
    "problem_type",
    "quantization_config",
    "return_dict",
    "torch_dtype",
    "transformers_version",
    "use_cache",
}


class Shape(NamedTuple):
    """Of the KV cache that rows were in."""

    n_layers: int
    n_query_heads: int
    n_kv_heads: int
    dim_k: int
    dim_v: int
    dtype: str
    query_dtype: str


def config_of(config: Any) -> dict[str, Any]:
    """What a config says about keys and values, as JSON has it."""
    fields = {
        name: value
        for name, value in config.to_dict().items()
        if name not in _IGNORED and not name.startswith("_") and not name.endswith("_token_id")
    }
    found: dict[str, Any] = json.loads(json.dumps(fields, default=str, sort_keys=True))
    return found


# --- writing ---------------------------------------------------------------------------------------------------------------


def save(session: Session, path: Path) -> None:
    """Writes all sequences of a session to a folder."""
    if not session.sequences:
        raise InvalidError("the cache is empty: a forward fills it before it can be saved")
    session.enter()
    try:
        session.disarm()
        if session.begun > 0:
            session.abort()  # the last forward did not come to its end
        _save(session, os.fsdecode(plain(path)))
    except OSError as error:
        raise _named(error, path) from None
    finally:
        session.leave()


def _save(session: Session, folder: str) -> None:
    before = _taken(folder)
    os.makedirs(folder, exist_ok=True)
    token, names = uuid.uuid4().hex[:12], []

    def new(name: str) -> str:
        names.append(f"{token}-{name}")
        return os.path.join(folder, names[-1])

    try:
        kv = session._kv
        shape = Shape(kv.n_layers, kv.n_query_heads, kv.n_kv_heads, kv.dim_k, kv.dim_v, kv.dtype, kv.query_dtype)
        rows: list[Any] = []
        for row, sequence in enumerate(session.sequences):
            if session.prompted:
                kv.save(sequence, new(f"{row}.kv"))
                rows.append({"file": names[-1]})
            else:
                sums = _write_rows(session, row, shape, new(f"{row}-keys.npy"), new(f"{row}-values.npy"))
                rows.append({"files": names[-2:], "crc": sums})
        cache = {
            "format": _FORMAT,
            "version": _VERSION,
            "model": config_of(session.config),
            "shape": shape._asdict(),
            "scaling": session.scaling,
            "pads": session.pads,
            "seen": session.seen,
            "prompted": session.prompted,
            "rows": rows,
            "queries": _write_queries(session, new("queries.npy")) if session.observed else None,
        }
        text = json.dumps(cache, sort_keys=True)
        with open(new(_LIST), "w", encoding="utf-8") as file:
            json.dump({"crc": zlib.crc32(text.encode()), "cache": cache}, file, sort_keys=True)
            _flush(file)
        os.replace(os.path.join(folder, names[-1]), os.path.join(folder, _LIST))
        names.pop()
        _sync(folder)
    except BaseException:
        _remove(folder, names)
        raise
    _remove(folder, before)


def _taken(folder: str) -> list[str]:
    """Files of an older cache in a folder, which a new one replaces; refuses folders of another kind."""
    if os.path.exists(folder) and not os.path.isdir(folder):
        raise InvalidError(f"{folder} is a file, wanted the folder of a cache, or the name of a new one")
    if not os.path.isdir(folder) or not os.listdir(folder):
        return []
    if not os.path.exists(os.path.join(folder, _LIST)):
        raise InvalidError(f"{folder} has files, but no {_LIST}: a cache goes to a new folder, or to that of another cache")
    try:
        return _files(_read_list(folder))
    except FormatError:
        return []


def _files(cache: dict[str, Any]) -> list[str]:
    found = [name for row in cache["rows"] for name in row.get("files", [row.get("file")])]
    return found + ([cache["queries"]["file"]] if cache["queries"] else [])


def _remove(folder: str, names: list[str]) -> None:
    for name in names:
        try:
            os.remove(os.path.join(folder, os.path.basename(name)))
        except OSError:
            continue


def _flush(file: Any) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync(folder: str) -> None:
    at = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(at)
    finally:
        os.close(at)


def _write(path: str, shape: tuple[int, ...], kind: str, pieces: Any) -> list[int]:
    """Pieces of an array, which are those of its first axis. Returns their checksums."""
    sums = []
    with open(path, "wb") as file:
        header = {"descr": np.dtype(_BITS[kind]).str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        for piece in pieces:
            data = _bits(piece).tobytes()
            sums.append(zlib.crc32(data))
            file.write(data)
        _flush(file)
    return sums


def _bits(tensor: torch.Tensor) -> npt.NDArray[Any]:
    tensor = tensor.detach().cpu().contiguous()
    bits: npt.NDArray[Any] = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return bits


def _write_rows(session: Session, row: int, shape: Shape, *paths: str) -> list[list[int]]:
    n, sequence = session.lengths()[row], session.sequences[row]
    return [
        _write(
            path,
            (shape.n_layers, shape.n_kv_heads, n, dim),
            shape.dtype,
            (session.read(layer, sequence, n)[which] for layer in range(shape.n_layers)),
        )
        for which, (path, dim) in enumerate(zip(paths, (shape.dim_k, shape.dim_v)))
    ]


def _write_queries(session: Session, path: str) -> dict[str, Any]:
    queries = [session.observed[layer] for layer in sorted(session.observed)]
    kind = DTYPES[queries[0].dtype]
    sums = _write(path, (len(queries), *queries[0].shape), kind, queries)
    return {"file": os.path.basename(path), "dtype": kind, "layers": sorted(session.observed), "crc": sums}


# --- reading ---------------------------------------------------------------------------------------------------------------


def load(session: Session, path: Path, dtype: torch.dtype) -> None:
    """Fills an empty session of a model, which computes in `dtype`, with what a folder holds."""
    folder = os.fsdecode(plain(path))
    try:
        cache = _read_list(folder)
        _check_model(cache, session, DTYPES.get(dtype, str(dtype)))
        _load(session, folder, cache)
    except OSError as error:
        raise _named(error, path) from None
    except (KeyError, TypeError) as error:
        if isinstance(error, DciError):
            raise
        raise FormatError(f"{os.path.join(folder, _LIST)} is not as dci writes it: {error!r}") from None


def _read_list(folder: str) -> dict[str, Any]:
    path = os.path.join(folder, _LIST)
    if os.path.isdir(folder) and not os.path.exists(path):
        raise FormatError(f"{folder} has no {_LIST}: it holds no cache, or one whose saving did not come to its end")
    with open(path, encoding="utf-8") as file:
        try:
            whole = json.load(file)
            cache: dict[str, Any] = whole["cache"]
            good = whole["crc"] == zlib.crc32(json.dumps(cache, sort_keys=True).encode())
        except (ValueError, KeyError, TypeError):
            good = False
    if not good or cache.get("format") != _FORMAT:
        raise FormatError(f"{path} is damaged, or not the list of a cache of dci")
    if cache["version"] != _VERSION:
        raise UnsupportedError(f"{path} is of version {cache['version']}, this dci reads version {_VERSION}")
    return cache


def _check_model(cache: dict[str, Any], session: Session, dtype: str) -> None:
    """Refuses a cache of another model."""
    theirs, ours = cache["model"], config_of(session.config)
    for name in sorted(theirs.keys() & ours.keys()):
        if theirs[name] != ours[name]:
            raise InvalidError(f"the cache is of a model whose {name} is {theirs[name]!r}; this one's is {ours[name]!r}")
    shape = cache["shape"]
    if shape["n_layers"] != session.n_layers:
        raise InvalidError(f"the cache is of a model of {shape['n_layers']} layers; this one has {session.n_layers}")
    if shape["query_dtype"] != dtype:
        raise InvalidError(f"the cache is of a model in {shape['query_dtype']}; this one is in {dtype}")


def _load(session: Session, folder: str, cache: dict[str, Any]) -> None:
    shape, pads, seen = Shape(**cache["shape"]), [int(pad) for pad in cache["pads"]], int(cache["seen"])
    lengths = [max(seen - pad, 0) for pad in pads]
    if len(cache["rows"]) != len(pads):
        raise FormatError(f"{os.path.join(folder, _LIST)} has {len(cache['rows'])} rows and {len(pads)} paddings")
    observed = _read_queries(folder, cache["queries"])
    session.prepare(shape, cache["scaling"], lengths)
    if cache["prompted"]:
        session.load([os.path.join(folder, row["file"]) for row in cache["rows"]])
    else:
        files = [_RowFile(folder, row, shape, n) for row, n in zip(cache["rows"], lengths)]
        session._fill(lengths, lambda layer, row: files[row].read(layer))
    for row, (sequence, n) in enumerate(zip(session.sequences, lengths)):
        found = session._kv.sequence_info(sequence).n_tokens
        if found != n:
            session.clear()
            raise FormatError(f"row {row} has {found} tokens, {os.path.join(folder, _LIST)} says {n}")
    session.pads, session.seen, session.scaling = pads, seen, float(cache["scaling"])
    session.prompted, session.observed = bool(cache["prompted"]), observed


def _mapped(path: str, shape: tuple[int, ...], kind: str) -> npt.NDArray[Any]:
    """An array in a file, read as it is used."""
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r" if 0 not in shape else None, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FormatError(f"{path} is truncated or damaged: {error}") from None
    if array.shape != shape or array.dtype != _BITS[kind]:
        raise FormatError(f"{path} has {array.dtype} of shape {array.shape}, wanted {np.dtype(_BITS[kind])} of {shape}")
    return array


def _tensor(bits: npt.NDArray[Any], kind: str, crc: int, path: str) -> torch.Tensor:
    data = np.ascontiguousarray(bits)
    if zlib.crc32(data.tobytes()) != crc:
        raise FormatError(f"{path} is damaged: its checksum is not that of what was written")
    found = torch.from_numpy(np.array(data))
    return found.view(torch.bfloat16) if kind == "bfloat16" else found


class _RowFile:
    """Keys and values of a row of the batch, whose prompt has not ended."""

    def __init__(self, folder: str, row: dict[str, Any], shape: Shape, n: int) -> None:
        self.paths = [os.path.join(folder, name) for name in row["files"]]
        self.sums, self.kind = row["crc"], shape.dtype
        dims = shape.dim_k, shape.dim_v
        self.arrays = [
            _mapped(path, (shape.n_layers, shape.n_kv_heads, n, dim), self.kind) for path, dim in zip(self.paths, dims)
        ]

    def read(self, layer: int) -> Rows:
        """Of one layer."""
        keys, values = (
            _tensor(array[layer], self.kind, sums[layer], path)
            for array, sums, path in zip(self.arrays, self.sums, self.paths)
        )
        return keys, values


def _read_queries(folder: str, queries: dict[str, Any] | None) -> dict[int, torch.Tensor]:
    if queries is None:
        return {}
    path, kind = os.path.join(folder, queries["file"]), queries["dtype"]
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FormatError(f"{path} is truncated or damaged: {error}") from None
    return {layer: _tensor(bits, kind, crc, path) for layer, bits, crc in zip(queries["layers"], array, queries["crc"])}


def _named(error: OSError, path: Path) -> Exception:
    """What the operating system refused, as this package's exceptions say it."""
    if isinstance(error, DciError):
        return error
    return error_of(FileError.status, str(error), error.errno or 0, plain(path))
