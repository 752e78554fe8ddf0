"""A file that recomputes is told so, and priced without, as the same file without checkpoints."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.advise.advise import advise
from gpuplan.planner.advise.changes import Proposal, proposals
from gpuplan.planner.advise.today.own_recompute import (
    own_recompute,
    own_recompute_notes,
    without_own_recompute,
)
from gpuplan.planner.advise.today.setting import Replanner
from gpuplan.planner.advise.today.todays_setting import setting_of
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.profiles.analysis.replay import replay
from gpuplan.profiles.passes.recompute import recomputed
from gpuplan.profiles.profile import Profile, StepTrace
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

CATALOGUE = load_catalogue()
TODAY = Question(
    work=Work(samples=1e8),
    machine=Machine(providers=("aws",), instances=("p4d.24xlarge",)),
    choices=Choices(micro_batches=(16,), grad_accums=(1,), precisions=("bf16-amp",)),
)


CHECKPOINTED = """
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(64), nn.Linear(64, 256), nn.Linear(256, 64)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.down(self.drop(nn.functional.gelu(self.up(self.norm(x)))))

class Model(nn.Module):
    def __init__(self, again):
        super().__init__()
        self.blocks, self.again = nn.ModuleList(Block() for _ in range(4)), again

    def forward(self, x):
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.again else block(x)
        return x

def build_model(again=0):
    return Model(again)

def make_batch(batch_size=8):
    return torch.randn(batch_size, 128, 64)

def compute_loss(model, batch):
    return model(batch).square().mean()
