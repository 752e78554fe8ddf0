"""The storages of a trace equal those of the same step run for real on the CPU, byte for byte."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.examples import gpt2, lstm, resnet50
from gpuplan.profiles.trace.gpu import functions as gpu_functions
from gpuplan.profiles.trace.gpu.answers import gpu_machine
from gpuplan.profiles.trace.gpu.target import Target
from gpuplan.profiles.trace.recording import storages as rec
from gpuplan.profiles.trace.recording.recorder import Recorder
from gpuplan.profiles.trace.torch_private import no_torch_function

pytestmark = pytest.mark.slow


class CellByCell(nn.Module):
    """The LSTM example, step by step."""

    def __init__(self, hidden: int, vocab: int):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        self.cells = nn.ModuleList(nn.LSTMCell(hidden, hidden) for _ in range(2))
        self.head = nn.Linear(hidden, vocab)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        steps = self.embedding(tokens).unbind(1)
        for cell in self.cells:
            state, outputs = None, []
            for step in steps:
                state = cell(step, state)
                outputs.append(state[0])
            steps = outputs
        return self.head(torch.stack(list(steps), 1))


lstm_cells = SimpleNamespace(
    build_model=CellByCell, make_batch=lstm.make_batch, compute_loss=lstm.compute_loss
)


@pytest.mark.parametrize(
    ("example", "params", "batch_size"),
    [
        # All layers, but narrow or of a small image: the operations are those of the whole model.
        (gpt2, {"hidden": 192, "vocab": 5000, "seq_len": 64}, 2),
        (resnet50, {"image": 64}, 2),
        (lstm_cells, {"vocab": 1000, "hidden": 64, "seq_len": 8}, 3),
    ],
    ids=["gpt2", "resnet50", "lstm"],
)
def test_storages_equal_those_of_a_real_cpu_run(
    example: Any, params: dict[str, Any], batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _as_on_cpu(monkeypatch)
    with torch.backends.mkldnn.flags(enabled=False):  # pyright: ignore[reportAttributeAccessIssue]
        real = _record(example, params, batch_size, device="cpu")
    traced = _record(example, params, batch_size, device="meta")
    assert _peak_bytes(_stream(real)) == _peak_bytes(_stream(traced))
    assert _stream(real) == _stream(traced)
    assert real.rows.category == traced.rows.category
    assert _operations(real) == _operations(traced)


def test_peak_of_an_lstm_layer_equals_that_of_a_real_cpu_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On the CPU torch multiplies all steps' inputs first, so only the order differs.
    _as_on_cpu(monkeypatch)
    params = {"vocab": 1000, "hidden": 64, "seq_len": 8}
    with torch.backends.mkldnn.flags(enabled=False):  # pyright: ignore[reportAttributeAccessIssue]
        real = _record(lstm, params, 3, device="cpu")
    traced = _record(lstm, params, 3, device="meta")
    assert _peak_bytes(_stream(real)) == _peak_bytes(_stream(traced))


def _record(example: Any, params: dict[str, Any], batch_size: int, *, device: str) -> Recorder:
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


def _as_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the target take the CPU's own attention kernel, and take apart what the CPU does."""

    def attention(
        _: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
        is_causal: bool = False,
    ) -> Any:  # fmt: skip
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, dropout_p, is_causal, attn_mask=attn_mask
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
        for tensor in batch:
            recorder.hold(tensor, rec.INPUTS)


def _stream(recorder: Recorder) -> list[int]:
    """Return every allocation (+bytes) and release (-bytes) in order."""
    rows = recorder.rows
    deaths = sorted((tick, row) for row, tick in enumerate(rows.death) if tick < rec.NEVER)
    stream: list[int] = []
    for row, birth in enumerate(rows.birth):
        while deaths and deaths[0][0] <= birth:
            stream.append(-rows.bytes[deaths.pop(0)[1]])
        stream.append(rows.bytes[row])
    return stream + [-rows.bytes[row] for _, row in deaths]


def _peak_bytes(stream: list[int]) -> int:
    total = most = 0
    for change in stream:
        total += change
        most = max(most, total)
    return most


def _operations(recorder: Recorder) -> list[list[str]]:
    """Return the operations of forward and backward; an optimizer also counts on the host."""
    return [
        [str(call.func) for call, _, _ in instance.calls]
        for instance in recorder.instances
        if instance.phase != "optimizer"
    ]
