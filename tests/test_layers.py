"""Rules of the house that no linter states: who imports torch, who prints, how a test skips."""

import ast
import importlib
import inspect
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGE_FOLDERS = ("catalog", "profiles", "planner", "launcher", "api", "cli", "examples")
MAY_IMPORT_TORCH = ("profiles/", "launcher/runner", "examples/")
MAY_PRINT = ("cli/", "examples/", "launcher/runner", "profiles/calibrate/check_curves.py")

CLI_MAY_CALL = {
    "gpuplan.launcher.local.machine.core_count",
    "gpuplan.launcher.local.run_folder.shown_path",
    *(
        f"gpuplan.launcher.prepare.request.parse_{what}"
        for what in ("data", "image", "outputs", "secret", "shared", "variable")
    ),
    *(
        f"gpuplan.launcher.store.accounting.{sum_of}"
        for sum_of in ("attempt_usd", "closing_line", "node_hours", "spent_usd")
    ),
    "gpuplan.launcher.store.unattended.is_ended_here_alone",
    "gpuplan.launcher.store.unattended.unattended_line",
    "gpuplan.planner.plan.layout.parse_layout",
    "gpuplan.profiles.user_model.assumptions.assumed_by_options",
    "gpuplan.profiles.user_model.spec.parse_params",
}
"""What the command line calls below the api all the same: parsers of what is typed, sums over a
record, how many cores this machine has, and how a path is shown."""


def package_files() -> list[Path]:
    """Return every Python file of the package, relative to the repository root."""
    inside = [file for folder in PACKAGE_FOLDERS for file in (ROOT / folder).rglob("*.py")]
    return sorted(file.relative_to(ROOT) for file in [*ROOT.glob("*.py"), *inside])


def imported(tree: ast.AST) -> Iterator[str]:
    """Yield the absolute module names that a file imports anywhere, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module or ""


def test_each_file_keeps_to_its_place() -> None:
    faults = [f"{file}: {fault}" for file in package_files() for fault in misplaced(file)]
    assert not faults, "\n" + "\n".join(faults)


def misplaced(file: Path) -> Iterator[str]:
    """Yield what a file of the package does that belongs elsewhere."""
    text = (ROOT / file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    tops = {name.partition(".")[0] for name in imported(tree)}
    if "gpuplan" in tops:
        yield "inside the package imports are relative"
    if "torch" in tops and not file.as_posix().startswith(MAY_IMPORT_TORCH):
        yield f"torch is imported only under {MAY_IMPORT_TORCH}"
    is_program = 'if __name__ == "__main__"' in text
    if not file.as_posix().startswith(MAY_PRINT) and not is_program:
        calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
        if calls & {"print", "sys.exit", "click.echo"}:
            yield "only cli/ prints or exits"


def test_what_is_out_of_place_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "planner").mkdir()
    (tmp_path / "planner/bad.py").write_text("import gpuplan\nfrom torch import nn\nprint(nn)\n")
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    assert len([*misplaced(Path("planner/bad.py"))]) == 3


def test_the_command_line_imports_from_below_the_api_types_only() -> None:
    found = {
        f"{module}.{name}"
        for file in package_files()
        if file.parts[0] == "cli"
        for module, name in imported_from_below_api(file)
        if not is_type(module, name)
    }
    assert found == CLI_MAY_CALL, "call it in api/, and that from cli/"


def imported_from_below_api(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the module and the name of each import of a file from planner, profiles, launcher."""
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        package = ("gpuplan", *file.parent.parts)
        parts = (*package[: len(package) - node.level + 1], *(node.module or "").split("."))
        if len(parts) > 1 and parts[1] in ("planner", "profiles", "launcher"):
            yield from ((".".join(parts), alias.name) for alias in node.names)


def is_type(module: str, name: str) -> bool:
    """Return whether a name is a class, or a constant: a vocabulary or a default."""
    found = getattr(importlib.import_module(module), name, None)
    return not (found is None or inspect.isroutine(found) or inspect.ismodule(found))


def test_no_prediction_depends_on_who_asks_for_it() -> None:
    """Constants and curves are handed down: nothing is set for a block, nothing is a global."""
    offenders = [
        f"{file}: {fault}"
        for file in package_files()
        if file.parts[0] in ("planner", "profiles")
        for fault in ambient_state((ROOT / file).read_text(encoding="utf-8"))
    ]
    assert not offenders, "make it a field of the ModelCache, or an argument"