"""


def checkpointed(profile: Profile, policy: Any = "full") -> Profile:
    """Return the profile of a file that does itself what this policy does."""
    steps = (recomputed(step, profile, policy) for step in profile.steps)
    return profile.model_copy(
        update={"steps": tuple(one.model_copy(update={"recompute": "none"}) for one in steps)}
    )


def some_blocks(profile: Profile) -> Profile:
    """Return the profile of a file that recomputes every block but the one that runs first."""

    def alone(step: StepTrace) -> StepTrace:
        passes = [step.segments[number].phase for number in step.schedule]
        first = next(one for one in step.forward_of if one >= 0)
        hidden = [
            -1 if one == first and phase == "backward" else one
            for one, phase in zip(step.forward_of, passes, strict=True)
        ]
        found = recomputed(step.model_copy(update={"forward_of": hidden}), profile, "full")
        return found.model_copy(update={"recompute": "none"})

    return profile.model_copy(update={"steps": tuple(map(alone, profile.steps))})


def of_recompute(profile: Profile, question: Question = TODAY) -> list[Proposal]:
    setting, _ = setting_of(question, profile, CATALOGUE)
    found = proposals(setting, profile, fits=True, waits=False)
    return [one for one in found if one.kind == "recompute"]


def test_without_its_checkpoints_a_step_is_the_one_that_has_none(small_decoder: Profile) -> None:
    back = without_own_recompute(checkpointed(small_decoder))
    assert back is not None
    for step, plain in zip(back.steps, small_decoder.steps, strict=True):
        assert [step.segments[i].kernels for i in step.schedule] == [
            plain.segments[i].kernels for i in plain.schedule
        ]
        assert step.start_tick == plain.start_tick
        assert step.forward_of == plain.forward_of
        assert step.memory.birth_tick == plain.memory.birth_tick
        for micro_batch in (1, 8):
            for policy in ("none", "selective", "full"):
                found, wanted = (
                    replay(recomputed(one, small_decoder, policy), micro_batch)
                    for one in (step, plain)
                )
                assert found.peak_allocated_bytes == pytest.approx(
                    wanted.peak_allocated_bytes, rel=0.01
                )


@pytest.mark.slow
def test_a_real_file_without_its_checkpoints_is_the_file_that_has_none(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text(CHECKPOINTED)
    plain, own = (
        make_profile(parse_model_spec(str(file), params={"again": again}), numerics=("amp16",))
        for again in (0, 1)
    )
    back = without_own_recompute(own)
    assert own_recompute(plain) is None and back is not None
    step, wanted = back.steps[0], plain.steps[0]
    names = ("start_tick", "forward_of", "release_tick")
    assert [getattr(step, name) for name in names] == [getattr(wanted, name) for name in names]
    for policy in ("none", "selective", "full"):
        found, expected = (replay(recomputed(one, plain, policy), 8) for one in (step, wanted))
        assert found.peak_allocated_bytes == pytest.approx(expected.peak_allocated_bytes, rel=0.01)


def test_it_is_priced_as_the_file_without(small_decoder: Profile) -> None:
    plans = []
    for profile in (small_decoder, checkpointed(small_decoder)):
        setting, _ = setting_of(TODAY, profile, CATALOGUE)
        replanner = Replanner(profile, work=TODAY.work, money=Money())
        today = replanner.plan(setting)
        plans.append((today, replanner.plan(replace(setting, keeps_own_recompute=False))))
    (plain, same), (today, without) = plans
    assert same.step_time_s == plain.step_time_s
    assert without.step_time_s.value == pytest.approx(plain.step_time_s.value, rel=0.001)
    assert without.peak_memory_bytes.value == pytest.approx(plain.peak_memory_bytes.value, rel=0.01)
    assert today.step_time_s.value > 1.1 * plain.step_time_s.value
    assert today.peak_memory_bytes.value < plain.peak_memory_bytes.value


def test_advice_says_that_the_file_recomputes_and_what_leaving_it_saves(
    small_decoder: Profile,
) -> None:
    today = replace(TODAY, choices=replace(TODAY.choices, micro_batches=(64,)))
    found = advise(today, checkpointed(small_decoder), CATALOGUE)
    assert "recompute of 4 of 4 blocks, in the file" in found.assumed
    changes = {one.text: one for one in found.changes if one.kind == "recompute"}
    none = changes["recompute 4 of 4 blocks, in the file → none"]
    assert none.verdict == "saves"
    assert none.lines == ("x = block(x)  # without torch.utils.checkpoint",)
    assert "recompute 4 of 4 blocks, in the file → selective" in changes
    assert len(changes) == 2  # All is recomputed already.
    assert found.together is not None
    assert found.together.text.endswith("without the file's own recompute")
    assert found.together.plan.step_time_s.value <= none.plan.step_time_s.value
    assert without_own_recompute(small_decoder) is small_decoder
    plain = advise(today, small_decoder, CATALOGUE)
    assert not [one for one in plain.assumed if "recompute" in one]
    assert {one.text for one in plain.changes if one.kind == "recompute"} == {
        "recompute none → selective",
        "recompute none → full",
    }


def test_where_some_blocks_run_again_the_others_may_too(small_decoder: Profile) -> None:
    profile = some_blocks(small_decoder)
    own = own_recompute(profile)
    assert own is not None and (own.again, own.blocks) == (3, 4)
    assert [one.text for one in of_recompute(profile)] == [
        f"recompute 3 of 4 blocks, in the file → {policy}"
        for policy in ("none", "selective", "full")
    ]
    full = replace(TODAY, choices=replace(TODAY.choices, recomputes=("full",)))
    assert [one.text for one in of_recompute(profile, full)] == [
        f"recompute full beside 3 of 4 blocks, in the file → {policy}"
        for policy in ("none", "selective")
    ]


def test_what_cannot_be_told_is_said(small_decoder: Profile) -> None:
    """As of a file that keeps its products: what runs again is no part of the forward pass."""
    profile = checkpointed(small_decoder, "selective")
    assert without_own_recompute(profile) is None
    assert of_recompute(profile) == []
    [note] = own_recompute_notes(profile)
    assert note.startswith("the file itself recomputes (4 of 4 blocks, ")
    assert "take the checkpoint out of the file, and ask again" in note
    assert not [*own_recompute_notes(checkpointed(small_decoder))]
    assert not [*own_recompute_notes(small_decoder)]
