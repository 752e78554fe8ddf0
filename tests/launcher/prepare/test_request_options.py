"""What the options of a launch are read as, and what is refused."""

from collections.abc import Callable

import pytest
from answers import make_plan
from launches import BUCKET

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.prepare.preflight import refuse_request
from gpuplan.launcher.prepare.request import (
    GuardRequest,
    LaunchRequest,
    parse_data,
    parse_outputs,
    parse_secret,
    parse_shared,
    parse_variable,
    refuse_keys,
    refuse_repeats,
)

CANARY = "hf_canaryCanaryCanary0123456789"


def test_a_shared_folder_is_refused_beside_another_place() -> None:
    both = LaunchRequest(shared="/mnt/nfs", outputs=BUCKET)
    with pytest.raises(UsageError, match="--outputs and --shared are both given"):
        refuse_request(make_plan(), both)
    with pytest.raises(UsageError, match="--shared and --fetch are both given"):
        refuse_request(make_plan(), LaunchRequest(shared="/mnt/nfs", fetch="/tmp/x"))
    refuse_request(make_plan(nodes=2), LaunchRequest(shared="/mnt/nfs", spot=True))


def test_a_smoke_run_of_a_script_whose_steps_nobody_knows_is_refused() -> None:
    guard = GuardRequest(smoke=True)
    with pytest.raises(UsageError, match="your own script"):
        refuse_request(
            make_plan(), LaunchRequest(shared="/mnt/nfs", command="train.py", guard=guard)
        )
    refuse_request(make_plan(), LaunchRequest(shared="/mnt/nfs", guard=guard))


def test_a_shared_folder_is_read_as_it_is_named() -> None:
    assert parse_shared("/mnt/nfs/runs/") == "/mnt/nfs/runs"


@pytest.mark.parametrize(
    "text",
    ["", "/", "runs", "~/runs", "//nfs/runs", "/mnt/../etc", "/mnt/$HOME", "/mnt/a b", "/mnt/x;rm"]
    + ["/tmp", "/tmp/runs", "/dev/shm/runs", "/outputs", "/outputs/runs", "s3://bucket/runs"],
)
def test_a_shared_folder_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shared"):
        parse_shared(text)


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (parse_secret, f"HF_TOKEN={CANARY}"),
        (parse_secret, f"{CANARY}!"),
        (parse_variable, f"HF_TOKEN={CANARY}"),
        (parse_variable, f"NOTE={CANARY}"),
        (parse_variable, f"{CANARY} "),
        (parse_data, f"s3://key:{CANARY}@bucket:/data"),
        (parse_data, f"https://a.blob/c?sig={CANARY}:/data"),
        (parse_data, f"s3://bucket?token={CANARY}"),
        (parse_outputs, f"s3://key:{CANARY}@bucket"),
        (lambda text: refuse_keys(text, "--command"), f"train.py --token {CANARY}"),
        (lambda text: refuse_keys(text, "--setup"), f"export A={CANARY}"),
    ],
)
def test_a_value_of_a_secret_is_refused_and_not_repeated(
    read: Callable[[str], object], text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(text)
    assert CANARY not in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "s3://bucket",
        "bucket:/data",
        "s3://bucket:data",
        "ftp://bucket:/data",
        "s3://:/data",
        "s3://bucket/$HOME:/data",
        "s3://bucket:/da ta",
        "s3://bucket:/a/../etc",
        "s3://bucket:/",
        "s3://bucket:/outputs/x",
        "s3://bucket:/data;rm",
    ],
)
def test_data_that_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_data(text)


def test_two_buckets_are_not_put_in_one_place() -> None:
    mounts = [parse_data("s3://aaa:/data"), parse_data("gs://bbb:/data")]
    with pytest.raises(UsageError, match="s3://aaa and gs://bbb"):
        refuse_repeats(mounts)


@pytest.mark.parametrize(
    ("source", "bucket", "folder"),
    [
        ("s3://texts", "s3://texts", ""),
        ("gs://texts/a/b", "gs://texts", "a/b"),
        ("cos://eu-de/texts/a", "cos://eu-de/texts", "a"),
        (
            "https://me.blob.core.windows.net/texts/a",
            "https://me.blob.core.windows.net/texts",
            "a",
        ),
        ("hf://datasets/me/texts", "hf://datasets/me/texts", ""),
    ],
)
def test_a_bucket_and_the_folder_in_it(source: str, bucket: str, folder: str) -> None:
    mount = parse_outputs(source)
    assert (mount.bucket, mount.folder) == (bucket, folder)
