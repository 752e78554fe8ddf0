"""How docs/accuracy.md is made: groups, causes, plots and tables, from a handful of runs."""

import importlib
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuplan.planner.plan.plan import Estimated
from gpuplan.planner.validation.errors import Observation
from gpuplan.planner.validation.folds import PROTOCOLS
from gpuplan.profiles.records import RunRecord

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "benchmarks"))  # Where Python puts it when `make accuracy` runs.
causes = importlib.import_module("evaluation.errors.causes")
compute_share = importlib.import_module("evaluation.errors.compute_share")
day_before = importlib.import_module("evaluation.errors.day_before")
groups = importlib.import_module("evaluation.groups")
levels = importlib.import_module("evaluation.errors.levels")
page = importlib.import_module("evaluation.page")
published_records = importlib.import_module("evaluation.published_records")
scatter = importlib.import_module("evaluation.scatter")
trends = importlib.import_module("evaluation.errors.trends")
truths = importlib.import_module("evaluation.truths")
unread = importlib.import_module("evaluation.errors.unread")
unread_memory = importlib.import_module("evaluation.errors.unread_memory")


def record(name: str, source: str, **params: int) -> RunRecord:
    return RunRecord.model_validate(
        {
            "id": name,
            "source_group": source,
            "model": "decoder.py",
            "accelerator": "L4",
            "params": params,
            "measured": {"step_time_s": 1.0},
        }
    )


def observation(name: str, source: str, predicted_s: float) -> Observation:
    return Observation(
        id=name,
        source_group=source,
        accelerator="L4",
        stack="megatron",
        configuration=name,
        measured_step_time_s=1.0,
        predicted_step_time_s=Estimated(
            value=predicted_s, low=predicted_s / 1.2, high=predicted_s * 1.2, basis="analytic"
        ),
        ideal_step_time_s=0.3,
    )


RECORDS = [
    record("a", "mixed", experts=8),
    record("b", "mixed"),
    record("c", "llm-foundry"),
    record("d", "sailor"),
]
SEEN = [
    observation("a", "mixed", 1.3),
    observation("b", "mixed", 0.9),
    observation("c", "llm-foundry", 1.06),
    observation("d", "sailor", 0.2),
]


def test_a_source_of_two_kinds_of_models_is_two_groups() -> None:
    assert groups.split_groups(RECORDS) == {
        "a": "mixed, experts",
        "b": "mixed, dense",
        "c": "llm-foundry",
        "d": "sailor",
    }


def test_nulls_of_a_split_source_are_held_out_with_the_whole_of_it() -> None:
    named = groups.split_groups(RECORDS[:3])
    rows = {row.group: row for row in groups.summarise_groups(SEEN[:3], named, "source")}
    assert rows["mixed, dense"].mape == pytest.approx(0.1)
    # All runs have one HFU: the constant of the other source predicts them without an error.
    assert rows["mixed, dense"].null_best_constant == pytest.approx(0)
    alone = groups.summarise_groups(SEEN[:2], named, "source")
    assert [row.null_best_constant for row in alone] == [None, None]


def test_sources_that_are_never_fitted_are_in_no_mean() -> None:
    rows = groups.summarise_groups(SEEN, groups.split_groups(RECORDS), "configuration")
    assert groups.mean_error(rows) == pytest.approx((0.3 + 0.1 + 0.06) / 3)


def test_targets_double_for_a_source_that_was_not_seen() -> None:
    assert groups.target_of("llm-foundry", "source") == 2 * groups.TARGETS["llm-foundry"]
    assert groups.target_of("llm-foundry", "accelerator") is None
    assert groups.target_of("bert · L4", "configuration") == groups.ONE_DEVICE_TARGET


def test_causes_are_of_a_run_or_unknown() -> None:
    assert "early release" in causes.cause_of("mbridge-25.11-Qwen3_30B_a3B-1", "megatron-bridge")
    assert causes.cause_of("x", "nowhere") == causes.UNKNOWN


def test_the_page_has_every_part() -> None:
    evaluated = {None: SEEN, **dict.fromkeys(PROTOCOLS, SEEN)}
    text = page.page(evaluated, RECORDS, [], None)
    assert "| llm-foundry | 1 | 6.0 % | 5.0 % | **no** |" in text
    assert "| llm-foundry | 1 | 6.0 % | 10.0 % | yes |" in text
    assert "| a | mixed | 1.00 s | 1.30 s | +30.0 % | unknown |" in text
    assert all(f"img/accuracy-{protocol}.svg" in text for protocol in PROTOCOLS)
    assert re.search(r"\bnan\b", text) is None


