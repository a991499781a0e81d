# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Caches of transformers that an enabled model is given, gradients, masks, threads, and rows that are refused."""

from __future__ import annotations

import copy
import io
import pickle
import threading
from typing import Any, Callable

import pytest

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers", minversion="5.17")

from hf_models import EXACT, VOCABULARY, build, generate, prompt  # noqa: E402

import dci  # noqa: E402
import dci.transformers as dt  # noqa: E402

SNAPKV: dict[str, Any] = {"preset": "snapkv", "budget": 64, "window": 16, "dense_layers": 0}


@pytest.fixture
def model() -> Any:
    built = build()
    yield built
    dt.disable(built)


def filled(model: Any, ids: Any, mask: Any = None) -> Any:
    """A DynamicCache that the model has read a prompt into."""
    cache = hf.DynamicCache()
    with torch.no_grad():
        model(ids, attention_mask=mask, past_key_values=cache)
    return cache


def logits(model: Any, ids: Any, cache: Any, mask: Any = None) -> Any:
    with torch.no_grad():
        return model(ids, attention_mask=mask, past_key_values=cache).logits


@pytest.mark.parametrize(
    "make", [lambda config: hf.DynamicCache(), lambda config: hf.DynamicCache(config=config)], ids=["empty", "by config"]
)
def test_one_cache_is_handed_to_every_forward(model: Any, make: Callable[[Any], Any]) -> None:
    ids = prompt(40)
    wanted = generate(model, ids, 10)[0].tolist()
    dt.enable(model, **EXACT)
    cache, tokens, got = make(model.config), ids, []
    with torch.no_grad():
        for _ in range(10):
            out = model(tokens, past_key_values=cache, use_cache=True)
            assert out.past_key_values is cache
            tokens = out.logits[:, -1:].argmax(-1)
            got.append(int(tokens))
    assert got == wanted
    assert isinstance(cache, dt.DCICache) and isinstance(cache, hf.DynamicCache)
    assert cache.get_seq_length() == 49 and len(cache) == 3


def test_generate_goes_on_from_the_cache_that_it_was_given(model: Any) -> None:
    def talk() -> tuple[Any, int]:
        cache, ids = hf.DynamicCache(), prompt(40)
        for turn in range(3):
            ids = torch.cat([ids, generate(model, ids, 5, past_key_values=cache), prompt(7, seed=turn)], dim=1)
        return ids, cache.get_seq_length()

    wanted = talk()
    dt.enable(model, **EXACT)
    got = talk()
    assert torch.equal(got[0], wanted[0]) and got[1] == wanted[1]


