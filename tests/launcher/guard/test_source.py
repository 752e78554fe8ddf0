"""The guard runs with the Python of a node alone, from 3.8 on."""

import ast
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from guards import Node, told

from gpuplan.launcher.bundle import GUARD, GUARD_ENTRY, write_guard

SOURCE = Path(__file__).parents[3] / "launcher" / "guard"
FILES = sorted(SOURCE.rglob("*.py"))
OLDEST = (3, 8)
AFTER_OLDEST = json.loads((Path(__file__).parent / "after_python38.json").read_text())
"""What newer versions have beside it: names of modules, attributes of classes, parameters.
tests/support/python_names.py says how the file is made again."""


def old_pythons() -> list[str]:
    """Return the oldest interpreter of this machine that starts, and the one that runs the tests.

    One that its own loader refuses says nothing about the guard, which is checked against the names
    of that version all the same.
    """
    places = [Path.home() / ".pyenv" / "versions", Path("/opt/python")]
    found = [str(one) for place in places for one in sorted(place.glob("*3.8*/bin/python3"))]
    return [one for one in found if starts(one)][:1] + [sys.executable]


def starts(python: str) -> bool:
    """Return whether an interpreter runs at all with what the guard needs of it."""
    words = [python, "-E", "-S", "-c", "import ctypes, json, subprocess, threading"]
    try:
        return subprocess.run(words, env={}, capture_output=True, timeout=60).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def newer_words(text: str, own: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield what a text uses of the standard library that the oldest Python does not have.

    Raises:
        SyntaxError: it is not even written in that version.
        KeyError: it imports a module whose names are not in the file.
    """
    modules, attributes = AFTER_OLDEST["modules"], AFTER_OLDEST["attributes"]["any class"]
    for node in ast.walk(ast.parse(text, feature_version=OLDEST)):
        if isinstance(node, ast.ImportFrom) and node.level == 0:
            module = node.module or ""
            if module.partition(".")[0] not in ("__future__", "guard"):
                yield from ({one.name for one in node.names} & set(modules[module]))
        elif isinstance(node, ast.Import):
            assert all(one.name in modules for one in node.names)
        elif isinstance(node, ast.Attribute):
            of = modules.get(ast.unparse(node.value), attributes)
            yield from ({node.attr} & set(of) - own)
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            newer = {*AFTER_OLDEST["calls"].get(name, ()), "strict"}
            yield from ({str(word.arg) for word in node.keywords} & newer)
        elif isinstance(node, ast.Name) and node.id not in own:
            yield from ({node.id} & set(modules["builtins"]))


def own_names() -> frozenset[str]:
    """Return the fields and functions that the guard's files define themselves."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in FILES]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    targets = [node.target for node in nodes if isinstance(node, ast.AnnAssign)]
    fields = {target.id for target in targets if isinstance(target, ast.Name)}
    return frozenset(fields | {one.name for one in nodes if isinstance(one, ast.FunctionDef)})


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_it_is_written_in_the_oldest_python(path: Path) -> None:
    assert not list(newer_words(path.read_text(encoding="utf-8"), own_names()))
    assert not list(newer_words(GUARD_ENTRY))


@pytest.mark.parametrize(
    "text",
    [
        "'ab'.removeprefix('a')",
        "from itertools import pairwise",
        "import math\nmath.lcm(2, 3)",
        "path.write_text('', newline='')",
        "path.is_relative_to('/')",
        "dataclass(frozen=True, kw_only=True)",
        "zip(a, b, strict=True)",
        "subprocess.Popen(words, process_group=0)",
        "ExceptionGroup('', [])",
    ],
)
def test_words_of_newer_pythons_are_seen(text: str) -> None:
    assert list(newer_words(text))


def test_an_interpreter_that_does_not_start_is_left_out(tmp_path: Path, require) -> None:
    require("posix", "it is a shell script")
    broken = tmp_path / "python3"
    broken.write_text("#!/bin/sh\necho 'Inconsistency detected by ld.so' >&2\nexit 127\n")
    broken.chmod(0o755)
    assert starts(sys.executable)
    assert not starts(str(broken)) and not starts(str(tmp_path / "none"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_it_needs_nothing_but_the_standard_library(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            # No higher than the guard's own folder: nothing above it travels.
            depth = len(path.relative_to(SOURCE).parts)
            assert not isinstance(node, ast.ImportFrom) or node.level <= depth
            continue
        assert {name.partition(".")[0] for name in names} <= sys.stdlib_module_names


@pytest.mark.parametrize("python", old_pythons())
def test_it_runs_alone_from_a_folder(python: str, tmp_path: Path, require) -> None:
    require("posix", "the guard is for nodes")
    node = Node(tmp_path)
    node.orders()
    (tmp_path / "json.py").write_text("raise SystemExit('not this one')\n")
    done = node.run("sh", "-c", "exit 3", python=python, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (3, "")
    assert told(done.stdout)["verdict"]["why"] == "failed"


def test_writing_it_again_leaves_nothing_of_an_older_one(tmp_path: Path) -> None:
    write_guard(tmp_path)
    (tmp_path / GUARD / "guard" / "left_over.py").write_text("")
    write_guard(tmp_path)
    assert not (tmp_path / GUARD / "guard" / "left_over.py").exists()


@pytest.mark.parametrize("text", [None, "", "{}"])
def test_without_orders_nothing_is_started(text: str | None, tmp_path: Path, require) -> None:
    require("posix", "the guard is for nodes")
    node = Node(tmp_path)
    if text is not None:
        (node.job / "guard.json").write_text(text)
    done = node.run("touch", str(tmp_path / "started"))
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1 and "so it is not started" in done.stdout
    assert not (tmp_path / "started").exists()


def test_a_guard_without_a_folder_of_results_starts_nothing(tmp_path: Path, require) -> None:
    require("posix", "the guard is for nodes")
    node = Node(tmp_path)
    node.orders()
    done = node.run("touch", str(tmp_path / "started"), GPUPLAN_OUT="")
    assert done.returncode == 2
    assert not (tmp_path / "started").exists()


def test_a_folder_of_results_that_cannot_be_used_leaves_the_clock(tmp_path: Path, require) -> None:
    require("posix", "the guard is for nodes")
    node = Node(tmp_path)
    node.orders(max_cost_usd=1e9)
    shutil.rmtree(node.out)
    node.out.write_text("a file")
    done = node.run("sh", "-c", "exit 3")
    assert done.returncode == 3
    assert "only the limits on time and cost are held" in done.stdout
    assert node.out.read_text() == "a file"
