"""Answers of SkyPilot in a form that is not expected: one clear error, and nothing concluded."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.skypilot.engine import SkyEngine

ROW = {"job_id": 1, "status": "RUNNING", "job_name": "gp-net", "start_at": 1.0, "end_at": None}
CLUSTER = {
    "name": "gp-net",
    "status": None,
    "handle": None,
    "launched_at": 1.0,
    "nodes": None,
    "is_managed": False,
}


@pytest.fixture
def sky(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a stand-in for SkyPilot whose answers are what a test gives."""
    names = ("ResourcesUnavailableError", "NoCloudAccessError", "ApiServerConnectionError")
    names += ("ApiServerAuthenticationError", "ClusterNotUpError", "ClusterDoesNotExist")
    module: Any = ModuleType("sky")
    module.exceptions = ModuleType("sky.exceptions")
    for name in (*names, "RequestCancelled"):
        setattr(module.exceptions, name, type(name, (Exception,), {}))
    module.StatusRefreshMode = SimpleNamespace(FORCE=1, NONE=0)
    module.get = lambda answer: answer
    module.jobs = ModuleType("sky.jobs")
    monkeypatch.setitem(sys.modules, "sky", module)
    monkeypatch.setitem(sys.modules, "sky.jobs", module.jobs)
    return module


def without(row: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != name}


@pytest.mark.parametrize("name", ["job_id", "status", "job_name", "end_at"])
def test_a_job_whose_fields_have_other_names_is_an_error_and_not_a_job(sky: Any, name: str) -> None:
    sky.queue = lambda cluster, all_users: [without(ROW, name)]
    with pytest.raises(EngineError, match="form that gpuplan does not know") as found:
        SkyEngine().jobs("gp-net")
    assert name in found.value.message and "sky api info" in (found.value.fix or "")


def test_rows_that_are_none_at_all_are_no_machines_that_went(sky: Any) -> None:
    engine = SkyEngine()
    sky.status = lambda names, refresh: None
    sky.cost_report = lambda: None
    sky.api_status = lambda all_status, limit: [
        SimpleNamespace(name="sky.launch", request_body=None, request_id="1", created_at=1.0)
    ]
    sky.jobs.queue_v2 = lambda refresh: ([without(ROW, "end_at")], 1, {}, 1)
    for ask in (engine.clusters, engine.managed_jobs):
        with pytest.raises(EngineError, match="does not know"):
            ask()
    for ask_of in (engine.cluster, engine.past, engine.requests):
        with pytest.raises(EngineError, match="does not know"):
            ask_of("gp-net")


def test_a_status_that_is_new_or_none_is_not_taken_for_an_end(sky: Any) -> None:
    sky.status = lambda names, refresh: [CLUSTER]
    sky.queue = lambda cluster, all_users: [{**ROW, "status": "RESHAPING"}]
    found = SkyEngine().cluster("gp-net")
    assert found is not None and (found.status, found.nodes, found.infra) == ("starting", 1, None)
    assert [one.status for one in SkyEngine().jobs("gp-net")] == ["waiting"]


@pytest.mark.parametrize(("status", "may"), [("FAILED_CONTROLLER", True), ("FAILED", False)])
def test_a_controller_that_failed_is_known(sky: Any, status: str, may: bool) -> None:
    facts = {"infra": "aws", "failure_reason": "", "recovery_count": 0, "submitted_at": 1.0}
    sky.jobs.queue_v2 = lambda refresh: ([{**ROW, **facts, "status": status}], 1, {}, 1)
    (job,) = SkyEngine().managed_jobs()
    assert (job.status, job.may_leave_machines) == ("failed", may)


def test_a_request_says_its_status_as_a_name_or_as_one_of_a_kind(sky: Any) -> None:
    def request(status: Any) -> SimpleNamespace:
        return SimpleNamespace(
            name="sky.launch", request_body="gp-net", request_id="1", created_at=1.0, status=status
        )

    sky.api_status = lambda all_status, limit: [
        request("FAILED"),
        request(SimpleNamespace(value="FAILED")),
        request("RESHAPING"),
    ]
    found = SkyEngine().requests("gp-net")
    assert [one.status for one in found] == ["failed", "failed", "running"]
