"""One training step as the recorder sees it: for real on the CPU, and traced without storage."""

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch

from gpuplan.profiles.trace.gpu import functions as gpu_functions
from gpuplan.profiles.trace.gpu.answers import gpu_machine
from gpuplan.profiles.trace.gpu.target import Target
from gpuplan.profiles.trace.recording import storages as rec
from gpuplan.profiles.trace.recording.recorder import Recorder
from gpuplan.profiles.trace.torch_private import no_torch_function


def record(example: Any, params: dict[str, Any], batch_size: int, *, device: str) -> Recorder:
    """Return what one step of a model file does on a device, "cpu" or "meta".

    Args:
        example: with `build_model`, `make_batch` and `compute_loss`.
        params: of those.
        batch_size: samples.
        device: where the step is run.
    """

    def call(function: Callable[..., Any], *args: Any) -> Any:
        names = inspect.signature(function).parameters
        return function(*args, **{k: v for k, v in params.items() if k in names})

    recorder = Recorder(device, pytest.fail)
    with _machine(recorder, device):
        with recorder.paused(), torch.device(device):
            model = call(example.build_model)
            batch = call(example.make_batch, batch_size)
            optimizer = torch.optim.AdamW(model.parameters(), foreach=True)
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter)
            optimizer.step()
            optimizer.zero_grad()
        _hold(recorder, model, optimizer, batch)
        with recorder.watching(model, []):
            loss = example.compute_loss(model, batch)
        recorder.start("backward")
        loss.backward()
        del loss
        recorder.start("optimizer")
        optimizer.step()
        optimizer.zero_grad()
    return recorder


@contextmanager
def _machine(recorder: Recorder, device: str) -> Iterator[None]:
    target = Target(
        casts=False, data_dependent=pytest.fail, paused=recorder.paused, keep=recorder.keep
    )
    on_meta = device == "meta"
    with (
        gpu_machine(target) if on_meta else nullcontext(),
        target if on_meta else nullcontext(),
        recorder,
    ):
        yield


def as_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the target take the CPU's own attention kernels, and take apart what the CPU does.

    Source: torch aten/src/ATen/native/transformers/sdp_utils_cpp.cpp (`use_flash_attention_cpp`:
    neither dropout nor masks that are trained).
    """

    def attention(
        _: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        aten = torch.ops.aten
        if dropout_p or (attn_mask is not None and attn_mask.requires_grad):
            return aten._scaled_dot_product_attention_math(
                query, key, value, attn_mask, dropout_p, is_causal,
                scale=scale, enable_gqa=enable_gqa,
            )[0]  # fmt: skip
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            zero = torch.zeros((), dtype=query.dtype, device=query.device)
            attn_mask = torch.where(attn_mask, zero, -math.inf)
        return aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
        )[0]

    for name in ("dropout", "rms_norm", "lstm"):
        monkeypatch.delitem(gpu_functions.REPLACED, name)
    monkeypatch.setitem(gpu_functions.REPLACED, "scaled_dot_product_attention", attention)


def _hold(recorder: Recorder, model: Any, optimizer: Any, batch: Any) -> None:
    with no_torch_function():
        for parameter in model.parameters():
            recorder.hold(parameter, rec.PARAMETERS)
        for buffer in model.buffers():
            recorder.hold(buffer, rec.BUFFERS)
        for state in optimizer.state.values():
            for name, value in state.items():
                if name != "step":
                    recorder.hold(value, rec.OPTIMIZER)
        for tensor in batch.values() if isinstance(batch, dict) else batch:
            recorder.hold(tensor, rec.INPUTS)


def stream_of(recorder: Recorder) -> list[int]:
    """Return every allocation (+bytes) and release (-bytes) in order."""
    rows = recorder.rows
    deaths = sorted((tick, row) for row, tick in enumerate(rows.death) if tick < rec.NEVER)
    stream: list[int] = []
    for row, birth in enumerate(rows.birth):
        while deaths and deaths[0][0] <= birth:
            stream.append(-rows.bytes[deaths.pop(0)[1]])
        stream.append(rows.bytes[row])
    return stream + [-rows.bytes[row] for _, row in deaths]


def peak_bytes(stream: list[int]) -> int:
    """Return the most bytes that are allocated at a time."""
    total = most = 0
    for change in stream:
        total += change
        most = max(most, total)
    return most


def operations_of(recorder: Recorder) -> list[list[str]]:
    """Return the operations of forward and backward; an optimizer also counts on the host."""
    return [
        [str(call.func) for call, _, _ in instance.calls]
        for instance in recorder.instances
        if instance.phase != "optimizer"
    ]
