"""What `gpuplan launch` sends to machines: files of the folder, and secrets, kept nowhere."""

import io
from pathlib import Path

import pytest
from fake_engine import FakeEngine

from gpuplan.cli.main import run
from gpuplan.planner.plan.plan import Plan

CANARY = "hf_canaryCanaryCanary0123456789"
OUTPUTS = ("--outputs", "s3://results/team")


def test_the_largest_files_take_no_line_wider_than_a_screen(plan: Plan, capsys) -> None:
    long = Path("checkpoints") / ("pretrained-" * 8) / "model-00001-of-00004.safetensors"
    long.parent.mkdir(parents=True)
    for number, path in enumerate((long, Path("a.py"), Path("data.bin"), Path("notes.txt"))):
        path.write_text("x" * (100 - number))
    run(["launch", plan.id, *OUTPUTS, "--dryrun"])
    said = capsys.readouterr().err.splitlines()
    first = next(at for at, line in enumerate(said) if "largest:" in line)
    assert "l-00001-of-00004.safetensors 100 B" in said[first] and "…" in said[first]
    listed = " ".join(said[first : first + 2])
    assert all(len(line) <= 100 for line in said[first : first + 2])
    assert all(name in listed for name in ("a.py 99 B", "data.bin 98 B", "notes.txt 97 B"))
    assert "net.py 48 B" in listed


@pytest.mark.parametrize(
    ("largest_bytes", "answers", "asked"),
    [(47, "n\n", 1), (47, "y\ny\n", 2), (48, "y\n", 1), (48, "n\n", 1)],
)
def test_much_that_is_sent_is_asked_about(
    largest_bytes: int,
    answers: str,
    asked: int,
    plan: Plan,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    capsys,
) -> None:
    monkeypatch.setattr("gpuplan.launcher.upload.LARGE_BYTES", largest_bytes)
    monkeypatch.setattr("gpuplan.cli.commands.launch.is_terminal", lambda _stream: True)
    monkeypatch.setattr("sys.stdin", io.StringIO(answers))
    code = run(["launch", plan.id, *OUTPUTS])
    said = capsys.readouterr().err
    assert said.count("[y/N]") == asked
    assert ("Send 48 B to every node" in said) == (largest_bytes < 48)
    is_rented = not answers.startswith("n")
    assert (len(engine.tasks), code == 0) == (int(is_rented), is_rented)
    if is_rented:
        code_folder = Path(engine.tasks[0]["workdir"])
        assert {one.name for one in code_folder.iterdir()} == {"net.py", ".skyignore"}


def test_much_that_is_sent_is_refused_without_a_terminal_and_taken_with_yes(
    plan: Plan, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.setattr("gpuplan.launcher.upload.LARGE_BYTES", 1)
    assert run(["launch", plan.id, *OUTPUTS]) == 2
    assert engine.tasks == []
    assert run(["launch", plan.id, *OUTPUTS, "-y"]) == 0
    assert "sent to each node   48 B" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ("--secret", f"HF_TOKEN={CANARY}"),
        ("--env", f"HF_TOKEN={CANARY}"),
        ("--env", f"NOTE={CANARY}"),
        ("--data", f"s3://key:{CANARY}@bucket:/data"),
        ("--command", f"train.py --token {CANARY}"),
        ("--setup", f"export HF_TOKEN={CANARY}"),
    ],
)
def test_a_secret_is_never_repeated_or_kept(plan: Plan, words: tuple[str, str], capsys) -> None:
    assert run(["launch", plan.id, *OUTPUTS, *words]) == 2
    captured = capsys.readouterr()
    assert CANARY not in captured.out + captured.err
    assert not Path("gpuplan-launches").exists()


def test_a_named_secret_leaves_no_trace_of_its_value(
    plan: Plan, engine: FakeEngine, capsys, monkeypatch, gpuplan_home: Path
) -> None:
    monkeypatch.setenv("HF_TOKEN", CANARY)
    assert run(["launch", plan.id, *OUTPUTS, "-y", "--secret", "HF_TOKEN"]) == 0
    assert engine.secrets == {"HF_TOKEN": CANARY}
    captured = capsys.readouterr()
    assert CANARY not in captured.out + captured.err
    written = [*Path().rglob("*"), *gpuplan_home.rglob("*")]
    files = [path for path in written if path.is_file()]
    assert any(path.name == "task.yaml" for path in files)
    assert not [path for path in files if CANARY.encode() in path.read_bytes()]
