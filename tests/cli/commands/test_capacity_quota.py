"""`gpuplan capacity` of a project: what the account's quota leaves, and when to ask for more."""

import json
from pathlib import Path

import pytest
from fake_cloud import FakeCloud, quota

from gpuplan.catalog.clouds import connect as connecting
from gpuplan.catalog.clouds.interface import CloudError, Quotas, Unanswered
from gpuplan.cli.main import run
from gpuplan.planner.capacity import order

GOLDEN = Path(__file__).parent / "golden"
PROJECT = """\
name: Foundation group
start: 2027-01
months: 12
defaults: {provider: %s, instance: %s, region: %s}
experiments:
  scaling ladder: {hours: 300, nodes: 2}
  main run: {hours: 1000, nodes: 4, after: [scaling ladder], priority: 3}
  robotics: {hours: 500, nodes: 2}
"""


@pytest.fixture
def clouds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, FakeCloud]:
    write("aws", "p5.48xlarge", "us-east-1", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(order, "_solved", lambda *_: "HiGHS is not asked here")
    answering: dict[str, FakeCloud] = {}
    missing = CloudError("no credentials", fix="log in.")
    monkeypatch.setattr(connecting, "connect", lambda name: answering.get(name, missing))
    return answering


def write(provider: str, instance: str, region: str, folder: Path = Path()) -> None:
    (folder / "gpuplan.yaml").write_text(PROJECT % (provider, instance, region))


def vcpus(limit: float, used: float | None = 0.0, **changes) -> FakeCloud:
    return FakeCloud(quotas=Quotas(quotas=(quota(limit, used, **changes),)))


def said(capsys, *words: str) -> dict:
    assert run(["capacity", "gpuplan.yaml", *words, "--format", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_slips_if_quota_stays_as_it_is(clouds, capsys, golden) -> None:
    clouds["aws"] = vcpus(960, 192)
    assert run(["capacity", "gpuplan.yaml"]) == 0
    golden(GOLDEN / "capacity-quota.txt", capsys.readouterr().out)
    (asked,) = clouds["aws"].asked
    assert asked.regions == ("us-east-1",) and list(asked.instances) == ["p5.48xlarge"]
    found = said(capsys)
    (one,) = found["quotas"]
    assert (one["free"], one["wanted"], one["short_from"]) == (768, 1152, "2027-01-13")
    assert one["ask_by"] is None and one["answer_days"] is None
    assert one["command"] == "ask aws for 1344 vCPU in us-east-1"
    assert {job["name"]: round(job["slips_days"]) for job in found["jobs"]} == {
        "scaling ladder": 0, "main run": 8, "robotics": 0,
    }  # fmt: skip


def test_what_runs_now_is_said_where_it_is_not_known(clouds, capsys) -> None:
    words = "What runs now under"
    clouds["aws"] = vcpus(960, 192)
    assert run(["capacity", "gpuplan.yaml"]) == 0
    assert words not in capsys.readouterr().out
    clouds["aws"] = vcpus(960, None)
    assert run(["capacity", "gpuplan.yaml"]) == 0
    assert words in capsys.readouterr().out
    assert said(capsys)["quotas"][0]["used"] is None


def test_runs_that_no_quota_allows_never_start_and_the_answer_says_so(clouds, capsys) -> None:
    clouds["aws"] = vcpus(0)
    assert run(["capacity", "gpuplan.yaml"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "3 of 3 sets of runs cannot start at all" in text
    assert "With 1,152 more vCPU of Running On-Demand P instances in aws us-east-1" in text
    assert "main run cannot start: one run takes 768 vCPU" in text and "never" in text
    assert {job["cannot_start"] is None for job in said(capsys)["jobs"]} == {False}


def test_google_says_how_long_it_takes_so_there_is_a_day_to_ask_on(clouds, capsys) -> None:
    write("gcp", "a3-highgpu-8g", "us-central1")
    place = {"instance_type": "a3-highgpu-8g", "unit": "GPU", "per_instance": 8.0}
    regional = quota(64, 0, region="us-central1", name="H100", code="H100", **place)
    everywhere = quota(16, 0, region="global", name="all", code="ALL", **place)
    clouds["gcp"] = FakeCloud(name="gcp", quotas=Quotas(quotas=(regional, everywhere)))
    found = said(capsys)
    assert [one["region"] for one in found["quotas"]] == ["us-central1", "global"]
    assert [one["short_from"] for one in found["quotas"]] == [None, "2027-01-01"]
    assert [one["ask_by"] for one in found["quotas"]] == [None, "2026-12-30"]
    assert "(ask by 2026-12-30)" in found["headline"]


@pytest.mark.parametrize(
    ("words", "cloud", "why"),
    [
        ((), None, "no credentials (log in)"),
        (("--offline",), None, "not asked (--offline)"),
        (
            (),
            FakeCloud(
                quotas=Quotas(
                    unanswered=(
                        Unanswered(
                            question="quota", region="us-east-1", why="denied", permission="a:Get"
                        ),
                    )
                )
            ),
            "denied: needs a:Get",
        ),
        ((), FakeCloud(), "it does not say"),
    ],
    ids=["no login", "offline", "no permission", "silent"],
)
def test_what_is_not_known_holds_nothing_back_and_is_said(
    clouds, words: tuple[str, ...], cloud: FakeCloud | None, why: str, capsys
) -> None:
    if cloud is not None:
        clouds["aws"] = cloud
    found = said(capsys, *words)
    assert found["quotas_unknown"] == {"aws us-east-1 p5.48xlarge on-demand": why}
    assert found["quotas"] == [] and found["end"] == found["wanted_end"]
    assert run(["capacity", "gpuplan.yaml", *words]) == 0
    assert f"not known ({why}); it is taken" in " ".join(capsys.readouterr().out.split())


def test_of_what_one_has_nobody_is_asked(clouds, capsys) -> None:
    clouds["aws"] = vcpus(0)
    assert said(capsys, "--have", "H100:64")["quotas"] == []
    with Path("gpuplan.yaml").open("a") as file:
        file.write("have: {H100: 64}\n")
    assert said(capsys)["quotas"] == []
    assert clouds["aws"].asked == []


def test_spot_machines_have_a_quota_of_their_own(clouds, capsys) -> None:
    clouds["aws"] = vcpus(960)
    path = Path("gpuplan.yaml")
    path.write_text(path.read_text().replace("region:", "purchase: spot, region:"))
    said(capsys)
    assert [one.purchase for one in clouds["aws"].asked] == ["spot"]


def test_why_a_machine_is_restricted_is_said(capsys) -> None:
    words = ["capacity", "--accelerator", "H100:1", "--provider", "gcp", "--region"]
    assert run([*words, "us-central1,europe-west1", "--offline"]) == 3  # Nowhere.
    said = " ".join(capsys.readouterr().out.split())
    assert "on-demand: cannot in 2 places" in said
    assert "sold as Spot and by flex-start alone." in said
    assert run([*words, "us-central1", "--offline", "--spot"]) == 0
    assert "unknown in 1 place" in " ".join(capsys.readouterr().out.split())
