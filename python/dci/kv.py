# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""The KV cache: it keeps every token and attends to few."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import byref, c_double, c_size_t
from typing import Any, ClassVar, SupportsIndex

import numpy as np
import numpy.typing as npt

from . import _kv_structs
from ._errors import DciError, InvalidError
from ._kv_base import Counts, KVBase, Sequences, number_of
from ._kv_config import KVLayer, KVLayout, Layers, c_config, renamed
from ._kv_info import KVInfo, KVSequenceInfo
from ._kv_plan import Floats, Integers, KVPlan
from ._kv_rows import Tokens, as_counts, as_sequences, as_tokens, counts_of, output
from ._library import address, check, create, lib, prepared
from ._rows import as_count, as_groups, as_ids, converted, row_format
from .context import Context, context_of


class KVCache(KVBase):
    """Keys and values of many sequences, and for each step the tokens that a layer's queries attend to.

    The life of a sequence, with the shapes of one call for several sequences:

        kv = dci.KVCache(n_layers, n_query_heads, n_kv_heads, dim_k, preset="sketch", budget=256)
        s = kv.open()
        with kv.step(s, n):                             # or reserve, and then step_end or step_abort
            for layer in range(n_layers):
                kv.append(layer, s, keys, values)       # (n, n_kv_heads, dim_k), (n, n_kv_heads, dim_v)
                kv.end_prompt(layer, s, queries[-64:])  # once, with the last step of the prompt
        while generating:
            with kv.step(s):                            # one more token
                for layer in range(n_layers):
                    kv.append(layer, s, keys, values)   # (n_kv_heads, dim_k), (n_kv_heads, dim_v)
                    plan = kv.plan(layer, s, queries)   # (n_query_heads, dim_k)
                    out = kv.attend(layer, s, queries, plan)  # (n_query_heads, dim_v)
            kv.maintain()

    Sequences are numbers. Calls take one of them or an array (n_sequences,), whose order is that of the rows. Keys are as
    attention sees them, after rotary embedding. include/dci/kv.h explains the words, docs/presets.md the presets.

    n_layers, n_query_heads, n_kv_heads, dim_k
                of the model; n_kv_heads divides n_query_heads. dim_v: None: dim_k.
    preset      one of PRESETS: a row of the choices below, each of which can be given to replace the preset's.
    budget      tokens attended to per kv head. budget_counts: what counts in it: "all", "sink_and_window", "sink",
                "selected"; None: the preset's. budget_share: the budget is this share of the sequence's tokens, in whole
                pages, at most `budget`; None: `budget`.
    published   sizes and budget_counts as the preset's paper has them (docs/presets.md), but for those that are given.
    dtype       of keys and values: "float32", "float16" or "bfloat16". query_dtype: of queries.
    scale       of q . k; None: 1 / sqrt(dim_k).
    page_tokens 8, 16, 32 or 64; None: the preset's.
    group       which tokens lie together: "token", "page", "tree", "cluster", "segment", "reordered".
    summary     what stays of a group: "none", "keys", "mean", "minmax", "cuboid", "codes", "learned", "tree", "mean_std",
                "votes".
    select      how queries select: "none", "all", "scan", "observed", "recent", "tree", "static".
    schedule    when it is decided again: "every_step", "once", "periodic", "boundary", "anchor", "ahead".
    tail        what becomes of the others: "drop", "sums", "lowbit".
    combine     how query heads of a group agree: "softmax", "mean", "each".
    key_bits    of codes, per coordinate: 1, 2, 3, 4 or 8; None: the preset's. value_bits: of tail "lowbit": 1, 2, 4 or 8.
    sink, window
                the first and the last tokens, which are always attended to; None: the preset's.
    rollback    tokens that truncate drops at no cost; None: 64, or the published window.
    dense_layers
                the first layers attend to everything. layers: instead, one of "sparse", "dense" or a KVLayer per layer.
    frozen_prompt
                groups are formed of the whole prompt and never again: the protocol of trace figures.
    foreground  end_prompt does its work itself; otherwise threads of the KV cache do it, one less than the context has.
    layout      a KVLayout: keys and values lie in memory of the caller's.
    max_bytes   of memory in all; None: no limit.
    resident_bytes
                while keys and values of sequences fit in it they are attended to in full; 0: none are.
    refit       keys are encoded again when their distortion has grown by this factor; 0: never.
    seed        of rotations, promotions and first clusters, 0 to 2**64 - 1.
    cluster_tokens, cluster_every, cluster_segment, cluster_rounds, cluster_most, cluster_by, segment_buffer,
    segment_least
                group "cluster" and "segment"; cluster_by is "raw" or "centred".
    observed_pool, observed_keep
                select "observed": neighbours whose importance counts, and whether tokens after the prompt are kept.
    estimate_share
                tail "sums" over clusters: the share that is estimated.
    tau         schedule "boundary" and "ahead", see calibrate. period: "periodic" and "reordered".
    anchor_first, anchor_period
                schedule "anchor". ring: queries that a layer remembers.
    tree_promotion, tree_field_of_view, tree_tokens, tree_keys
                group "tree"; tree_keys is "exact", "codes" or "means". static_share: group "reordered". verify:
                select "scan" over codes.
    tree_promotion_subseq, tree_simple_indices, tree_retrieve
                levels of the tree (-1: one), and P-DCI among what is below its nodes.
    preselect, preselect_tokens, preselect_least
                the same, of tokens in the best groups alone. sums_whole: tail "sums" over pages.
    deviation_weight
                summary "mean_std": standard deviations above the mean.
    piece_bytes memory of keys and values is taken in pieces of at least so many bytes.
    contiguous  for GPUKVCache, of groups "tree", "cluster", "segment" and "reordered": keys and values are in host memory a
                second time, in the order of their groups, so that these are fetched as contiguous memory.
    reorder_delay
                group "reordered": plans from when a new order is due to when it is used; workers make it meanwhile.
    query_head_lists
                each query head has a list of its own, with the whole budget; None: as published, or the query heads of a kv
                head share one.
    vote_share, candidate_share
                summary "votes": the share of the candidates that gets votes in a block, and the share that is ranked by
                4-bit codes; None: as published, by the number of candidates.
    context     threads and instruction set; None: default_context().
    choose      the name of select in 0.1, with a warning.

    None leaves an option to the preset or the library; include/dci/kv.h has every range and default. Its hook, which is
    called with memory, is offered in C alone.

    Rows of keys, values and queries are NumPy arrays or tensors with `__dlpack__` in the host's memory, such as those of
    torch, of their dtype. They are read in place where the elements of a row are side by side and rows are at equal
    distances, and copied once otherwise; query_dtype "float32" takes other real numbers, too. bfloat16 is as for Index.

    Calls may come from any thread; those on one KV cache are served one after another, and the interpreter lock is released
    during them. A plan belongs to one thread at a time. A call that fails raises an exception derived from DciError and
    leaves every sequence as it was. Ctrl-C takes effect when the call that it falls into is done.
    """

    __slots__ = ("_context", "_made")

    _C: ClassVar[str] = "dci_kv_"

    def __init__(
        self,
        n_layers: SupportsIndex,
        n_query_heads: SupportsIndex,
        n_kv_heads: SupportsIndex,
        dim_k: SupportsIndex,
        dim_v: SupportsIndex | None = None,
        *,
        preset: str | int = "sketch",
        budget: SupportsIndex = 256,
        budget_counts: str | None = None,
        budget_share: float | None = None,
        published: bool = False,
        dtype: npt.DTypeLike = "float16",
        query_dtype: npt.DTypeLike = "float32",
        scale: float | None = None,
        page_tokens: SupportsIndex | None = None,
        group: str | None = None,
        summary: str | None = None,
        select: str | None = None,
        schedule: str | None = None,
        tail: str | None = None,
        combine: str | None = None,
        key_bits: SupportsIndex | None = None,
        value_bits: SupportsIndex = 2,
        sink: SupportsIndex | None = None,
        window: SupportsIndex | None = None,
        rollback: SupportsIndex | None = None,
        dense_layers: SupportsIndex = 2,
        layers: Layers | None = None,
        frozen_prompt: bool = False,
        foreground: bool = False,
        layout: KVLayout | None = None,
        max_bytes: SupportsIndex | None = None,
        resident_bytes: SupportsIndex = 0,
        refit: float = 1.5,
        seed: SupportsIndex = 0,
        cluster_tokens: SupportsIndex | None = None,
        cluster_every: SupportsIndex | None = None,
        cluster_segment: SupportsIndex | None = None,
        cluster_rounds: SupportsIndex | None = None,
        cluster_most: SupportsIndex | None = None,
        cluster_by: str | None = None,
        estimate_share: float | None = None,
        tau: float | None = None,
        period: SupportsIndex | None = None,
        anchor_first: SupportsIndex = 2,
        anchor_period: SupportsIndex = 3,
        ring: SupportsIndex | None = None,
        tree_promotion: float = 0.03,
        tree_field_of_view: SupportsIndex | None = None,
        tree_tokens: bool = False,
        tree_promotion_subseq: float = 0.0,
        tree_simple_indices: SupportsIndex = 0,
        tree_retrieve: float = 0.0,
        tree_keys: str | None = None,
        segment_buffer: SupportsIndex | None = None,
        segment_least: SupportsIndex | None = None,
        observed_pool: SupportsIndex | None = None,
        observed_keep: bool | None = None,
        verify: float | None = None,
        preselect: float | None = None,
        preselect_tokens: SupportsIndex | None = None,
        preselect_least: SupportsIndex | None = None,
        sums_whole: bool = False,
        static_share: float | None = None,
        deviation_weight: float | None = None,
        piece_bytes: SupportsIndex | None = None,
        contiguous: bool = False,
        reorder_delay: SupportsIndex | None = None,
        query_head_lists: bool | None = None,
        vote_share: float | None = None,
        candidate_share: float | None = None,
        context: Context | None = None,
        choose: str | None = None,
    ) -> None:
        config, kept = self._prepare(dict(locals()))  # by the names of the config's fields
        self._context = context_of(context)
        handle = create(lib.dci_kv_create, lib.dci_kv_destroy, self._context._handle.value, byref(config))
        handle.kept[0] = kept[1]
        self._handle = handle
        self._made = self.info()

    # Sequences

    def free(self, sequence: SupportsIndex) -> None:
        """Ends a sequence, also in the middle of a step."""
        handle = self._live()
        check(lib.dci_kv_close(handle.value, number_of(sequence)))

    # Steps

    def assign_blocks(self, sequence: SupportsIndex, blocks: npt.ArrayLike) -> None:
        """With a layout whose blocks are given out "by_caller": the blocks of the sequence's next tokens, after
        those it has; before reserve. blocks: (n,) integers."""
        handle, numbers = self._live(), as_ids(blocks, "blocks")
        if numbers.size and (numbers.min() < 0 or numbers.max() >= 2**31):
            raise InvalidError(f"blocks holds {numbers.min()} to {numbers.max()}, wanted 0 to {2**31 - 1}")
        narrow = numbers.astype(np.int32)
        check(lib.dci_kv_assign_blocks(handle.value, number_of(sequence), narrow.size, address(narrow)))

    def lend(self, sequence: SupportsIndex, blocks: npt.ArrayLike) -> None:
        """The name of assign_blocks in 0.1."""
        renamed("lend", "assign_blocks", 3)
        self.assign_blocks(sequence, blocks)

    def reserve(self, sequences: Sequences, n_tokens: Counts = 1) -> None:
        """Begins a step: takes all memory that n_tokens more tokens of each sequence need, in every layer.

        n_tokens    one number, or (n_sequences,). FullError: nothing has changed.
        """
        handle, names = self._live(), as_sequences(sequences)
        counts = as_counts(n_tokens, names.size, "n_tokens")
        check(lib.dci_kv_reserve(handle.value, names.size, address(names), address(counts)))

    def append(
        self,
        layer: SupportsIndex,
        sequences: Sequences,
        keys: Any = None,
        values: Any = None,
        n_tokens: Counts | None = None,
    ) -> None:
        """Stores keys and values of one layer, for tokens that were reserved.

        keys        (n, n_kv_heads, dim_k): rows of all sequences, one sequence after another; or (n_kv_heads, dim_k) for one
                    token; or (n_sequences, n_each, n_kv_heads, dim_k).
        values      the same with dim_v. Both None: with a layout, where the rows lie in their slots already.
        n_tokens    how many of them each sequence gets: one number, or (n_sequences,). None: all the same.

        A layer of transformers' keys (n_sequences, n_kv_heads, n_each, dim_k) is passed as its transpose(1, 2).
        NumberError names token and head of NaN or infinity.
        """
        handle, names = self._live(), as_sequences(sequences)
        number, rows = as_count(layer, "layer"), prepared(_kv_structs.KVRows)
        if keys is None and values is None:
            counts: npt.NDArray[np.uintp] | None = as_counts(1 if n_tokens is None else n_tokens, names.size, "n_tokens")
        else:
            k, v = self._set_rows(rows, names.size, keys, values)
            if k.n != v.n:
                raise InvalidError(f"keys has {k.n} tokens, values {v.n}")
            counts = counts_of(n_tokens, k.n, names.size)
        each = None if counts is None else address(counts)
        check(lib.dci_kv_append(handle.value, number, names.size, address(names), each, byref(rows)))

    def _set_rows(self, rows: _kv_structs.KVRows, n_sequences: int, keys: Any, values: Any) -> tuple[Tokens, Tokens]:
        """Says where keys and values lie. What it returns keeps them there."""
        n_heads, (dim_k, dim_v) = self._heads[0], self._shape
        k = as_tokens(keys, n_sequences, n_heads, dim_k, self._row, "keys")
        v = as_tokens(values, n_sequences, n_heads, dim_v, self._row, "values")
        rows.keys, rows.key_token_stride, rows.key_head_stride = address(k.array), k.token_stride, k.head_stride
        rows.values, rows.value_token_stride, rows.value_head_stride = address(v.array), v.token_stride, v.head_stride
        return k, v

    def end_prompt(self, layer: SupportsIndex, sequence: SupportsIndex, queries: Any = None) -> None:
        """Says that a sequence's prompt is whole in this layer: its groups, codes and selections are built while the caller
        goes on. Every sequence needs this once per layer before the first plan.

        queries     (n_positions, n_query_heads, dim_k): those of the prompt's last positions, 64 are plenty. None where the
                    preset can do without.
        """
        handle, number, layer = self._live(), number_of(sequence), as_count(layer, "layer")
        if queries is None:
            check(lib.dci_kv_end_prompt(handle.value, layer, number, 0, None, self._shape[0]))
            return
        rows, n, ld = self._queries(queries)
        check(lib.dci_kv_end_prompt(handle.value, layer, number, n, address(rows), ld))

    def wait(self, sequence: SupportsIndex | None = None) -> None:
        """Waits for what end_prompt began for a sequence (None: for all), and helps. Plans wait by themselves."""
        handle = self._live()
        check(lib.dci_kv_wait(handle.value, -1 if sequence is None else number_of(sequence)))

    def step_end(self, sequences: Sequences) -> None:
        """Ends the step: all layers have all tokens that were reserved. Refused if one has not."""
        handle, names = self._live(), as_sequences(sequences)
        check(lib.dci_kv_step_end(handle.value, names.size, address(names)))

    def step_abort(self, sequences: Sequences) -> None:
        """Takes the step back: the sequences are as before reserve. Prompts that ended in it have not."""
        handle, names = self._live(), as_sequences(sequences)
        check(lib.dci_kv_step_abort(handle.value, names.size, address(names)))

    @contextmanager
    def step(self, sequences: Sequences, n_tokens: Counts = 1) -> Iterator[None]:
        """A step as a `with` block: reserve before it, step_end after it; an exception in either takes the step back."""
        names = as_sequences(sequences).copy()
        self.reserve(names, n_tokens)
        try:
            yield
            self.step_end(names)
        except BaseException:
            self._take_back(names)
            raise

    def _take_back(self, names: npt.NDArray[np.int64]) -> None:
        for name in names:
            try:
                self.step_abort(name)
            except DciError:  # it was freed, or the cache closed, in its step
                continue

    # Plans and attention

    def new_plan(self, room: SupportsIndex = 1) -> KVPlan:
        """An empty plan with room for so many sequences, which plan makes without another allocation."""
        info, (n_kv_heads, n_query_heads) = self._made, self._heads
        shape = (n_kv_heads, info.n_lists, info.stride, n_query_heads, self._shape[1])
        return KVPlan(self._live(), as_count(room, "room"), shape, info.tail != "drop")

    def plan(self, layer: SupportsIndex, sequences: Sequences, queries: Any, *, out: KVPlan | None = None) -> KVPlan:
        """Chooses which tokens the queries of one layer attend to.

        queries     (n_sequences, n_query_heads, dim_k), or (n_query_heads, dim_k) for one sequence; they may be those of the
                    step's own tokens, which were appended to this layer before.
        out         a plan of new_plan, or of an earlier call, to write to; empty if the call fails.
        """
        handle, names, number = self._live(), as_sequences(sequences), as_count(layer, "layer")
        rows, ld, _ = self._asked(queries, names.size)
        plan = self.new_plan(names.size) if out is None else out
        plan._begin(handle, names.size)
        at = (handle.value, number, names.size, address(names), address(rows), ld)
        check(lib.dci_kv_plan_make(*at, byref(plan._struct)))
        plan._made(number, names)
        return plan

    def attend(
        self,
        layer: SupportsIndex,
        sequences: Sequences,
        queries: Any,
        plan: KVPlan | None = None,
        *,
        out: Any = None,
        lse: Any = None,
    ) -> Any:
        """Attention of one layer: softmax(scale q . K) V over the plan's tokens, merged with its tail.

        queries     as in plan.
        plan        of this layer and of these sequences in this order; None: over everything.
        out         C-contiguous float32 of the result's shape, to write to: an array, or a tensor in the host's memory.
        lse         C-contiguous float32 (n_sequences, n_query_heads), or (n_query_heads,), to write to: the log of the sum
                    of exponentials, the tail's included.

        Returns (n_sequences, n_query_heads, dim_v) float32, or (n_query_heads, dim_v) for queries without the first axis;
        out, if that was given. A query without any token gets zeros and -inf.
        """
        handle, names, number = self._live(), as_sequences(sequences), as_count(layer, "layer")
        rows, ld, shape = self._asked(queries, names.size)
        if plan is not None:
            plan._check(handle, number, names)
        dim_v = self._shape[1]
        result, where = output(out, (*shape, dim_v), "out")
        _, lse_at = (None, None) if lse is None else output(lse, shape, "lse")
        chosen = None if plan is None else byref(plan._struct)
        at = (handle.value, number, names.size, address(names), address(rows), ld)
        check(lib.dci_kv_attend(*at, chosen, where, dim_v, lse_at))
        return result

    def _asked(self, queries: Any, n_sequences: int) -> tuple[npt.NDArray[Any], int, tuple[int, ...]]:
        """Queries of n sequences, how many elements apart, and their shape less dim_k."""
        array = converted(queries, self._query, "queries")
        one = self._heads[1], self._shape[0]
        if array.shape != (n_sequences, *one) and (array.shape != one or n_sequences != 1):
            raise InvalidError(f"queries has shape {array.shape}, wanted {(n_sequences, *one)}")
        if array.flags.c_contiguous and array.flags.aligned:
            return array, one[1], array.shape[:-1]
        rows, shape, ld = as_groups(array, one[1], self._query, "queries")
        return rows, ld, shape

    def _queries(self, queries: Any) -> tuple[npt.NDArray[Any], int, int]:
        """Queries of positions, how many positions, and how many elements rows are apart."""
        array = converted(queries, self._query, "queries")
        n_query_heads, dim = self._heads[1], self._shape[0]
        if array.ndim != 3 or array.shape[1:] != (n_query_heads, dim):
            raise InvalidError(f"queries has shape {array.shape}, wanted (n_positions, {n_query_heads}, {dim})")
        rows, _, ld = as_groups(array, dim, self._query, "queries")
        return rows, array.shape[0], ld

    # What there is

    def order(self, layer: SupportsIndex, sequence: SupportsIndex, kv_head: SupportsIndex) -> tuple[Integers, int]:
        """Group "reordered": the positions of one layer and head's candidates in the order in which pages are cut from
        them, (n,) int32, and how many of them, the first ones, are static."""
        handle, n, static = self._live(), c_size_t(), c_size_t()
        at = (handle.value, as_count(layer, "layer"), number_of(sequence), as_count(kv_head, "kv_head"))
        room = self._sequence(handle, at[2]).n_tokens
        out = np.empty(room, np.int32)
        check(lib.dci_kv_order(*at, room, address(out), byref(n), byref(static)))
        return out[: n.value], static.value

    def info(self) -> KVInfo:
        """Choices as they came out, blocks and bytes."""
        return self._info()

    @staticmethod
    def calibrate(
        queries: Any,
        rate: float,
        n_kv_heads: SupportsIndex,
        *,
        schedule: str = "boundary",
        query_dtype: npt.DTypeLike = "float32",
        context: Context | None = None,
    ) -> float:
        """The tau with which a share of steps decides again.

        queries     (n_layers, n_positions, n_query_heads, dim_k), by position, as plans get them.
        rate        0 to 1: share of the positions after the first one that decide again.
        schedule    "boundary" counts layers, "ahead" kv heads.

        Returns tau, in (-1, 1].
        """
        form = row_format(query_dtype, "query_dtype", "KV cache", "query_dtype")
        array = converted(queries, form, "queries")
        shape = array.shape
        if len(shape) != 4:
            raise InvalidError(f"queries has shape {shape}, wanted (n_layers, n_positions, n_query_heads, dim_k)")
        rows, _, ld = as_groups(array.reshape(shape[0] * shape[1], *shape[2:]), shape[3], form, "queries")
        options = {"n_layers": shape[0], "n_query_heads": shape[2], "n_kv_heads": n_kv_heads, "dim_k": shape[3]}
        config, out = c_config({**options, "schedule": schedule}, form, form), c_double()
        context = context_of(context)
        at = (context._handle.value, byref(config), shape[0], shape[1], address(rows), ld)
        check(lib.dci_kv_calibrate(*at, rate, byref(out)))
        return out.value

    @property
    def context(self) -> Context:
        """Threads and instruction set."""
        return self._context

    def __enter__(self) -> KVCache:
        return self

    def __repr__(self) -> str:
        return self._described()


__all__ = ["Floats", "KVCache", "KVInfo", "KVLayer", "KVLayout", "KVPlan", "KVSequenceInfo"]