def test_a_plot_is_the_same_every_time_and_says_whose_runs_it_shows(tmp_path: Path) -> None:
    many = [observation(f"v{i}", "sweep", 1 + i / 1000) for i in range(500)]
    for name in ("one.svg", "two.svg"):
        scatter.draw([*SEEN, *many], "Runs", tmp_path / name)
    text = (tmp_path / "one.svg").read_text(encoding="utf-8")
    assert text == (tmp_path / "two.svg").read_text(encoding="utf-8")
    assert "sweep (500, 1 in 3 drawn)" in text
    assert "sources of one or two (4)" in text


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_committed_plots_are_small(protocol: str) -> None:
    assert (ROOT / "docs" / "img" / f"accuracy-{protocol}.svg").stat().st_size < 250_000


def test_nothing_is_fitted_to_the_known_truths() -> None:
    text = truths.RECORDS.read_text(encoding="utf-8")
    assert text.count('"step_time_s": null') == len(text.splitlines()) == 3


def kept(name: str, predicted_s: float) -> object:
    ends = {"low_s": predicted_s / 1.1, "high_s": predicted_s * 1.1}
    return day_before.KeptPrediction(id=name, predicted_s=predicted_s, **ends)


def test_the_day_before_shows_what_was_predicted_then_beside_what_is_now() -> None:
    named = groups.split_groups(RECORDS)
    before = {"b": kept("b", 1.5), "c": kept("c", 1.05)}
    lines = day_before.day_before_part(SEEN, named, before).splitlines()
    row = next(line for line in lines if line.startswith("| mixed, dense |"))
    # 50 % too slow and outside then, 10 % too fast and inside now.
    assert "| 1 | 50.0 % | +50.0 % | 0 % | ×÷ 1.10 | 10.0 % | -10.0 % | 100 % | ×÷ 1.20 |" in row
    mean = next(line for line in lines if line.startswith("| **mean over groups** |"))
    assert "| 2 | 27.5 % | +27.5 % | 50 % |" in mean
    assert not any("sailor" in line or "experts" in line for line in lines)


def test_the_kept_predictions_are_of_records_that_came_later() -> None:
    found = day_before.kept_predictions()
    first = [
        line for path in published_records.FIRST_RECORDS for line in path.open(encoding="utf-8")
    ]
    after = published_records.LATER_RECORDS + published_records.IMAGE_RECORDS
    later = [line for path in after for line in path.open(encoding="utf-8")]
    ids = {json.loads(line)["id"] for line in later}
    assert set(found) <= ids and len(found) >= 0.95 * len(ids)
    assert not set(found) & {json.loads(line)["id"] for line in first}
    assert all(one.low_s < one.predicted_s < one.high_s for one in found.values())


def run_of(source: str, stages: int, growth: float, level: float) -> tuple[RunRecord, Observation]:
    """Return a run whose error grows by `growth` with every doubling of the stages."""
    name = f"{source}-{stages}"
    made = record(name, source).model_copy(
        update={"layout": record(name, source).layout.model_copy(update={"pipeline": stages})}
    )
    predicted = math.exp(level + growth * math.log2(stages))
    return made, observation(name, source, predicted)


def trend_of(runs: list[tuple[RunRecord, Observation]]) -> Any:
    records, seen = zip(*runs, strict=True)
    found = trends.find_trends(records, seen, {one.id: one.source_group for one in records})
    return {one.name: one for one in found}.get("pipeline stages")


def test_a_trend_is_found_inside_groups_whatever_their_levels() -> None:
    runs = [
        run_of(source, stages, 0.05, level)
        for source, level in (("a", 0.4), ("b", -0.3), ("c", 0.1))
        for stages in (1, 2, 4, 8)
    ]
    found = trend_of(runs)
    assert found.slope == pytest.approx(0.05)
    assert found.groups == 3
    assert found.stands_out


def test_what_differs_only_between_groups_is_no_trend() -> None:
    runs = [run_of(f"s{stages}", stages, 0.2, 0.0) for stages in (1, 2, 4)] * 2
    assert trend_of(runs) is None


def test_the_part_names_every_trend_and_precision() -> None:
    runs = [run_of(source, n, 0.01, 0.0) for source in "ab" for n in (1, 4)]
    records, seen = zip(*runs, strict=True)
    grouped = {one.id: one.source_group for one in records}
    part = trends.trends_part(
        trends.find_trends(records, seen, grouped),
        trends.bias_by_precision(records, seen, grouped),
    )
    assert "| pipeline stages | 4 | 2 | +1.0 |" in part
    assert "not stated" in part
    assert "**yes**" not in part


