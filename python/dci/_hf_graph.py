# SPDX-License-Identifier: Apache-2.0
# Copyright (c) 2026 the dci authors
"""Forwards of one token as CUDA graphs: from the embedding to the logits one launch, whatever the length of the context.

A graph is captured for each KV cache, batch size, length class and set of arguments, at the second step that needs it;
the first one runs as usual and warms up. It reads its inputs in memory of its own, which each step copies to, and its
outputs are copied out. What a captured launch could not repeat runs as usual, with a warning that says why.
"""

from __future__ import annotations

import warnings
from typing import Any, Callable, NamedTuple

import torch

from ._errors import DciError, UnsupportedError
from ._hf_cache import DCICache
from ._hf_device import DeviceSession, pads_on_device
from .gpu import GPUKVCache

_CLASSES = tuple(8192 * 4**i for i in range(8))  # tokens that launches are sized for
_ADAPTERS = ("_active_adapter", "_disable_adapters", "merged_adapters", "scaling")  # what PEFT switches in a module
_RECORDING = "transformers.utils.output_capturing"  # of hooks that collect outputs, which a graph's are as well
_CHECKED = 32  # every so many steps the attention mask is looked at, which waits for the device


class _Rerun:
    """On the host device, which has no graphs: the forward again, with the inputs where a graph would read them."""

    def __init__(self, forward: Callable[[DCICache], None]) -> None:
        self.forward = forward


class _Step(NamedTuple):
    """A captured forward."""

    graph: Any
    inputs: dict[str, torch.Tensor]
    outputs: list[Any]  # one: what the forward has returned
    version: int  # of the model
    weights: list[int]


