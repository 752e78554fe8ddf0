"""`gpuplan ui` as a process: it prints its address, answers, and ends on Ctrl-C."""

import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path

import pytest
from answers import make_ranked_estimate
from budget_reports import large_report

from gpuplan.cli.commands import ui
from gpuplan.cli.main import run
from gpuplan.launcher.store.estimates import Store
from gpuplan.launcher.store.reports import keep_report

FIRST_BYTE_S = 0.5


@pytest.fixture
def served() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """Yield the process and the address that it printed."""
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuplan", "ui"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ,
    )
    assert process.stdout is not None
    yield process, process.stdout.readline().strip()
    process.kill()
    process.communicate()


def browser() -> urllib.request.OpenerDirector:
    cookies = urllib.request.HTTPCookieProcessor(CookieJar())
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), cookies)


def test_it_serves_on_loopback_and_ends_on_ctrl_c(served) -> None:
    process, address = served
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{43}", address)
    with browser().open(address) as answer:
        assert answer.status == 200 and "?token" not in answer.url
        assert answer.headers["server"] is None
    with pytest.raises(urllib.error.HTTPError, match="403"):
        browser().open(address[:-1] + ("a" if address[-1] != "a" else "b"))
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert out == "" and "Traceback" not in err and "token" not in err


def test_a_port_that_is_taken_is_said(capsys) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        assert run(["ui", "--port", str(taken.getsockname()[1])]) == 2
    assert "cannot be used" in capsys.readouterr().err


def test_a_project_that_is_not_there_is_said(tmp_path, capsys) -> None:
    assert run(["ui", str(tmp_path / "nofile.yaml")]) == 2
    err = capsys.readouterr().err
    assert "no file" in err and "no report of it is kept" in err


def test_a_missing_extra_is_said(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(ui, "NEEDED", ("starlette", "not_installed_at_all"))
    assert run(["ui"]) == 2
    err = capsys.readouterr().err
    assert "not_installed_at_all" in err and 'pip install "gpuplan[ui]"' in err


@pytest.mark.slow
def test_the_first_byte_comes_within_half_a_second(tmp_path, capsys, require) -> None:
    require("linux", "times are read from /proc")
    estimate = make_ranked_estimate()
    many = tuple(
        estimate.plans[i % len(estimate.plans)].model_copy(
            update={"id": f"{i:010x}", "position": i + 1}
        )
        for i in range(100)
    )
    for i in range(20):
        at = f"2026-11-20T10:00:{i:02d}+00:00"
        one = estimate.model_copy(update={"plans": many, "generated_at": at})
        Store().keep(one, inputs_hash=str(i))
    keep_report(large_report(), tmp_path / "gpuplan.yaml")
    command = [sys.executable, "-m", "gpuplan", "ui", str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        opener, base = browser(), address.partition("?")[0]
        took_s = {"first": first_byte_s(opener, address, process.pid)}
        with opener.open(base) as answer:
            (key,) = set(re.findall(r"/project/(\w+)", answer.read().decode()))
        for path in (
            *("", "launches", "prices", "plan/0000000000"),
            *(f"project/{key}", f"report/{key}"),
        ):
            took_s[path] = first_byte_s(opener, base + path, process.pid)
    finally:
        process.kill()
        process.communicate()
    with capsys.disabled():
        print({path: round(s, 3) for path, s in took_s.items()})
    assert max(took_s.values()) <= FIRST_BYTE_S


def first_byte_s(opener: urllib.request.OpenerDirector, address: str, pid: int) -> float:
    """Return the processor time of a server up to the first byte, which others do not lengthen."""
    begin_s = processor_s(pid)
    with opener.open(address) as answer:
        answer.read(1)
    return processor_s(pid) - begin_s


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
