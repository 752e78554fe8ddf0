"""What FSDP reduces gradients in: asked for, said by a policy in the file, or fp32."""

from pathlib import Path
from textwrap import dedent

import pytest

from gpuplan import api
from gpuplan.api.models.reduce_dtype import said_policies, with_reduce_dtype
from gpuplan.catalog.errors import UsageError
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Choices, Machine, Question
from gpuplan.profiles.user_model.spec import parse_model_spec

MODEL = """
    import torch
    from torch import nn
    from torch.distributed.fsdp import MixedPrecisionPolicy

    POLICY = {policy}

    def build_model():
        return nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8)))

    def make_batch(batch_size: int = 4):
        return (torch.randn(batch_size, 1024),)

    def compute_loss(model, batch):
        return model(*batch).float().mean()
"""
BF16 = "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)"
FP32 = "MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)"


def file_with(folder: Path, policy: str) -> Path:
    path = folder / "model.py"
    path.write_text(dedent(MODEL).format(policy=policy))
    return path


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        (BF16, ["bf16"]),
        (FP32, ["fp32"]),
        # torch reduces in the parameters' dtype where nothing else is given.
        ("MixedPrecisionPolicy(param_dtype=torch.bfloat16)", ["bf16"]),
        ("MixedPrecisionPolicy(torch.bfloat16, reduce_dtype=None)", ["bf16"]),
        ("MixedPrecisionPolicy(torch.bfloat16, torch.float32)", ["fp32"]),
        ("torch.distributed.fsdp.MixedPrecision(reduce_dtype=torch.bfloat16)", ["bf16"]),
        ("MixedPrecisionPolicy()", []),
        ("MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=getattr(torch, 'x'))", []),
        ("None", []),
    ],
)
def test_a_policy_is_read_as_torch_takes_it(tmp_path: Path, policy: str, said: list[str]) -> None:
    found = list(said_policies(file_with(tmp_path, policy)))
    assert [one.reduce_dtype for one in found] == said
    assert all(one.place == "model.py:6" for one in found)


def test_a_policy_beside_the_file_counts_and_two_that_differ_do_not(tmp_path: Path) -> None:
    file = file_with(tmp_path, "__import__('sharding').POLICY")
    file.write_text("import sharding\n" + file.read_text())
    (tmp_path / "sharding.py").write_text(f"POLICY = {BF16}\n")
    spec = parse_model_spec(str(file))
    question, notes = with_reduce_dtype(Question(), spec)
    assert question.choices.reduce_dtype == "bf16"
    assert "at sharding.py:1 does; --reduce-dtype fp32" in notes[0]
    (tmp_path / "sharding.py").write_text(f"POLICY = {BF16}\nOTHER = {FP32}\n")
    assert with_reduce_dtype(Question(), spec) == (Question(), ())


def test_what_is_asked_for_comes_before_the_file(tmp_path: Path) -> None:
    spec = parse_model_spec(str(file_with(tmp_path, BF16)))
    asked = Question(choices=Choices(reduce_dtype="fp32"))
    assert with_reduce_dtype(asked, spec) == (asked, ())


def test_a_word_that_is_none_of_them_is_refused() -> None:
    with pytest.raises(UsageError, match="reduce_dtype='fp16' is not one of fp32, bf16"):
        Choices(reduce_dtype="fp16")  # pyright: ignore[reportArgumentType]


@pytest.mark.slow
def test_plans_of_fsdp_follow_the_file_and_others_do_not(tmp_path: Path) -> None:
    def answer(policy: str, *layouts: Layout) -> api.Estimate:
        question = Question(
            machine=Machine(instances=("p4d.24xlarge",), nodes=(4,)),
            choices=Choices(
                layouts=layouts, micro_batches=(8,), grad_accums=(1,), precisions=("bf16-amp",)
            ),
        )
        return api.estimate(file_with(tmp_path, policy), question)

    sharded = Layout(data=32, shard=32, zero_stage=3)
    (halved,), (usual,) = answer(BF16, sharded).plans, answer(FP32, sharded).plans
    assert (halved.reduce_dtype, usual.reduce_dtype) == ("bf16", None)
    assert halved.string == f"{usual.string} reduce=bf16"
    assert halved.step_time_s.value < usual.step_time_s.value
    assert halved.id != usual.id
    (replicated,) = answer(BF16, Layout(data=32)).plans
    assert replicated.reduce_dtype is None and "reduce" not in replicated.string
    assert any("reduces gradients in bf16" in note for note in answer(BF16, sharded).notes)
