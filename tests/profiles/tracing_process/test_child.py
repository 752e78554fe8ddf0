"""A user's file in a process of its own: it cannot print to us, hang us, end us or outlive us."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from textwrap import dedent
from types import SimpleNamespace

import pytest

from gpuplan.catalog.errors import UsageError, UserFileError
from gpuplan.profiles.tracing_process import child
from gpuplan.profiles.tracing_process.service import PendingProfile, begin_profile, make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

pytestmark = pytest.mark.slow

own_process = pytest.mark.usefixtures("own_trace_processes")
"""How the process starts, what it writes and how it ends are those of a true one."""

DEADLINE_S = 60.0
GOOD = """
    import torch

    def build_model(width=8):
        return torch.nn.Linear(width, 4)

    def make_batch(batch_size=16, width=8):
        return (torch.randn(batch_size, width),)

    def compute_loss(model, batch):
        return model(*batch).square().mean()
"""
ENDLESS = """
    import os, pathlib, subprocess, sys
    sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print("warming up", flush=True)
    here = pathlib.Path(__file__).parent
    (here / "pids.part").write_text(f"{os.getpid()} {sleeper.pid}")
    (here / "pids.part").rename(here / "pids")
    while True:
        pass
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that writes a model file."""

    def write(text: str) -> Path:
        file = tmp_path / "model.py"
        file.write_text(dedent(text))
        return file

    return write


def begin(file: Path, *, timeout_s: float = DEADLINE_S) -> PendingProfile:
    spec = parse_model_spec(str(file), timeout_s=timeout_s)
    return begin_profile(spec, numerics=["fp32"], use_cache=False)


def pids_of(file: Path) -> list[int]:
    """Wait for and return the processes that the endless file wrote down."""
    pids = file.parent / "pids"
    assert eventually(pids.exists)
    return [int(word) for word in pids.read_text().split()]


def eventually(condition: Callable[[], bool]) -> bool:
    end_s = time.monotonic() + DEADLINE_S
    while time.monotonic() < end_s:
        if condition():
            return True
        time.sleep(0.02)
    return False


def is_gone(pid: int) -> bool:
    """Return whether a process has ended; one that nobody has waited for has ended too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


@own_process
def test_what_the_file_prints_never_reaches_our_output(
    write: Callable[[str], Path], capfd: pytest.CaptureFixture[str]
) -> None:
    file = write(
        f"""{GOOD}
    import os, subprocess, sys
    print("by print")
    os.write(1, b"by write\\n")
    subprocess.run(["echo", "by a process"])
    print("to stderr", file=sys.stderr)
    print("read", repr(sys.stdin.read()))
    sys.stdout.close()
    os.close(1)
    """
    )
    printed: list[str] = []
    spec = parse_model_spec(str(file), params={"width": 5})
    profile = make_profile(spec, use_cache=False, on_output=printed.append)
    assert (profile.parameters, profile.default_micro_batch) == (24, 16)
    assert capfd.readouterr() == ("", "")
    lines = printed[0].splitlines()
    expected = ["by print", "by write", "by a process", "to stderr", "read ''"]
    assert [line for line in lines if line in expected] == expected


def test_a_cached_profile_is_remade_when_what_the_file_reads_changes(
    write: Callable[[str], Path], tmp_path: Path
) -> None:
    file = write("import json\nWIDTH = json.load(open('width.json'))\n" + dedent(GOOD))
    file.write_text(
        file.read_text()
        .replace("open('width.json')", "open(__file__.replace('model.py', 'width.json'))")
        .replace("width=8", "width=WIDTH")
    )
    (tmp_path / "width.json").write_text("3")
    spec = parse_model_spec(str(file))
    assert make_profile(spec).parameters == 16
    pending = begin_profile(spec)
    assert pending.cached
    (tmp_path / "width.json").write_text("5")
    assert make_profile(spec).parameters == 24


@own_process
def test_the_time_limit_ends_the_file(write: Callable[[str], Path]) -> None:
    start_s = time.monotonic()
    with pytest.raises(UserFileError, match="not done after 0.5 seconds") as raised:
        begin(write(ENDLESS), timeout_s=0.5).result()
    assert "--timeout" in (raised.value.fix or "")
    assert time.monotonic() - start_s < 5


TURNS = 5000
LOOPED = GOOD.replace(
    "return model(*batch).square().mean()",
    f"""x = model(*batch)
        for _ in range({TURNS}):
            x = torch.tanh(x) * 0.5
        return x.square().mean()""",
)


