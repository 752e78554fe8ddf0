"""Recurrent layers over packed sequences: traced as over whole ones, with a note."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.gpu.recurrent import pack_whole, pad_whole
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

STEPS, WIDTH, HIDDEN = 12, 16, 32
Layer = Callable[..., nn.RNNBase]
LAYERS: dict[str, Layer] = {
    "lstm": lambda **named: nn.LSTM(WIDTH, HIDDEN, num_layers=2, bidirectional=True, **named),
    "lstm projected": lambda **named: nn.LSTM(WIDTH, HIDDEN, proj_size=8, **named),
    "gru": lambda **named: nn.GRU(WIDTH, HIDDEN, **named),
    "rnn": lambda **named: nn.RNN(WIDTH, HIDDEN, **named),
}


class Encoder(nn.Module):
    """Runs a recurrent layer over embedded tokens, packed or as they are."""

    def __init__(self, layer: Layer, *, packs: bool, batch_first: bool) -> None:
        super().__init__()
        self.embedding = nn.Embedding(100, WIDTH)
        self.layer = layer(batch_first=batch_first)
        self.packs, self.batch_first = packs, batch_first

    def forward(self, tokens: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens if self.batch_first else tokens.T)
        if not self.packs:
            return self.layer(x)[0]
        packed = rnn.pack_padded_sequence(
            x, lengths.cpu(), batch_first=self.batch_first, enforce_sorted=False
        )
        out, _ = self.layer(packed)
        out, _ = rnn.pad_packed_sequence(
            out, batch_first=self.batch_first, total_length=tokens.shape[1]
        )
        return out


def batch(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(100, (size, STEPS)), torch.randint(1, STEPS, (size,))


def profile_of(layer: Layer, *, packs: bool, batch_first: bool = True) -> Profile:
    workload = Workload(
        name="encoder",
        path=Path(__file__),
        build_model=lambda: Encoder(layer, packs=packs, batch_first=batch_first),
        make_batch=batch,
        compute_loss=lambda model, batch: model(*batch).square().mean(),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    return trace_workload(workload, numerics=("fp32",))


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_packed_batch_does_the_work_of_a_whole_one(kind: str, batch_first: bool) -> None:
    packed = profile_of(LAYERS[kind], packs=True, batch_first=batch_first)
    whole = profile_of(LAYERS[kind], packs=False, batch_first=batch_first)
    assert recurrent_flops(packed) == recurrent_flops(whole)
    assert len(recurrent_flops(packed)) == 2  # forward and backward
    assert all(flops > 0 for flops in recurrent_flops(packed))
    assert packed.parameters == whole.parameters


def recurrent_flops(profile: Profile) -> list[float]:
    step = profile.step("fp32")
    return [
        kernel.flops.at(8)
        for at in step.schedule
        for kernel in step.segments[at].kernels
        if kernel.kind == "rnn"
    ]


def test_that_lengths_are_data_is_said_with_the_line() -> None:
    packed = profile_of(LAYERS["lstm"], packs=True)
    (note,) = [each for each in packed.notes if "packs padded sequences" in each]
    assert note.startswith("test_recurrent.py:")
    assert "as long as the padded" in note
    assert not profile_of(LAYERS["lstm"], packs=False).notes


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("added", [0, 3])
def test_packing_has_the_shapes_of_torch_where_no_sequence_is_shorter(
    batch_first: bool, added: int
) -> None:
    x = torch.randn((5, STEPS, 3) if batch_first else (STEPS, 5, 3))
    lengths = torch.full((5,), STEPS)
    real = rnn.pack_padded_sequence(x, lengths, batch_first=batch_first)
    data, batch_sizes = pack_whole(unused, x.to("meta"), lengths, batch_first)
    assert (data.shape, batch_sizes.tolist()) == (real.data.shape, real.batch_sizes.tolist())
    whole, _ = rnn.pad_packed_sequence(real, batch_first, total_length=STEPS + added)
    padded, unknown = pad_whole(unused, data, batch_sizes, batch_first, 0.0, STEPS + added)
    assert (padded.shape, unknown.shape) == (whole.shape, (5,))
    assert unknown.is_meta


def unused(*_: object) -> None:
    raise AssertionError("what torch runs was called")
