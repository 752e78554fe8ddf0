"""What `torch.cuda`, `torch.compile` and autocast answer on a machine with one GPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch

from ..kernels.operations import words
from ..torch_private import checkpoint_answers, no_torch_function
from . import flex
from .accelerator import MEMORY_BYTES, accelerator_answers
from .streams import CUDA_STREAMS, NVTX, record_stream
from .target import Target
from .tensor_types import cuda_classes


@contextmanager
def gpu_machine(target: Target | None) -> Iterator[None]:
    """Answer `torch.cuda.*`, `torch.compile` and autocast as a machine with one GPU would."""
    if target is None:
        yield
        return
    replaced = {**_cuda_answers(), **cuda_classes()}
    answers: list[Any] = [patch.object(torch.cuda, k, v) for k, v in replaced.items()]
    answers += [
        patch.object(module, "amp_definitely_not_available", lambda: False)
        for module in (torch.cuda.amp.common, torch.amp.grad_scaler)
        if hasattr(module, "amp_definitely_not_available")
    ]
    answers += [
        *(patch.object(torch.cuda.nvtx, name, answer) for name, answer in NVTX.items()),
        patch.object(torch.Tensor, "record_stream", record_stream),
        patch.object(torch.nn.DataParallel, "scatter", _to_one_gpu),
        *accelerator_answers(),
        checkpoint_answers(),
        patch.object(torch.backends.cudnn, "is_acceptable", lambda tensor: False),
        patch.object(torch, "compile", _compile(target)),
        patch.object(torch.nn.Module, "compile", _compile_module(target)),
        patch.object(torch.autocast, "__enter__", _enter_autocast(target)),
        patch.object(torch.autocast, "__exit__", _exit_autocast(target)),
    ]
    for answer in answers:
        answer.start()
    try:
        yield
    finally:
        for answer in reversed(answers):
            answer.stop()


def _cuda_answers() -> dict[str, Any]:
    properties = SimpleNamespace(
        name="GPU", major=9, minor=0, total_memory=MEMORY_BYTES, multi_processor_count=132,
        warp_size=32, max_threads_per_multi_processor=2048,
    )  # fmt: skip
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: False,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "get_device_capability": lambda *_: (properties.major, properties.minor),
        "get_device_name": lambda *_: properties.name,
        "get_device_properties": lambda *_: properties,
        "is_bf16_supported": lambda *_, **__: True,
        "mem_get_info": lambda *_: (properties.total_memory, properties.total_memory),
        "memory_allocated": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "memory_summary": lambda *_, **__: "",
        "memory_stats": lambda *_: defaultdict(int),
        **CUDA_STREAMS,
        "get_rng_state": lambda *_: torch.zeros(16, dtype=torch.uint8),
        "set_rng_state": lambda *_, **__: None,
        **{name: _returning(0) for name in ("_exchange_device", "_maybe_exchange_device")},
        **{
            name: _returning(None)
            for name in words(
                """synchronize empty_cache manual_seed manual_seed_all set_device _lazy_init
                reset_peak_memory_stats reset_accumulated_memory_stats ipc_collect"""
            )
        },
    }


def _to_one_gpu(_: Any, inputs: tuple[Any, ...], kwargs: dict[str, Any], __: Any) -> Any:
    """Return what `DataParallel.scatter` gives to its one device: everything."""
    return (inputs,), (kwargs,)


def _returning(value: int | None) -> Callable[..., int | None]:
    """Return a new function each time: torch._dynamo keeps a rule by function, and one only."""
    return lambda *_, **__: value


def _compile(target: Target) -> Callable[..., Any]:
    def compile(model: Any = None, **_: Any) -> Any:
        # Its own attention, which compiles a part by itself, says nothing of the rest of a model.
        if getattr(model, "__module__", "") == flex.MODULE:
            return flex.compiled(model) if model.__name__ == flex.NAME else model
        target.compiles = True
        return model if model is not None else lambda function: function

    return compile


def _compile_module(target: Target) -> Callable[..., None]:
    def compile(module: torch.nn.Module, *_: Any, **__: Any) -> None:
        target.compiles = True

    return compile


def _enter_autocast(target: Target) -> Callable[..., Any]:
    enter = torch.autocast.__enter__

    def run(autocast: torch.autocast) -> Any:
        # Under a mode, autocast would look for a tracer of torch.fx, which is slow to import.
        with no_torch_function():
            entered = enter(autocast)
        if autocast.device == "cuda" and torch.is_autocast_enabled("cuda"):
            target.autocast_dtype = torch.get_autocast_dtype("cuda")
        return entered

    return run


def _exit_autocast(target: Target) -> Callable[..., Any]:
    exit = torch.autocast.__exit__

    def run(autocast: torch.autocast, *error: Any) -> Any:
        with no_torch_function():
            result = exit(autocast, *error)
            if torch.autocast_decrement_nesting() <= 0:
                target.autocast.forget_copies()
            torch.autocast_increment_nesting()
        return result

    return run
