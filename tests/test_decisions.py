"""Six decisions, as an expert would take them: what the recommended plan is, costs and takes.

docs/tutorial.md tells them. Ranges are those that published runs and price lists allow.
"""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gpuplan import api
from gpuplan.catalog.text.quantity import format_count
from gpuplan.cli.render.plans.estimate import note_lines, render_estimate, room_beside
from gpuplan.planner.plan.answer.estimate import Estimate
from gpuplan.planner.plan.plan import Plan

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
CLOUDS = ("aws", "gcp", "azure")
DAY_S = 86_400.0
WIDTH = 100
HOURS = {"min": 1 / 60, "h": 1.0, "days": 24.0}
TOLD = re.compile(
    r"\$(?P<usd>[\d.,]+)(?P<millions>M?) \(\$(?P<usd_low>[\d.,]+)–(?P<usd_high>[\d.,]+)M?\),"
    r" (?P<hours>[\d.]+) (?P<unit>min|h|days) \((?P<hours_low>[\d.]+)–(?P<hours_high>[\d.]+)\)"
)
"""Dollars and time of a row of the tutorial, each with its interval."""
HIDDEN_70B: dict[str, Any] = {
    "layers": 80,
    "hidden": 8192,
    "heads": 64,
    "kv_heads": 8,
    "ffn": 28672,
    "seq_len": 4096,
}
HIDDEN_1B: dict[str, Any] = {
    "layers": 24,
    "hidden": 2048,
    "heads": 16,
    "kv_heads": 16,
    "ffn": 5632,
    "vocab": 32000,
    "seq_len": 2048,
}


def decided(
    model: Path,
    work: api.Work,
    *,
    params: dict[str, Any] | None = None,
    money: api.Money | None = None,
    machine: api.Machine | None = None,
) -> tuple[Estimate, Plan]:
    """Return the answer as the command gives it, and the plan that it recommends."""
    question = api.Question(
        work=work, money=money or api.Money(), machine=machine or api.Machine(), top=10
    )
    answer = api.estimate(model, question, params=params)
    assert answer.recommended is not None
    best = next(plan for plan in answer.plans if plan.id == answer.recommended.id)
    fits_one_screen(answer)
    assert best.p_oom is not None and best.p_oom <= 0.02
    return answer, best


def fits_one_screen(answer: Estimate) -> None:
    """Check that the answer and its notes fit 24 lines of 100 columns, and say what one asks."""
    notes = note_lines(answer)
    room = room_beside(notes, WIDTH)
    shown = render_estimate(answer, model="model.py", width=WIDTH, most_lines=room)
    lines = [line.plain for line in shown]
    # A terminal breaks a note where its line is full.
    folded = [note[at : at + WIDTH] for note in notes for at in range(0, len(note), WIDTH)]
    assert len(lines) + len(folded) <= 24, "\n".join(lines + folded)
    assert max(map(len, lines)) <= WIDTH
    text = " ".join(" ".join(lines).split())  # A sentence may go over two lines.
    for said in ("global batch", "prices of", "Recommended", "sure to fit", "Next: gpuplan launch"):
        assert said in text
    (heading,) = (line.split() for line in lines if line.lstrip().startswith("# "))
    assert {"rent", "on", "time", "cost", "spot", "risk"} <= set(heading)
    assert heading[-1] in ("tokens/s", "samples/s")


def told(job: str, plan: Plan) -> None:
    """Check that the tutorial's row has what a plan costs and takes, with both intervals.

    Within a tenth, as the row rounds.
    """
    page = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith(f"| {job}"))
    found = TOLD.match(row.split(" | ")[3])
    assert found is not None, row
    assert plan.whole_job is not None
    whole, millions = plan.whole_job, 1e6 if found["millions"] else 1.0
    for name in ("usd", "usd_low", "usd_high"):
        said = float(found[name].replace(",", "")) * millions
        assert float(getattr(whole, name)) == pytest.approx(said, rel=0.1), (name, row)
    per = HOURS[found["unit"]]
    for name in ("hours", "hours_low", "hours_high"):
        assert getattr(whole, name) == pytest.approx(float(found[name]) * per, rel=0.1), (name, row)


def usd(plan: Plan) -> float:
    assert plan.whole_job is not None and plan.whole_job.usd is not None
    return float(plan.whole_job.usd)


def hours(plan: Plan) -> float:
    assert plan.whole_job is not None
    return plan.whole_job.hours


