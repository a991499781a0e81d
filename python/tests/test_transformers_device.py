# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Small models with random weights decode through a device: GPU 0 where DCI_GPU_DEVICE says so, else the host device."""

from __future__ import annotations

import copy
import gc
import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers", minversion="5.17")

import dci  # noqa: E402
import dci.gpu  # noqa: E402
import dci.transformers as dt  # noqa: E402
from dci._hf_attention import attention_of_chunk  # noqa: E402

DEVICE: Any = int(os.environ["DCI_GPU_DEVICE"]) if os.environ.get("DCI_GPU_DEVICE", "").isdigit() else "host"
PLACE = "cpu" if DEVICE == "host" else f"cuda:{DEVICE}"
VOCABULARY = 120
SHAPE: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 96,
    "intermediate_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": None,
    "initializer_range": 0.4,
}
EXACT: dict[str, Any] = {"preset": "sketch", "budget": 1024, "window": 16, "sink": 4}


@pytest.fixture(scope="module")
def gpu() -> dci.gpu.GPU:
    return dci.gpu.GPU(DEVICE)


def build(family: str = "Llama", kind: Any = torch.float16, **changes: Any) -> Any:
    """A model with weights that are the same each time."""
    more: dict[str, Any] = {"sliding_window": None} if family == "Mistral" else {}
    more.update({"use_sliding_window": False, "layer_types": ["full_attention"] * 3} if family.startswith("Qwen") else {})
    torch.manual_seed(7)
    config = getattr(hf, family + "Config")(**{**SHAPE, **more, **changes})
    return getattr(hf, family + "ForCausalLM")(config).eval().to(PLACE, kind)


@pytest.fixture
def model() -> Any:
    built = build()
    yield built
    dt.disable(built)


def prompt(n: int, batch: int = 1, seed: int = 3) -> Any:
    """Random tokens."""
    return torch.randint(2, VOCABULARY, (batch, n), generator=torch.Generator().manual_seed(seed)).to(PLACE)


def generate(model: Any, ids: Any, n: int = 24, **options: Any) -> Any:
    """The new tokens."""
    options = {"do_sample": False, "max_new_tokens": n, "attention_mask": torch.ones_like(ids), **options}
    return model.generate(ids, **options)[:, ids.shape[1] :]


def agree(a: Any, b: Any, least: float = 0.9) -> bool:
    """Whether as many tokens are the same: sums in half precision differ in their last bits, after which texts may part."""
    return a.shape == b.shape and float((a == b).float().mean()) >= least


def close(a: Any, b: Any, most: float = 0.02) -> bool:
    """Whether numbers are the same but for the rounding of half precision, relative to their size."""
    return a.shape == b.shape and float((a.float() - b.float()).norm() / b.float().norm()) <= most


def graphs_of(model: Any) -> dict[Any, Any]:
    """The steps that were captured for a model."""
    shared = dt._enabled[model].engine.current
    return {} if shared is None else shared.graphs


@pytest.mark.parametrize("family", ["Llama", "Qwen2", "Qwen3", "Mistral", "SmolLM3"])
def test_whole_budget_gives_the_tokens_of_the_stock_model(gpu: dci.gpu.GPU, family: str) -> None:
    model, ids = build(family), prompt(90)
    wanted = generate(model, ids)
    dt.enable(model, **EXACT, gpu=gpu)
    assert agree(generate(model, ids), wanted)
    assert len(graphs_of(model)) == 1
    dt.disable(model)
    assert torch.equal(generate(model, ids), wanted)
    assert "forward" not in model.__dict__


@pytest.mark.parametrize(
    "preset",
    ["full", "sketch+lowbit", "sketch+sums", "quest", "arkvale", "clusterkv", "louiskv", "prkv", "icecache", "retroinfer"],
)
def test_presets_that_the_device_plans_are_graphs(gpu: dci.gpu.GPU, model: Any, preset: str) -> None:
    ids = prompt(150)
    wanted = generate(model, ids, 40)
    dt.enable(model, preset=preset, budget=512, window=32, gpu=gpu)
    assert agree(generate(model, ids, 40), wanted)
    assert len(graphs_of(model)) == 1


