"""The plan that a run is given: by its id, or from a file."""

from pathlib import Path

import pytest
from answers import make_plan, make_ranked_estimate

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.plan_file import given_plan


def test_a_plan_is_found_by_id_in_the_store(ask) -> None:
    estimate = make_ranked_estimate()
    Store().keep(estimate, inputs_hash="a")
    found = given_plan(estimate.plans[0].id[:6])
    assert found.plan.id == estimate.plans[0].id
    assert found.workload == estimate.workload


def test_a_plan_is_read_from_a_file(tmp_path: Path) -> None:
    plan, estimate = make_plan(), make_ranked_estimate()
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    found = given_plan(str(tmp_path / "plan.json"))
    assert (found.plan, found.workload) == (plan, None)
    one = estimate.model_copy(update={"plans": estimate.plans[:1]})
    (tmp_path / "one.json").write_text(one.model_dump_json())
    found = given_plan(str(tmp_path / "one.json"))
    assert (found.plan.id, found.workload) == (estimate.plans[0].id, estimate.workload)
    (tmp_path / "many.json").write_text(estimate.model_dump_json())
    wanted = estimate.plans[1].id
    assert given_plan(f"{tmp_path / 'many.json'}#{wanted[:5]}").plan.id == wanted


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "is not JSON"),
        ("[]", "holds no plan"),
        ('{"a": 1}', "is not a plan: id is missing"),
        ('{"plans": 3}', "is not an estimate"),
    ],
)
def test_a_file_that_holds_no_plan_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    with pytest.raises(UsageError, match=message):
        given_plan(str(tmp_path / "plan.json"))


def test_a_model_file_in_the_place_of_a_plan_is_told_what_makes_one(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    path.write_text("def build_model(): ...\n")
    with pytest.raises(UsageError, match="is a model file, and a plan is asked for") as refused:
        given_plan(str(path))
    assert f"`gpuplan estimate {path}`" in (refused.value.fix or "")


def test_an_estimate_with_several_plans_says_which_there_are(tmp_path: Path) -> None:
    estimate = make_ranked_estimate()
    path = tmp_path / "many.json"
    path.write_text(estimate.model_dump_json())
    with pytest.raises(UsageError, match=estimate.plans[1].id) as refused:
        given_plan(str(path))
    # `run` takes it after --plan, `export` by itself.
    place = f"{path}#{estimate.plans[0].id}"
    assert refused.value.fix == f"name one of them in its place: {place}."
    assert given_plan(place).plan.id == estimate.plans[0].id
    with pytest.raises(UsageError, match="holds no plan ffffffffff"):
        given_plan(f"{path}#ffffffffff")
