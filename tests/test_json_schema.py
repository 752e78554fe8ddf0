"""The JSON contract: the committed schemas, the page that explains them, and what is printed."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from answers import make_estimate, make_ranked_estimate, make_unworked_estimate
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from gpuplan.api.account.billing import BillingImport
from gpuplan.catalog.listing.capacity import CapacityAnswer
from gpuplan.catalog.listing.price_changes import PriceDifference, PriceHistory
from gpuplan.catalog.prices.snapshot import SnapshotState
from gpuplan.launcher.local.actuals import Actuals
from gpuplan.launcher.local.export_weights import ExportedWeights
from gpuplan.launcher.prepare.prepared import LaunchAnswer
from gpuplan.planner.advise.answer import Advice
from gpuplan.planner.budget.difference.causes import Difference
from gpuplan.planner.budget.report.capacity_rows import CapacityOverTime
from gpuplan.planner.budget.report.report import BudgetReport
from gpuplan.planner.plan.answer.estimate import Estimate
from gpuplan.planner.plan.answer.param_sweep import Sweep
from gpuplan.planner.plan.ids import NOT_CONTENT, plan_id
from gpuplan.planner.plan.schema import schema_of
from gpuplan.planner.predict.fits import FitsAnswer
from gpuplan.planner.validation.errors import Validation
from gpuplan.planner.validation.own_calibration import StoreCalibration

DOCS = Path(__file__).parents[1] / "docs"
PRINTED: dict[str, type[BaseModel]] = {
    "estimate": Estimate,
    "sweep": Sweep,
    "fits": FitsAnswer,
    "advise": Advice,
    "validate": Validation,
    "actuals": Actuals,
    "export-weights": ExportedWeights,
    "launch": LaunchAnswer,
    "report": BudgetReport,
    "diff": Difference,
    "billing": BillingImport,
    "calibrate-from-store": StoreCalibration,
    "prices": SnapshotState,
    "prices-diff": PriceDifference,
    "prices-history": PriceHistory,
    "capacity": CapacityAnswer,
    "capacity-over-time": CapacityOverTime,
}

PROMISED = Path(__file__).parent / "support" / "promised_keys.txt"
"""The keys that were promised first; they stay as they are for as long as the version is 1."""


def paths(value: Any, prefix: str = "") -> Iterator[str]:
    """Yield the path of every key of a JSON value, those of list items without an index."""
    if isinstance(value, list):
        for item in value:
            yield from paths(item, prefix)
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield f"{prefix}{key}"
            yield from paths(inner, f"{prefix}{key}.")


def keys(schema: dict[str, Any]) -> set[str]:
    parts = [schema, *schema.get("$defs", {}).values()]
    return {key for part in parts for key in part.get("properties", {})}


@pytest.mark.parametrize("name", PRINTED)
def test_the_committed_schema_is_what_is_printed(
    name: str, golden: Callable[[Path, str], None]
) -> None:
    schema = schema_of(PRINTED[name], title=f"gpuplan {name}")
    text = json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
    golden(DOCS / "schema" / f"{name}-1.0.json", text)


@pytest.mark.parametrize("name", PRINTED)
def test_the_page_explains_every_key(name: str) -> None:
    explained = set(re.findall(r"`(\w+)`", (DOCS / "json.md").read_text(encoding="utf-8")))
    assert keys(schema_of(PRINTED[name], title="")) - explained == set()


@pytest.mark.parametrize("make", [make_ranked_estimate, make_unworked_estimate, make_estimate])
def test_what_is_printed_is_valid(make: Callable[[], Estimate]) -> None:
    schema = json.loads((DOCS / "schema" / "estimate-1.0.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(make().model_dump_json()), schema)


def test_a_missing_key_is_not_valid() -> None:
    schema = schema_of(Estimate, title="")
    printed = json.loads(make_ranked_estimate().model_dump_json())
    del printed["plans"][0]["runnable"]
    with pytest.raises(jsonschema.ValidationError, match="runnable"):
        jsonschema.validate(printed, schema)


def test_the_promised_keys_are_there() -> None:
    printed = set(paths(json.loads(make_ranked_estimate().model_dump_json())))
    assert set(PROMISED.read_text().split()) - printed == set()


def test_every_number_is_a_number() -> None:
    run = json.loads(make_ranked_estimate().model_dump_json())["plans"][0]["run"]
    assert run["cost_lines"][0]["usd"] == 3482.86


def test_an_id_can_be_checked_from_the_json() -> None:
    for plan in json.loads(make_ranked_estimate().model_dump_json())["plans"]:
        content = {key: value for key, value in plan.items() if key not in NOT_CONTENT}
        assert plan_id(content) == plan["id"]


@given(st.integers(0, 4), st.floats(1e-6, 1e6), st.text(max_size=20))
def test_an_estimate_survives_json(index: int, seconds: float, note: str) -> None:
    answer = make_ranked_estimate()
    time = answer.plans[index].step_time_s.model_copy(update={"value": seconds})
    changed = answer.plans[index].model_copy(update={"step_time_s": time, "notes": (note,)})
    answer = answer.model_copy(update={"plans": (changed,)})
    assert Estimate.model_validate_json(answer.model_dump_json()) == answer


def test_keys_of_a_later_version_are_ignored() -> None:
    printed = json.loads(make_ranked_estimate().model_dump_json())
    printed["added_later"] = printed["plans"][0]["added_later"] = 1
    assert Estimate.model_validate(printed) == make_ranked_estimate()