def test_published_sizes_with_lists_of_query_heads_are_graphs(gpu: dci.gpu.GPU, model: Any) -> None:
    ids = prompt(500)
    options: dict[str, Any] = {"preset": "clusterkv", "budget": 256, "published": True, "dense_layers": 0}
    dt.enable(model, **options, gpu=gpu)
    cache = dt.new_cache(model)
    got = generate(model, ids, 24, past_key_values=cache)
    assert cache.kv.info().planner == "device" and len(graphs_of(model)) == 1
    assert cache.kv.host_info().n_lists == SHAPE["num_attention_heads"]
    if DEVICE == "host":
        dt.enable(model, **options)
        assert agree(got, generate(model, ids, 24))


@pytest.mark.parametrize("preset", ["streaming", "snapkv"])
def test_presets_that_the_host_plans_decode_with_a_warning(gpu: dci.gpu.GPU, model: Any, preset: str) -> None:
    ids = prompt(150)
    wanted = generate(model, ids, 16)
    dt.enable(model, preset=preset, budget=512, window=32, gpu=gpu)
    with pytest.warns(RuntimeWarning, match="without a CUDA graph.*the host plans"):
        got = generate(model, ids, 16)
    assert agree(got, wanted) and not graphs_of(model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        generate(model, ids, 4)  # said once
        dt.enable(model, preset=preset, budget=512, window=32, gpu=gpu, graph=False)
        generate(model, ids, 4)


def test_bfloat16_and_rows_in_another_format(gpu: dci.gpu.GPU) -> None:
    model, ids = build(kind=torch.bfloat16), prompt(60)
    wanted = generate(model, ids, 8)
    for store in (None, "float16"):
        dt.enable(model, **EXACT, gpu=gpu, dtype=store)
        cache = dt.new_cache(model)
        assert agree(generate(model, ids, 8, past_key_values=cache), wanted, 0.5)
        assert cache.kv.dtype == (store or "bfloat16")


def test_sampling_draws_the_same_tokens(gpu: dci.gpu.GPU, model: Any) -> None:
    ids = prompt(80)
    torch.manual_seed(5)
    wanted = generate(model, ids, do_sample=True, temperature=1.3, top_k=20)
    dt.enable(model, **EXACT, gpu=gpu)
    torch.manual_seed(5)
    assert agree(generate(model, ids, do_sample=True, temperature=1.3, top_k=20), wanted, 0.7)


def test_rows_padded_on_the_left_decode_as_alone(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu)
    lengths = [70, 33, 51]
    alone = [generate(model, prompt(n, seed=n), 16) for n in lengths]
    ids = torch.zeros((3, 70), dtype=torch.long, device=PLACE)
    mask = torch.zeros_like(ids)
    for row, n in enumerate(lengths):
        ids[row, 70 - n :], mask[row, 70 - n :] = prompt(n, seed=n)[0], 1
    assert agree(generate(model, ids, 16, attention_mask=mask), torch.cat(alone))
    assert {key[0] for key in graphs_of(model)} == {3}  # the larger KV cache has replaced the first one


def test_beams_are_those_of_the_stock_model(gpu: dci.gpu.GPU, model: Any) -> None:
    ids = prompt(60, batch=2)
    options = {"num_beams": 3, "num_return_sequences": 2, "length_penalty": 0.0}
    wanted = generate(model, ids, 12, **options)
    dt.enable(model, **EXACT, gpu=gpu)
    assert agree(generate(model, ids, 12, **options), wanted, 0.7)


def test_several_samples_of_one_prompt(gpu: dci.gpu.GPU, model: Any) -> None:
    ids = prompt(60)
    torch.manual_seed(9)
    wanted = generate(model, ids, 12, do_sample=True, num_return_sequences=3)
    dt.enable(model, **EXACT, gpu=gpu)
    torch.manual_seed(9)
    assert agree(generate(model, ids, 12, do_sample=True, num_return_sequences=3), wanted, 0.7)


def test_guessed_tokens_are_taken_back(gpu: dci.gpu.GPU, model: Any) -> None:
    ids = prompt(30).repeat(1, 3)
    options = {"prompt_lookup_num_tokens": 4, "eos_token_id": VOCABULARY - 1}
    wanted = generate(model, ids, 20, **options)
    dt.enable(model, **EXACT, gpu=gpu)
    assert agree(generate(model, ids, 20, **options), wanted)


@pytest.mark.parametrize("preset", ["sketch", "full", "quest", "clusterkv", "icecache"])
def test_a_prompt_in_chunks_is_one_prompt(gpu: dci.gpu.GPU, model: Any, preset: str) -> None:
    ids = prompt(300)
    wanted = generate(model, ids)
    dt.enable(model, preset=preset, budget=1024, window=16, gpu=gpu, prefill_chunk_size=97, graph=False)
    assert agree(generate(model, ids), wanted)
    whole, parts = dt.new_cache(model), dt.new_cache(model)
    with torch.no_grad():
        end = model(ids, past_key_values=whole).logits[:, -1]
        for part in ids.split(70, dim=1):
            logits = model(part, past_key_values=parts).logits[:, -1]
        assert close(logits, end)
        token = end.argmax(dim=-1, keepdim=True)
        for _ in range(3):
            a, b = (model(token, past_key_values=cache).logits for cache in (parts, whole))
            assert close(a, b)


def test_a_prompt_of_embeddings_is_read_whole(gpu: dci.gpu.GPU, model: Any) -> None:
    embeds = model.get_input_embeddings()(prompt(60))
    options = {"inputs_embeds": embeds, "max_new_tokens": 12, "do_sample": False}
    with torch.no_grad():
        wanted = model.generate(**options)
        dt.enable(model, **EXACT, gpu=gpu, prefill_chunk_size=16)
        assert agree(model.generate(**options), wanted)


def test_a_second_turn_goes_on_from_the_first(gpu: dci.gpu.GPU, model: Any) -> None:
    def talk() -> Any:
        out = []
        cache = model(prompt(60), use_cache=True).past_key_values
        for n, seed in ((1, 5), (1, 6), (20, 4), (1, 7), (1, 8), (3, 9), (1, 10)):
            out.append(model(prompt(n, seed=seed), past_key_values=cache).logits)
        return torch.cat(out, dim=1)

    with torch.no_grad():
        wanted = talk()
        dt.enable(model, **EXACT, gpu=gpu)
        assert close(talk(), wanted)


def test_a_copied_cache_goes_on_by_itself(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu, max_sequences=3)
    cache = dt.new_cache(model)
    with torch.no_grad():
        model(prompt(80), past_key_values=cache)
        wanted = [model(prompt(1, seed=s), past_key_values=copy.deepcopy(cache)).logits for s in (1, 2)]
        other = copy.deepcopy(cache)
        assert close(model(prompt(1, seed=1), past_key_values=cache).logits, wanted[0])
        assert close(model(prompt(1, seed=2), past_key_values=other).logits, wanted[1])
        assert cache.kv is other.kv and cache.sequences != other.sequences


def test_rows_that_find_no_place_are_not_copied(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu)
    cache, token = dt.new_cache(model), prompt(1, batch=2, seed=5)
    with torch.no_grad():
        model(prompt(40, batch=2), past_key_values=cache)
        model(token, past_key_values=cache)
        with pytest.raises(dci.FullError, match="max_sequences"):
            cache.batch_select_indices(torch.tensor([0, 0]))
        wanted = model(token, past_key_values=cache).logits
        cache.crop(-1)
        assert close(model(token, past_key_values=cache).logits, wanted)
        cache.crop(-1)
        cache.batch_select_indices(torch.tensor([1]))
        assert close(model(token[1:], past_key_values=cache).logits, wanted[1:])


def test_a_small_budget_is_kept_and_a_graph_serves_all_lengths(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, preset="sketch", budget=128, window=16, sink=4, gpu=gpu)
    for n in (200, 60, 500):
        cache = dt.new_cache(model)
        generate(model, prompt(n), 30, past_key_values=cache)
        cache.close()
    assert len(graphs_of(model)) == 1


def test_graphs_give_what_forwards_give(gpu: dci.gpu.GPU, model: Any) -> None:
    ids = prompt(400)
    dt.enable(model, preset="sketch", budget=128, window=16, sink=4, gpu=gpu)
    one = generate(model, ids, 40)
    dt.enable(model, preset="sketch", budget=128, window=16, sink=4, gpu=gpu, graph=False)
    assert agree(generate(model, ids, 40), one)


def test_conversations_take_no_more_memory_than_the_first(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, preset="sketch", budget=128, window=16, gpu=gpu)
    taken = []
    for _ in range(6):
        for n in (300, 120):
            generate(model, prompt(n), 12)
        info = dt._enabled[model].engine.current.kv.info()
        taken.append((info.device_bytes, info.pinned_bytes))
    assert taken[-1] == taken[1]


def test_sequences_of_dropped_caches_end(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu)
    with torch.no_grad():
        for seed in range(4):  # one place
            cache = dt.new_cache(model)
            model(prompt(20, seed=seed), past_key_values=cache)
            del cache
            gc.collect()
    assert dt._enabled[model].engine.current.kv.max_sequences == 1


def test_more_caches_than_places_get_a_larger_kv_cache(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu)
    with torch.no_grad():
        caches = [dt.new_cache(model) for _ in range(3)]
        for seed, cache in enumerate(caches):
            model(prompt(20, seed=seed), past_key_values=cache)
        wanted = [model(prompt(1, seed=9), past_key_values=copy.deepcopy(cache)).logits for cache in caches]
        for cache, logits in zip(caches, wanted):
            assert close(model(prompt(1, seed=9), past_key_values=cache).logits, logits)


def test_replaced_weights_are_noticed(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu)
    ids = prompt(50)
    generate(model, ids, 8)
    with torch.no_grad():
        for name, weight in list(model.named_parameters()):
            if "mlp" in name:
                weight.data = weight.data * 0.5  # another tensor
    got = generate(model, ids, 12)
    dt.disable(model)
    assert agree(got, generate(model, ids, 12))


def test_weights_replaced_between_two_steps_are_noticed(gpu: dci.gpu.GPU, model: Any) -> None:
    def talk() -> Any:
        out = []
        cache = model(prompt(60), use_cache=True).past_key_values
        for seed in range(4):
            out.append(model(prompt(1, seed=seed), past_key_values=cache).logits)
        kept = model.lm_head.weight.data
        model.lm_head.weight.data = kept * 0.5
        for seed in range(4):
            out.append(model(prompt(1, seed=seed), past_key_values=cache).logits)
        model.lm_head.weight.data = kept
        return torch.cat(out, dim=1)

    with torch.no_grad():
        wanted = talk()
        dt.enable(model, **EXACT, gpu=gpu)
        assert close(talk(), wanted)


def test_hooks_run_in_every_step(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu)
    generate(model, prompt(40), 6)
    seen = []
    handle = model.model.layers[1].register_forward_hook(lambda *args: seen.append(1))
    with pytest.warns(RuntimeWarning, match="layers.1 .*has forward hooks"):
        generate(model, prompt(40), 6)
    assert len(seen) == 6
    handle.remove()
    generate(model, prompt(40), 6)
    assert len(seen) == 6


def test_hidden_states_come_from_graphs_too(gpu: dci.gpu.GPU, model: Any) -> None:
    ids = prompt(40)
    options = {"output_hidden_states": True, "return_dict_in_generate": True, "output_logits": True}
    wanted = model.generate(ids, max_new_tokens=6, do_sample=False, **options)
    dt.enable(model, **EXACT, gpu=gpu)
    got = model.generate(ids, max_new_tokens=6, do_sample=False, **options)
    for a, b in zip(got.logits, wanted.logits):
        assert close(a, b)
    for a, b in zip(got.hidden_states, wanted.hidden_states):
        assert all(close(x, y) for x, y in zip(a, b))


def test_what_a_device_cannot_serve_is_refused(gpu: dci.gpu.GPU) -> None:
    for model, sentence in (
        (build(kind=torch.float32), "float32"),
        (build(head_dim=48), "48"),
        (build(hidden_size=68, num_attention_heads=34, num_key_value_heads=2), "17|16"),
    ):
        before = model.config._attn_implementation
        with pytest.raises(dci.UnsupportedError, match=sentence):
            dt.enable(model, **EXACT, gpu=gpu)
        assert not dt.is_enabled(model) and model.config._attn_implementation == before
        assert "forward" not in model.__dict__


def test_host_memory_that_will_not_suffice_is_refused_early(gpu: dci.gpu.GPU, model: Any) -> None:
    with pytest.raises(dci.OutOfMemoryError, match=r"100000000 tokens of 1536 bytes need 143.1 GiB .* there are [\d.]+:"):
        dt.enable(model, **EXACT, gpu=gpu, max_tokens=100_000_000)
    assert not dt.is_enabled(model)
    dt.enable(model, **EXACT, gpu=gpu)
    with pytest.raises(dci.OutOfMemoryError, match="GiB of host memory"):
        generate(model, prompt(20), 100_000_000)
    assert generate(model, prompt(20), 4).shape == (1, 4)


def test_gradients_of_one_token_are_the_stock_models(gpu: dci.gpu.GPU, model: Any) -> None:
    def norms() -> Any:
        model.zero_grad()
        with torch.no_grad():
            cache = model(prompt(40), use_cache=True).past_key_values
        model(prompt(1), past_key_values=cache).logits.float().log_softmax(-1)[0, -1, 5].backward()
        block = model.model.layers[0].self_attn
        return torch.stack([w.grad.float().norm() for w in (block.q_proj.weight, block.k_proj.weight, block.o_proj.weight)])

    wanted = norms()
    dt.enable(model, **EXACT, gpu=gpu)
    assert close(norms(), wanted, 0.05)


def test_a_step_that_was_begun_early_is_taken_back(gpu: dci.gpu.GPU, model: Any) -> None:
    def stop(n: int) -> Any:
        return hf.StoppingCriteriaList([lambda ids, scores, **_: torch.full((1,), ids.shape[1] >= n, device=ids.device)])

    ids = prompt(60)
    wanted = generate(model, ids, 24)
    dt.enable(model, **EXACT, gpu=gpu)
    cache = dt.new_cache(model)
    first = model.generate(ids, past_key_values=cache, max_new_tokens=50, do_sample=False, stopping_criteria=stop(70))
    assert first.shape[1] == 70 and not cache.session.kv.in_step
    begun = []
    arm, engine = type(cache.session.shared).arm, cache.session.engine

    def counted(self: Any, *args: Any) -> None:
        arm(self, *args)
        begun.append(self.armed is not None)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(cache.session.shared), "arm", counted)
        text = model.generate(first, past_key_values=cache, max_new_tokens=14, do_sample=False)
        assert agree(text[:, 60:], wanted) and all(begun) and len(begun) >= 10
        engine.generating += 1
        cache.session.wanted_tokens = 1000
        with torch.no_grad():
            for _ in range(3):  # without generate() a forward has other arguments: another graph
                model(prompt(1), past_key_values=cache)
            assert cache.session.kv.in_step
            other = copy.deepcopy(cache)  # each of these takes the step back
            model(prompt(1), past_key_values=cache)
            assert cache.session.kv.in_step
            cache.crop(-1)
            model(prompt(1), past_key_values=cache)
            assert not cache.kv.in_step
            model(prompt(1), past_key_values=cache)
            model(prompt(1), past_key_values=other)
            cache.close()
        engine.generating -= 1


