"""A checkpoint holds the bytes that the runner writes."""

from pathlib import Path

import pytest
import torch

from gpuplan import api
from gpuplan.catalog.vocabulary import FrozenPrecision, Precision
from gpuplan.launcher.runner.checkpoint.contents import Contents
from gpuplan.planner.software.checkpoint_size import checkpoint_bytes
from gpuplan.planner.software.frozen_base import NF4_BYTES
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.user_model.contract import load_workload
from gpuplan.profiles.user_model.structure.frozen import cast_frozen

EXAMPLE = Path(__file__).parents[3] / "examples" / "lora.py"
DIMS = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocab": 96}
DIMS |= {"seq_len": 32, "rank": 2}


def written_bytes(precision: Precision, frozen: FrozenPrecision | None) -> int:
    """Return bytes of the tensors that the runner saves after a step, but for Adam's counts."""
    workload = load_workload(api.model(EXAMPLE, params=DIMS))
    model = workload.build_model()
    # As launcher/runner/build.py does.
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    if frozen == "bf16":
        cast_frozen(model, torch.bfloat16)
    optimizer = workload.build_optimizer([p for p in model.parameters() if p.requires_grad])
    with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16-amp"):
        workload.compute_loss(model, workload.make_batch(2)).backward()
    optimizer.step()
    saved = Contents(model=model, optimizer=optimizer).tensors()
    parameters = {name for name, _ in model.named_parameters()}
    tensors = [
        value
        for name, value in (saved["model"] | saved["optimizer"]).items()
        if isinstance(value, torch.Tensor)
        and not name.endswith(".step")
        and (name in parameters or name.startswith("state."))
    ]
    return sum(each.numel() * each.element_size() for each in tensors)


@pytest.fixture(scope="module")
def lora() -> Profile:
    return api.profile(EXAMPLE, params=DIMS, numerics=("amp16", "pure16"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "frozen"), [("bf16-amp", None), ("bf16-amp", "bf16"), ("bf16", None)]
)
def test_a_lora_checkpoint_is_what_the_runner_writes(
    lora: Profile, precision: Precision, frozen: FrozenPrecision | None
) -> None:
    assert checkpoint_bytes(lora, precision, frozen) == written_bytes(precision, frozen)


@pytest.mark.slow
def test_a_base_in_4_bits_is_saved_so(lora: Profile) -> None:
    linears = lora.frozen_linears
    assert linears is not None
    fewer = checkpoint_bytes(lora, "bf16-amp", "bf16") - checkpoint_bytes(lora, "bf16-amp", "nf4")
    assert fewer == pytest.approx((2 - NF4_BYTES) * linears.parameters)


def test_without_a_trace_of_its_own_16_bits_are_half(toy: Profile) -> None:
    whole = toy.model_copy(update={"steps": toy.steps[:1]})
    assert checkpoint_bytes(whole, "bf16-amp") == 12 * toy.parameters
    assert checkpoint_bytes(whole, "bf16") == 6 * toy.parameters
    half = toy.model_copy(update={"steps": toy.steps[:1]})
    half = half.model_copy(
        update={"steps": (half.steps[0].model_copy(update={"numerics": "pure16"}),)}
    )
    assert checkpoint_bytes(half, "fp32") == 24 * toy.parameters
