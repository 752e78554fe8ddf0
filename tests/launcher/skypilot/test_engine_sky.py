"""What SkyPilot raises and returns, as the engine's errors and values; a stand-in for its SDK."""

import enum
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from fake_engine import Clock, FakeEngine
from launch_records import RUN, make_context, make_record

from gpuplan.catalog.errors import GpuplanError
from gpuplan.launcher.lifecycle.engine import (
    EngineError,
    EngineJob,
    LostTouchError,
    NoAccessError,
    NoCapacityError,
    NoEngineError,
)
from gpuplan.launcher.lifecycle.resume import reconcile_run
from gpuplan.launcher.lifecycle.transitions import begin
from gpuplan.launcher.skypilot.engine import SkyEngine
from gpuplan.launcher.skypilot.reservations import write_sky_config
from gpuplan.launcher.store.spending_limits import SpendingLimits

KEY = "AKIAABCDEFGHIJKLMNOP"


class Errors:
    """Errors with the names that they have in `sky.exceptions`."""

    class ResourcesUnavailableError(Exception):
        def __init__(self, message: str, failover_history: list[Exception] | None = None) -> None:
            super().__init__(message)
            self.failover_history = failover_history or []

    class NoCloudAccessError(Exception): ...

    class ApiServerConnectionError(RuntimeError): ...

    class ApiServerAuthenticationError(RuntimeError): ...

    class ClusterNotUpError(Exception): ...

    class ClusterDoesNotExist(ValueError): ...

    class RequestCancelled(Exception): ...

    class StorageError(Exception): ...

    class ServerTemporarilyUnavailableError(Exception): ...

    class RequestInterruptedError(Exception): ...


class Mode(enum.Enum):
    NONE = 0
    FORCE = 1