def test_two_threads_generate_side_by_side(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu, max_sequences=2)
    prompts = [prompt(50, seed=1), prompt(70, seed=2)]
    wanted = [generate(model, ids, 30) for ids in prompts]
    with ThreadPoolExecutor(2) as threads:
        got = list(threads.map(lambda ids: generate(model, ids, 30), prompts))
    assert all(agree(a, b) for a, b in zip(got, wanted))


@pytest.mark.parametrize("options", [{"max_tokens": 0}, {"max_sequences": 0}, {"prefill_chunk_size": -1}, {"observe": -1}])
def test_numbers_out_of_range_are_refused(gpu: dci.gpu.GPU, model: Any, options: dict[str, int]) -> None:
    (name,) = options
    with pytest.raises(dci.InvalidError, match=f"{name} is {options[name]}, expected at least"):
        dt.enable(model, **EXACT, gpu=gpu, **options)
    assert not dt.is_enabled(model)


def test_masks_with_holes_are_refused(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu)
    ids, mask = prompt(20), torch.ones((1, 20), dtype=torch.long, device=PLACE)
    mask[0, 7] = 0
    with torch.no_grad(), pytest.raises(dci.UnsupportedError, match="padding on the left only"):
        model(ids, attention_mask=mask, use_cache=True)
    assert agree(generate(model, ids, 4), generate(model, ids, 4))


