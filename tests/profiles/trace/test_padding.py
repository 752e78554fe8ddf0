"""Batches of transformers: what is padded attends with a mask, and a note says what is known."""

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from traced_mlp import workload

from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.padding import _masks
from gpuplan.profiles.trace.trace import trace_workload

SMALL: dict[str, Any] = {"hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
LLAMA: dict[str, Any] = SMALL | {
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_key_value_heads": 2,
}
BART: dict[str, Any] = {
    "d_model": 64, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "vocab_size": 100,
}  # fmt: skip
EFFICIENT, FLASH = (f"_scaled_dot_product_{kind}_attention" for kind in ("efficient", "flash"))


def with_mask(
    mask: Callable[[torch.Tensor], torch.Tensor], *, named: bool = True, bart: bool = False
) -> Profile:
    """Return the trace of a small model of transformers, whose batches have this mask."""
    import transformers  # of the dev extra, as the tests are

    def build_model() -> nn.Module:
        if bart:
            config = transformers.BartConfig(**BART)
            return transformers.BartForConditionalGeneration(config)
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA))

    def make_batch(size: int) -> Any:
        tokens = torch.randint(100, (size, 32))
        given = {"input_ids": tokens, "attention_mask": mask(tokens), "labels": tokens}
        return given if named else tuple(given.values())

    def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        names = ("input_ids", "attention_mask", "labels")
        return model(**(batch if named else dict(zip(names, batch, strict=True)))).loss

    return trace_workload(
        workload(build_model=build_model, make_batch=make_batch, compute_loss=compute_loss),
        numerics=["amp16"],
    )


def last_padded(tokens: torch.Tensor) -> torch.Tensor:
    mask = torch.ones_like(tokens)
    mask[:, -3:] = 0
    return mask


def attention_of(profile: Profile) -> dict[tuple[str, bool], int]:
    """Return how often each forward kernel of attention runs, and whether it is causal."""
    step = profile.steps[0]
    ran = (k for index in step.schedule for k in step.segments[index].kernels)
    return dict(Counter((k.op, k.causal) for k in ran if k.op in (EFFICIENT, FLASH)))


def test_transformers_models_keep_flash_attention() -> None:
    profile = with_mask(torch.ones_like)
    assert profile.blocks[0].count == 2
    assert attention_of(profile) == {(FLASH, True): 2}
    (note,) = profile.notes
    assert note.startswith("attention_mask hides no token") and "padded" in note


def test_transformers_models_with_padding_attend_with_a_mask() -> None:
    profile = with_mask(last_padded)
    assert attention_of(profile) == {(EFFICIENT, False): 2}
    (note,) = profile.notes
    assert "gives attention a mask" in note and "flash_attention_2" in note


def test_a_mask_without_its_name_is_said_not_to_be_known() -> None:
    profile = with_mask(last_padded, named=False)
    assert attention_of(profile) == {(FLASH, True): 2}
    (note,) = profile.notes
    assert note.startswith("what attention_mask hides is not known")


def test_padding_of_an_encoder_leaves_its_decoder_alone() -> None:
    """Its own mask, that over what it wrote itself, is all ones: `is_causal` then."""
    profile = with_mask(last_padded, bart=True)
    assert attention_of(profile) == {(EFFICIENT, False): 2, (FLASH, True): 1}


@pytest.mark.parametrize(
    ("positions", "expected"),
    [
        pytest.param(torch.arange(16).repeat(2), (EFFICIENT, False), id="packed"),
        pytest.param(torch.arange(32), (FLASH, True), id="one sequence"),
        pytest.param(torch.arange(5, 37), (FLASH, True), id="begun before"),
        pytest.param(None, (FLASH, True), id="not in the batch"),
    ],
)
def test_packed_sequences_attend_with_a_mask(
    positions: torch.Tensor | None, expected: tuple[str, bool]
) -> None:
    import transformers

    def build_model() -> nn.Module:
        config = transformers.LlamaConfig(**LLAMA, use_cache=False)
        return transformers.LlamaForCausalLM(config)

    def make_batch(size: int) -> dict[str, torch.Tensor]:
        tokens = torch.randint(100, (size, 32))
        given = {"input_ids": tokens, "labels": tokens}
        if positions is None:
            return given
        return {**given, "position_ids": positions.expand(size, -1).clone()}

    def compute_loss(model: nn.Module, batch: Any) -> torch.Tensor:
        return model(**batch).loss

    profile = trace_workload(
        workload(build_model=build_model, make_batch=make_batch, compute_loss=compute_loss),
        numerics=["amp16"],
    )
    assert attention_of(profile) == {expected: 2}
    assert any("what is packed" in note for note in profile.notes) is (expected[0] == EFFICIENT)


def test_of_several_rows_of_positions_the_first_is_read() -> None:
    image = torch.tensor([0, 0, 1, 1, 2, 2])
    places = torch.stack([torch.arange(6), image, image, image])[:, None]
    batch = {"position_ids": places}
    assert not dict(_masks(batch))["position_ids"]
    assert dict(_masks({"inputs": [batch | {"position_ids": places[1:]}]}))["position_ids"]
