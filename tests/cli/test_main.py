"""The frame of the command line: help, unknown names, interrupts, pipes, exit codes."""

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from gpuplan import __version__
from gpuplan.catalog.errors import GpuplanError, LimitError, NoFeasiblePlanError, PriceError
from gpuplan.cli import main as main_module
from gpuplan.cli.main import COMMANDS, cli, run
from gpuplan.cli.options.other_names import COMMANDS_ELSEWHERE

WAITS = """
import signal, sys, time, click
from gpuplan.cli import main
# Where the tests are run in the background, a shell has let it be ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
@main.cli.command("wait")
def wait():
    print("waiting", flush=True)
    time.sleep(60)
main.COMMANDS["wait"] = ""
main.LazyGroup.get_command = lambda self, context, name: wait
sys.exit(main.run(["wait"]))
"""

LEAVES = """
import atexit, sys, threading, time
from gpuplan.cli.main import main
class Slow:
    def __del__(self):
        print("taken apart", flush=True)
sys.slow = Slow()
atexit.register(print, "due at the end")
threading.Thread(target=lambda: (time.sleep(0.2), print("a thread")), daemon=False).start()
sys.argv = ["gpuplan", "--version"]
main()
"""


def gpuplan(*args: str) -> list[str]:
    return [sys.executable, "-m", "gpuplan", *args]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"gpuplan {__version__}\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_says_in_one_line_what_it_does(name: str) -> None:
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.help, f"{name} has no help"
    for option in command.params:
        assert not isinstance(option, click.Option) or option.help, f"{name} {option.name}"


def test_unknown_command_is_answered_with_the_closest_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["confg"]) == 2
    error = capsys.readouterr().err
    assert "'confg'" in error
    assert "Did you mean config?" in error


@pytest.mark.parametrize("name", COMMANDS_ELSEWHERE)
def test_a_command_of_another_tool_is_told_what_does_it_here(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """`explain` was answered with "Did you mean plans?" and a list of all commands."""
    assert run([name, "model.py"]) == 2
    error = capsys.readouterr().err
    told = re.findall(r"gpuplan (\w+)", error.partition("To fix:")[2])
    assert told and set(told) <= set(COMMANDS)
    assert "Did you mean" not in error and name not in COMMANDS


def test_unknown_option_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "list", "--orign"]) == 2
    assert "--origin" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (GpuplanError("it broke", fix="mend it"), 1),
        (NoFeasiblePlanError("nothing fits"), 3),
        (LimitError("too dear"), 4),
        (PriceError("no price"), 5),
    ],
)
def test_an_error_ends_with_its_own_code_and_no_traceback(
    error: GpuplanError,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @click.command()
    def fails() -> None:
        raise error

    monkeypatch.setattr(main_module.LazyGroup, "get_command", lambda *_: fails)
    assert run(["config"]) == code
    captured = capsys.readouterr()
    assert captured.err == f"Error: {error}\n"
    assert captured.out == ""


def test_a_reader_that_goes_away_is_no_error(require) -> None:
    require("posix", "pipes of the shell")
    command = f"{' '.join(map(repr, gpuplan('--help')))} | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0\n", "")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [(("plans",), 2, "Error: Standard output is closed"), (("--help",), 0, "")],
)
def test_a_closed_standard_output_is_no_crash(
    require, words: tuple[str, ...], code: int, said: str
) -> None:
    require("posix", "redirections of the shell")
    line = shlex.join(gpuplan(*words))
    done = subprocess.run(["bash", "-c", f"{line} >&-"], stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr.partition(",")[0]) == (code, said)


def test_every_standard_stream_may_be_closed(require, tmp_path: Path) -> None:
    require("posix", "redirections of the shell")
    answer = tmp_path / "plans.json"
    line = shlex.join(gpuplan("plans", "--out-file", str(answer)))
    assert subprocess.run(["bash", "-c", f"{line} <&- >&- 2>&-"]).returncode == 0
    assert answer.read_text(encoding="utf-8").startswith("{")


def test_a_full_disk_is_one_message(require) -> None:
    require("posix", "/dev/full")
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(gpuplan("--help"), stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1
    assert done.stderr == "Error: the disk is full.\nTo fix: free some space.\n"


def test_a_folder_that_is_gone_is_one_message(
    require, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    require("posix", "elsewhere a folder that is in use stays")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert run(["launch", "--outputs", "s3://bucket/runs", "--dryrun"]) == 2
    assert "is not there any more.\nTo fix: change to one" in capsys.readouterr().err


def test_what_the_system_refuses_gives_no_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_args: object, **_named: object) -> None:
        raise PermissionError(13, "Permission denied", "/somewhere")

    monkeypatch.setattr(main_module.cli, "main", refused)
    assert run([]) == 1
    said = capsys.readouterr().err
    assert "PermissionError: [Errno 13] Permission denied: '/somewhere'" in said
    assert "Traceback" not in said


def test_a_command_ends_without_taking_modules_apart() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True)
    lines = done.stdout.splitlines()
    assert (done.returncode, done.stderr) == (0, "")
    assert lines == [f"gpuplan {__version__}", "a thread", "due at the end"]


def test_ctrl_c_ends_with_130_and_one_line(require) -> None:
    require("posix", "signals")
    with subprocess.Popen(
        [sys.executable, "-c", WAITS],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "waiting\n"
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr.read().split("\n") == [
            "",
            "Interrupted; nothing was left half-written.",
            "",
        ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_the_shell(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    assert f"_GPUPLAN_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_completion_completes_a_word() -> None:
    words = {"_GPUPLAN_COMPLETE": "bash_complete", "COMP_WORDS": "gpuplan conf", "COMP_CWORD": "1"}
    done = subprocess.run(
        gpuplan(), env={**os.environ, **words}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "plain,config\n"


def test_help_and_version_import_nothing_heavy() -> None:
    program = (
        "import sys; from gpuplan.cli.main import run; run(['--help']);"
        "heavy = {'torch', 'numpy', 'rich', 'pydantic', 'sqlalchemy', 'yaml'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("verbose", [False, True])
def test_a_fault_of_our_own_is_one_message_and_a_traceback_only_on_demand(
    verbose: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise TypeError("a slip")

    monkeypatch.setattr(cli, "main", fail)
    assert run(["gpus", *(["-v"] if verbose else [])]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Error: gpuplan itself failed: TypeError: a slip" in captured.err
    assert "this is a fault of gpuplan" in captured.err
    assert ("Traceback" in captured.err) == verbose


SLOW_IMPORT = """
import signal, sys, time

class Slow:
    def find_spec(self, name, path, target=None):
        if name == "gpuplan.cli.main":
            print("importing", flush=True)
            time.sleep(60)

sys.meta_path.insert(0, Slow())
# Where the tests are run in the background, a shell has let it be ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
from gpuplan.__main__ import main
sys.argv = ["gpuplan", "plans"]
main()
"""


def test_an_interrupt_of_an_import_gives_no_traceback(require) -> None:
    require("posix", "SIGINT")
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_IMPORT], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as begun:
        assert begun.stdout is not None and begun.stdout.readline() == b"importing\n"
        begun.send_signal(signal.SIGINT)
        _, said = begun.communicate(timeout=60)
    assert (begun.returncode, said) == (-signal.SIGINT, b"")
