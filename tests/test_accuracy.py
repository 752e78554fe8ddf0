"""The planner against published measurements: the bounds that docs/accuracy.md shows are kept.

Every prediction is held out: made with constants that were fitted without the runs of its own fold.
Bounds are the targets themselves (`evaluation.groups`), but where those are not reached yet.
"""

import importlib
import json
import math
import sys
from pathlib import Path
from statistics import NormalDist, fmean, median, pvariance, variance
from typing import Any

import pytest

from gpuplan.api.validation import validate
from gpuplan.planner.budget.project.defaults import default
from gpuplan.planner.validation.errors import (
    SummaryRow,
    prediction_errors,
    summarise,
)
from gpuplan.planner.validation.folds import PROTOCOLS, Protocol
from gpuplan.profiles.records import read_records
from gpuplan.profiles.tracing_process.batch import ProfileRequest, profile_all
from gpuplan.profiles.tracing_process.cache import package_version
from tests.support import evaluated_records
from tests.support.evaluated_records import Evaluated

ROOT = Path(__file__).parents[1]
TORCH_OF_THE_ARCHIVE = "2.13.0+cpu"
PUBLISHED = ROOT / "tests" / "published"
sys.path.append(str(ROOT / "benchmarks"))  # Where Python puts it when `make accuracy` runs.
compute_share = importlib.import_module("evaluation.errors.compute_share")
groups = importlib.import_module("evaluation.groups")
page = importlib.import_module("evaluation.page")
published_records = importlib.import_module("evaluation.published_records")
programmes = importlib.import_module("evaluation.programmes")
regret = importlib.import_module("evaluation.layouts.regret")
traces = importlib.import_module("evaluation.traces")
trends = importlib.import_module("evaluation.errors.trends")
truths = importlib.import_module("evaluation.truths")

NOT_YET: dict[Protocol, dict[str, float]] = {
    "configuration": {
        "bigscience-tr11": 0.074,  # 7 %; 7.31: eight runs have heads of 150 and 108
        "bigscience-v100": 0.085,  # 6 %
        "megatron-bridge, dense": 0.1,  # 9 %; three runs in NVFP4, predicted since, are among them
        "narayanan": 0.085,  # 6 %
        "torchtune": 0.11,  # 5 %
        "vtrain-single": 0.08,  # 7 %
    },
    "source": {"torchtune": 0.11},  # 10 %
}
"""Groups above their target, with what is kept until they are below; beside it the target."""
ABOVE_A_FIFTH: set[str] = set()
"""The groups of 8 runs and more whose error is above 20 % without their source: at most three."""
COVERED = (0.76, 0.84)
"""Mean share inside the 80 % interval over groups of 8 runs and more, each without its source."""
DEVICES_COVERED = (0.76, 0.86)  # 80 %; of sources 84 is the most that is wanted
"""The same of accelerators."""
MEAN_WITHIN_FOLDS = 0.075
ONE_DEVICE_MEAN = 0.105  # 9 %, and that of every group
MEMORY_MEDIANS = {"allocated": 0.03, "reserved": 0.05, "whole-device": 0.04}
FALSE_OUT_OF_MEMORY, MISSED_OUT_OF_MEMORY = 15, 1
"""Runs of 2,500 that ran and were predicted not to: eight are BERT on cards of 8 to 40 GB in a
container of 2020-10 (Lambda), two mixtures of Megatron and one under torch whose experts are fused
(gpt-oss), one CodeLlama-13B on Gaudi2, whose program writes the scores of 48 samples out, one each
of GPT-3 on Gaudi2, of ZeRO-3 of 2021 and of BERT on an L40S; that ran out and were predicted to
fit."""
WHOLE_DEVICE_P95 = 0.4  # 15 %; one device shows twice what others do for one ResNet-50
REGRETS_NOT_YET = {"vtrain-single": 0.034}  # 3 %
WORST_REGRETS_NOT_YET = {"vtrain-single": 0.29}  # 20 %
SHORT_LIST_REGRETS_NOT_YET = {"vtrain-multi": 0.023, "vtrain-single": 0.016}  # 1 %
ON_OTHER_MACHINES = {"optimum-habana"}
LEAST_MEDIAN_OF_PROGRAMMES = 0.845  # 0.85; 0.847
COMPUTE_BEYOND_THE_STEP, MOST_COMPUTE = 0.009, 1.11
"""Share of the runs whose kernels for products and attention alone are predicted to take longer
than the whole step did, and by what at most: 23 of 2,569, of them 2 by a thousandth. At the low end
of its 80 % interval no run's do. They are runs with hardly anything beside products, whose step is
predicted 2 to 16 % too slow as well: FSDP with nothing exposed (llm-foundry, 12), BERT in fp32 on
Hopper (milabench, 4), sequences from 128k on (stas, 3), one each of timm, torchtitan and MaxText on
TPU v6e; one more is a third too slow."""
BEATEN_BY_NULL: dict[Protocol, set[str]] = {
    "configuration": ON_OTHER_MACHINES,
    "source": ON_OTHER_MACHINES,
    "accelerator": ON_OTHER_MACHINES
    | {
        # Most of a device that stands alone is of one source and near one utilisation.
        "dgxc, experts",
        "megatron-bridge-h100-releases, dense",
        "megatron-lm-h100",
        "mlperf",
        "mlperf-gpt3",
    },
}