CHANGES: dict[str, Callable[[Any], Any]] = {
    "crop": lambda cache: cache.crop(-9),
    "reorder": lambda cache: cache.reorder_cache(torch.tensor([1, 1])),
    "select": lambda cache: cache.batch_select_indices(torch.tensor([1])),
    "mask": lambda cache: cache.batch_select_indices(torch.tensor([False, True])),
    "repeat": lambda cache: cache.batch_repeat_interleave(2),
    "reset": lambda cache: cache.crop(-cache.get_seq_length()),
    "copy": copy.deepcopy,
    "iterate": lambda cache: hf.DynamicCache(list(cache)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["read by dci", "filled before", "filled before and used"])
def test_what_is_done_to_the_object_is_done_to_its_rows(model: Any, change: str, when: str) -> None:
    ids, more = prompt(40, 2), prompt(3, 4, seed=9)

    def run(fill: Callable[[], Any]) -> Any:
        cache = fill()
        cache = CHANGES[change](cache) or cache
        batch = cache.layers[0].keys.shape[0] if cache.get_seq_length() else 2
        return torch.cat([logits(model, more[:batch, at : at + 1], cache) for at in range(3)], dim=1)

    def used() -> Any:
        cache = filled(model, ids)
        logits(model, prompt(2, 2, seed=5), cache)
        return cache

    if when == "read by dci":
        wanted = run(lambda: filled(model, ids))
        dt.enable(model, **EXACT)
        got = run(lambda: filled(model, ids))
    elif when == "filled before":
        wanted, cache = run(lambda: filled(model, ids)), filled(model, ids)
        dt.enable(model, **EXACT)
        got = run(lambda: cache)
    else:
        wanted, cache = run(used), filled(model, ids)
        dt.enable(model, **EXACT)
        logits(model, prompt(2, 2, seed=5), cache)
        got = run(lambda: cache)
    assert torch.allclose(got, wanted, atol=1e-4)


def test_rows_of_a_cache_are_those_of_the_stock_model(model: Any) -> None:
    ids, mask = prompt(30, 2), torch.ones((2, 30), dtype=torch.long)
    mask[0, :5] = 0
    stock = filled(model, ids, mask)
    dt.enable(model, **EXACT)
    ours = filled(model, ids, mask)
    for (keys, values, _), layer in zip(ours, stock.layers):
        assert torch.allclose(keys[0, :, 5:], layer.keys[0, :, 5:], atol=1e-4) and not keys[0, :, :5].any()
        assert torch.allclose(values[1], layer.values[1], atol=1e-4)
    for change in ("crop", "reset", "reorder_cache"):
        with pytest.raises(dci.UnsupportedError, match="of the cache"):
            getattr(ours.layers[1], change)(1)
    assert hf.DynamicCache(list(dt.new_cache(model))).get_seq_length() == 0


@pytest.mark.parametrize("new", [1, 6])
def test_a_padded_prompt_of_the_stock_model_is_taken_in(model: Any, new: int) -> None:
    ids, mask = prompt(40, 2), torch.ones((2, 40), dtype=torch.long)
    mask[0, :11] = 0
    cached = [filled(model, ids[:, :-new], mask[:, :-new]) for _ in range(2)]
    wanted = generate(model, ids, 8, attention_mask=mask, past_key_values=cached[0])
    dt.enable(model, **EXACT)
    assert torch.equal(generate(model, ids, 8, attention_mask=mask, past_key_values=cached[1]), wanted)
    assert cached[1].kv is not None


def test_a_prompt_that_a_cache_holds_whole_is_gone_on_from(model: Any) -> None:
    ids = prompt(40)
    wanted, before = generate(model, ids, 8), filled(model, ids)
    dt.enable(model, **EXACT)
    for cache in (before, filled(model, ids)):
        assert torch.equal(generate(model, ids, 8, past_key_values=cache), wanted)


def test_presets_that_look_at_queries_say_so_of_a_prompt_without_any(model: Any) -> None:
    ids = prompt(200)
    cache, same = filled(model, ids), filled(model, ids)
    dt.enable(model, **SNAPKV)
    with pytest.raises(dci.InvalidError, match=r"row 0 of the batch.*read through dci"):
        logits(model, prompt(1), cache)
    assert cache.get_seq_length() == 200
    logits(model, prompt(2), cache)
    logits(model, prompt(1), cache)
    dt.enable(model, **EXACT)
    assert logits(model, prompt(1), same).shape == (1, 1, VOCABULARY)


def test_caches_that_dci_cannot_take_are_refused(model: Any) -> None:
    ids = prompt(20)
    short, half = filled(model, ids), filled(copy.deepcopy(model).to(torch.bfloat16), ids)
    short.layers.pop()
    other = filled(build(num_key_value_heads=3), ids)
    sliding = hf.DynamicCache(config=hf.MistralConfig(sliding_window=16, num_hidden_layers=3))
    for layer in range(3):
        sliding.update(torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 4, 8), layer)
    both = hf.EncoderDecoderCache(hf.DynamicCache(), hf.DynamicCache())
    legacy = tuple((layer.keys, layer.values) for layer in half.layers)
    dt.enable(model, **EXACT)
    with torch.no_grad():
        for cache, sentence in (
            (hf.StaticCache(model.config, max_cache_len=64), "StaticCache.*new_cache"),
            (both, "EncoderDecoderCache.*new_cache"),
            (legacy, r"tuple, wanted a cache: transformers.DynamicCache\(it\)"),
            (short, "layers of .20, 20. tokens, wanted 3"),
            (half, "bfloat16"),
            (other, "own cache"),
            (sliding, "DynamicSlidingWindowLayer"),
        ):
            with pytest.raises(dci.DciError, match=sentence):
                model(prompt(1), past_key_values=cache)
        dt.enable(two := build(num_hidden_layers=2), **EXACT)
        with pytest.raises(dci.InvalidError, match="2 layers, this one has 3"):
            model(prompt(1), past_key_values=dt.new_cache(two))
        assert model(ids).logits.shape[1] == 20


