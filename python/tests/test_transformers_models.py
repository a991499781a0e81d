# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Models of many families decode through dci as by themselves, or are refused and left as they were."""

from __future__ import annotations

import copy
import re
import subprocess
import sys
import threading
from typing import Any

import pytest

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers", minversion="5.17")

from hf_models import EXACT, SHAPE, build, generate, prompt  # noqa: E402

import dci  # noqa: E402
import dci.transformers as dt  # noqa: E402

FULL: dict[str, Any] = {"layer_types": ["full_attention"] * 3, "sliding_window": None}

# What a family's config has otherwise.
SERVED: dict[str, dict[str, Any]] = {
    "Apertus": {},
    "Bert": {"is_decoder": True},
    "Cohere": {},
    "CTRL": {"dff": 64},
    "Gemma": {"head_dim": 8},
    "Glm": {"head_dim": 8},
    "GPT2": {},
    "GPTBigCode": {"multi_query": True},
    "GPTNeoX": {},
    "Granite": {"attention_multiplier": 0.5},
    "Mixtral": {"num_local_experts": 2},
    "Nemotron": {},
    "Olmo2": {},
    "OPT": {"ffn_dim": 64, "word_embed_proj_dim": 48},
    "Persimmon": {},
    "Phi": {},
    "Phi3": {},
    "Qwen2Moe": {**FULL, "num_experts": 2, "num_experts_per_tok": 1, "moe_intermediate_size": 16},
    "Starcoder2": FULL,
}
# And what is said of those whose attention dci's cannot replace.
REFUSED: dict[str, tuple[str, dict[str, Any], str]] = {
    "Bloom": ("ForCausalLM", {"n_head": 6}, "attention be replaced"),
    "Falcon": ("ForCausalLM", {"alibi": True}, "attention be replaced"),
    "GPTJ": ("ForCausalLM", {"n_head": 6, "rotary_dim": 8}, "attention be replaced"),
    "GPTNeo": ("ForCausalLM", {"attention_types": [[["global"], 3]]}, "attention be replaced"),
    "Mpt": ("ForCausalLM", {"d_model": 48, "n_heads": 6, "n_layers": 3}, "attention be replaced"),
    "Mamba": ("ForCausalLM", {}, "linear_attention|num_attention_heads"),
    "Gemma3Text": ("", {}, "sliding_attention"),
    "DiffLlama": ("ForCausalLM", {}, "came, expected"),
    "Doge": ("ForCausalLM", {}, "adds to scores"),
    "StableLm": ("ForCausalLM", {}, "attention be replaced"),
    "T5": ("ForConditionalGeneration", {"d_model": 48, "d_kv": 8, "num_heads": 6, "num_layers": 2}, "encoder-decoder"),
}


def of_family(family: str, head: str, changes: dict[str, Any]) -> Any:
    torch.manual_seed(7)
    shape = {**SHAPE, **changes}
    if family in ("GPT2", "GPTNeoX", "OPT", "CTRL", "Bert", "GPTBigCode", "Persimmon"):
        del shape["num_key_value_heads"]
    name = "CTRLLMHeadModel" if family == "CTRL" else "GPT2LMHeadModel" if family == "GPT2" else f"{family}{head}"
    name = {"BertForCausalLM": "BertLMHeadModel", "Gemma3Text": "Gemma3ForCausalLM"}.get(name, name)
    return getattr(hf, name)(getattr(hf, family + "Config")(**shape)).eval()


def state_of(model: Any) -> Any:
    """What enable might leave behind."""
    configs = [module.config._attn_implementation for module in model.modules() if hasattr(module, "config")]
    hooks = [dict(module._forward_pre_hooks) for module in model.modules()], list(model._forward_hooks)
    return {name: value for name, value in vars(model).items() if not name.startswith("_forward")}, configs, hooks


@pytest.mark.parametrize("family", SERVED)
def test_a_family_decodes_as_by_itself(family: str) -> None:
    model = of_family(family, "ForCausalLM", SERVED[family])
    ids, mask = prompt(30, 2), torch.ones((2, 30), dtype=torch.long)
    mask[0, :7] = 0
    wanted = generate(model, ids, 8, attention_mask=mask)
    dt.enable(model, **EXACT)
    assert torch.equal(generate(model, ids, 8, attention_mask=mask), wanted)
    dt.disable(model)
    assert torch.equal(generate(model, ids, 8, attention_mask=mask), wanted)


@pytest.mark.parametrize("family", REFUSED)
def test_a_family_is_refused_in_words(family: str) -> None:
    head, changes, sentence = REFUSED[family]
    model, ids = of_family(family, head, changes), prompt(10)
    wanted, before = generate(model, ids, 3), state_of(model)
    try:
        dt.enable(model, **EXACT)
        got = generate(model, ids, 3)
    except dci.UnsupportedError as error:
        assert re.search(sentence, str(error))
    else:  # a later transformers lets its attention be replaced
        assert torch.equal(got, wanted)
    dt.disable(model)
    assert state_of(model) == before