def test_a_1b_decoder_on_30b_tokens_is_one_node_of_eight() -> None:
    money = api.Money(budget_usd=Decimal(5000), deadline_s=10 * DAY_S)
    answer, best = decided(
        EXAMPLES / "decoder.py",
        api.Work(tokens=30e9),
        params=HIDDEN_1B,
        money=money,
        machine=api.Machine(providers=CLOUDS),
    )
    assert answer.question is not None
    assert 0.5e6 <= (answer.question.global_batch.tokens or 0) <= 1.1e6
    assert (best.nodes, best.offer.accelerators_per_node) == (1, 8)
    assert best.offer.accelerator.split("-")[0] in ("A100", "H100", "H200", "B200")
    assert 700 <= usd(best) <= 2200
    assert best.mfu is not None and 0.30 <= best.mfu <= 0.55
    told(f"a decoder of {format_count(answer.workload.parameters)} parameters", best)


def test_lora_of_an_8b_on_50m_tokens_is_one_accelerator() -> None:
    _, best = decided(EXAMPLES / "lora.py", api.Work(tokens=50e6))
    assert best.accelerators == 1
    assert best.peak_memory_bytes.capacity >= 22e9
    assert 2 <= usd(best) <= 15
    told("LoRA of an 8B decoder", best)
    assert hours(best) < 8


def test_resnet_50_on_imagenet() -> None:
    work = api.Work(epochs=90, dataset_size=1_281_167, global_batch=1024)
    answer, best = decided(EXAMPLES / "resnet50.py", work, machine=api.Machine(providers=CLOUDS))
    assert 20 <= usd(best) <= 150
    told("ResNet-50", best)
    rates: dict[str, float] = {}
    for plan in answer.plans:
        if plan.precision.startswith(("bf16", "fp16")):
            rate, name = plan.samples_per_s / plan.accelerators, plan.offer.accelerator
            rates[name] = max(rate, rates.get(name, 0.0))
    # Measured in torch's own memory order 1,216 to 1,320 and 829 to 840, channels-last 2,078 and
    # 1,007 to 1,156 (tests/published); the file leaves the order to the person.
    within = {"A100-": (1200, 2800), "V100-": (800, 1450)}
    seen = [(name, device) for name in rates for device in within if name.startswith(device)]
    assert seen
    for name, device in seen:
        low, high = within[device]
        assert low <= rates[name] <= high
    assert all(plan.breakdown_s.input_wait is not None for plan in answer.plans)
    (note,) = (note for note in answer.notes if note.startswith("input: "))
    assert "vCPUs a node decode about" in note and "JPEG/s" in note


def test_a_70b_on_a_trillion_tokens_is_hundreds_of_accelerators_on_a_fabric() -> None:
    answer, best = decided(
        EXAMPLES / "decoder.py",
        api.Work(tokens=1e12),
        params=HIDDEN_70B,
        money=api.Money(deadline_s=90 * DAY_S),
        machine=api.Machine(providers=CLOUDS, max_nodes=128),
    )
    assert 128 <= best.accelerators <= 1024
    assert best.offer.accelerator.split("-")[0] in ("H100", "H200", "B200")
    assert 1.5e6 <= usd(best) <= 3.5e6
    told(f"a decoder of {format_count(answer.workload.parameters)} parameters", best)
    if best.offer.accelerator.startswith("H100"):
        assert best.mfu is not None and 0.38 <= best.mfu <= 0.52
    assert any(plan.needs_port for plan in answer.plans), "a TPU or its like stands beside it"
    split = [plan for plan in answer.plans if plan.layout.tensor * plan.layout.pipeline > 1]
    assert split, "layouts that split the model are among the answers"


def test_800_million_embedding_rows_are_one_accelerator_and_bound_by_memory() -> None:
    answer, best = decided(
        ROOT / "tests" / "decision_models" / "tabular.py", api.Work(samples=200e6)
    )
    assert best.accelerators == 1
    assert usd(best) < 15
    told("a table of 800M embedding rows", best)
    step = best.breakdown_s
    assert step.memory_bound + step.optimizer > step.compute
    assert best.bandwidth_share is not None and 0.5 < best.bandwidth_share < 1
    assert best.mfu is not None and best.mfu < 0.01
    lines = [line.plain for line in render_estimate(answer, model="model.py", width=100)]
    said = f"{best.bandwidth_share * 100:.0f} % of bandwidth"
    assert any(said in line for line in lines[:8]), "on the first screen, in place of an MFU of 0 %"


def test_a_diffusion_u_net_has_16_bit_plans_and_the_line_that_rules_out_fsdp() -> None:
    answer, best = decided(
        EXAMPLES / "unet_diffusion.py",
        api.Work(samples=100e6),
        machine=api.Machine(providers=CLOUDS),
    )
    assert best.precision in ("bf16-amp", "fp16-amp")
    told("a diffusion U-Net", best)
    assert all(plan.layout.zero_stage < 2 for plan in answer.plans if "amp" in plan.precision)
    (note,) = [note for note in answer.notes if "FSDP" in note]
    assert "unet_diffusion.py:" in note
