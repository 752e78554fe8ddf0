"""The documents are true: examples in docstrings, commands in pages, the page of commands."""

import doctest
import importlib
import os
import pkgutil
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

import gpuplan
from gpuplan.catalog.paths import cache_dir
from gpuplan.cli.help_page import contexts, help_page
from gpuplan.cli.main import run as cli

ROOT = Path(__file__).parents[1]
PAGES = sorted(page.relative_to(ROOT) for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
FENCE = re.compile(r"^```(console|sh)\n(.*?)^```", re.MULTILINE | re.DOTALL)
AGAIN = "gpuplan estimate examples/gpt2.py --param layers=6,12"
"""Slow commands, a search for each of several values: test_estimate_sweep.py has what they do."""
SHELLS = re.compile(r"[&|;<>$~*]")
"""What a shell does more with than to split words."""
LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)")
MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(gpuplan.__path__, "gpuplan.")
    if not module.name.endswith("__main__")
)


@pytest.mark.slow
def test_examples_in_docstrings() -> None:
    names = [name for name in MODULES if ".examples" not in name]
    modules = [importlib.import_module(name) for name in names]
    # Those without an example are looked through for most of the time otherwise.
    told = [one for one in modules if ">>>" in Path(str(one.__file__)).read_text("utf-8")]
    found = {one.__name__: doctest.testmod(one) for one in told}
    assert sum(one.attempted for one in found.values()) >= 20
    assert not [name for name, one in found.items() if one.failed]


def commands(page: str) -> list[tuple[str, int]]:
    """Return the gpuplan commands of a page, each with the exit code it promises.

    A `sh` block holds commands alone, a `console` block marks them with `$`. A trailing
    `# exit 3` promises that code. Commands that need an account are in fences of another name.
    """
    found = []
    for language, block in FENCE.findall(page):
        for line in block.replace("\\\n", " ").splitlines():
            if language == "console":
                if not line.startswith("$ "):
                    continue
                line = line.removeprefix("$ ")
            command, _, note = line.partition("#")
            if command.startswith("gpuplan "):
                code = re.fullmatch(r"\s*exit (\d+)\s*", note)
                found.append((command.strip(), int(code[1]) if code else 0))
    return found


@pytest.fixture(scope="module")
def page_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder in which every page runs: a profile is kept by the path of its model."""
    return tmp_path_factory.mktemp("pages")


@pytest.fixture
def page_folder(page_root: Path) -> Iterator[Path]:
    """Yield the folder of a reader who has run nothing yet, with what other pages computed."""
    folder, kept = page_root / "work", page_root / "cache"
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copytree(ROOT / "docs", folder / "docs")
    if kept.exists():
        shutil.copytree(kept, cache_dir())
    yield folder
    if cache_dir().exists():
        shutil.copytree(cache_dir(), kept, dirs_exist_ok=True)
    shutil.rmtree(folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "again"),
    [
        *(pytest.param(page, False, id=str(page)) for page in PAGES),
        pytest.param(Path("docs/model-file.md"), True, id="again", marks=pytest.mark.repeats),
    ],
)
def test_commands_of_a_page_run(
    page: Path,
    again: bool,
    page_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(page_folder)
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    with open(os.devnull, encoding="utf-8") as nothing:
        monkeypatch.setattr(sys, "stdin", nothing)
        for command, code in commands((ROOT / page).read_text(encoding="utf-8")):
            if command.startswith(AGAIN) and not again:
                continue
            done = run_command(command)
            printed = capfd.readouterr()
            assert done == code, f"{command}\n{printed.out}{printed.err}"


def run_command(line: str) -> int:
    """Run a line of a page and return its exit code.

    A plain `gpuplan …` runs in this process, which has imported it: test_packaging.py starts the
    command itself. Whatever else a shell is needed for, is given to one.
    """
    if SHELLS.search(line):
        return subprocess.run(line, shell=True, stdin=subprocess.DEVNULL).returncode
    return cli(shlex.split(line)[1:])


def test_the_reader_of_pages_finds_commands() -> None:
    listed = "```sh\ngpuplan gpus\nmake demo\ngpuplan fits m.py --on T4  # exit 3\n```\n"
    assert commands(listed) == [("gpuplan gpus", 0), ("gpuplan fits m.py --on T4", 3)]
    session = "```console\n$ gpuplan offers \\\n--top 3\nH100  $3\n$ ls\n```\n"
    assert commands(session) == [("gpuplan offers  --top 3", 0)]
    assert commands("```text\n$ gpuplan launch 1\n```\n") == []


def test_links_of_every_page_lead_somewhere() -> None:
    targets = [
        (page, (ROOT / page).parent / target)
        for page in PAGES
        for target in LINK.findall((ROOT / page).read_text(encoding="utf-8"))
    ]
    assert targets
    assert not [
        f"{page}: {target}"
        for page, target in targets
        if not (ROOT / page.parent / target).exists()
    ]


def test_every_option_named_in_a_page_exists() -> None:
    known = {
        option
        for context in contexts()
        for parameter in [*context.command.params, *click_own(context)]
        for option in [*parameter.opts, *parameter.secondary_opts]
    }
    for page in PAGES:
        for command, _ in commands((ROOT / page).read_text(encoding="utf-8")):
            words = shlex.split(command.partition("|")[0])
            typed = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert typed <= known, f"{page}: {command}"


def test_the_page_of_commands_is_what_help_says(golden: Callable[[Path, str], None]) -> None:
    golden(ROOT / "docs" / "commands.md", help_page())


def test_no_command_or_option_changes_unnoticed(golden: Callable[[Path, str], None]) -> None:
    lines = [
        " ".join([context.command_path, *sorted(surface(context.command))])
        for context in contexts()
    ]
    golden(ROOT / "tests" / "cli" / "surface.txt", "\n".join(lines) + "\n")


def surface(command: click.Command) -> list[str]:
    """Return what can be typed after a command: `--options` and `ARGUMENTS`."""
    return [
        name
        for parameter in command.params
        for name in (
            [*parameter.opts, *parameter.secondary_opts]
            if isinstance(parameter, click.Option)
            else [parameter.human_readable_name]
        )
    ]


def click_own(context: click.Context) -> list[click.Option]:
    """Return the option that click adds by itself."""
    option = context.command.get_help_option(context)
    return [option] if option is not None else []
