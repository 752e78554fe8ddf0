"""The notices of three clouds, by a service on the loopback that answers as they document it."""

from collections.abc import Iterator, Mapping
from http.client import HTTPException

import pytest
from metadata_service import AZURE_EVENT, MetadataService, metadata_service

from gpuplan.launcher.guard.node import notice as notices
from gpuplan.launcher.guard.node.metadata import told
from gpuplan.launcher.guard.node.notice import LEFT_S, Notices, notice
from gpuplan.launcher.guard.node.stage import market
from gpuplan.planner.goodput.interruptions import notice_s

CLOUDS = ("aws", "gcp", "azure")


@pytest.fixture
def service() -> Iterator[MetadataService]:
    with metadata_service() as one:
        yield one


@pytest.mark.parametrize("cloud", CLOUDS)
def test_there_is_none_until_the_cloud_gives_one(cloud: str, service: MetadataService) -> None:
    assert notice(cloud, service.ask) is None
    service.warn()
    found = notice(cloud, service.ask)
    assert found is not None
    assert (found.cloud, found.left_s) == (cloud, LEFT_S[cloud])


def test_each_is_told_in_the_words_of_its_cloud(service: MetadataService) -> None:
    service.warn()
    found = [notice(cloud, service.ask) for cloud in CLOUDS]
    assert [one.said for one in found if one is not None] == [
        "terminate at 2026-11-23T18:02:00Z",
        "preempted",
        "Preempt at Mon, 23 Nov 2026 18:02:00 GMT",
    ]


def test_the_planner_counts_with_the_same_seconds() -> None:
    assert {cloud: notice_s(cloud) for cloud in CLOUDS} == LEFT_S


@pytest.mark.parametrize(
    ("changes", "is_noticed"),
    [
        ({}, True),
        ({"Resources": ["node-1"]}, False),
        ({"Resources": ["node-1", "node-0"]}, True),
        ({"Resources": []}, True),
        ({"EventType": "Freeze"}, False),
        ({"EventType": "Terminate"}, False),
        ({"NotBefore": ""}, True),
    ],
)
def test_azure_lists_the_events_of_other_machines_too(
    changes: Mapping[str, object], is_noticed: bool, service: MetadataService
) -> None:
    service.azure_events = [{**AZURE_EVENT, **changes}]
    assert (notice("azure", service.ask) is not None) is is_noticed


@pytest.mark.parametrize("text", ["", "null", "[]", "{", '{"action": "terminate"}', "<html>", "3"])
@pytest.mark.parametrize("cloud", [*CLOUDS, "runpod", ""])
def test_nonsense_is_no_notice(cloud: str, text: str) -> None:
    assert notice(cloud, lambda _method, _url, _headers: text) is None


@pytest.mark.parametrize("events", [3, [3], {"Events": 3}, {"Events": [None]}])
def test_azure_events_of_another_shape_are_none(events: object, service: MetadataService) -> None:
    service.azure_events = events  # pyright: ignore[reportAttributeAccessIssue]
    assert notice("azure", service.ask) is None


@pytest.mark.parametrize("error", [OSError, ValueError, HTTPException])
@pytest.mark.parametrize("cloud", CLOUDS)
def test_a_service_that_does_not_answer_stops_no_run(cloud: str, error: type[Exception]) -> None:
    def ask(method: str, url: str, headers: Mapping[str, str]) -> str:
        raise error

    assert notice(cloud, ask) is None


@pytest.mark.parametrize(
    ("cloud", "variable"),
    [("aws", "AWS_EC2_METADATA_SERVICE_ENDPOINT"), ("gcp", "GCE_METADATA_HOST")],
)
def test_the_providers_variables_name_another_address(
    cloud: str, variable: str, service: MetadataService, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = service.base if cloud == "aws" else service.base.removeprefix("http://")
    monkeypatch.setenv(variable, address)
    assert market(cloud) == "spot"
    service.warn()
    assert notice(cloud) is not None


def test_a_cloud_without_a_service_is_an_error_of_ours() -> None:
    with pytest.raises(KeyError):
        told("runpod", "/", lambda _method, _url, _headers: "")


def test_a_thread_asks_until_there_is_one(
    service: MetadataService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(notices.EVERY_S, "gcp", 0.001)
    listening = Notices("GCP", service.ask)
    assert (listening.seen, listening.left_s) == (None, 0.0)
    service.warn()
    listening.start()
    listening._thread.join(30)
    assert listening.seen is not None
    assert 0 < listening.left_s <= 30


def test_a_cloud_without_notices_is_not_asked(service: MetadataService) -> None:
    listening = Notices("lambda", service.ask)
    listening.start()
    listening.stop()
    assert (listening.seen, service.asked) == (None, 0)
