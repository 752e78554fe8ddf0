"""What keeps something in host memory is written as code: no option of gpuplan alone."""

from collections.abc import Callable
from typing import Any

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.advise.changes import proposals
from gpuplan.planner.advise.offload_lines import offload_lines
from gpuplan.planner.advise.snippets import frozen_lines
from gpuplan.planner.advise.today.todays_setting import setting_of
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.planner.plan.question import Choices, Machine, Question
from gpuplan.profiles.profile import Profile


def lines(offload: Any, layout: str = "fsdp8") -> tuple[str, ...]:
    return offload_lines(frozenset(offload), frozenset(), parse_layout(layout))


def test_parameters_go_by_the_policy_of_fsdp() -> None:
    first, *_, last = lines({"parameters"})
    assert first.startswith("fully_shard(block, offload_policy=CPUOffloadPolicy())")
    assert last.startswith("# --offload parameters asks estimate, fits and advise for it; ")


@pytest.mark.parametrize(
    ("layout", "stage"), [("dp8", 1), ("dp8.zero1", 1), ("dp8.zero2", 2), ("fsdp8", 3)]
)
def test_the_optimizer_alone_goes_by_deepspeed(layout: str, stage: int) -> None:
    found = lines({"optimizer"}, layout)
    assert "DeepSpeed" in found[0]
    assert f'"stage": {stage}, "offload_optimizer": {{"device": "cpu"' in found[1]


def test_activations_go_by_a_context_around_the_loss() -> None:
    assert lines({"activations"})[0].endswith("OffloadActivations(): loss = …")


def test_what_is_no_longer_offloaded_is_left_out() -> None:
    found = offload_lines(frozenset(), frozenset({"optimizer"}), parse_layout("dp8"))
    assert found == ("# leave out what keeps optimizer in host memory",)


def test_no_change_is_an_option_of_gpuplan_alone(
    make_rigid_decoder: Callable[..., Profile],
) -> None:
    machine = Machine(providers=("aws",), instances=("p4d.24xlarge",))
    profile = make_rigid_decoder()
    question = Question(machine=machine, choices=Choices(micro_batches=(1,)))
    setting, _ = setting_of(question, profile, load_catalogue())
    found = list(proposals(setting, profile, fits=True, waits=True))
    assert {one.kind for one in found} >= {"offload", "precision", "sharding"}
    assert not [line for one in found for line in one.lines if line.startswith("--")]


def test_four_bits_are_told_for_plain_torch_and_for_transformers() -> None:
    lines = frozen_lines("nf4", "bf16-amp")
    code = [line for line in lines if not line.startswith("#")]
    assert code[0].startswith("bitsandbytes.nn.Linear4bit(")
    assert code[1].startswith("BitsAndBytesConfig(load_in_4bit=True")
    assert all("torch.bfloat16" in code[at] for at in (0, 2))
    under_fp16 = "\n".join(frozen_lines("nf4", "fp16-amp"))
    assert under_fp16.count("torch.float16") == 2 and "bfloat16" not in under_fp16