@pytest.fixture
def sky(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a stand-in for SkyPilot; what it is asked answers with itself."""
    module: Any = ModuleType("sky")
    module.exceptions = ModuleType("sky.exceptions")
    kinds = {name: one for name, one in vars(Errors).items() if isinstance(one, type)}
    vars(module.exceptions).update(kinds)
    module.StatusRefreshMode = Mode
    module.get = lambda answer: answer
    module.stream_and_get = lambda answer, output_stream: answer
    module.jobs = ModuleType("sky.jobs")
    module.Task = SimpleNamespace(from_yaml_config=lambda config, secrets_overrides: config)
    monkeypatch.setitem(sys.modules, "sky", module)
    monkeypatch.setitem(sys.modules, "sky.jobs", module.jobs)
    return module


def raising(error: Exception) -> Any:
    def raise_it(*_: object, **__: object) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize(
    ("error", "kind", "code", "said", "fix"),
    [
        (
            Errors.ResourcesUnavailableError("no A100", [RuntimeError("Insufficient")]),
            NoCapacityError,
            3,
            "nothing is rented. no A100",
            "--any-plan",
        ),
        (
            Errors.ResourcesUnavailableError("not in the catalog"),
            NoAccessError,
            2,
            "no such machines for this account",
            "gpuplan check",
        ),
        (Errors.NoCloudAccessError("none"), NoAccessError, 2, "no cloud to rent", "gpuplan check"),
        (Errors.ApiServerConnectionError("refused"), NoEngineError, 2, "server", "sky api start"),
        (
            ValueError("Invalid region 'mars-1'"),
            EngineError,
            1,
            "Invalid region 'mars-1'",
            "status",
        ),
        (Errors.StorageError("no bucket"), EngineError, 1, "no bucket", "status"),
        (Errors.RequestCancelled("gone"), EngineError, 1, "cancelled", None),
    ],
)
def test_each_failure_is_one_clear_error(
    sky: Any, error: Exception, kind: type[GpuplanError], code: int, said: str, fix: str | None
) -> None:
    sky.stream_and_get = raising(error)
    with pytest.raises(kind) as caught:
        SkyEngine().wait_launched("request", None)
    assert type(caught.value) is kind
    assert caught.value.exit_code == code
    assert said in caught.value.message
    assert fix is None or fix in str(caught.value.fix)


def of_http(name: str, *kinds: type[Exception], module: str = "requests.exceptions") -> Any:
    """Return an error as the libraries have it by which SkyPilot asks its server."""
    return type(name, kinds or (OSError,), {"__module__": module})


REQUEST_ERROR = of_http("RequestException")
LOST_CONNECTION = of_http("ConnectionError", REQUEST_ERROR)
TIMEOUT = of_http("Timeout", REQUEST_ERROR)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (LOST_CONNECTION, "the connection was lost"),
        (of_http("ConnectTimeout", LOST_CONNECTION, TIMEOUT), "could not be reached in time"),
        (of_http("ReadTimeout", TIMEOUT), "did not answer in time"),
        (of_http("ChunkedEncodingError", REQUEST_ERROR), "its answer broke off"),
        (of_http("JSONDecodeError", REQUEST_ERROR, ValueError), "its answer cannot be read"),
        (of_http("HTTPError", REQUEST_ERROR), "it answered with an error"),
        (of_http("SSLError", LOST_CONNECTION), "no secure connection"),
        (of_http("ProxyError", LOST_CONNECTION), "the proxy on the way"),
        (of_http("StreamConsumedError", REQUEST_ERROR, TypeError), "the connection was lost"),
        (of_http("ReadTimeoutError", Exception, module="urllib3.exceptions"), "answer in time"),
        (of_http("ClientOSError", OSError, module="aiohttp.client_exceptions"), "was lost"),
        (ConnectionResetError, "the connection was lost"),
        (TimeoutError, "did not answer in time"),
        (Errors.ServerTemporarilyUnavailableError, "not available for the moment"),
        (Errors.RequestInterruptedError, "interrupted, as by a restart"),
    ],
)
def test_a_connection_that_is_lost_is_named_and_says_nothing_of_the_launch(
    sky: Any, kind: type[Exception], said: str
) -> None:
    sky.stream_and_get = raising(kind("HTTPConnectionPool(host='127.0.0.1', port=46580)"))
    with pytest.raises(LostTouchError) as caught:
        SkyEngine().wait_launched("request", None)
    assert said in caught.value.message and "port=46580" in caught.value.message
    assert "gpuplan status" in str(caught.value.fix)


@pytest.mark.parametrize("kind", [AssertionError, TypeError, OSError, KeyError])
def test_whatever_its_server_raises_is_an_error_and_no_traceback(
    sky: Any, kind: type[Exception]
) -> None:
    sky.stream_and_get = raising(kind("no such row"))
    with pytest.raises(EngineError, match=f"SkyPilot failed with {kind.__name__}: .*no such row"):
        SkyEngine().wait_launched("request", None)


def test_errors_hold_no_keys_colours_or_line_breaks(sky: Any) -> None:
    sky.stream_and_get = raising(ValueError(f"\x1b[31mbad key\n{KEY}\x1b[0m " + "x " * 2000))
    with pytest.raises(EngineError) as caught:
        SkyEngine().wait_launched("request", None)
    assert KEY not in str(caught.value)
    assert "\x1b" not in str(caught.value) and "\n" not in caught.value.message
    assert len(caught.value.message) < 700


def test_without_skypilot_it_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sky", None)
    with pytest.raises(NoEngineError) as caught:
        SkyEngine().ready()
    assert caught.value.exit_code == 2
    assert 'pip install "gpuplan[sky]"' in str(caught.value)


def test_a_secret_goes_with_the_task_and_not_into_its_file(sky: Any, tmp_path: Path) -> None:
    asked: dict[str, Any] = {}

    def from_config(config: Any, secrets_overrides: Any) -> Any:
        asked.update(config=config, secrets=secrets_overrides)
        return "task"

    sky.Task = SimpleNamespace(from_yaml_config=from_config)
    sky.launch = lambda task, cluster_name: f"{task} on {cluster_name}"
    path = tmp_path / "task.yaml"
    path.write_text("name: gp-x\nsecrets:\n  HF_TOKEN: null\n")
    assert SkyEngine().launch(path, "gp-x", {"HF_TOKEN": "canary"}) == "task on gp-x"
    assert asked["secrets"] == [("HF_TOKEN", "canary")]
    assert "canary" not in path.read_text()


def test_a_reservation_is_told_with_the_request_and_not_kept(
    sky: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own: Any = ModuleType("sky.skypilot_config")
    own.now = {"jobs": {"bucket": "s3://b"}}
    own.to_dict = lambda: dict(own.now)
    own.overlay_skypilot_config = lambda original_config, override_configs: {
        **original_config,
        **override_configs,
    }

    @contextmanager
    def replaced(config: dict[str, Any]) -> Iterator[None]:
        before, own.now = own.now, config
        yield
        own.now = before

    own.replace_skypilot_config_in_process = replaced
    monkeypatch.setitem(sys.modules, "sky.skypilot_config", own)
    seen: list[dict[str, Any]] = []
    sky.launch = lambda task, cluster_name: seen.append(own.now) or "request"
    task = tmp_path / "task.yaml"
    task.write_text("run: true\n")
    config = {"aws": {"specific_reservations": ["cr-1"]}}
    write_sky_config(tmp_path, config)
    SkyEngine().launch(task, "gp-net", {})
    assert seen == [{"jobs": {"bucket": "s3://b"}, **config}]
    assert own.now == {"jobs": {"bucket": "s3://b"}}


def test_what_skypilot_prints_is_no_data_of_ours(sky: Any, capsys) -> None:
    def printing(answer: Any, output_stream: Any) -> Any:
        print("<sky-payload>checking</sky-payload>")
        return 1, None

    sky.stream_and_get = printing
    assert SkyEngine().wait_launched("request", io.StringIO()) == 1
    assert capsys.readouterr().out == ""


def test_a_cluster_with_its_place_and_price(sky: Any) -> None:
    launched = SimpleNamespace(
        cloud="AWS",
        region="us-east-1",
        zone="us-east-1a",
        instance_type="p4d.24xlarge",
        use_spot=True,
        labels={"gpuplan-run": "net-1", "gpuplan-store": "5a", "gpuplan-owner": "ann"},
        get_cost=lambda seconds: 10.0 * seconds / 3600,
    )
    row = {
        "name": "gp-net-1",
        "status": SimpleNamespace(value="UP"),
        "launched_at": 1_800_000_000,
        "handle": SimpleNamespace(launched_resources=launched, launched_nodes=2),
        "nodes": 2,
        "is_managed": False,
    }
    sky.status = lambda names, refresh: [row] if refresh is Mode.FORCE else []
    cluster = SkyEngine().cluster("gp-net-1")
    assert cluster is not None
    assert (cluster.infra, cluster.status) == ("aws/us-east-1/us-east-1a", "up")
    assert (cluster.usd_per_hour, cluster.run, cluster.is_spot) == (Decimal(20), "net-1", True)
    assert (cluster.store_id, cluster.owner) == ("5a", "ann")
    assert cluster.launched_at == datetime.fromtimestamp(1_800_000_000, UTC)
    assert SkyEngine().cluster("gp-net-1", refresh=False) is None


def test_giving_back_what_is_gone_is_no_error(sky: Any) -> None:
    sky.down = raising(Errors.ClusterDoesNotExist("gone"))
    SkyEngine().down("gp-net-1")


@pytest.mark.parametrize(
    "error",
    [
        # queue_v2(refresh=True) of 0.14.1 starts a controller, and there is none to start.
        Errors.ClusterDoesNotExist("Cluster 'sky-jobs-controller-5a5a' does not exist."),
        Errors.ClusterNotUpError("no controller"),
    ],
)
def test_without_a_controller_there_are_no_managed_jobs(sky: Any, error: Exception) -> None:
    sky.jobs.queue_v2 = raising(error)
    assert SkyEngine().managed_jobs() == []


def test_a_spot_launch_that_was_never_asked_is_closed_without_a_controller(
    sky: Any, tmp_path: Path
) -> None:
    engine = FakeEngine(Clock())
    context = make_context(tmp_path, engine)
    record = make_record(tmp_path, engine.clock, managed=True, pid=999_999)
    begin(context, record, SpendingLimits(), spot=True)  # Its command is killed here.
    sky.jobs.queue_v2 = raising(Errors.ClusterDoesNotExist("no controller"))
    engine.managed_jobs = SkyEngine().managed_jobs  # type: ignore[method-assign]
    assert reconcile_run(context, context.ledger.get(RUN))[1] == "never-asked"
    assert context.ledger.open() == []


def test_a_managed_job_of_two_tasks_is_one(sky: Any) -> None:
    def row(task_id: int, status: str, start: float | None, end: float | None, **facts: Any) -> Any:
        known = {"job_id": 3, "job_name": "gp-net-1", "failure_reason": None, "infra": None}
        times = {"start_at": start, "end_at": end, "recovery_count": 1}
        return {**known, **times, "task_id": task_id, "status": status, **facts}

    def job(*rows: Any) -> EngineJob:
        sky.jobs.queue_v2 = lambda refresh: (list(rows), 1, {}, 1)
        (found,) = SkyEngine().managed_jobs()
        return found

    first = row(0, "SUCCEEDED", 100.0, 200.0, infra="AWS (us-east-1)")
    handed_over = job(row(1, "PENDING", None, None), first)
    assert (handed_over.status, handed_over.ended_at) == ("waiting", None)
    assert handed_over.recoveries == 2
    done = job(first, row(1, "SUCCEEDED", 300.0, 400.0))
    assert done.status == "succeeded"
    assert (done.started_at, done.ended_at) == (
        datetime.fromtimestamp(100, UTC),
        datetime.fromtimestamp(400, UTC),
    )
    assert job(row(0, "CANCELLING", 100.0, None)).is_ending
    assert not handed_over.is_ending
    over = job(row(0, "FAILED", 100.0, 200.0), row(1, "CANCELLED", None, 200.0))
    assert (over.status, over.ended_at) == ("failed", datetime.fromtimestamp(200, UTC))


def test_only_launches_of_this_name_count_as_its_requests(sky: Any) -> None:
    def request(name: str, body: str, at: float, status: str = "RUNNING") -> SimpleNamespace:
        return SimpleNamespace(
            request_id=f"{name}-{at}", name=name, request_body=body, created_at=at, status=status
        )

    sky.api_status = lambda all_status, limit: [
        request("sky.launch", '{"cluster_name": "gp-net-1"}', 10.0, "FAILED"),
        request("sky.launch", '{"cluster_name": "gp-net-1"}', 20.0),
        request("sky.down", '{"cluster_name": "gp-net-1"}', 30.0),
        request("jobs.launch", '{"name": "gp-net-2"}', 40.0),
    ]
    found = SkyEngine().requests("gp-net-1")
    assert [one.status for one in found] == ["running", "failed"]
    assert [one.request_id for one in SkyEngine().requests("gp-net-2")] == ["jobs.launch-40.0"]


def test_a_folder_that_takes_no_results_is_no_fault_of_ours(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be brought to") as found:
        SkyEngine().copy_back("gp-net", "results", tmp_path / "file" / "runs")
    assert "the machines are still there" in (found.value.fix or "")