def ambient_state(text: str) -> Iterator[str]:
    """Yield what of a file makes a function depend on more than its arguments."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Global):
            yield f"global {', '.join(node.names)}"
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "contextvars":
            yield "from contextvars"
        elif isinstance(node, ast.Import) and any(a.name == "contextvars" for a in node.names):
            yield "import contextvars"


def test_ambient_state_is_seen() -> None:
    text = "import contextvars\nfrom contextvars import ContextVar\ndef f():\n    global x\n"
    assert len([*ambient_state(text)]) == 3


def test_every_package_folder_is_shipped() -> None:
    folders = {file.parent.as_posix() for file in package_files() if file.name == "__init__.py"}
    shipped = {
        name.removeprefix("gpuplan").lstrip(".").replace(".", "/") or "."
        for name in PROJECT["tool"]["setuptools"]["packages"]
    }
    assert shipped == folders


def test_type_checkers_see_every_folder_of_the_package(require) -> None:
    require("symlinks", "the links in .typing are checked out as text files")
    linked = {path.name for path in (ROOT / ".typing" / "gpuplan").iterdir() if path.exists()}
    assert linked == {*PACKAGE_FOLDERS, "__init__.py", "__main__.py"}


def test_every_dependency_is_pinned() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower().replace("_", "-") for line in lines if "==" in line}
    project = PROJECT["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    assert {item.partition(">=")[0].lower() for item in wanted} <= pinned


def test_a_test_skips_only_through_require() -> None:
    by_hand = ("pytest.skip(", "pytest.importorskip(", "mark.skip", "unittest.skip")
    allowed = {ROOT / "tests" / "conftest.py", Path(__file__)}
    offenders = [
        str(file.relative_to(ROOT))
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if file not in allowed and any(word in file.read_text("utf-8") for word in by_hand)
    ]
    assert not offenders, "use the `require` fixture, which CI can turn into a failure"


def test_no_file_imports_itself_in_a_circle() -> None:
    """Imports inside functions and for type checkers count: they too tie files together."""
    assert circles(import_graph(package_files())) == []


def test_a_circle_is_seen(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "planner" / "step").mkdir(parents=True)
    texts = {
        "planner/one.py": "from .step import two\n",
        "planner/step/two.py": "def later():\n    from ..three import name\n",
        "planner/three.py": "if TYPE_CHECKING:\n    from .one import name\n",
        "planner/four.py": "from .one import name\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    found = circles(import_graph([Path(name) for name in texts]))
    assert found == [["planner.one", "planner.step.two", "planner.three"]]


def import_graph(files: list[Path]) -> dict[str, set[str]]:
    """Return which files of the package each file imports, anywhere in it."""
    names = {module_name(file): file for file in files if file.parent != Path(".")}
    graph: dict[str, set[str]] = {}
    for name, file in names.items():
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        targets = set(relative_imports(tree, file))
        # `from .a import b` names the file a/b.py where there is one, and else a.py.
        found = {full if full in names else full.rpartition(".")[0] for full in targets}
        graph[name] = (found & names.keys()) - {name}
    return graph


def module_name(file: Path) -> str:
    """Return the dotted name of a file, from the root of the package."""
    parts = file.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def relative_imports(tree: ast.AST, file: Path) -> Iterator[str]:
    """Yield `folder.file.name` of everything that a file imports relatively."""
    folders = file.parent.parts
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level:
            above = folders[: len(folders) - node.level + 1]
            inside = node.module.split(".") if node.module else []
            for alias in node.names:
                yield ".".join([*above, *inside, alias.name])


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the groups of files that reach each other (Tarjan's strongly connected components)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    open_files: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        open_files.append(name)
        for other in sorted(graph[name]):
            if other not in order:
                visit(other)
            if other in open_files:
                lowest[name] = min(lowest[name], lowest[other])
        if lowest[name] == order[name]:
            at = open_files.index(name)
            if len(open_files) > at + 1:
                found.append(sorted(open_files[at:]))
            del open_files[at:]

    for name in sorted(graph):
        if name not in order:
            visit(name)
    return found
