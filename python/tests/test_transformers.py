# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Small models with random weights decode through dci as they do with their own cache."""

from __future__ import annotations

import copy
import io
import json
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers", minversion="5.17")

from hf_models import EXACT, VOCABULARY, build, generate, prompt  # noqa: E402

import dci  # noqa: E402
import dci.transformers as dt  # noqa: E402

FAMILIES = ["Llama", "Qwen2", "Qwen3", "Mistral", "SmolLM3"]


@pytest.fixture
def model() -> Any:
    built = build()
    yield built
    dt.disable(built)


@pytest.mark.parametrize("family", FAMILIES)
def test_whole_budget_gives_the_tokens_of_the_stock_model(family: str) -> None:
    model, ids = build(family), prompt(90)
    wanted = generate(model, ids)
    dt.enable(model, **EXACT)
    assert torch.equal(generate(model, ids), wanted)
    dt.disable(model)
    assert torch.equal(generate(model, ids), wanted)


@pytest.mark.parametrize(
    "preset", ["full", "topk", "quest", "arkvale", "icecache", "clusterkv", "prkv", "louiskv", "freekv", "snapkv"]
)
def test_every_preset_is_exact_with_the_whole_budget(model: Any, preset: str) -> None:
    ids = prompt(150)
    wanted = generate(model, ids, 40)
    dt.enable(model, preset=preset, budget=512, window=32)
    assert torch.equal(generate(model, ids, 40), wanted)


def logits_after(model: Any, ids: Any) -> Any:
    """Of the first decoded token."""
    options = {"do_sample": False, "max_new_tokens": 2, "attention_mask": torch.ones_like(ids)}
    return model.generate(ids, **options, return_dict_in_generate=True, output_logits=True).logits[1]


def test_query_heads_with_lists_of_their_own_are_nearer_than_recent_tokens(model: Any) -> None:
    ids = prompt(150)
    wanted = logits_after(model, ids)
    far = {}
    for preset, heads in (("topk", True), ("topk", False), ("streaming", False)):
        dt.enable(model, preset=preset, budget=96, sink=16, window=16, rollback=16, query_head_lists=heads, dense_layers=0)
        far[preset, heads] = float((logits_after(model, ids) - wanted).norm())
        dt.disable(model)
    assert 0.0 < far["topk", True] < far["streaming", False]
    assert far["topk", True] < 1.05 * far["topk", False]


def test_half_formats_decode(model: Any) -> None:
    ids = prompt(60)
    for kind in (torch.bfloat16, torch.float16):
        half = copy.deepcopy(model).to(kind)
        wanted = generate(half, ids, 8)
        dt.enable(half, **EXACT)
        assert (generate(half, ids, 8) == wanted).float().mean() >= 0.5  # sums differ in their last bits


def test_rows_are_stored_in_another_format(model: Any) -> None:
    dt.enable(model, **EXACT, dtype="bfloat16")
    cache = dt.new_cache(model)
    generate(model, prompt(60), 4, past_key_values=cache)
    assert cache.kv is not None and cache.kv.dtype == "bfloat16"


def test_sampling_draws_the_same_tokens(model: Any) -> None:
    ids = prompt(80)
    torch.manual_seed(5)
    wanted = generate(model, ids, do_sample=True, temperature=1.3, top_k=20)
    dt.enable(model, **EXACT)
    torch.manual_seed(5)
    assert torch.equal(generate(model, ids, do_sample=True, temperature=1.3, top_k=20), wanted)


