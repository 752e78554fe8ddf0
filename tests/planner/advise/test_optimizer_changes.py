"""What advice proposes for the optimizer: torch's fused Adam, and no offload of nothing."""

from collections.abc import Callable
from dataclasses import replace

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.advise.changes import proposals
from gpuplan.planner.advise.judgement import judged
from gpuplan.planner.advise.today.setting import Replanner
from gpuplan.planner.advise.today.todays_setting import setting_of
from gpuplan.planner.advise.wording import sentence
from gpuplan.planner.plan.question import Choices, Machine, Money, Question, Work
from gpuplan.profiles.passes.optimizers import with_optimizer
from gpuplan.profiles.profile import Profile

CATALOGUE = load_catalogue()
TODAY = Question(
    work=Work(samples=1e6),
    machine=Machine(providers=("aws",), instances=("p4d.24xlarge",)),
    choices=Choices(micro_batches=(1,), precisions=("bf16-amp",)),
)


def test_it_is_told_with_the_line_and_alters_nothing(make_decoder: Callable[..., Profile]) -> None:
    profile = with_optimizer(make_decoder(layers=8, hidden=1024), "adam")
    setting, _ = setting_of(TODAY, profile, CATALOGUE)
    replanner = Replanner(profile, work=TODAY.work, money=Money())
    today = replanner.plan(setting)
    found = proposals(setting, profile, fits=True, waits=False)
    (wanted,) = [one for one in found if one.kind == "fused_optimizer"]
    fused = judged(wanted, replanner.plan(wanted.setting), today)
    assert fused.text == "optimizer adam, foreach → fused"
    assert fused.lines == ("torch.optim.Adam(model.parameters(), lr=…, fused=True)",)
    assert not fused.alters_training
    assert fused.verdict == "saves"
    assert sentence(fused).startswith("Fuse torch's adam (fused=True): ")
    # 19 tensors are read or written by foreach, 8 by the fused kernel.
    before, after = today.breakdown_s.optimizer, fused.plan.breakdown_s.optimizer
    assert 0.35 < after / before < 0.5
    assert fused.plan.peak_memory_bytes.value <= today.peak_memory_bytes.value


def test_it_is_not_told_where_another_optimizer_steps(make_decoder: Callable[..., Profile]) -> None:
    profile = with_optimizer(make_decoder(), "adam")
    setting, _ = setting_of(TODAY, profile, CATALOGUE)

    def told(**setup: object) -> bool:
        changed = replace(setting, setup=replace(setting.setup, **setup))  # pyright: ignore[reportArgumentType]
        found = proposals(changed, profile, fits=True, waits=False)
        return any(one.kind == "fused_optimizer" for one in found)

    assert told()
    assert told(optimizer="adamw")
    assert not told(optimizer="sgd")
    assert not told(offload=frozenset({"optimizer"}))
    assert not told(stack="megatron")


def test_the_state_of_an_optimizer_without_any_is_not_offloaded(
    make_decoder: Callable[..., Profile],
) -> None:
    profile = make_decoder()
    without = profile.optimizer.model_copy(update={"name": "sgd", "state_bytes_per_parameter": 0})
    stateless = profile.model_copy(update={"optimizer": without})

    def offloads(profile: Profile) -> list[str]:
        setting, _ = setting_of(TODAY, profile, CATALOGUE)
        found = proposals(setting, profile, fits=True, waits=False)
        return [one.text for one in found if one.kind == "offload"]

    assert "offload none → optimizer" in offloads(profile)
    assert "offload none → optimizer" not in offloads(stateless)