def test_a_context_longer_than_there_is_room_for(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu, max_tokens=40)
    cache = dt.new_cache(model)
    with torch.no_grad():
        model(prompt(38), past_key_values=cache)
        for seed in range(2):
            logits = model(prompt(1, seed=seed), past_key_values=cache).logits
        with pytest.raises(dci.LimitError, match=r"40.*enable\(model, max_tokens"):
            model(prompt(1), past_key_values=cache)
        cache.crop(-1)  # nothing was lost
        assert close(model(prompt(1, seed=1), past_key_values=cache).logits, logits)
    assert generate(model, prompt(60), 4).shape == (1, 4)  # generate() says what it needs


def test_numbers_that_are_not_finite_end_a_generation(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu, max_sequences=2)
    cache, other = dt.new_cache(model), dt.new_cache(model)
    with torch.no_grad():
        model(prompt(30), past_key_values=other)
        model(prompt(30), past_key_values=cache)
        model(prompt(1), past_key_values=cache)
        weight = model.model.layers[1].self_attn.k_proj.weight
        kept = weight.clone()
        weight.fill_(float("nan"))
        with pytest.raises(dci.NumberError, match=r"layer 1: .*row 0 of the batch.*NaN or infinity"):
            for _ in range(3):
                model(prompt(1), past_key_values=cache)
        weight.copy_(kept)
        assert torch.isfinite(model(prompt(1), past_key_values=other).logits).all()