def test_rows_padded_on_the_left_decode_as_alone(model: Any) -> None:
    dt.enable(model, **EXACT)
    lengths = [70, 33, 51]
    alone = [generate(model, prompt(n, seed=n), 16) for n in lengths]
    ids = torch.zeros((3, 70), dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, n in enumerate(lengths):
        ids[row, 70 - n :], mask[row, 70 - n :] = prompt(n, seed=n)[0], 1
    assert torch.equal(generate(model, ids, 16, attention_mask=mask), torch.cat(alone))


def test_beams_are_those_of_the_stock_model(model: Any) -> None:
    ids = prompt(60, batch=2)
    options = {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.0}
    wanted = generate(model, ids, 12, **options)
    dt.enable(model, **EXACT)
    assert torch.equal(generate(model, ids, 12, **options), wanted)


def test_several_samples_of_one_prompt(model: Any) -> None:
    ids = prompt(60)
    torch.manual_seed(9)
    wanted = generate(model, ids, 12, do_sample=True, num_return_sequences=3)
    dt.enable(model, **EXACT)
    torch.manual_seed(9)
    assert torch.equal(generate(model, ids, 12, do_sample=True, num_return_sequences=3), wanted)


def test_guessed_tokens_are_taken_back(model: Any) -> None:
    ids = prompt(30).repeat(1, 3)
    wanted = generate(model, ids, 20, prompt_lookup_num_tokens=4, eos_token_id=VOCABULARY - 1)
    dt.enable(model, **EXACT)
    assert torch.equal(generate(model, ids, 20, prompt_lookup_num_tokens=4, eos_token_id=VOCABULARY - 1), wanted)


def test_a_prompt_in_parts_is_one_prompt(model: Any) -> None:
    ids = prompt(100)
    dt.enable(model, **EXACT)
    whole, parts = dt.new_cache(model), dt.new_cache(model)
    with torch.no_grad():
        wanted = model(ids, past_key_values=whole).logits[:, -1]
        for part in ids.split(27, dim=1):
            logits = model(part, past_key_values=parts).logits[:, -1]
        assert torch.allclose(logits, wanted, atol=1e-4)
        token = wanted.argmax(dim=-1, keepdim=True)
        assert torch.allclose(
            model(token, past_key_values=parts).logits, model(token, past_key_values=whole).logits, atol=1e-4
        )


def test_a_second_turn_goes_on_from_the_first(model: Any) -> None:
    first, second = prompt(60), prompt(20, seed=4)

    def talk() -> Any:
        cache = model(first, use_cache=True).past_key_values
        with torch.no_grad():
            model(prompt(1, seed=5), past_key_values=cache)
            out = model(second, past_key_values=cache).logits
            return torch.cat([out, model(prompt(1, seed=6), past_key_values=cache).logits], dim=1)

    with torch.no_grad():
        wanted = talk()
        dt.enable(model, **EXACT)
        assert torch.allclose(talk(), wanted, atol=1e-4)


def test_a_copied_cache_goes_on_by_itself(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache = dt.new_cache(model)
    with torch.no_grad():
        model(prompt(80), past_key_values=cache)
        wanted = [model(prompt(1, seed=s), past_key_values=copy.deepcopy(cache)).logits for s in (1, 2)]
        other = copy.deepcopy(cache)
        assert torch.equal(model(prompt(1, seed=1), past_key_values=cache).logits, wanted[0])
        assert torch.equal(model(prompt(1, seed=2), past_key_values=other).logits, wanted[1])


def test_another_preset_takes_the_prompt(model: Any) -> None:
    dt.enable(model, **EXACT)
    source = dt.new_cache(model)
    with torch.no_grad():
        model(prompt(80), past_key_values=source)
        dt.enable(model, preset="quest", budget=512)
        taken, own = dt.new_cache(model), dt.new_cache(model)
        taken.take_prompt(source)
        model(prompt(80), past_key_values=own)
        for s in (1, 2):
            a, b = (model(prompt(1, seed=s), past_key_values=cache).logits for cache in (taken, own))
            assert torch.allclose(a, b, atol=1e-5)


def test_rows_of_a_batch_are_kept_by_numbers_from_its_end(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache = dt.new_cache(model)
    with torch.no_grad():
        model(prompt(50, 3), past_key_values=cache)
        other = copy.deepcopy(cache)
        with pytest.raises(IndexError):
            cache.batch_select_indices(torch.tensor([0, 7]))
        cache.batch_select_indices(torch.tensor([-1]))
        other.batch_select_indices(torch.tensor([2]))
        wanted, got = (model(prompt(1), past_key_values=c).logits for c in (other, cache))
    assert torch.equal(got, wanted)


def test_a_cache_that_was_cut_to_nothing_is_a_new_one(model: Any) -> None:
    dt.enable(model, preset="snapkv", budget=64, window=16)
    cache, new = dt.new_cache(model), dt.new_cache(model)
    mask = torch.ones((2, 90), dtype=torch.long)
    mask[0, :5] = 0
    with torch.no_grad():
        model(prompt(30, 2), past_key_values=cache)
        model(prompt(1, 2), past_key_values=cache)
        cache.crop(-31)
        for asked in (cache, new):
            model(prompt(90, 2), attention_mask=mask, past_key_values=asked)
        wanted, got = (model(prompt(1, 2), past_key_values=c).logits for c in (new, cache))
    assert torch.equal(got, wanted)


def test_a_small_budget_is_kept(model: Any) -> None:
    dt.enable(model, preset="sketch", budget=64, window=16, rollback=16, sink=4, dense_layers=0)
    cache = dt.new_cache(model)
    ids = prompt(300)
    out = generate(model, ids, 30, past_key_values=cache)
    assert out.shape == (1, 30)
    assert cache.get_seq_length() == 329
    plan = cache.session.plan
    assert 0 < int(plan.counts.max()) <= 64 - 16 - 4


def test_disable_leaves_nothing(model: Any) -> None:
    before = dict(vars(model)), model.config._attn_implementation, list(model._forward_pre_hooks)
    dt.enable(model, **EXACT)
    assert dt.is_enabled(model)
    dt.enable(model, preset="full", budget=512)
    dt.disable(model)
    dt.disable(model)
    assert not dt.is_enabled(model)
    assert "_prepare_cache_for_generation" not in vars(model)
    assert (dict(vars(model)).keys(), model.config._attn_implementation, list(model._forward_pre_hooks)) == (
        before[0].keys(),
        *before[1:],
    )


def test_a_forward_that_broke_is_taken_back(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache, token = dt.new_cache(model), prompt(1, seed=8)
    with torch.no_grad():
        model(prompt(50), past_key_values=cache)
        wanted = model(token, past_key_values=copy.deepcopy(cache)).logits

        def fail(*args: Any) -> None:
            raise RuntimeError("in the middle")

        handle = model.model.layers[1].mlp.register_forward_pre_hook(fail)
        with pytest.raises(RuntimeError, match="in the middle"):
            model(token, past_key_values=cache)
        handle.remove()
        assert torch.equal(model(token, past_key_values=cache).logits, wanted)


@pytest.mark.parametrize(
    ("family", "changes", "sentence"),
    [
        ("Mistral", {"sliding_window": 64}, "sliding"),
        (
            "Qwen2",
            {
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                "use_sliding_window": True,
                "sliding_window": 64,
            },
            "layer 1",
        ),
        ("Gemma2", {"layer_types": ["full_attention"] * 3, "head_dim": 8}, "softcapping"),
    ],
)
def test_models_that_attend_otherwise_are_refused(family: str, changes: dict[str, Any], sentence: str) -> None:
    model = build(family, **changes)
    before = model.config._attn_implementation
    with pytest.raises(dci.UnsupportedError, match=sentence):
        dt.enable(model)
    assert model.config._attn_implementation == before and not dt.is_enabled(model)


LATENT: dict[str, Any] = {
    "kv_lora_rank": 16,
    "q_lora_rank": None,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "first_k_dense_replace": 3,
    "moe_intermediate_size": 16,
}


@pytest.mark.parametrize(
    ("family", "changes", "sentence"),
    [
        ("DeepseekV2", LATENT, "latent attention"),
        ("GptOss", {"head_dim": 8, "layer_types": ["full_attention"] * 3, "num_local_experts": 2}, "sinks"),
    ],
)
def test_models_without_plain_keys_are_refused(family: str, changes: dict[str, Any], sentence: str) -> None:
    model = build(family, **changes)
    with pytest.raises(dci.UnsupportedError, match=sentence):
        dt.enable(model)
    assert not dt.is_enabled(model) and "_prepare_cache_for_generation" not in vars(model)


def test_what_the_library_refuses_leaves_the_model_as_it_was(model: Any) -> None:
    ids = prompt(20)
    wanted = generate(model, ids, 4)
    for options, error in (
        ({"budget": 3}, dci.InvalidError),
        ({"preset": "none such"}, ValueError),
        ({"key_bits": 7}, dci.InvalidError),
    ):
        with pytest.raises(error):
            dt.enable(model, **options)
        assert not dt.is_enabled(model)
    with pytest.raises(dci.InvalidError, match="dtype is 'int8'"):
        dt.enable(model, dtype="int8")
    with pytest.raises(dci.UnsupportedError, match="float64"):
        dt.enable(copy.deepcopy(model).double())
    assert torch.equal(generate(model, ids, 4), wanted)


def test_masks_with_holes_are_refused(model: Any) -> None:
    dt.enable(model, **EXACT)
    ids = prompt(20)
    mask = torch.ones_like(ids)
    mask[0, 7] = 0
    with torch.no_grad(), pytest.raises(dci.UnsupportedError, match="padding on the left"):
        model(ids, attention_mask=mask, use_cache=True)


def test_keys_that_do_not_arrive_are_noticed(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache, rows = dt.new_cache(model), torch.zeros((1, 2, 1, 8))
    cache.update(rows, rows, 0)
    with pytest.raises(dci.UnsupportedError, match="keys of layer 0"):
        cache.update(rows, rows, 1)


def test_no_room_leaves_the_cache_as_it_was(model: Any) -> None:
    dt.enable(model, **EXACT, max_bytes=700_000)
    cache = dt.new_cache(model)
    with torch.no_grad():
        with pytest.raises(dci.FullError):
            model(prompt(2000), past_key_values=cache)
        assert cache.get_seq_length() == 0 and cache.sequences == []
        assert model(prompt(40), past_key_values=cache).logits.shape[1] == 40


def test_another_cache_is_refused(model: Any) -> None:
    dt.enable(model, **EXACT)
    with pytest.raises(dci.InvalidError, match="StaticCache"):
        generate(model, prompt(20), 4, cache_implementation="static")
    with pytest.raises(dci.InvalidError, match="enable"):
        dt.new_cache(build())


def test_generate_decodes_through_dci(model: Any) -> None:
    dt.enable(model, **EXACT)
    out = model.generate(prompt(30), do_sample=False, max_new_tokens=5, return_dict_in_generate=True)
    cache = out.past_key_values
    assert isinstance(cache, dt.DCICache) and cache.get_seq_length() == 34  # the last one was not asked about


@pytest.mark.parametrize("name", ["cache", "past_key_values"])
def test_a_forward_takes_its_cache_by_either_name(model: Any, name: str) -> None:
    dt.enable(model, **EXACT)
    cache, other = dt.new_cache(model), hf.DynamicCache()
    with torch.no_grad():
        for n in (30, 1):
            out = model(prompt(n), **{name: cache})
            assert out.past_key_values is cache
        assert isinstance(model(prompt(30), **{name: other}).past_key_values, dt.DCICache)
    assert cache.get_seq_length() == 31
    with pytest.raises(dci.InvalidError, match="two caches"):
        model(prompt(1), cache=cache, past_key_values=dt.new_cache(model))


def test_a_forward_takes_its_cache_by_position(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache = dt.new_cache(model)
    with torch.no_grad():
        model(prompt(30), None, None, cache)
    assert cache.get_seq_length() == 30


def test_an_enabled_model_is_not_copied_by_half(model: Any) -> None:
    dt.enable(model, **EXACT)
    for copied in (copy.deepcopy, lambda one: torch.save(one, io.BytesIO())):
        with pytest.raises(dci.InvalidError, match="disable"):
            copied(model)
    dt.disable(model)
    assert torch.equal(generate(copy.deepcopy(model), prompt(30), 3), generate(model, prompt(30), 3))


class Adapted(torch.nn.Module):
    """As PEFT's models lie around another: forwards and generate() end there."""

    def __init__(self, inside: Any) -> None:
        super().__init__()
        self.inside, self.generate, self.config = inside, inside.generate, inside.config

    def get_base_model(self) -> Any:
        return self.inside

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.inside(*args, **kwargs)


def test_a_model_with_adapters_around_it_decodes_through_dci(model: Any) -> None:
    outer, ids = Adapted(model), prompt(30)
    wanted = generate(model, ids, 5)
    dt.enable(outer, **EXACT)
    assert dt.is_enabled(outer) and dt.is_enabled(model)
    out = outer.generate(ids, do_sample=False, max_new_tokens=5, return_dict_in_generate=True)
    assert isinstance(out.past_key_values, dt.DCICache) and torch.equal(out.sequences[:, 30:], wanted)
    cache = dt.new_cache(outer)
    with torch.no_grad():
        assert outer(ids, past_key_values=cache).past_key_values is cache
    assert cache.get_seq_length() == 30
    dt.disable(outer)
    assert not dt.is_enabled(model)


def test_a_model_that_leaves_the_cache_out_is_refused(model: Any) -> None:
    decode = model.model.forward

    def forgetful(*args: Any, **kwargs: Any) -> Any:
        return decode(*args, **{**kwargs, "cache" if "cache" in kwargs else "past_key_values": None})

    model.model.forward = forgetful
    dt.enable(model, **EXACT)
    with pytest.raises(dci.UnsupportedError, match="did not use the cache of dci"):
        generate(model, prompt(20), 4)
    with pytest.raises(dci.UnsupportedError, match="LlamaForCausalLM did not use"):
        model(prompt(20))
    assert model(prompt(20), use_cache=False).logits.shape[1] == 20


def test_without_a_cache_the_model_attends_by_itself(model: Any) -> None:
    ids = prompt(40)
    with torch.no_grad():
        wanted = model(ids, use_cache=False).logits
        dt.enable(model, **EXACT)
        assert torch.allclose(model(ids, use_cache=False).logits, wanted, atol=1e-5)


def test_gradients_pass_where_there_is_no_cache(model: Any) -> None:
    dt.enable(model, **EXACT)
    model.train()
    model(prompt(20)).logits.sum().backward()
    assert all(p.grad is not None for p in model.model.layers.parameters())


def test_captured_traces_are_what_attention_saw(model: Any, tmp_path: Any) -> None:
    capture = pytest.importorskip("dci.capture").capture
    ids, before = prompt(50)[0].tolist(), model.config._attn_implementation
    folders = capture(model, ids, [0, 2], [1], 40, 8, tmp_path, {"text": "none"})
    assert [folder.name for folder in folders] == ["layer00_head1", "layer02_head1"]
    assert model.config._attn_implementation == before
    cache = hf.DynamicCache()
    with torch.no_grad():
        model(torch.tensor([ids]), past_key_values=cache)
    for folder, layer in zip(folders, (0, 2)):
        keys, queries = np.load(folder / "keys.npy"), np.load(folder / "queries.npy")
        assert keys.dtype == queries.dtype == np.float16
        assert keys.shape == (50, 8) and queries.shape == (3, 18, 8)
        np.testing.assert_allclose(keys, cache.layers[layer].keys[0, 1].numpy(), rtol=2e-3, atol=2e-3)
        meta = json.loads((folder / "meta.json").read_text())
        assert (meta["tokens"], meta["first_query"], meta["group"], meta["text"]) == (50, 32, 3, "none")
    for wrong in ({"layers": [3]}, {"heads": [2]}, {"prompt": 50}):
        with pytest.raises(dci.InvalidError):
            capture(model, ids, **{"layers": [0], "heads": [0], "prompt": 40, "observation": 8, "out": tmp_path, **wrong})


def test_a_copy_is_closed_by_itself(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache, token = dt.new_cache(model), prompt(1, seed=8)
    copy.deepcopy(cache).close()  # of an empty one
    with torch.no_grad():
        model(prompt(50), past_key_values=cache)
        other = copy.deepcopy(cache)
        wanted = model(token, past_key_values=copy.deepcopy(cache)).logits
        cache.close()
        assert torch.equal(model(token, past_key_values=other).logits, wanted)


def test_layers_of_another_scale_are_refused(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache = dt.new_cache(model)
    model.model.layers[1].self_attn.scaling *= 2
    with torch.no_grad():
        with pytest.raises(dci.UnsupportedError, match="layer 1 scales"):
            model(prompt(50), past_key_values=cache)
        model.model.layers[1].self_attn.scaling /= 2
        assert model(prompt(50), past_key_values=cache).logits.shape[1] == 50


def test_a_part_of_a_prompt_that_broke_leaves_no_queries(model: Any) -> None:
    dt.enable(model, summary="learned", key_bits=1, budget=64, window=16, rollback=16, sink=4, dense_layers=0)
    first, second, token = prompt(150), prompt(40, seed=4), prompt(1, seed=8)
    caches = [dt.new_cache(model) for _ in range(2)]

    def fail(*args: Any) -> None:
        raise RuntimeError("in the middle")

    with torch.no_grad():
        for number, cache in enumerate(caches):
            model(first, past_key_values=cache)
            if number:
                handle = model.model.layers[1].mlp.register_forward_pre_hook(fail)
                for part in (prompt(70, seed=9), second):
                    with pytest.raises(RuntimeError, match="in the middle"):
                        model(part, past_key_values=cache)
                handle.remove()
            model(second, past_key_values=cache)
        logits = [model(token, past_key_values=cache).logits for cache in caches]
    assert torch.equal(*logits)


def test_closing_gives_memory_back(model: Any) -> None:
    dt.enable(model, **EXACT)
    cache = dt.new_cache(model)
    with torch.no_grad():
        model(prompt(50), past_key_values=cache)
        cache.close()
        assert cache.kv is None and cache.get_seq_length() == 0
        assert model(prompt(50), past_key_values=cache).logits.shape[1] == 50