def test_a_cache_of_dci_is_refused_without_dci(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache = filled(model, prompt(20))
    dt.disable(model)
    with torch.no_grad(), pytest.raises(dci.UnsupportedError, match="enable"):
        model(prompt(1), past_key_values=cache)
    dt.enable(model, **EXACT)
    assert cache.get_seq_length() == 20
    logits(model, prompt(1), cache)


def test_loops_of_transformers_are_served_or_refused(model: Any) -> None:
    ids, assistant = prompt(30), build(num_hidden_layers=1)
    options = {"assistant_model": assistant, "eos_token_id": VOCABULARY - 1}
    wanted, chunks = generate(model, ids, 8, **options), generate(model, ids, 8, prefill_chunk_size=7)
    dt.enable(model, **EXACT)
    assert torch.equal(generate(model, ids, 8, **options), wanted)
    assert torch.equal(generate(model, ids, 8, prefill_chunk_size=7), chunks)
    with pytest.raises(dci.UnsupportedError, match="continuous batching"):
        model.generate_batch([ids[0].tolist()], max_new_tokens=2)
    for kind in ("quantized", "offloaded"):
        with pytest.raises(dci.InvalidError, match=kind):
            generate(model, ids, 2, cache_implementation=kind)
    dt.disable(model)
    dt.enable(assistant, **EXACT)
    assert torch.equal(generate(model, ids, 8, **options), wanted)


def test_chunks_that_are_padding_only_come_before_the_prompt(model: Any) -> None:
    ids, mask = prompt(40, 2), torch.ones((2, 40), dtype=torch.long)
    mask[0, :17] = 0
    wanted = generate(model, ids, 6, attention_mask=mask, prefill_chunk_size=7)
    dt.enable(model, **EXACT)
    assert torch.equal(generate(model, ids, 6, attention_mask=mask, prefill_chunk_size=7), wanted)


# --- gradients -------------------------------------------------------------------------------------------------------------


def gradients(model: Any, cache: Any, new: int, embedded: bool = False, with_prompt: bool = False) -> list[Any]:
    """Of all weights, or of embeddings, from a forward of some tokens after a prompt."""
    model.zero_grad()
    with torch.set_grad_enabled(with_prompt):
        cache = model(prompt(40), past_key_values=cache, use_cache=True).past_key_values
    ids = prompt(new, seed=8)
    if not embedded:
        model(ids, past_key_values=cache).logits.log_softmax(-1)[0, -1, 5].backward()
        return [None if weight.grad is None else weight.grad.clone() for weight in model.parameters()]
    rows = model.get_input_embeddings()(ids).detach().requires_grad_()
    model(inputs_embeds=rows, past_key_values=cache).logits.log_softmax(-1)[0, -1, 5].backward()
    return [rows.grad]


@pytest.mark.parametrize("new", [1, 2])
@pytest.mark.parametrize("what", ["all", "some", "embeddings"])
def test_gradients_after_a_cached_prompt_are_those_of_the_stock_model(model: Any, new: int, what: str) -> None:
    if what != "all":
        model.requires_grad_(False)
    if what == "some":
        model.model.layers[2].self_attn.requires_grad_(True)
    wanted = gradients(model, hf.DynamicCache(), new, what == "embeddings")
    dt.enable(model, **EXACT)
    got = gradients(model, dt.new_cache(model), new, what == "embeddings")
    assert any(grad is not None for grad in got)
    for ours, theirs in zip(got, wanted):
        assert (ours is None) == (theirs is None)
        assert ours is None or torch.allclose(ours, theirs, atol=1e-3 * float(theirs.abs().max()))


def test_gradients_of_a_decode_that_has_begun(model: Any) -> None:
    def run(cache: Any) -> list[Any]:
        model.zero_grad()
        with torch.no_grad():
            for ids in (prompt(40), prompt(1), prompt(1, seed=2)):
                cache = model(ids, past_key_values=cache, use_cache=True).past_key_values
        model(prompt(1, seed=3), past_key_values=cache).logits[0, -1, 5].backward()
        after = logits(model, prompt(1, seed=4), cache)
        return [weight.grad.clone() for weight in model.model.layers.parameters()] + [after]

    wanted = run(hf.DynamicCache())
    dt.enable(model, **EXACT)
    with pytest.warns(RuntimeWarning, match="attends to everything"):
        found = run(dt.new_cache(model))
    for ours, theirs in zip(found, wanted):
        assert torch.allclose(ours, theirs, atol=1e-3 * float(theirs.abs().max()))


@pytest.mark.parametrize("new", [1, 2])
def test_gradients_that_would_pass_to_cached_tokens_are_refused(model: Any, new: int) -> None:
    dt.enable(model, **EXACT)
    with pytest.raises(dci.UnsupportedError, match=r"torch.no_grad"):
        gradients(model, dt.new_cache(model), new, with_prompt=True)
    out = model(prompt(10), labels=prompt(10))  # a loss of one forward needs no earlier token
    out.loss.backward()
    for _ in range(2):  # nor does a loop that never goes back
        out = model(prompt(1), past_key_values=out.past_key_values)


def test_a_prefix_that_is_trained_is_the_stock_models(model: Any) -> None:
    def run(train: bool) -> Any:
        model.train(train)
        rows = [torch.randn(1, 2, 5, 8, generator=torch.Generator().manual_seed(n)).requires_grad_() for n in range(6)]
        cache = hf.DynamicCache([(rows[2 * layer], rows[2 * layer + 1]) for layer in range(3)])
        model(prompt(10), past_key_values=cache, labels=prompt(10)).loss.backward()
        return [row.grad for row in rows]

    wanted = run(True)
    dt.enable(model, **EXACT)
    for train in (True, False):
        assert all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in zip(run(train), wanted))


