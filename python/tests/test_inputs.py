# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""What an array holds is what its dtype says: all that takes rows takes numbers as they are, or refuses them by name."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import normal, to_bits
from kv_model import DIM as KV_DIM
from kv_model import N_KV_HEADS, N_QUERY_HEADS, kv_of

import dci

ml_dtypes = pytest.importorskip("ml_dtypes")

N, DIM = 40, 8
# Whole numbers that every type holds exactly.
WHOLE = np.random.default_rng(3).integers(0, 2, (N, DIM))
WHOLE[:, 0] = 1
ROWS = normal(N, DIM)


def filled(x=ROWS, **options):
    index = dci.Index(DIM, **options)
    index.add(x)
    return index


def sketch(x=ROWS):
    out = dci.Sketch(DIM)
    out.append(x)
    return out


def clusters(x, **options):
    found = dci.kmeans(x, 3, **options)
    return found.centroids, found.labels


def in_cache(x):
    """Tokens of a cache of float32, as read back, and attention of queries made of the same numbers."""
    rows = np.resize(np.asarray(x), (20, N_KV_HEADS, KV_DIM))
    asked = np.resize(np.asarray(x), (N_QUERY_HEADS, KV_DIM))
    kv = kv_of()
    name = kv.open()
    with kv.step(name, len(rows)):
        for layer in range(2):
            kv.append(layer, name, rows, rows)
            kv.end_prompt(layer, name)
    return (*kv.read(0, name, 0), kv.attend(0, name, asked))


# Everything that takes rows: the name of the argument, and a call of which the answer depends on the numbers.
TAKERS = {
    "Index.add": ("x", lambda x: (filled(x).reconstruct(np.arange(len(x))),)),
    "Index.search": ("q", lambda x: filled().search(x, 4)),
    "Index.search of one": ("q", lambda x: filled().search(x[3], 4)),
    "Index.search_group": ("q", lambda x: filled().search_group(np.asarray(x).reshape(-1, 4, DIM), 4)),
    "Index.range_search": ("q", lambda x: filled().range_search(x, 5.0)),
    "Index.fit": ("queries", lambda x: (coded := filled(sketch_bits=4), coded.fit(x), coded.search(ROWS, 4))[2]),
    "Index.tune": ("q", lambda x: filled(kind="pdci").tune(x, 3, 0.9)[1:3]),
    "knn, rows": ("x", lambda x: dci.knn(x, ROWS, 4)),
    "knn, queries": ("q", lambda x: dci.knn(ROWS, x, 4)),
    "knn_graph": ("x", lambda x: dci.knn_graph(x, 4)),
    "kmeans": ("rows", clusters),
    "kmeans of problems": ("rows", lambda x: clusters(np.asarray(x).reshape(2, -1, DIM))),
    "kmeans, values": ("values", lambda x: (dci.kmeans(ROWS, 3, values=x).value_sums,)),
    "kmeans, centroids": ("centroids", lambda x: clusters(ROWS, centroids=x[:3])),
    "kmeans, subtract_mean": ("subtract_mean", lambda x: clusters(ROWS, subtract_mean=x[3])),
    "KMeans.predict": ("rows", lambda x: (dci.KMeans(3, "l2").fit(ROWS).predict(x),)),
    "KMeans.transform": ("rows", lambda x: (dci.KMeans(3, "l2").fit(ROWS).transform(x),)),
    "Sketch.append": ("rows", lambda x: (sketch(x).score(ROWS),)),
    "Sketch.score": ("queries", lambda x: (sketch().score(x),)),
    "Sketch.search": ("queries", lambda x: sketch().search(x, 3)),
    "Sketch.bound": ("queries", lambda x: (sketch().bound(x),)),
    "Sketch, centre": ("centre", lambda x: (dci.Sketch(DIM, centre=x[3]).append(ROWS),)),
    "KVCache": ("keys", in_cache),
}
TYPES = (
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float64",
    "longdouble",
)


@pytest.mark.parametrize("name", TAKERS)
def test_the_same_numbers_of_any_type_give_the_same_answer(name):
    _, call = TAKERS[name]
    wanted = call(WHOLE.astype(np.float32))
    given = [WHOLE.astype(one) for one in (*TYPES, ">i2", ">u2", ">f4", ">f8")] + [WHOLE.astype(ml_dtypes.bfloat16)]
    for rows in given:
        if rows.dtype.name in ("float16", "bfloat16") and "kmeans" in name:
            found = call(rows.astype(np.float32))
        else:
            found = call(rows)
        for got, want in zip(found, wanted):
            np.testing.assert_array_equal(got, want, err_msg=rows.dtype.name)


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("value", [1e300, -3.5e38, np.longdouble("1e300")])
def test_what_float32_cannot_reach_is_refused_with_value_and_place(name, value):
    what, call = TAKERS[name]
    table = ROWS.astype(type(value) if isinstance(value, np.longdouble) else np.float64)
    table[3, 5], table[9, 2] = value, value
    if what == "centroids":
        table[[2, 3]] = table[[3, 2]]
    with pytest.raises(dci.NumberError) as caught:
        call(table)
    sentence = str(caught.value)
    assert f"{value:.9g}" in sentence and what in sentence and "float32, -3.4028235e+38 to 3.4028235e+38" in sentence
    if table.ndim == 2 and what in ("x", "queries") and "KV" not in name:
        assert sentence.startswith(f"row 3, column 5 of {what} is")