def test_without_a_cache_the_model_attends_by_itself(gpu: dci.gpu.GPU, model: Any) -> None:
    ids, mask = prompt(30, batch=2), torch.ones((2, 30), dtype=torch.long, device=PLACE)
    mask[1, :9] = 0
    with torch.no_grad():
        wanted = model(ids, attention_mask=mask, use_cache=False).logits
        dt.enable(model, **EXACT, gpu=gpu)
        assert close(model(ids, attention_mask=mask, use_cache=False).logits[0], wanted[0])
        assert close(model(ids, attention_mask=mask, use_cache=False).logits[1, 9:], wanted[1, 9:])


def test_a_forward_that_broke_is_taken_back(gpu: dci.gpu.GPU, model: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu)
    cache, ids = dt.new_cache(model), prompt(40)
    with torch.no_grad():
        wanted = model(ids, past_key_values=cache).logits[:, -1]
        norm = model.model.layers[2].input_layernorm
        kept, norm.forward = norm.forward, None
        for n in (1, 5):
            with pytest.raises(TypeError):
                model(prompt(n), past_key_values=cache)
        norm.forward = kept
        del norm.__dict__["forward"]
        token = wanted.argmax(dim=-1, keepdim=True)
        logits = model(token, past_key_values=cache).logits
        fresh = dt.new_cache(model)
        dt.disable(model)
        dt.enable(model, **EXACT, gpu=gpu)
        fresh = dt.new_cache(model)
        model(ids, past_key_values=fresh)
        assert close(model(token, past_key_values=fresh).logits, logits)