# --- masks -----------------------------------------------------------------------------------------------------------------


def test_a_batch_padded_on_the_right_needs_no_cache(model: Any) -> None:
    ids, mask = prompt(16, 2), torch.ones((2, 16), dtype=torch.long)
    mask[0, 12:] = 0
    labels = ids.masked_fill(mask == 0, -100)
    with torch.no_grad():
        wanted = model(ids, attention_mask=mask, labels=labels)
        dt.enable(model, **EXACT)
        got = model(ids, attention_mask=mask, labels=labels)
        assert torch.allclose(got.logits, wanted.logits, atol=1e-4) and torch.allclose(got.loss, wanted.loss)
        assert got.past_key_values is None
        assert torch.allclose(model(ids, mask).logits, wanted.logits, atol=1e-4)
        for asked in ({"use_cache": True}, {"past_key_values": dt.new_cache(model)}):
            with pytest.raises(dci.UnsupportedError, match=r"padding on the left only.*use_cache=False"):
                model(ids, attention_mask=mask, **asked)
        with pytest.raises(dci.UnsupportedError, match="padding on the left only"):
            generate(model, ids, 3, attention_mask=mask)


@pytest.mark.parametrize("asked", [{}, {"use_cache": True}, {"use_cache": False}])
def test_packed_texts_are_as_in_the_stock_model(model: Any, asked: dict[str, Any]) -> None:
    ids, at = prompt(20), torch.cat([torch.arange(12), torch.arange(8)])[None]
    with torch.no_grad():
        wanted = model(ids, position_ids=at, **asked).logits
        dt.enable(model, **EXACT)
        assert torch.allclose(model(ids, position_ids=at, **asked).logits, wanted, atol=1e-4)


