# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Reads what `dci-bench --json` and the scripts of bench/ wrote, and refuses everything else before anything is drawn."""

from __future__ import annotations

import json
import math
import os
import statistics
from dataclasses import dataclass, field
from typing import Any, Callable, NoReturn

from .._errors import FileError, FormatError

Row = dict[str, Any]


@dataclass(frozen=True)
class Report:
    """One file. `kind` is a key of FIELDS, or another subcommand of dci-bench, whose rows are shown as they are."""

    path: str
    title: str  # as the caller named the file, or empty
    kind: str
    machine: Row = field(default_factory=dict)  # empty where the file does not say
    command: list[str] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)

    @property
    def name(self) -> str:
        """What stands over panels and tables of this file."""
        return self.title or os.path.splitext(os.path.basename(self.path))[0]


# --- what a field holds ---------------------------------------------------------------------------------------------------

Check = Callable[[Any], bool]


def _number(value: Any) -> bool:
    try:
        return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(float(value))
    except OverflowError:
        return False


def _positive(value: Any) -> bool:
    return _number(value) and value > 0


def _number_or_null(value: Any) -> bool:
    return value is None or _number(value)


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _flag(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _reason(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _settings(value: Any) -> bool:
    """Settings of an index: texts, and numbers where a number is written."""
    return isinstance(value, dict) and all(_number(v) or name == "kind" for name, v in value.items())


def _history(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict) and _positive(one.get("seconds")) and _number(one.get("objective")) for one in value
    )


WANTED: dict[Check, str] = {
    _number: "a number",
    _positive: "a number above 0",
    _number_or_null: "a number or null",
    _text: "a text",
    _flag: "true, false or null",
    _reason: "a text or null",
    _settings: "an object of numbers",
    _history: "a list of {seconds above 0, objective}",
}


def _of(check: Check, names: str) -> dict[str, Check]:
    return dict.fromkeys(names.split(), check)


# Of each kind of report what a row must hold; it may hold more.
FIELDS: dict[str, dict[str, Check]] = {
    "ann": {
        **_of(_text, "index rows mode dataset metric"),
        **_of(_positive, "n dim k threads n_queries qps qps_min qps_max"),
        **_of(_number, "recall build_s bytes dist_comps sketch_bits"),
        **_of(_number_or_null, "rerank guarantee"),
        **_of(_flag, "fitted"),
        **_of(_settings, "params"),
    },
    "kv": {
        **_of(_text, "trace preset"),
        **_of(_positive, "budget"),
        **_of(_number_or_null, "key_bits value_bits share err err_tail bytes_step resident_bytes_token token_bytes"),
        **_of(_positive, "dim_k dim_v"),
        **_of(_number_or_null, "append_us plan_us attend_us maintain_us step_us step_us_p99 build_ms"),
        **_of(_flag, "learned"),
        **_of(_reason, "reason"),
    },
    "layers": {
        **_of(_text, "preset"),
        **_of(_positive, "budget layers heads tokens tokens_per_s tokens_per_s_full"),
        **_of(_number, "key_bits value_bits build_ms append_us plan_us attend_us full_us resident_token_bytes"),
        **_of(_number_or_null, "maintain_us"),
        **_of(_flag, "learned"),
    },
    "papers": _of(_text, "figure trace"),
    "perplexity": {**_of(_text, "preset"), **_of(_number, "budget ms_per_token"), **_of(_positive, "perplexity")},
    "lookup": {**_of(_text, "preset"), **_of(_number, "budget single multi-key multi-value list")},
    "kmeans": {
        **_of(_positive, "n dim clusters threads seconds rounds largest"),
        **_of(_number, "objective"),
        **_of(_text, "metric"),
        **_of(_history, "history"),
    },
    "kmeans peers": {
        **_of(_positive, "n dim clusters threads dci_s faiss_s"),
        **_of(_text, "metric"),
        **_of(_history, "dci_history faiss_history"),
    },
    "peers": {
        **_of(_text, "name mode"),
        **_of(_positive, "qps qps_min qps_max"),
        **_of(_number, "recall build_s"),
    },
}

# What not every row of dci-bench has, and older reports do not have yet.
ABSENT: dict[str, Row] = {
    "ann": {"sketch_bits": 0, "fitted": None, "rerank": None, "guarantee": None},
    "kv": {"reason": None, "build_ms": None},
    "layers": {"maintain_us": None},
}

EXPECTED = (
    "wanted what 'dci-bench ann', 'kv', 'layers', 'papers' or 'kmeans' wrote with --json, or compare_peers.py, "
    "kmeans_peers.py, language_model.py or a peers script"
)


# --- reading --------------------------------------------------------------------------------------------------------------


def _refuse(path: str, what: str) -> NoReturn:
    raise FormatError(f"{path}: {what}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


def _parsed(path: str) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file, parse_constant=_no_constant)
    except OSError as error:
        raise FileError(f"{path}: cannot be read: {error.strerror or error}") from None
    except RecursionError:
        _refuse(path, f"is nested too deeply to be a report; {EXPECTED}")
    except ValueError as error:  # of the text's encoding as of JSON
        _refuse(path, f"is not JSON ({error}); {EXPECTED}")


def _checked(path: str, kind: str, rows: Any, of: str) -> list[Row]:
    """The rows, if every one of them is what its kind says."""
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        _refuse(path, f"{of}: 'rows' is not a list of objects; {EXPECTED}")
    if not rows:
        _refuse(path, f"{of} holds no rows")
    whole = [{**ABSENT.get(kind, {}), **row} for row in rows]
    for number, row in enumerate(whole):
        for name, check in FIELDS.get(kind, {}).items():
            if name not in row or not check(row[name]):
                found = f"{row[name]!r:.40}" if name in row else "nothing"
                _refuse(path, f"{of}: row {number} has {found} as '{name}', wanted {WANTED[check]}")
    return whole


def _rounds(path: str, rounds: list[Row]) -> list[Row]:
    """compare_peers.py: a list of rounds, {"name / mode": [qps, recall, build_s, floor]} each; medians over the rounds."""
    rows = []
    for arm in rounds[0]:
        values = [one.get(arm) for one in rounds]
        if not all(isinstance(v, list) and len(v) >= 3 and _positive(v[0]) and all(map(_number, v[1:3])) for v in values):
            _refuse(path, f"rounds of compare_peers.py: '{arm}' is not [queries/s, recall, build s, ..] in every round")
        qps = [v[0] for v in values if v]
        build = statistics.median(v[2] for v in values if v)
        name, _, mode = arm.rpartition(" / ")
        rows.append({"name": name or arm, "mode": mode or "one", "qps": statistics.median(qps), "qps_min": min(qps),
                     "qps_max": max(qps), "recall": values[0][1] if values[0] else 0.0, "build_s": build})  # fmt: skip
    return rows


def _peers(rows: list[Row]) -> list[Row]:
    """A peers script: a list of {name, params, build_s, qps, recall}."""
    out = []
    for row in rows:
        params, qps = str(row.get("params", "")), row.get("qps")
        mode = "batch" if "batch" in params else "one"
        name = f"{row.get('name', '')} {params}".replace("one by one", "").replace("batch", "").strip(" ,")
        out.append({**row, "name": name, "mode": mode, "qps": qps, "qps_min": qps, "qps_max": qps})
    return out


def _listed(path: str, title: str, content: list[Any]) -> Report:
    if content and all(isinstance(one, dict) and {"name", "qps"} <= one.keys() for one in content):
        return Report(path, title, "peers", rows=_checked(path, "peers", _peers(content), "rows of a peers script"))
    if content and all(isinstance(one, dict) and one and all(isinstance(v, list) for v in one.values()) for one in content):
        rows = _checked(path, "peers", _rounds(path, content), "rounds of compare_peers.py")
        return Report(path, title, "peers", rows=rows)
    _refuse(path, f"is a list, but neither of rounds nor of rows; {EXPECTED}")


def read(path: str, title: str = "") -> Report:
    """One file as a report; what is no report raises FormatError, what cannot be read FileError, both with the path."""
    content = _parsed(path)
    if isinstance(content, list):
        return _listed(path, title, content)
    if not isinstance(content, dict) or "rows" not in content:
        _refuse(path, f"holds no 'rows'; {EXPECTED}")
    if "faiss" in content:
        return Report(path, title, "kmeans peers", {"faiss": str(content["faiss"])}, [],
                      _checked(path, "kmeans peers", content["rows"], "kmeans_peers.py"))  # fmt: skip
    command, machine = content.get("command"), content.get("machine")
    if not isinstance(command, list) or len(command) < 2 or not all(isinstance(word, str) for word in command):
        _refuse(path, f"does not say by which command it was made; {EXPECTED}")
    if not isinstance(machine, dict):
        _refuse(path, f"does not say on which machine it was made; {EXPECTED}")
    kind = command[1]
    if kind == "kmeans" and "--trace" in command:
        kind = "kmeans --trace"  # pages of a trace: other rows
    return Report(path, title, kind, machine, command, _checked(path, kind, content["rows"], f"dci-bench {kind}"))


def read_named(named: str) -> Report:
    """FILE, or TITLE=FILE."""
    if "=" in named and not os.path.exists(named):
        title, path = named.rsplit("=", 1)
        return read(path, title)
    return read(named)