def test_a_long_trace_says_once_which_loop_makes_it_long(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "SLOW_AFTER_S", 0.0)
    file = write(LOOPED)
    line = 1 + file.read_text().splitlines().index(f"    for _ in range({TURNS}):")
    said: list[str] = []
    spec = parse_model_spec(str(file), timeout_s=DEADLINE_S)
    make_profile(spec, numerics=["fp32"], use_cache=False, on_slow=said.append)
    (why,) = said
    assert why.startswith("model.py takes long to trace: its step has 16,384 operations so far")
    assert f"100% of the forward pass in the loop at model.py:{line}" in why
    assert "in place of a loop over time steps" in why


@own_process
def test_cancelling_ends_the_file_and_all_it_started(write: Callable[[str], Path]) -> None:
    file = write(ENDLESS)
    pending = begin(file)
    pids = pids_of(file)
    pending.cancel()
    pending.cancel()
    assert all(eventually(lambda pid=pid: is_gone(pid)) for pid in pids)


@own_process
@pytest.mark.parametrize(
    ("stop", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9), (signal.SIGTERM, -15)]
)
def test_no_process_outlives_the_command(
    write: Callable[[str], Path], require, stop: signal.Signals, code: int
) -> None:
    require("posix", "signals")
    file = write(ENDLESS)
    command = [sys.executable, "-m", "gpuplan", "profile", str(file), "--no-cache"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    pids = pids_of(file)
    process.send_signal(stop)
    out, err = process.communicate(timeout=DEADLINE_S)
    assert (process.returncode, out) == (code, "")
    assert "Traceback" not in err
    assert all(eventually(lambda pid=pid: is_gone(pid)) for pid in pids)


@own_process
def test_an_exit_at_import_is_an_error_with_its_line(write: Callable[[str], Path]) -> None:
    file = write("import sys\nprint('loading data')\nsys.exit(3)\n")
    with pytest.raises(UserFileError) as raised:
        begin(file).result()
    assert raised.value.message.splitlines() == [
        "model.py:3: called sys.exit(3), which leaves nothing to trace.",
        "    3 | sys.exit(3)",
        "The last lines that it printed:",
        "    loading data",
    ]


@own_process
@pytest.mark.parametrize(
    ("call", "how"),
    [
        ("os._exit(0)", "ended with exit code 0"),
        ("os.kill(os.getpid(), 11)", "was ended by SIGSEGV"),
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL"),
    ],
)
def test_a_process_that_ends_without_an_answer(
    write: Callable[[str], Path], require, call: str, how: str
) -> None:
    require("posix", "signals")
    with pytest.raises(UserFileError) as raised:
        begin(write(f"import os\nprint('so far', flush=True)\n{call}\n")).result()
    assert how in raised.value.message
    assert "    so far" in raised.value.message


def test_an_error_keeps_its_kind(write: Callable[[str], Path]) -> None:
    spec = parse_model_spec(str(write(GOOD)), params={"widht": 5})
    with pytest.raises(UsageError, match="Did you mean width") as raised:
        make_profile(spec, use_cache=False)
    assert raised.value.exit_code == 2
    assert raised.value.fix == "use one of width."


@own_process  # Its last line is sought in a stack that has none of ours.
def test_what_only_the_backward_pass_needs_is_blamed_on_no_line(
    write: Callable[[str], Path],
) -> None:
    """It gathers the gradients that a mask of the forward pass chose: torch's work, not ours."""
    file = write(
        GOOD.replace("model(*batch)", "masked(model(*batch))")
        + """
    def masked(x):
        y = x.clone()
        y[x[:, 0] > 0] = x[0]
        return y
"""
    )
    with pytest.raises(UserFileError) as error:
        begin(file).result()
    assert error.value.message == (
        "model, backward pass: indexing with a mask needs the values of a tensor, and a trace knows"
        " only shapes."
    )
    assert "--assume" not in (error.value.fix or "")


@own_process
def test_the_time_limit_begins_anew_with_every_traced_step(
    write: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop over time steps takes long and is at work; the limit ends a step that hangs."""
    late_s = 0.0
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + late_s)
    monkeypatch.setattr(child, "time", clock)
    file = write(
        GOOD.replace("return model(*batch)", "calls.append(1)\n        return model(*batch)")
    )
    hangs = "calls = []\ndef wait():\n    while len(calls) > 1:\n        pass\n"
    file.write_text(
        hangs + file.read_text().replace("    return model", "    wait()\n    return model")
    )
    told: list[dict[str, object]] = []

    def tell(news: dict[str, object]) -> None:
        nonlocal late_s
        told.append(news)
        late_s = 2 * DEADLINE_S

    spec = parse_model_spec(str(file), timeout_s=DEADLINE_S)
    made = child.Child(spec, numerics=["fp32"])
    with pytest.raises(UserFileError, match="after a traced step of [0-9]+ operations") as caught:
        made.result(tell)
    assert [one["numerics"] for one in told] == ["fp32"]
    assert "--timeout" in str(caught.value.fix) and "shorter sequence" in str(caught.value.fix)