def test_the_best_level_leaves_the_least_error() -> None:
    ratios = [0.4, 0.5, 0.9, 1.3, 2.0]
    level = levels.best_level(ratios)

    def left(factor: float) -> float:
        return sum(abs(factor * ratio - 1) for ratio in ratios)

    assert all(left(level) <= left(level * other) for other in (0.8, 0.97, 1.03, 1.2))


def test_levels_take_away_what_runs_of_a_group_share() -> None:
    """Two models on one device, at 0.5 and at 0.8 of what was measured, eight runs of each."""
    runs = [
        (record(f"{name}{run}", "one").model_copy(update={"model_name": name}), ratio)
        for name, ratio in (("small", 0.5), ("large", 0.8))
        for run in range(groups.LARGE_ENOUGH)
    ]
    seen = [observation(one.id, "one", ratio) for one, ratio in runs]
    records = [one for one, _ in runs]
    (row,) = levels.levels_of(seen, records, groups.split_groups(records))
    assert row.mape == pytest.approx((0.5 + 0.2) / 2)
    assert row.source == pytest.approx(abs(0.5 / 0.8 - 1) / 2)
    assert row.device == row.source
    assert row.model == pytest.approx(0)
    text = levels.levels_part([row])
    assert "Over 1 groups the error of 35.0 % falls to 18.8 %" in text
    assert "| one | 16 | 35.0 % | 18.8 % | 18.8 % | 0.0 % |" in text
    few = levels.levels_of(seen[:3], records[:3], groups.split_groups(records))
    assert not few and not levels.levels_part(few)


def test_steps_without_the_time_to_compute_are_counted() -> None:
    share = compute_share.ComputeShare
    one = share(id="one", expected=1.08, low=0.97)
    said = compute_share.compute_part([one, share(id="two", expected=0.6, low=0.5)])
    assert "longer than all of it in 1 of 2 runs, by 8 % at most" in said.replace("\n", " ")
    assert "interval in none" in said.replace("\n", " ")
    said = compute_share.compute_part([share(id="one", expected=1.3, low=1.1)])
    assert "interval in 1." in said.replace("\n", " ")
    assert compute_share.compute_part([]) == ""


def test_memory_that_nobody_looked_into_is_summed_by_source() -> None:
    def held(name: str, source: str, gib: float) -> Observation:
        peak = Estimated(value=gib, low=gib - 1, high=gib + 1, basis="analytic")
        return replace(
            observation(name, source, 1.0), measured_memory_bytes=10.0, predicted_memory_bytes=peak
        )

    seen = [held("a", "one", 9.5), held("b", "one", 8.5), held("c", "other", 12.0)]
    assert unread_memory.mean_error(seen) == pytest.approx((0.1 + 0.2) / 2)
    assert unread_memory.covered(seen) == pytest.approx(1 / 3)
    text = " ".join(unread_memory.unread_memory_part(seen).split())
    assert "3 runs of 2 sources" in text and "5.0 % too high" in text
    assert "| one | 2 | 10.0 % | -10.0 % | 50 % |" in text
    assert unread_memory.unread_memory_part([observation("d", "one", 1.0)]) == ""


def test_runs_that_nobody_looked_into_are_summed_by_source_whatever_their_number() -> None:
    first = [unread.Reading("large", 0.1, covered=n < 8) for n in range(10)]
    first += [unread.Reading("small", 9.0, covered=False)]
    seen = [observation(f"a{n}", "one", 1.1) for n in range(3)] + [observation("b", "other", 1.5)]
    assert unread.covered_readings(first) == 0.8
    assert unread.mean_unseen_error(seen) == pytest.approx(0.3)
    assert unread.covered_unseen(seen) == 0.75

    text = unread.unread_part(first, seen[:3], seen[3:], seen, seen)
    assert "mean over the 1 sources of 8 runs and more is 10.0 %" in " ".join(text.split())
    assert "| other | 3 | 50.0 % | +50.0 % | 0 % | ×÷ 1.20 |" in text
    assert "Of the unseen together 75 % lie in the interval" in text
    assert unread.unread_part((), seen, seen, seen, seen) == ""
    assert unread.unread_part(first, seen, (), seen, seen) == ""
    assert unread.unread_part(first, seen, seen, seen, ()) == ""