@pytest.mark.parametrize("preset", ["sketch", "clusterkv", "icecache"])
@pytest.mark.parametrize("decoded", [0, 3])
def test_a_saved_cache_goes_on_where_it_was(gpu: dci.gpu.GPU, model: Any, tmp_path: Any, preset: str, decoded: int) -> None:
    dt.enable(model, preset=preset, budget=512, window=16, gpu=gpu, graph=preset != "icecache")
    cache, ids = dt.new_cache(model), prompt(300)
    with torch.no_grad():
        model(ids, past_key_values=cache)
        for seed in range(decoded):
            model(prompt(1, seed=seed), past_key_values=cache)
        cache.save(tmp_path / "cache")
        wanted = [model(prompt(1, seed=seed), past_key_values=cache).logits for seed in range(5)]
        cache.close()
        other = dt.load_cache(model, tmp_path / "cache")
        for seed, logits in enumerate(wanted):
            assert close(model(prompt(1, seed=seed), past_key_values=other).logits, logits)


def test_a_cache_goes_between_cpu_and_device(gpu: dci.gpu.GPU, model: Any, tmp_path: Any) -> None:
    dt.enable(model, **EXACT, gpu=gpu)
    cache, ids = dt.new_cache(model), prompt(80)
    with torch.no_grad():
        model(ids, past_key_values=cache)
        model(prompt(1), past_key_values=cache)
        cache.save(tmp_path / "cache")
        wanted = model(prompt(1), past_key_values=cache).logits
        dt.disable(model)
        model.to("cpu")
        dt.enable(model, **EXACT)
        other = dt.load_cache(model, tmp_path / "cache")
        assert close(model(prompt(1).cpu(), past_key_values=other).logits.to(PLACE), wanted)
        model.to(PLACE)