@pytest.mark.parametrize(
    ("dtype", "value", "reach"),
    [
        ("float16", 65520.0, "-65504 to 65504"),
        ("float16", -1e30, "-65504 to 65504"),
        ("bfloat16", 3.4e38, "-3.3895e+38 to 3.3895e+38"),
    ],
)
def test_what_a_narrow_dtype_cannot_reach_is_refused_with_value_and_place(dtype, value, reach):
    for given in (np.float32, np.float64):
        table = ROWS.astype(given)
        table[3, 5], table[7, 1] = value, value
        index = filled(dtype=dtype, input_dtype="float32")
        with pytest.raises(dci.NumberError) as caught:
            index.add(table)
        assert str(caught.value) == f"row 3 holds {value:g} at element 5, beyond the range of dtype {dtype}, {reach}"
        table[3, 5] = np.nan
        with pytest.raises(dci.NumberError, match="row 3 holds NaN or infinity"):
            index.add(table)
        assert len(index) == N
    index = filled(dtype="float16", input_dtype="float32")
    index.add(np.full((1, DIM), 65519.0))  # rounds to the largest
    assert index.reconstruct(N)[0] == 65504


def test_the_largest_floats_are_not_beyond():
    most = float(np.finfo(np.float32).max)
    table = np.array([[1.0, 2.0], [most * (1 + 2**-26), -most]])  # rounds to the largest
    assert dci.kmeans(table[:1], 1, metric="l2").centroids.tolist() == [[1.0, 2.0]]
    with pytest.raises(dci.NumberError, match="row 1"):  # too large to score, which is another sentence
        dci.Index(2).add(table)
    index = dci.Index(2)
    index.add(np.array([[1e19 / 8, 2.0**-149]]))
    assert index.reconstruct(0)[1] == np.float32(2.0**-149)


def test_nan_and_infinity_of_float64_are_called_that():
    for value in (np.nan, np.inf, -np.inf):
        table = ROWS.astype(np.float64)
        table[3, 5] = value
        with pytest.raises(dci.NumberError, match=r"row 3.* holds NaN or infinity"):
            dci.Index(DIM).add(table)


def test_integers_are_rounded_to_the_nearest_float32():
    rows = np.array([[2**24 + 1, -(2**24) - 3, 2**40 + 1, 7]])
    index = dci.Index(4)
    index.add(rows)
    np.testing.assert_array_equal(index.reconstruct([0]), rows.astype(np.float32))
    assert index.reconstruct(0)[0] == 2**24 and index.reconstruct(0)[3] == 7


# --- uint16 ----------------------------------------------------------------------------------------------------------