# All models are predicted once, and traced if the code that traces has changed.
pytestmark = [pytest.mark.slow, pytest.mark.accuracy, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def kept() -> Any:
    return evaluated_records.kept_traces()


@pytest.fixture(scope="module")
def evaluated() -> Evaluated:
    return evaluated_records.evaluate()


def test_the_archive_holds_every_profile_of_today_s_code(kept: Any, evaluated: Evaluated) -> None:
    """Else these tests trace for minutes, each time: `make accuracy` keeps what was traced."""
    assert kept.requests
    assert not kept.missed or package_version("torch") != TORCH_OF_THE_ARCHIVE


def test_kept_profiles_are_those_that_the_code_makes(kept: Any, evaluated: Evaluated) -> None:
    smallest: dict[str, ProfileRequest] = {}
    for request in sorted(kept.requests, key=lambda one: one.params.get("layers", 0)):
        smallest.setdefault(request.path.name, request)
    assert {"bert.py", "decoder.py", "resnet50.py"} <= set(smallest)
    requests = list(smallest.values())
    assert kept.profiles(requests) == profile_all(requests)


@pytest.mark.parametrize("protocol", ["configuration", "source"])
@pytest.mark.parametrize("group", groups.TARGETS)
def test_a_group_is_within_its_bound(evaluated: Evaluated, group: str, protocol: Protocol) -> None:
    bound = NOT_YET[protocol].get(group) or groups.target_of(group, protocol)
    assert bound is not None
    assert evaluated.rows(protocol)[group].mape <= bound


def test_what_is_not_reached_yet_is_above_its_target() -> None:
    for protocol, bounds in NOT_YET.items():
        for group, bound in bounds.items():
            assert bound > groups.target_of(group, protocol), group
    assert min(REGRETS_NOT_YET.values()) > regret.MEAN_TARGET
    assert min(WORST_REGRETS_NOT_YET.values()) > regret.WORST_TARGET
    assert min(SHORT_LIST_REGRETS_NOT_YET.values()) > regret.SHORT_LIST_TARGET


def test_means_over_groups_are_within_their_bounds(evaluated: Evaluated) -> None:
    bounds = groups.MEAN_TARGETS
    by_fold = groups.mean_error(large_rows(evaluated, "configuration"))
    assert by_fold is not None and by_fold <= MEAN_WITHIN_FOLDS
    by_source = groups.mean_error(large_rows(evaluated))
    by_accelerator = groups.mean_error(accelerator_rows(evaluated))
    assert by_source is not None and by_source <= bounds["source"]
    assert by_accelerator is not None and by_accelerator <= bounds["accelerator"]


def test_few_groups_are_far_off_without_their_source(evaluated: Evaluated) -> None:
    far = {row.group for row in large_rows(evaluated) if row.mape > 0.20}
    assert far - set(groups.NEVER_FITTED) <= ABOVE_A_FIFTH


def test_the_interval_holds_on_sources_that_nobody_has_seen(evaluated: Evaluated) -> None:
    covered = groups.coverage(evaluated.rows("source").values())
    assert covered is not None and COVERED[0] <= covered <= COVERED[1]


def test_the_interval_holds_on_devices_that_nobody_has_seen(evaluated: Evaluated) -> None:
    covered = groups.coverage(accelerator_rows(evaluated))
    assert covered is not None and DEVICES_COVERED[0] <= covered <= DEVICES_COVERED[1]


def large_rows(evaluated: Evaluated, protocol: Protocol = "source") -> list[SummaryRow]:
    rows = evaluated.rows(protocol).values()
    return [row for row in rows if row.n >= groups.LARGE_ENOUGH]


def test_one_model_on_one_device_is_within_its_bound(evaluated: Evaluated) -> None:
    seen = evaluated.seen["configuration"]
    named = groups.one_device_groups(evaluated.records, seen)
    rows = [
        row
        for row in groups.summarise_groups(seen, named, "configuration")
        if groups.target_of(row.group, "configuration")
    ]
    assert len(rows) >= 40
    mean = groups.mean_error(rows)
    assert mean is not None and mean <= ONE_DEVICE_MEAN


def test_choosing_by_the_predictions_costs_little(evaluated: Evaluated) -> None:
    sweeps = regret.find_sweeps(evaluated.records, evaluated.seen["configuration"])
    rows = {row.source: row for row in regret.regret_by_source(sweeps)}
    assert set(rows) >= {"bigscience-tr11", "bigscience-v100", "internevo", "vtrain-single"}
    assert rows["vtrain-single"].n >= 130
    for source, row in rows.items():
        assert row.mean <= REGRETS_NOT_YET.get(source, regret.MEAN_TARGET), source
        worst = WORST_REGRETS_NOT_YET.get(source, regret.WORST_TARGET)
        assert row.worst.regret() <= worst, row.worst
        listed = SHORT_LIST_REGRETS_NOT_YET.get(source, regret.SHORT_LIST_TARGET)
        assert row.short_list_mean is None or row.short_list_mean <= listed, source


def test_the_doubt_about_an_unstated_setup_is_the_spread_of_the_sweeps(
    evaluated: Evaluated,
) -> None:
    sweeps = regret.find_sweeps(evaluated.records, evaluated.seen["configuration"])
    doubt = NormalDist().inv_cdf(0.9) * math.sqrt(2) * regret.log_spread(sweeps)
    assert doubt == pytest.approx(programmes.UNSTATED_DOUBT, abs=0.01)


@pytest.mark.parametrize("meaning", MEMORY_MEDIANS)
def test_the_median_error_of_memory_is_within_its_bound(evaluated: Evaluated, meaning: str) -> None:
    assert median(memory_errors(evaluated, meaning)) <= MEMORY_MEDIANS[meaning]


def test_few_errors_of_memory_are_large(evaluated: Evaluated) -> None:
    errors = sorted(memory_errors(evaluated, "whole-device"))
    assert len(errors) >= 150
    assert errors[int(0.95 * len(errors))] <= WHOLE_DEVICE_P95


def test_hardly_a_verdict_of_memory_is_wrong(evaluated: Evaluated) -> None:
    verdicts = prediction_errors(evaluated.seen[None]).verdicts
    assert verdicts.n >= 2500
    assert verdicts.false_out_of_memory <= FALSE_OUT_OF_MEMORY
    assert verdicts.missed_out_of_memory <= MISSED_OUT_OF_MEMORY


def memory_errors(evaluated: Evaluated, meaning: str) -> list[float]:
    return [
        abs(seen.predicted_memory_bytes.value / seen.measured_memory_bytes - 1)
        for record, seen in zip(evaluated.records, evaluated.seen[None], strict=True)
        if record.measured.memory_meaning == meaning
        and seen.measured_memory_bytes
        and seen.predicted_memory_bytes
    ]


def accelerator_rows(evaluated: Evaluated) -> list[SummaryRow]:
    fitted = [
        seen
        for seen in evaluated.seen["accelerator"]
        if seen.source_group not in groups.NEVER_FITTED
    ]
    return list(summarise(fitted, "accelerator", "step_time_s", hold_out="accelerator"))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_group_of_some_size_beats_both_null_models(
    evaluated: Evaluated, protocol: Protocol
) -> None:
    rows = evaluated.rows(protocol)
    large = [row for row in rows.values() if row.n >= groups.LARGE_ENOUGH]
    assert len(large) >= 12
    assert set(groups.beaten_by_null(rows.values())) <= BEATEN_BY_NULL[protocol]


def test_errors_grow_with_no_property_of_a_run(evaluated: Evaluated) -> None:
    named = groups.split_groups(evaluated.records)
    found = trends.find_trends(evaluated.records, evaluated.seen["source"], named)
    assert len(found) >= 6
    assert [trend.name for trend in found if trend.stands_out] == []


def test_the_error_that_the_runs_of_a_budget_share_is_that_between_sources(
    evaluated: Evaluated,
) -> None:
    errors: dict[str, list[float]] = {}
    for seen in evaluated.seen["source"]:
        if seen.measured_step_time_s and seen.predicted_step_time_s:
            ratio = seen.predicted_step_time_s.value / seen.measured_step_time_s
            errors.setdefault(seen.source_group, []).append(math.log(ratio))
    sources = [found for found in errors.values() if len(found) >= 4]
    assert len(sources) >= 15
    between = variance(fmean(found) for found in sources)
    within = fmean(pvariance(found) for found in sources)
    value, _ = default("shared_error")
    assert value == pytest.approx(between / (between + within), abs=0.05)


def test_no_run_would_need_more_compute_than_its_step_took(evaluated: Evaluated) -> None:
    """Whatever else a step does, its products and attention ran inside it."""
    shares = compute_share.compute_shares(evaluated.timed, evaluated.seen[None])
    assert len(shares) >= 2500
    assert [one.id for one in shares if one.low > 1] == []
    assert sum(one.expected > 1 for one in shares) <= COMPUTE_BEYOND_THE_STEP * len(shares)
    assert max(one.expected for one in shares) <= MOST_COMPUTE


def test_steps_that_we_measured_ourselves_are_predicted() -> None:
    """Hardly anything is fitted to them (docs/evidence.md)."""
    found = validate([PUBLISHED / "own_gpu.jsonl"])
    steps = [row for row in found.rows if row.quantity == "step_time_s"]
    assert len(steps) >= 46 and not [row.skipped for row in steps if row.skipped]
    assert median(abs(row.error or 0.0) for row in steps) <= 0.12
    inside = [row.low <= row.measured <= row.high for row in steps]  # pyright: ignore[reportOperatorIssue]
    assert fmean(inside) >= 0.76
    assert found.verdicts.right == found.verdicts.n == len(steps)


@pytest.mark.parametrize(
    ("meaning", "key", "most_median", "most_mean"),
    [
        ("allocated", "peak_memory_gib", 0.003, 0.01),
        ("reserved", "peak_reserved_gib", 0.01, 0.025),
        ("whole-device", "device_used_gib", 0.012, 0.025),
    ],
)
def test_memory_that_we_measured_ourselves_is_predicted(
    meaning: str, key: str, most_median: float, most_mean: float, tmp_path: Path
) -> None:
    """In each meaning: what tensors took, what the pool held, what the device showed."""
    records = read_records(PUBLISHED / "own_gpu.jsonl")
    path = tmp_path / "as_measured.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for one in records:
            peak = getattr(one.measured, key, None) or (one.measured.model_extra or {})[key]
            data = one.model_dump(mode="json")
            data["measured"] |= {"peak_memory_gib": peak, "memory_meaning": meaning}
            file.write(json.dumps(data) + "\n")
    rows = [row for row in validate([path]).rows if row.quantity == "peak_memory_bytes"]
    errors = [abs(row.error) for row in rows if row.error is not None]
    assert len(errors) == len(records)
    assert median(errors) <= most_median
    assert fmean(errors) <= most_mean
    inside = [row.low <= row.measured <= row.high for row in rows]  # pyright: ignore[reportOperatorIssue]
    assert fmean(inside) >= 0.8


def test_every_record_is_predicted_in_its_own_precision(evaluated: Evaluated) -> None:
    predicted, decodable = page.share_predicted(evaluated.seen[None])
    assert predicted == decodable == len(evaluated.records) >= 2500
    skipped = [seen.skipped for seen in evaluated.seen[None] if seen.measured_step_time_s]
    assert [reason for reason in skipped if reason] == []


def test_what_is_held_out_changes_predictions(evaluated: Evaluated) -> None:
    """A protocol that no longer reached the constants would look like a perfect one."""
    usual = [seen.predicted_step_time_s for seen in evaluated.seen[None]]
    for protocol in PROTOCOLS:
        held = [seen.predicted_step_time_s for seen in evaluated.seen[protocol]]
        changed = sum(a != b for a, b in zip(usual, held, strict=True))
        assert changed > 0.9 * len(usual), protocol


@pytest.fixture(scope="module")
def whole(kept: Any, evaluated: Evaluated) -> list[Any]:
    return programmes.programmes(kept.profiles)


def test_published_programmes_take_about_the_hours_that_are_expected(
    whole: list[Any],
) -> None:
    """Wanted: median from 0.85; 5 inside an interval of 1.5 at most."""
    assert len(whole) == 7
    assert LEAST_MEDIAN_OF_PROGRAMMES <= programmes.median_ratio(whole) <= 1.15
    assert sum(one.is_inside for one in whole) >= 5
    assert max(one.width for one in whole) <= 1.5
    for one in whole:
        assert one.expected_hours > one.training_hours


@pytest.fixture(scope="module")
def known(kept: Any, evaluated: Evaluated) -> dict[str, Any]:
    return {truth.id: truth for truth in truths.known_truths(kept.profiles)}


def test_llama_3_405b_reaches_the_utilisation_its_paper_states(known: dict[str, Any]) -> None:
    """arXiv:2407.21783, table 4: 38 to 43 % on 8,192 and 16,384 H100.

    Its software is not stated: predicted as Megatron with Transformer Engine, whose gradients hide
    under the chunks that still run, it is 13 to 16 % faster.
    """
    assert 0.38 <= known["llama-3-405b-16384-h100"].predicted <= 0.47
    assert abs(known["llama-3-405b-8192-h100"].error) <= 0.16


def test_gpt_3_takes_the_days_its_paper_states(known: dict[str, Any]) -> None:
    """arXiv:2104.04473, section 5.1: 300 billion tokens on 1,024 A100 in 34 days."""
    assert known["gpt-3-175b-1024-a100"].predicted == pytest.approx(34, rel=0.10)