class Graphs:
    """Captures and launches the forwards of one model. A captured one is kept with the KV cache that it was captured on.

    forward     of the model, as it was before dci
    argument    the name that it has for its cache
    """

    def __init__(self, model: Any, forward: Callable[..., Any], argument: str) -> None:
        self.model, self.forward, self.argument = model, forward, argument
        self.version = 0  # counts what the model has been turned into
        self.parameters: list[torch.Tensor] = []
        self.state: Any = None
        self.warned: set[str] = set()
        self.failed = False  # a forward of this model could not be captured
        self.stream: Any = None

    def run(self, cache: DCICache, kwargs: dict[str, Any]) -> Any:
        """The output of a forward of one token for each sequence; None: it has to run as usual."""
        session = cache.session
        assert isinstance(session, DeviceSession)
        split = self._inputs(session, kwargs)
        if session.shared is None or split is None:
            return None
        tensors, key = split
        session.swap_in()
        session.begin_decode()
        graphs = session.shared.graphs
        step = graphs.get(key)
        if step is not None and not self._launch(cache, step, tensors, kwargs, key[2]):
            if self._fits(step):
                return None
            del graphs[key]  # of another model than this one now is
            step = None
        if step is None:
            if not self._checked(session, kwargs):
                return None
            if key not in session.shared.warm:
                session.shared.warm.add(key)
                return None
            step = self._capture(session, cache, tensors, key, kwargs)
            if step is None:
                return None
            graphs[key] = step
        session.n_new = 1
        session.advance()
        out = self._output(step, cache)
        if session.engine.generating and session.seen + 1 < session.wanted_tokens and self._bound(session) == key[2]:
            session.shared.arm(session, key[2], not isinstance(step.graph, _Rerun))
        return out

    def _launch(
        self, cache: DCICache, step: _Step, tensors: dict[str, torch.Tensor], kwargs: dict[str, Any], bound: int
    ) -> bool:
        """Runs a step. What may be wrong with it is looked at while the device computes: where something is, the step is
        taken back, and nothing has changed."""
        session, kv = cache.session, cache.session.kv
        assert isinstance(session, DeviceSession) and isinstance(kv, GPUKVCache) and session.shared is not None
        for name, tensor in tensors.items():
            step.inputs[name].copy_(tensor)
        if session.shared.armed != (session, bound):
            session.shared.disarm(rest=64)
            session._reserve([1] * len(session.sequences))
            if not isinstance(step.graph, _Rerun):
                kv.replay(bound)
        session.shared.armed = None
        try:
            if not isinstance(step.graph, _Rerun):
                step.graph.replay()
            good = self._checked(session, kwargs) and self._fits(step)
            if good and isinstance(step.graph, _Rerun):
                self._rerun(session, cache, step)
            bad = bool((kv.bad_layers(session.sequences) >= 0).any())
            if good and not bad:
                kv.step_end()
                return True
            kv.step_abort()
        except BaseException:
            if kv.in_step:
                kv.step_abort()
            raise
        if bad:
            session.check_numbers()
        return False

    def _fits(self, step: _Step) -> bool:
        """Whether a step was captured from the model as it is, as far as that was looked at, and from these weights."""
        return step.version == self.version and step.weights == [p.data_ptr() for p in self.parameters]

    # --- what a graph depends on ---------------------------------------------------------------------------------------

    def _inputs(self, session: DeviceSession, kwargs: dict[str, Any]) -> tuple[dict[str, torch.Tensor], Any] | None:
        """Tensors by name, and what a graph for them is kept by; None: this forward is not one token after a prompt."""
        ids, embeds = kwargs.get("input_ids"), kwargs.get("inputs_embeds")
        main = ids if ids is not None else embeds
        if main is None or main.shape[1] != 1 or not session.prompted or main.shape[0] != len(session.sequences):
            return None
        if self.failed or torch.is_grad_enabled() or self.model.training or session.kv is None:
            return None
        tensors: dict[str, torch.Tensor] = {}
        plain: list[tuple[str, Any]] = []
        for name, value in kwargs.items():
            if value is None or name in ("attention_mask", self.argument):
                continue
            if isinstance(value, torch.Tensor):
                tensors[name] = value
            elif isinstance(value, (bool, int, float, str)):
                plain.append((name, value))
            else:
                self._refuse(f"the argument {name} is a {type(value).__name__}")
                return None
        if kwargs.get("return_dict") is False:
            self._refuse("return_dict is False")
            return None
        if "position_ids" not in tensors:
            tensors["position_ids"] = torch.full((main.shape[0], 1), session.seen, device=main.device)
        shapes = tuple(sorted((name, tuple(x.shape), str(x.dtype)) for name, x in tensors.items()))
        return tensors, (len(session.sequences), shapes, self._bound(session), tuple(sorted(plain)))

    def _bound(self, session: DeviceSession) -> int:
        """Tokens that the launches of a session's next step are sized for."""
        after, most = session.seen + 1 - min(session.pads), session._kv.max_tokens
        return min(next((n for n in _CLASSES if n >= after), most), most)

    def _checked(self, session: DeviceSession, kwargs: dict[str, Any]) -> bool:
        """Whether this forward may be a graph: looked at in the first step after others, and then from time to time. Waits
        for the device where there is a mask."""
        if 0 <= session.fresh < _CHECKED:
            session.fresh += 1
            return True
        mask = kwargs.get("attention_mask")
        if not self._same_model():
            return False
        if mask is not None and pads_on_device(mask, len(session.pads), session.seen + 1) != session.pads:
            return False  # the forward says what is wrong
        session.fresh = 1
        return True

    def _same_model(self) -> bool:
        """Whether a graph repeats all that the model does. A model that is another one than before is a new version."""
        state: list[Any] = []
        for name, module in self.model.named_modules():
            hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
            if module is not self.model and any(getattr(hook, "__module__", "") != _RECORDING for hook in hooks):
                self._refuse(f"{name} ({type(module).__name__}) has forward hooks, which a graph would not run")
                return False
            state.append((id(module), id(module.__dict__.get("forward"))))
            state.extend(str(module.__dict__[field]) for field in _ADAPTERS if field in module.__dict__)
        parameters = list(self.model.parameters())
        state.extend(id(p) for p in parameters)
        if state != self.state:
            self.version += 1
            self.state, self.parameters = state, parameters
        return True

    def _refuse(self, why: str) -> None:
        if why not in self.warned:
            self.warned.add(why)
            warnings.warn(
                f"dci decodes without a CUDA graph, which is slower: {why}. "
                "dci.transformers.enable(model, graph=False) does so without a warning",
                RuntimeWarning,
                stacklevel=2,
            )

    # --- capturing -----------------------------------------------------------------------------------------------------

    def _capture(
        self, session: DeviceSession, cache: DCICache, tensors: dict[str, torch.Tensor], key: Any, kwargs: dict[str, Any]
    ) -> _Step | None:
        """Captures a step, and runs it."""
        inputs = {name: tensor.clone() for name, tensor in tensors.items()}
        session.disarm()
        session.check_numbers()
        left_out = {"attention_mask", self.argument, *tensors}
        plain = {name: value for name, value in kwargs.items() if name not in left_out}
        outputs: list[Any] = []

        def forward(cache: DCICache) -> None:
            outputs[:] = [self.forward(**{**plain, **inputs, self.argument: cache})]

        device = next(iter(inputs.values())).device
        record = self._record if device.type == "cuda" else self._dry
        session.captured = True
        try:
            graph = record(cache, key[2], forward, device)
        finally:
            session.captured = False
            session.begun = 0
            outputs[:] = [self._apart(out) for out in outputs]
        if graph is None:
            return None
        return _Step(graph, inputs, outputs, self.version, [p.data_ptr() for p in self.parameters])

    def _record(self, cache: DCICache, bound: int, forward: Callable[[DCICache], None], device: torch.device) -> Any:
        """A CUDA graph of the forward, which has run once; None where it cannot be captured."""
        session, kv = cache.session, cache.session.kv
        assert isinstance(session, DeviceSession) and isinstance(kv, GPUKVCache)
        if self.stream is None:
            self.stream = torch.cuda.Stream(device)
        assert session.shared is not None
        if not session.shared.graphs:  # memory of graphs that are gone is gone
            session.shared.pool = torch.cuda.graph_pool_handle()
        now = torch.cuda.current_stream(device)
        self.stream.wait_stream(now)
        graph, pool = torch.cuda.CUDAGraph(), session.shared.pool
        with torch.cuda.stream(self.stream):
            session._reserve([1] * len(session.sequences))
            try:
                kv.capture(bound)
                with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"):
                    forward(cache)
                graph.replay()
                kv.step_end()
            except (RuntimeError, DciError) as error:
                kv.step_abort()
                if isinstance(error, MemoryError):
                    raise
                self.failed = True
                self._refuse(str(error).splitlines()[0])
                return None
        now.wait_stream(self.stream)
        return graph

    def _dry(self, cache: DCICache, bound: int, forward: Callable[[DCICache], None], device: torch.device) -> Any:
        """What stands for a graph on the host device."""
        session, kv = cache.session, cache.session.kv
        assert isinstance(session, DeviceSession) and isinstance(kv, GPUKVCache)
        session._reserve([1] * len(session.sequences))
        try:
            kv.capture(bound)
            forward(cache)
            kv.step_end()
        except UnsupportedError as error:
            kv.step_abort()
            self.failed = True
            self._refuse(str(error))
            return None
        except BaseException:
            kv.step_abort()
            raise
        return _Rerun(forward)

    def _rerun(self, session: DeviceSession, cache: DCICache, step: _Step) -> None:
        session.captured = True
        try:
            step.graph.forward(cache)
            step.outputs[:] = [self._apart(out) for out in step.outputs]
        finally:
            session.captured = False
            session.begun = 0

    # --- outputs -------------------------------------------------------------------------------------------------------

    def _apart(self, out: Any) -> Any:
        """An output without its cache, which is each step's own."""
        return type(out)(**{name: None if isinstance(value, DCICache) else value for name, value in out.items()})

    def _output(self, step: _Step, cache: DCICache) -> Any:
        """A copy of the output that a graph has written."""
        out = step.outputs[0]

        def copied(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                return value.clone()
            return type(value)(copied(part) for part in value) if isinstance(value, (tuple, list)) else value

        return type(out)(**{**{name: copied(value) for name, value in out.items()}, self.argument: cache})