def test_masks_of_four_dimensions(model: Any) -> None:
    ids = prompt(12)
    causal = torch.ones((12, 12), dtype=torch.bool).tril()
    blocks = causal & (torch.arange(12)[:, None] // 6 == torch.arange(12) // 6)
    holes = causal.clone()
    holes[-1, 4] = False
    with torch.no_grad():
        for mask in (causal, blocks, holes):
            dt.disable(model)
            wanted = model(ids, attention_mask=mask[None, None]).logits
            dt.enable(model, **EXACT)
            assert torch.allclose(model(ids, attention_mask=mask[None, None]).logits, wanted, atol=1e-4)
        bias = torch.where(causal, -0.5, torch.finfo(torch.float32).min)
        for bad, sentence in ((holes, "hides tokens"), (bias, "adds to scores")):
            with pytest.raises(dci.UnsupportedError, match=sentence):
                model(ids, attention_mask=bad[None, None], past_key_values=dt.new_cache(model))


def test_a_mask_is_for_all_tokens(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache = filled(model, prompt(20))
    with torch.no_grad(), pytest.raises(dci.InvalidError, match="for 3 tokens, but the cache holds 20 and 1"):
        model(prompt(1), attention_mask=torch.ones((1, 3), dtype=torch.long), past_key_values=cache)
    assert cache.get_seq_length() == 20


# --- threads, numbers, other models ----------------------------------------------------------------------------------------


def test_two_generations_at_a_time_need_a_cache_each(model: Any) -> None:
    ids, inside, refused = prompt(30), threading.Event(), threading.Event()
    wanted = generate(model, ids, 5)
    dt.enable(model, **EXACT)
    cache, got = dt.new_cache(model), []

    def wait(*args: Any) -> None:
        inside.set()
        assert refused.wait(60)

    handle = model.model.layers[1].mlp.register_forward_pre_hook(wait)
    thread = threading.Thread(target=lambda: got.append(generate(model, ids, 5, past_key_values=cache)))
    thread.start()
    assert inside.wait(60)
    handle.remove()
    for call in (lambda: generate(model, ids, 5, past_key_values=cache), lambda: logits(model, ids, cache)):
        with pytest.raises(dci.BusyError, match="another thread"):
            call()
    with pytest.raises(dci.BusyError):
        cache.save("nowhere")
    refused.set()
    thread.join()
    assert torch.equal(got[0], wanted)
    assert generate(model, torch.cat([ids, wanted], dim=1), 2, past_key_values=cache).shape == (1, 2)


@pytest.mark.parametrize("new", [20, 1])
def test_rows_that_are_no_numbers_are_named(model: Any, new: int) -> None:
    dt.enable(model, **EXACT)
    cache, other = filled(model, prompt(30, 3)), filled(model, prompt(30, 3))

    def spoil(module: Any, args: Any, out: Any) -> Any:
        out[1, -1, 3] = float("nan")
        return out

    handle = model.model.layers[2].self_attn.k_proj.register_forward_hook(spoil)
    with pytest.raises(dci.NumberError, match=r"layer 2: token \d+ of row 1 of the batch"):
        logits(model, prompt(new, 3), cache)
    handle.remove()
    assert cache.get_seq_length() == 30
    assert torch.equal(logits(model, prompt(1, 3), cache), logits(model, prompt(1, 3), other))


def test_a_model_that_was_converted_needs_a_new_cache(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache = filled(model, prompt(20))
    model.to(torch.bfloat16)
    with pytest.raises(dci.InvalidError, match=r"bfloat16.*filled by one with.*float32"):
        logits(model, prompt(1), cache)
    cache.reset()
    assert logits(model, prompt(20), cache).dtype == torch.bfloat16
    with pytest.raises(dci.UnsupportedError, match="float64"):
        logits(model.to(torch.float64), prompt(20), dt.new_cache(model))


def test_caches_are_not_pickled(model: Any) -> None:
    dt.enable(model, **EXACT)
    for cache in (filled(model, prompt(20)), dt.new_cache(model)):
        for write in (pickle.dumps, lambda one: torch.save(one, io.BytesIO())):
            with pytest.raises(TypeError, match=r"cache.save\(path\).*load_cache"):
                write(cache)