@pytest.mark.parametrize("head", ["Model", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"])
def test_models_that_do_not_generate_stay_as_they_are(head: str) -> None:
    torch.manual_seed(7)
    model = getattr(hf, "Llama" + head)(hf.LlamaConfig(**SHAPE)).eval()
    before = state_of(model)
    with torch.no_grad():
        wanted = model(prompt(12))[0]
        with pytest.raises(dci.UnsupportedError, match=f"Llama{head} does not generate.*AutoModelForCausalLM"):
            dt.enable(model, **EXACT)
        assert state_of(model) == before
        assert torch.equal(model(prompt(12))[0], wanted)
    dt.disable(model)


def test_heads_that_differ_by_layer_are_refused() -> None:
    model = build()
    vars(model.config)["num_key_value_heads"] = [2, 3, 2]  # as configs from elsewhere may have
    with pytest.raises(dci.UnsupportedError, match="one number for all layers"):
        dt.enable(model)
    assert not dt.is_enabled(model)


def test_forwards_that_leave_layers_out_are_refused() -> None:
    model, ids = build(), prompt(20)
    dt.enable(model, **EXACT)
    cache, layers = dt.new_cache(model), model.model.layers
    with torch.no_grad():
        model(ids, past_key_values=cache)
        model.model.layers = layers[:2]
        with pytest.raises(dci.UnsupportedError, match="2 of 3 layers"):
            model(prompt(1), past_key_values=cache)
        model.model.layers = layers
        assert cache.get_seq_length() == 20
        model(prompt(1), past_key_values=cache)
    assert cache.get_seq_length() == 21
    dt.disable(model)


def test_what_is_no_model_is_refused() -> None:
    model = build()
    for thing in (torch.nn.Linear(2, 2), "model", None, torch.compile(model)):
        with pytest.raises(dci.UnsupportedError, match="wanted a causal language model"):
            dt.enable(thing)


def test_weights_that_are_offloaded_are_refused_by_name() -> None:
    model = build()
    model.model.layers[1].to("meta")
    before = state_of(model)
    with pytest.raises(dci.UnsupportedError, match="offloaded"):
        dt.enable(model)
    assert state_of(model) == before


def test_quantised_layers_do_not_hide_what_a_model_computes_in() -> None:
    model = build()
    weight = model.model.layers[0].mlp.up_proj.weight
    model.first = torch.nn.Parameter(weight.to(torch.float8_e4m3fn), requires_grad=False)
    model._parameters = {"first": model._parameters.pop("first"), **model._parameters}
    assert next(model.parameters()).dtype == torch.float8_e4m3fn
    ids = prompt(30)
    wanted = generate(model, ids, 4)
    dt.enable(model, **EXACT)
    assert torch.equal(generate(model, ids, 4), wanted)
    dt.disable(model)


@pytest.mark.parametrize("where", ["register_forward_hook", "set_attn_implementation", "_can_set_attn_implementation"])
def test_an_enable_that_fails_is_undone(where: str, monkeypatch: Any) -> None:
    model, ids = build(), prompt(20)
    wanted, before = generate(model, ids, 4), state_of(model)

    def fail(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("in the middle")

    with monkeypatch.context() as patched:
        patched.setattr(type(model), where, fail)
        with pytest.raises(RuntimeError, match="in the middle"):
            dt.enable(model, **EXACT)
    assert state_of(model) == before and not dt.is_enabled(model)
    assert torch.equal(generate(model, ids, 4), wanted)


def test_models_of_one_config_are_enabled_each_by_itself() -> None:
    first = build()
    torch.manual_seed(8)
    second, ids = hf.LlamaForCausalLM(first.config).eval(), prompt(30)
    wanted = generate(first, ids, 6), generate(second, ids, 6)
    before = first.config._attn_implementation
    dt.enable(first, **EXACT)
    assert torch.equal(generate(second, ids, 6), wanted[1])
    dt.enable(second, preset="full", budget=512)
    dt.disable(first)
    out = second.generate(ids, do_sample=False, max_new_tokens=6, return_dict_in_generate=True)
    assert torch.equal(out.sequences[:, 30:], wanted[1]) and isinstance(out.past_key_values, dt.DCICache)
    assert torch.equal(generate(first, ids, 6), wanted[0])
    dt.disable(second)
    assert second.config._attn_implementation == before


def test_each_part_gets_its_attention_back() -> None:
    text = {**SHAPE, "model_type": "llama"}
    vision = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8}
    config = hf.LlavaConfig(
        text_config=text, vision_config={**vision, "patch_size": 4, "model_type": "clip_vision_model"}, image_token_index=119
    )
    torch.manual_seed(7)
    model, ids = hf.LlavaForConditionalGeneration(config).eval(), prompt(20) % 100 + 2
    model.set_attn_implementation({"vision_config": "eager", "text_config": "sdpa"})
    wanted, before = generate(model, ids, 4), state_of(model)
    dt.enable(model, **EXACT)
    assert torch.equal(generate(model, ids, 4), wanted)
    dt.disable(model)
    assert state_of(model) == before


def test_own_methods_of_a_model_come_back() -> None:
    model, ids, seen = build(), prompt(20), []
    stock = model.generate

    def counted(*args: Any, **kwargs: Any) -> Any:
        seen.append(1)
        return stock(*args, **kwargs)

    model.generate = counted
    dt.enable(model, **EXACT)
    generate(model, ids, 2)
    dt.enable(model, preset="full", budget=512)
    generate(model, ids, 2)
    dt.disable(model)
    assert model.generate is counted and len(seen) == 2


def test_tokens_are_streamed() -> None:
    model, ids = build(), prompt(20)

    class Streamer:
        def __init__(self) -> None:
            self.tokens: list[int] = []

        def put(self, tokens: Any) -> None:
            self.tokens += tokens.flatten().tolist()

        def end(self) -> None:
            self.tokens.append(-1)

    ours, theirs = Streamer(), Streamer()
    generate(model, ids, 5, streamer=theirs)
    dt.enable(model, **EXACT)
    generate(model, ids, 5, streamer=ours)
    assert ours.tokens == theirs.tokens
    dt.disable(model)


@pytest.mark.parametrize("kind", ["LoraConfig", "PromptTuningConfig", "PrefixTuningConfig"])
def test_adapters_of_peft(kind: str) -> None:
    peft = pytest.importorskip("peft")
    own: dict[str, Any] = {"target_modules": ["q_proj", "v_proj"], "init_lora_weights": False}
    config = getattr(peft, kind)(task_type="CAUSAL_LM", **(own if kind == "LoraConfig" else {"num_virtual_tokens": 5}))
    torch.manual_seed(3)
    model, ids = peft.get_peft_model(build(), config).eval(), prompt(30)
    asked = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def generated() -> Any:
        return model.generate(**asked, do_sample=False, max_new_tokens=6)

    def trained() -> list[Any]:
        model.train()
        model.zero_grad()
        model(**asked, labels=ids).loss.backward()
        model.eval()
        return [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]

    wanted, gradients = generated(), trained()
    with torch.no_grad():
        logits = model(**asked).logits
    dt.enable(model, **EXACT)
    with torch.no_grad():
        assert torch.allclose(model(**asked).logits, logits, atol=1e-4)
    assert all(torch.allclose(ours, theirs, atol=1e-5) for ours, theirs in zip(trained(), gradients))
    try:
        assert torch.equal(generated(), wanted)
    except dci.InvalidError as error:  # a PEFT that gives the prefix by a name which transformers has no more, and ignores
        assert kind == "PrefixTuningConfig" and "prefix tuning" in str(error)
    dt.disable(model)


def test_versions_of_transformers_out_of_range_are_refused() -> None:
    for version in ("4.57.1", "5.16.3", "6.0.0.dev0"):
        program = f"import transformers\ntransformers.__version__ = '{version}'\nimport dci.transformers"
        out = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
        assert out.returncode != 0
        assert f"transformers from 5.17 on and below 6: this is transformers {version}" in out.stderr


def test_generations_of_two_threads_with_a_cache_each() -> None:
    model, ids = build(), [prompt(30), prompt(40, seed=5)]
    wanted = [generate(model, one, 6) for one in ids]
    dt.enable(model, **EXACT)
    got: dict[int, Any] = {}
    threads = [
        threading.Thread(target=lambda at=at: got.update({at: generate(model, ids[at], 6)}))  # type: ignore[misc]
        for at in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(got[at], wanted[at]) for at in range(2))
    dt.disable(model)


def test_a_prefix_that_sees_itself_whole() -> None:
    if not hasattr(hf, "HrmTextConfig"):
        pytest.skip("this transformers has no model of this kind that is small")
    torch.manual_seed(7)
    model = hf.HrmTextForCausalLM(hf.HrmTextConfig(**{**SHAPE, "initializer_range": 0.05})).eval()
    ids, kinds = prompt(30), torch.zeros((1, 30), dtype=torch.long)
    kinds[:, :20] = 1

    def run() -> Any:
        with torch.no_grad():
            out = model(ids, token_type_ids=kinds, use_cache=True)
            after = model(prompt(1), token_type_ids=kinds[:, -1:], past_key_values=out.past_key_values)
        return torch.cat([out.logits, after.logits], dim=1)

    wanted = run()
    with torch.no_grad():
        assert not torch.allclose(model(ids).logits, wanted[:, :30], atol=1e-5)
    dt.enable(model, **EXACT)
    assert torch.allclose(run(), wanted, atol=1e-5)
    dt.disable(model)


def test_a_model_that_guesses_by_its_own_first_layers() -> None:
    model, ids = build(), prompt(30)
    options = {"assistant_early_exit": 2, "eos_token_id": 119}
    wanted = generate(model, ids, 8, **options)
    dt.enable(model, **EXACT)
    assert torch.equal(generate(model, ids, 8, **options), wanted)
    dt.disable(model)


def test_copies_of_a_model_that_was_disabled_are_whole() -> None:
    model, ids = build(), prompt(20)
    dt.enable(model, **EXACT)
    dt.disable(model)
    other = copy.deepcopy(model)
    dt.enable(other, **EXACT)
    assert torch.equal(generate(other, ids, 4), generate(model, ids, 4))
