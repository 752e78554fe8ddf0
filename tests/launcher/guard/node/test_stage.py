"""How a machine was bought, as its cloud tells it."""

from collections.abc import Mapping
from http.client import HTTPException

import pytest

from gpuplan.launcher.guard.node.stage import VARIABLE, market


def telling(answers: Mapping[str, str]):
    """Return a metadata service that answers URLs which hold one of these words."""

    def ask(method: str, url: str, headers: Mapping[str, str]) -> str:
        assert headers, "each cloud wants a header, against requests that were not meant"
        for word, text in answers.items():
            if word in url:
                assert (method == "PUT") == (word == "token")
                return text
        raise OSError(url)

    return ask


@pytest.mark.parametrize(
    ("cloud", "answers", "bought"),
    [
        ("aws", {"token": "t", "instance-life-cycle": "spot"}, "spot"),
        ("AWS", {"token": "t", "instance-life-cycle": "on-demand"}, "on-demand"),
        ("aws", {"instance-life-cycle": "spot"}, None),
        ("gcp", {"preemptible": "TRUE"}, "spot"),
        ("gcp", {"preemptible": "FALSE"}, "on-demand"),
        ("azure", {"priority": "Spot"}, "spot"),
        ("azure", {"priority": "Regular"}, "on-demand"),
        ("azure", {}, None),
        ("runpod", {"token": "t"}, None),
        ("", {}, None),
    ],
)
def test_each_cloud_is_asked_in_its_own_way(
    cloud: str, answers: Mapping[str, str], bought: str | None
) -> None:
    assert market(cloud, telling(answers)) == bought


@pytest.mark.parametrize("error", [OSError, ValueError, HTTPException])
def test_a_service_that_answers_nonsense_stops_no_run(error: type[Exception]) -> None:
    def ask(method: str, url: str, headers: Mapping[str, str]) -> str:
        raise error

    assert market("aws", ask) is None


def test_the_second_task_is_never_on_spot_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "on-demand")
    assert market("aws", telling({})) == "on-demand"
