"""The guard runs with the Python of a node alone, from 3.8 on."""

import ast
import shutil
import sys
from pathlib import Path

import pytest
from guards import Node, told

from gpuplan.launcher.bundle import GUARD, GUARD_ENTRY, write_guard

SOURCE = Path(__file__).parents[3] / "launcher" / "guard"
FILES = sorted(SOURCE.glob("*.py"))
OLDEST = (3, 8)
AFTER_OLDEST = {"removeprefix", "removesuffix", "is_relative_to", "pairwise", "batched"}
"""Words of newer versions that are easily used by mistake."""


def old_pythons() -> list[str]:
    """Return the oldest interpreters of this machine, besides the one that runs the tests."""
    places = [Path.home() / ".pyenv" / "versions", Path("/opt/python")]
    found = [one for place in places for one in sorted(place.glob("*3.8*/bin/python3*"))]
    return [str(one) for one in found[:1]] + [sys.executable]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_is_written_in_the_oldest_python(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"), feature_version=OLDEST)
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    assert not names & AFTER_OLDEST
    arguments = {word.arg for word in ast.walk(tree) if isinstance(word, ast.keyword)}
    assert not arguments & {"kw_only", "slots", "strict"}
    ast.parse(GUARD_ENTRY, feature_version=OLDEST)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_it_needs_nothing_but_the_standard_library(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [one.name for one in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        else:
            assert not isinstance(node, ast.ImportFrom) or node.level == 1
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
    assert "only the clock and the purse are held" in done.stdout
    assert node.out.read_text() == "a file"
