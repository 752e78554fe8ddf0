"""The storages of a trace equal those of the same step run for real on the CPU, byte for byte."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from real_steps import as_on_cpu, operations_of, peak_bytes, record, stream_of
from torch import nn

from gpuplan.examples import gpt2, lstm, resnet50

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
    as_on_cpu(monkeypatch)
    with torch.backends.mkldnn.flags(enabled=False):  # pyright: ignore[reportAttributeAccessIssue]
        real = record(example, params, batch_size, device="cpu")
    traced = record(example, params, batch_size, device="meta")
    assert peak_bytes(stream_of(real)) == peak_bytes(stream_of(traced))
    assert stream_of(real) == stream_of(traced)
    assert real.rows.category == traced.rows.category
    assert operations_of(real) == operations_of(traced)


def test_peak_of_an_lstm_layer_equals_that_of_a_real_cpu_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # On the CPU torch multiplies all steps' inputs first, so only the order differs.
    as_on_cpu(monkeypatch)
    params = {"vocab": 1000, "hidden": 64, "seq_len": 8}
    with torch.backends.mkldnn.flags(enabled=False):  # pyright: ignore[reportAttributeAccessIssue]
        real = record(lstm, params, 3, device="cpu")
    traced = record(lstm, params, 3, device="meta")
    assert peak_bytes(stream_of(real)) == peak_bytes(stream_of(traced))