def test_uint16_is_bits_only_where_the_object_says_bfloat16():
    bits, typed = to_bits(ROWS), to_bits(ROWS).view(ml_dtypes.bfloat16)
    pixels = np.random.default_rng(0).integers(0, 4000, (N, DIM), dtype=np.uint16)
    named, plain = dci.Index(DIM, dtype="bfloat16"), dci.Index(DIM)
    named.add(bits)
    plain.add(pixels)
    np.testing.assert_array_equal(named.reconstruct(np.arange(N)), bits)
    np.testing.assert_array_equal(plain.reconstruct(np.arange(N)), pixels)
    np.testing.assert_array_equal(named.search(bits, 4)[0], named.search(typed, 4)[0])
    stored = dci.Index(DIM, dtype="bfloat16", input_dtype="float32")  # its input is not bfloat16
    stored.add(pixels[:, :] // 16)
    np.testing.assert_array_equal(stored.reconstruct(np.arange(N)), to_bits(pixels // 16))
    swapped = dci.Index(DIM, dtype="bfloat16")
    swapped.add(bits.astype(">u2"))
    np.testing.assert_array_equal(swapped.reconstruct(np.arange(N)), bits)
    for found in (dci.Sketch(DIM, dtype="bfloat16"), dci.Sketch(DIM, dtype="bfloat16")):
        found.append(bits)
        codes = dci.Sketch(DIM, dtype="bfloat16")
        codes.append(typed)
        np.testing.assert_array_equal(found.score(bits), codes.score(typed))


def test_uint16_is_bits_only_where_the_call_says_bfloat16():
    bits, typed = to_bits(ROWS), to_bits(ROWS).view(ml_dtypes.bfloat16)
    for call in (
        clusters,
        lambda x, **as_bits: (dci.KMeans(3, **as_bits).fit_predict(x),),
        lambda x, **as_bits: (dci.KMeans(3, **as_bits).fit(x).predict(x[:9]),),
        lambda x, **as_bits: dci.knn_graph(x, 3, "cosine", **as_bits),
        lambda x, **as_bits: dci.knn(x, ROWS, 3, **as_bits),
        lambda x, **as_bits: dci.knn(ROWS, x, 3, **({"query_dtype": "bfloat16"} if as_bits else {})),
        lambda x, **as_bits: (dci.kmeans(ROWS, 3, values=x, **({"value_dtype": "bfloat16"} if as_bits else {})).value_sums,),
    ):
        wanted = call(typed)
        for got, want in zip(call(bits, dtype="bfloat16"), wanted):
            np.testing.assert_array_equal(got, want)
        integers = call(bits.astype(np.int32))
        for got, want in zip(call(bits), integers):
            np.testing.assert_array_equal(got, want)


def test_a_narrow_input_takes_what_it_holds_exactly():
    whole = np.random.default_rng(0).integers(-128, 128, (N, DIM))
    for dtype, back in (("float16", np.asarray), ("bfloat16", lambda x: x.view(ml_dtypes.bfloat16))):
        for given in (whole.astype(np.int8), np.abs(whole).astype(np.uint8), whole > 0):
            index = dci.Index(DIM, dtype=dtype)
            index.add(given)
            np.testing.assert_array_equal(back(index.reconstruct(np.arange(N))).astype(np.float64), given.astype(np.float64))
        for given in (whole.astype(np.int16), whole.astype(np.int64), ROWS):
            with pytest.raises(TypeError, match=f"x is {given.dtype.name}, the index takes {dtype}: convert it, or choose"):
                dci.Index(DIM, dtype=dtype).add(given)


# --- no numbers ------------------------------------------------------------------------------------------------------

# what is given for (n, DIM) rows, and what the sentence calls it
NO_NUMBERS = {
    "complex": (ROWS.astype(np.complex64), "complex64"),
    "words": (np.full((N, DIM), "a"), "str"),
    "bytes": (np.full((N, DIM), b"ab"), "bytes16"),
    "dates": (np.zeros((N, DIM), "M8[s]"), "datetime64"),
    "structured": (
        np.zeros((N, DIM), [("height", "f4"), ("width", "f4")]),
        "a structured array with the fields 'height', 'width'",
    ),
    "objects": (np.full((N, DIM), 2**70, object), "an array of Python objects (int)"),
    "float8": (ROWS.astype(ml_dtypes.float8_e4m3fn), "float8_e4m3fn"),
}


@pytest.mark.parametrize("name", TAKERS)
@pytest.mark.parametrize("kind", NO_NUMBERS)
def test_what_holds_no_real_numbers_is_refused_by_name(name, kind):
    what, call = TAKERS[name]
    given, called = NO_NUMBERS[kind]
    with pytest.raises(TypeError) as caught:
        call(given)
    assert f"{what} is {called}" in str(caught.value)


def test_what_is_no_array_is_refused_by_name():
    index = filled()
    for given, called in (({"a": 1}, "a dict"), (None, "None"), (object(), "an object"), ("text", "str")):
        with pytest.raises(TypeError, match=f"q is {called}"):
            index.search(given)
    with (
        pytest.raises(dci.InvalidError, match="x is a list that makes no array")
        if np.__version__ >= "1.24"
        else (pytest.raises(TypeError, match="Python objects"))
    ):
        index.add([[1.0, 2.0], [3.0]])
    masked = np.ma.masked_array(ROWS, mask=ROWS > 2)
    with pytest.raises(dci.InvalidError, match=f"x is a masked array with {int((ROWS > 2).sum())} masked elements"):
        index.add(masked)
    index.add(np.ma.masked_array(ROWS))
    assert len(index) == 2 * N


def test_rows_that_are_columns_are_told():
    for call, what in ((dci.Index(DIM).add, "x"), (filled().search, "q"), (sketch().append, "rows")):
        with pytest.raises(
            dci.InvalidError, match=rf"{what} has shape \(8, 40\), wanted \(n, 8\) or \(8,\): {what}.T has it"
        ):
            call(ROWS.T)


@pytest.mark.parametrize("name", TAKERS)
def test_a_wrong_shape_is_refused_with_argument_and_shape(name):
    if "problems" in name or "group" in name or name == "KVCache":
        return
    what, call = TAKERS[name]
    if what == "values" or name in ("kmeans", "knn_graph", "Index.add", "knn, rows"):
        given = np.zeros((2, 2, 2, N, DIM), np.float32)
    else:
        given = np.zeros((N, DIM + 3), np.float32)
    with pytest.raises(dci.InvalidError, match=rf"{what} has shape \(.*\), wanted"):
        call(given)
