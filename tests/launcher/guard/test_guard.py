"""The guard as a process, with a tiny trainer in its care."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from guards import STEP, WITHIN_S, Node, told
from metadata_service import MetadataService, metadata_service

from gpuplan.launcher.guard.orders import HandOver

pytestmark = pytest.mark.slow

TRAINER = Path(__file__).parents[2] / "support" / "stand_in_trainer.py"
POLL_S = 0.1
SLACK_S = 3.0
"""What a busy machine may take for one poll and the trainer's end."""


@pytest.fixture
def node(tmp_path: Path, require) -> Node:
    require("linux", "nodes are")
    return Node(tmp_path)


def trainer(node: Node, **facts: object) -> list[str]:
    words = [f"{name}={value}" for name, value in facts.items()]
    return [sys.executable, str(TRAINER), str(node.out), *words]


def wait_for(seen: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not seen():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until_s
        time.sleep(0.02)


def checkpoint(node: Node) -> dict[str, Any]:
    return json.loads((node.out / "checkpoint.json").read_text())


def steps(node: Node) -> int:
    with contextlib.suppress(OSError):
        return len((node.out / "metrics.jsonl").read_text().splitlines())
    return 0


@pytest.fixture
def running(node: Node) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a way to start a guarded trainer that is some steps on; it does not outlive us."""
    started = []

    def start(variables: Mapping[str, str] | None = None, **facts: object) -> subprocess.Popen[str]:
        process = node.start(*trainer(node, **facts), **(variables or {}))  # pyright: ignore[reportArgumentType]
        started.append(process)
        before = steps(node)
        wait_for(lambda: steps(node) > before + 3, process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def test_a_run_that_reaches_its_cap_writes_a_checkpoint_and_ends_with_4(node: Node) -> None:
    node.orders(max_cost_usd=3.0, tail_s=1.0, requested_at_s=time.time())
    done = node.run(*trainer(node))
    last = told(done.stdout)

    assert done.returncode == 4
    assert last["verdict"]["why"] == "max-cost"
    assert last["command_code"] == 0, "it ended well"
    assert checkpoint(node)["step"] == last["step"] > 5
    assert 2.0 <= last["spent_usd"] <= 2.0 + POLL_S + SLACK_S
    # The state is whole, and the same wherever it is told.
    ended = ("command_code", "command_s")
    assert node.state == {key: value for key, value in last.items() if key not in ended}
    assert 0 < last["command_s"] <= last["seen_at_s"] - last["began_at_s"]
    (line,) = node.attempts
    assert {key: last[key] for key in line} == line


def test_a_node_whose_neighbours_still_upload_does_not_fail(node: Node) -> None:
    node.orders(max_cost_usd=1.0, requested_at_s=time.time(), others_upload=True)
    done = node.run(*trainer(node))
    assert done.returncode == 0, "SkyPilot would kill them"
    assert told(done.stdout)["verdict"]["exit_code"] == 4
    node.orders(max_cost_usd=1e9, others_upload=True)
    assert node.run("sh", "-c", "exit 4").returncode == 4, "it failed by itself"


def test_a_person_stops_it(node: Node, running) -> None:
    node.orders()
    process = running()
    node.stop_file.touch()
    out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 0
    assert told(out)["verdict"] == {
        "why": "stop",
        "text": "The user asked it to stop.",
        "exit_code": 0,
    }
    assert checkpoint(node)["step"] == steps(node)
    assert not node.stop_file.exists(), "the next attempt would stop at once"


def test_a_wish_from_before_the_start_starts_nothing(node: Node) -> None:
    node.orders()
    node.stop_file.touch()
    done = node.run(*trainer(node))
    assert done.returncode == 0
    assert told(done.stdout)["verdict"]["why"] == "stop"
    assert not (node.out / "began").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_from_outside_is_passed_on_once(node: Node, running, number: int) -> None:
    node.orders()
    process = running()
    process.send_signal(number)
    process.send_signal(number)
    out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 128 + number, "0 would tell SkyPilot that the run is over"
    assert told(out)["verdict"]["why"] == "signal"
    assert checkpoint(node)["step"] == steps(node)
    assert (node.out / "signals").read_text().split() == [str(int(signal.SIGTERM))]


def test_a_notice_of_the_cloud_saves_the_run_and_lets_it_go_on(node: Node, running) -> None:
    node.orders(notices=True)
    with metadata_service() as service:
        process = running(variables=on_aws(service))
        service.warn()
        out, _ = process.communicate(timeout=WITHIN_S)
    verdict = told(out)["verdict"]
    assert process.returncode == 143, "SkyPilot starts it again elsewhere"
    assert (verdict["why"], told(out)["command_code"]) == ("notice", 0)
    assert "terminate at 2026-11-23T18:02:00Z" in verdict["text"]
    assert checkpoint(node)["step"] == steps(node) == told(out)["step"]


def test_machines_on_demand_are_not_asked_for_notices(node: Node) -> None:
    node.orders(notices=True)
    with metadata_service() as service:
        service.lifecycle = "on-demand"
        service.warn()
        done = node.run(*trainer(node, steps=20), **on_aws(service))
    assert done.returncode == 0
    assert service.asked == 2, "a token, and how the machine was bought"


def on_aws(service: MetadataService) -> dict[str, str]:
    """Return the variables of a node whose metadata service that is."""
    told_by_sky = {"cloud": "AWS", "region": "us-east-1", "zone": "us-east-1a"}
    return {
        "AWS_EC2_METADATA_SERVICE_ENDPOINT": service.base,
        "SKYPILOT_CLUSTER_INFO": json.dumps(told_by_sky),
    }


def test_a_command_that_does_not_stop_is_killed(node: Node, running) -> None:
    node.orders(grace_s=1.0)
    process = running(ignore=1)
    node.stop_file.touch()
    out, _ = process.communicate(timeout=WITHIN_S)
    last = told(out)
    assert process.returncode == 0
    assert last["command_code"] == -signal.SIGKILL
    assert "was killed" in last["verdict"]["text"] == node.state["verdict"]["text"]


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -9 $$", 137), ("true", 0)])
def test_a_command_that_ends_by_itself_passes_its_code_on(
    node: Node, command: str, code: int
) -> None:
    node.orders(max_cost_usd=1e9)
    done = node.run("sh", "-c", command)
    last = told(done.stdout)
    assert done.returncode == last["verdict"]["exit_code"] == code
    assert last["verdict"]["why"] == ("failed" if code else "done")
    assert node.attempts[0]["verdict"] == last["verdict"]


def test_torchrun_gives_a_script_the_same_time(node: Node) -> None:
    node.orders(grace_s=450.0)
    script = 'test "$TORCH_ELASTIC_SHUTDOWN_TIMEOUT" = 450'
    assert node.run("sh", "-c", script).returncode == 0
    assert node.run("sh", "-c", script, TORCH_ELASTIC_SHUTDOWN_TIMEOUT="7").returncode == 1


def test_a_command_that_is_not_there_says_so(node: Node) -> None:
    node.orders()
    done = node.run("no-such-trainer")
    assert done.returncode == 127
    assert "no-such-trainer does not start" in done.stdout


def test_nothing_that_the_command_started_outlives_it(node: Node) -> None:
    node.orders()
    # One child in a session of its own, as torchrun's are.
    left = node.out / "left"
    python = (
        "import subprocess\n"
        "child = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"open({str(left)!r}, 'w').write(str(child.pid))\n"
    )
    assert node.run(sys.executable, "-c", python).returncode == 0
    pid = int(left.read_text())
    until_s = time.monotonic() + WITHIN_S
    while lives(pid):
        assert time.monotonic() < until_s
        time.sleep(0.02)


def lives(pid: int) -> bool:
    """Return whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_spending_adds_up_when_the_guard_is_killed(node: Node, running) -> None:
    node.orders(requested_at_s=time.time())
    first = running()
    before = steps(node)
    wait_for(lambda: node.state["step"] is not None and node.state["step"] >= before, first)
    first.kill()
    first.communicate()
    state = node.state
    assert state["verdict"] is None and state["spent_usd"] == state["usd"] > 0
    # The trainer is told, too: nothing trains unguarded.
    wait_until_saved(node)

    second = node.run(*trainer(node, steps=checkpoint(node)["step"] + 5))
    last = told(second.stdout)
    assert (second.returncode, last["verdict"]["why"], last["attempt"]) == (0, "done", 2)
    died, ended = node.attempts
    assert died["verdict"] is None and died["usd"] >= state["usd"] - 1e-9
    assert last["spent_usd"] == pytest.approx(died["usd"] + ended["usd"])
    # A second costs a dollar, and the machine was paid for all the while.
    assert last["spent_usd"] == pytest.approx(ended["seen_at_s"] - died["began_at_s"])


def wait_until_saved(node: Node) -> None:
    until_s = time.monotonic() + WITHIN_S
    while not (node.out / "checkpoint.json").exists():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_a_cap_holds_over_attempts(node: Node) -> None:
    node.orders(max_cost_usd=2.0, requested_at_s=time.time())
    assert node.run(*trainer(node)).returncode == 4
    second = node.run(*trainer(node))
    assert second.returncode == 4
    assert told(second.stdout)["attempt"] == 2
    assert len(node.attempts) == 2
    (node.out / "began").unlink()
    assert node.run(*trainer(node)).returncode == 4
    assert not (node.out / "began").exists(), "there was nothing left to start with"


def test_a_projection_above_the_estimate_ends_the_run(node: Node) -> None:
    node.orders(projection=STEP, requested_at_s=time.time())
    done = node.run(*trainer(node))
    last = told(done.stdout)
    assert (done.returncode, last["verdict"]["why"]) == (4, "projection")
    assert last["projection"]["outcome"] == "above"
    assert last["projection"]["total_usd"] == pytest.approx(1000 * 0.05, rel=0.2)
    assert checkpoint(node)["step"] == last["step"] < 60


def test_a_smoke_run_ends_with_the_projection(node: Node) -> None:
    node.orders(projection=STEP, smoke=True)
    done = node.run(*trainer(node, steps=33))
    last = told(done.stdout)
    assert (done.returncode, last["verdict"]["why"]) == (0, "smoke")
    assert last["verdict"]["text"] == last["projection"]["text"]


def test_another_node_leaves_the_folder_alone(node: Node) -> None:
    node.orders(max_cost_usd=0.5, grace_s=1.0, requested_at_s=time.time())
    done = node.run(*trainer(node), rank=1)
    assert done.returncode == 4, "it holds the limit, a grace later than the first"
    assert "gpuplan-guard" not in done.stdout
    assert {one.name for one in node.out.iterdir()} == {
        *("began", "checkpoint.json", "metrics.jsonl", "signals"),
    }


def test_a_disk_that_hangs_stops_no_clock(node: Node) -> None:
    node.orders(max_cost_usd=4.0, requested_at_s=time.time())
    node.be_impatient()
    # Reading a pipe that nobody writes to waits for ever, as a lost network disk does.
    os.mkfifo(node.out / "metrics.jsonl")
    process = node.start("sleep", "600")
    out, _ = process.communicate(timeout=WITHIN_S)
    assert process.returncode == 4
    assert told(out)["verdict"]["why"] == "max-cost"


def test_a_task_that_another_follows_ends_with_0_only_to_hand_over(node: Node) -> None:
    node.orders(hand_over=HandOver(total_steps=10, step_s=1.0, restart_s=1.0))
    done = node.run("true", GPUPLAN_STAGE="spot")
    assert done.returncode == 99, "SkyPilot would start the next"
    assert told(done.stdout)["verdict"]["why"] == "done"
    # A wasted start, where SkyPilot would kill nodes that still upload.
    node.orders(others_upload=True)
    assert node.run("true", GPUPLAN_STAGE="spot").returncode == 0
    assert node.run("true", GPUPLAN_STAGE="spot", rank=1).returncode == 0


@pytest.mark.parametrize(("command", "code"), [("true", 99), ("exit 7", 7)])
def test_the_second_task_of_a_run_that_is_over_begins_nothing(
    node: Node, command: str, code: int
) -> None:
    node.orders(others_upload=True)
    node.run("sh", "-c", command, GPUPLAN_STAGE="spot")
    books = node.attempts
    done = node.run("sh", "-c", "echo begun", GPUPLAN_STAGE="on-demand")
    assert done.returncode == code
    assert "begun" not in done.stdout
    assert told(done.stdout)["verdict"]["why"] == books[0]["verdict"]["why"]
    assert node.attempts == books
    # Asked for again, by a person, it is begun.
    node.orders(requested_at_s=time.time())
    assert "begun" in node.run("echo", "begun", GPUPLAN_STAGE="on-demand").stdout


def test_a_run_hands_over_before_its_deadline_and_goes_on(node: Node) -> None:
    # Two starts and all steps, since nothing is saved: 45 s; the rest and one start: 25 s.
    wanted = HandOver(total_steps=100, step_s=0.05, restart_s=20.0)
    now_s = time.time()
    soon = {"hand_over": wanted, "deadline_s": now_s + 46.0, "requested_at_s": now_s}
    node.orders(**soon)
    first = node.run(*trainer(node, steps=100), GPUPLAN_STAGE="spot")
    assert told(first.stdout)["verdict"]["why"] == "hand-over", first.stdout
    assert first.returncode == 0
    assert 1 <= steps(node) < 100
    node.orders(**soon)
    second = node.run(*trainer(node, steps=100), GPUPLAN_STAGE="on-demand")
    assert (second.returncode, steps(node)) == (0, 100)
    assert told(second.stdout)["verdict"]["why"] == "done"