def test_a_filled_cache_of_transformers_is_imported(gpu: dci.gpu.GPU, model: Any) -> None:
    given = hf.DynamicCache()
    with torch.no_grad():
        model(prompt(100), past_key_values=given)
        wanted = [model(prompt(1, seed=s), past_key_values=copy.deepcopy(given)).logits for s in range(3)]
        dt.enable(model, **EXACT, gpu=gpu)
        for seed, logits in enumerate(wanted):
            assert close(model(prompt(1, seed=seed), past_key_values=copy.deepcopy(given)).logits, logits)


def test_adapters_that_are_switched_are_noticed(gpu: dci.gpu.GPU, model: Any) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    adapted, ids = peft.get_peft_model(model, config), prompt(60)

    def texts() -> list[Any]:
        with_it = generate(adapted, ids, 8)
        with adapted.disable_adapter():
            without = generate(adapted, ids, 8)
        return [with_it, without, generate(adapted, ids, 8)]

    wanted = texts()
    assert not torch.equal(wanted[0], wanted[1])
    dt.enable(adapted, **EXACT, gpu=gpu)
    assert all(agree(a, b) for a, b in zip(texts(), wanted))
    assert graphs_of(model)


def test_nothing_is_lost_where_memory_ends_in_a_generation(gpu: dci.gpu.GPU, model: Any) -> None:
    options = {"preset": "sketch", "budget": 128, "window": 16, "sink": 4, "piece_bytes": 1}
    dt.enable(model, **options, gpu=gpu, max_sequences=2)
    tokens = [prompt(1, seed=seed) for seed in range(40)]

    def started(n: int) -> Any:
        cache = dt.new_cache(model)
        model(prompt(n), past_key_values=cache)
        return cache

    with torch.no_grad():
        cache = started(200)
        wanted = [model(token, past_key_values=cache).logits for token in tokens]
        most = cache.kv.host_info().bytes
        dt.enable(model, **options, gpu=gpu, max_sequences=2, max_bytes=2 * most - most // 4)
        cache, other, got = started(200), started(100), []
        with pytest.raises((dci.FullError, dci.OutOfMemoryError)):
            while True:
                model(prompt(1), past_key_values=other)
        with pytest.raises((dci.FullError, dci.OutOfMemoryError)):
            for token in tokens:
                got.append(model(token, past_key_values=cache).logits)
        assert cache.get_seq_length() == 200 + len(got)
        other.close()
        got.extend(model(token, past_key_values=cache).logits for token in tokens[len(got) :])
    assert all(close(a, b) for a, b in zip(got, wanted)) and len(got) == len(wanted)


@pytest.mark.parametrize(("n", "total"), [(1, 40), (37, 5000), (300, 1200), (700, 700), (2048, 4096), (2500, 5001)])
def test_attention_of_a_chunk_is_that_of_double_precision(n: int, total: int) -> None:
    generator = torch.Generator().manual_seed(n)
    query, keys, values = (torch.randn((1, h, t, 128), generator=generator) for h, t in ((8, n), (2, total), (2, total)))
    half = [x.to(PLACE, torch.bfloat16) for x in (query, keys, values)]
    exact = [x.double().repeat_interleave(8 // x.shape[1], dim=1) for x in half]
    mask = torch.ones((n, total), dtype=torch.bool, device=PLACE).tril(total - n)
    wanted = torch.nn.functional.scaled_dot_product_attention(*exact, attn_mask=mask, scale=0.11)
    assert close(attention_of_chunk(*half, 0.11), wanted, 0.01)
