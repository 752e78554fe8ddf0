"""TOKENS_PER_SAMPLE beside what the batches hold: right, doubtful, or outdated by a param."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.profile import BatchTensor
from gpuplan.profiles.trace.token_count import token_warnings, tokens_of_batch
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.contract import load_workload
from gpuplan.profiles.user_model.spec import parse_model_spec
from gpuplan.profiles.user_model.workload import Workload

FILE = """
import torch

TOKENS_PER_SAMPLE = {tokens}

def build_model(width=8):
    return torch.nn.Sequential(torch.nn.Embedding(10, width), torch.nn.Linear(width, 10))

def make_batch(batch_size, seq_len=64):
    return (torch.randint(10, (batch_size, seq_len)),)

def compute_loss(model, batch):
    return model(*batch).mean()
"""


def ids(length: int) -> BatchTensor:
    return BatchTensor(sample_shape=(length,), dtype="int64")


def tensor(*shape: int, dtype: str = "float32") -> BatchTensor:
    return BatchTensor(sample_shape=shape, dtype=dtype)


def file_that_states(tokens: float | None, *, follows: bool = False, **params: Any) -> Workload:
    def unused(*_: object) -> Any:
        raise AssertionError("not called")

    return Workload(
        name="toy",
        path=None,
        params=params,
        build_model=lambda: nn.Linear(1, 1),
        make_batch=unused,
        compute_loss=unused,
        build_optimizer=unused,
        tokens_per_sample=tokens,
        tokens_follow_params=follows,
    )


def warned(
    workload: Workload, given: Sequence[BatchTensor], usual: Sequence[BatchTensor] | None = None
) -> list[str]:
    return token_warnings(workload, tuple(given), lambda: None if usual is None else tuple(usual))


@pytest.mark.parametrize(
    ("tokens", "given"),
    [
        (None, [ids(2048)]),
        (2048, [ids(2048), ids(2048)]),
        (2048, [ids(2049)]),
        (640, [ids(512), ids(512), ids(128)]),
        (639, [ids(512), ids(128)]),
        (196, [tensor(3, 224, 224), tensor(dtype="int64")]),
        (1000, [ids(2)] + [ids(length) for length in range(10, 17)]),
        (1600, [tensor(1600, 80), ids(100)]),
        (7, [tensor(16), tensor(dtype="int64")]),
        (512, [ids(512), tensor(1, dtype="int64")]),
    ],
    ids=[
        "not stated",
        "as long as the sequences",
        "targets shifted by one",
        "encoder and decoder",
        "shifted, too",
        "patches of images",
        "too many to tell",
        "frames of sound",
        "no integers",
        "labels beside",
    ],
)
def test_what_may_be_right_is_not_warned_about(
    tokens: float | None, given: list[BatchTensor]
) -> None:
    assert warned(file_that_states(tokens), given) == []


def test_another_number_than_that_of_the_sequences_is_named_with_the_fix() -> None:
    masks = [tensor(4096, dtype="bool"), tensor(1, 4096, 4096, dtype="bool"), tensor(4096)]
    (warning,) = warned(file_that_states(2048), [ids(4096), ids(4096), *masks])
    assert "TOKENS_PER_SAMPLE is 2,048" in warning and "has 4,096 tokens" in warning
    assert "2 times too high" in warning
    assert "write TOKENS_PER_SAMPLE = 4096" in warning
    assert "def TOKENS_PER_SAMPLE(seq_len=4096): return seq_len" in warning


def test_inputs_and_labels_of_one_length_are_the_same_tokens() -> None:
    (warning,) = warned(file_that_states(4096), [ids(2048), ids(2048)])
    assert "2 times too low" in warning


def test_a_constant_that_a_param_outdates_is_an_error() -> None:
    stated = file_that_states(2048, seq_len=4096, layers=2)
    with pytest.raises(UserFileError) as caught:
        warned(stated, [ids(4096)], usual=[ids(2048)])
    assert "constant 2,048" in str(caught.value) and "4,096 tokens" in str(caught.value)
    assert "--param seq_len=4096" in str(caught.value) and "2 times too high" in str(caught.value)
    assert "def TOKENS_PER_SAMPLE(seq_len=2048): return seq_len" in str(caught.value.fix)


def test_equal_lengths_of_half_the_constant_are_outdated_too() -> None:
    with pytest.raises(UserFileError, match="2 times too low"):
        warned(
            file_that_states(4096, seq_len=2048),
            [ids(2048), ids(2048)],
            usual=[ids(4096), ids(4096)],
        )


def test_the_name_of_the_param_is_left_to_the_user_where_it_is_not_clear() -> None:
    with pytest.raises(UserFileError) as caught:
        warned(file_that_states(512, pages=2), [ids(1024)], usual=[ids(512)])
    assert "def TOKENS_PER_SAMPLE(pages): return …" in str(caught.value.fix)


def test_a_constant_beside_other_tokens_is_warned_about_where_params_change_the_sample() -> None:
    image, text = tensor(3, 384, 384), ids(64)
    usual = [tensor(3, 224, 224), text]
    (warning,) = warned(file_that_states(260, image=384), [image, text], usual=usual)
    assert "stays 260 while --param image=384" in warning
    assert warned(file_that_states(260, layers=2), usual, usual=usual) == []
    assert warned(file_that_states(260, image=384), [image, text], usual=None) == []


def test_a_function_is_taken_at_its_word() -> None:
    stated = file_that_states(2048, follows=True, seq_len=4096)
    (warning,) = warned(stated, [ids(4096)], usual=[ids(2048)])
    assert "unless it has others" in warning


def load(tmp_path: Path, tokens: object, **params: Any) -> Workload:
    path = tmp_path / f"tokens_{tokens}.py"  # Under one name a change within a second is not seen.
    path.write_text(FILE.format(tokens=tokens), encoding="utf-8")
    return load_workload(parse_model_spec(str(path), params=params))


@pytest.mark.slow
def test_a_traced_file_is_compared_with_its_own_batches(tmp_path: Path) -> None:
    profile = trace_workload(load(tmp_path, 64, width=16), numerics=["fp32"])
    assert profile.batch_tensors == (ids(64),)
    assert profile.warnings == ()
    profile = trace_workload(load(tmp_path, 32), numerics=["fp32"])
    (warning,) = profile.warnings
    assert profile.notes[0] == warning
    with pytest.raises(UserFileError, match="seq_len=128"):
        trace_workload(load(tmp_path, 64, seq_len=128), numerics=["fp32"])


def test_the_usual_batch_is_made_without_the_params(tmp_path: Path) -> None:
    with_param = load(tmp_path, 64, seq_len=128)
    assert with_param.make_usual_batch is not None
    (usual,) = with_param.make_usual_batch(2)
    assert isinstance(usual, torch.Tensor) and usual.shape == (2, 64)
    assert load(tmp_path, 64).make_usual_batch is None


@pytest.mark.parametrize(
    ("tensors", "tokens"),
    [
        ([ids(64), ids(64)], 64),
        ([ids(64), tensor(64, dtype="bool"), tensor()], 64),
        ([ids(64), ids(48)], None),
        ([ids(64), tensor(3, 32, 32)], None),
        ([tensor(64)], None),
    ],
)
def test_the_tokens_of_a_batch_that_nobody_counted(
    tensors: Sequence[BatchTensor], tokens: int | None
) -> None:
    assert tokens_of_batch(tensors) == tokens
