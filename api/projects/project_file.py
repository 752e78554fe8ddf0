"""`gpuplan.yaml` → a `Project`; what is wrong is said with its line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from ...catalog.errors import UsageError, did_you_mean
from ...catalog.user_files.tree import Branch, Items, Leaf, Tree, read_tree
from ...planner.budget.project.experiment import OF_MACHINES, OF_SEARCHES, Experiment, Setting
from ...planner.budget.project.fields import listed
from ...planner.budget.project.project import PROJECT_FILE, Project
from .run_names import Place, same_names

HELP = "See docs/budget.md; `gpuplan init --project` writes an example."
JSON_FIELDS = ("params", "grid")
"""Maps whose values are parsed as JSON, as those of `--param`; all others are read as text."""

MOST_NAMES = 6
"""Fields in a message."""

Written = Any
"""Text, or maps and lists of it."""


def read_project(path: str | Path) -> Project:
    """Return the project that a file states, with its defaults filled into every experiment.

    Raises:
        UsageError: The file is unreadable or malformed, or a value is wrong; with its line.
    """
    path = Path(path)
    if path.is_dir():
        path = path / PROJECT_FILE
    tree = read_project_tree(path)
    _refuse_nulls(path, tree)
    try:
        project = Project.model_validate(_with_defaults(_values(tree)))
    except ValidationError as error:
        raise _first_error(path, tree, error) from None
    _refuse_unknown_names(path, tree, project)
    _refuse_other_months(path, tree, project)
    _refuse_same_names(path, tree, project)
    return project


def read_project_tree(path: Path) -> Branch:
    """Return what a project file holds, as it is written and with lines.

    Raises:
        UsageError: The file is unreadable or malformed; with its line.
    """
    return read_tree(path, holds="experiments:", help=HELP)


def _values(tree: Tree, *, name: str = "", in_json: bool = False) -> Written:
    """Return what a tree holds: text, and maps and lists of it; params as JSON has them."""
    in_json = in_json or name in JSON_FIELDS
    if isinstance(tree, Leaf):
        return _json_value(tree.text) if in_json and tree.text is not None else tree.text
    if isinstance(tree, Items):
        return [_values(child, in_json=in_json) for child in tree.children]
    return {key: _values(child, name=key, in_json=in_json) for key, child in tree.children.items()}


def _json_value(text: str) -> Any:
    """Return a param's value as `--param` takes it: JSON, else text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _refuse_nulls(path: Path, tree: Tree, place: Place = ()) -> None:
    """Raise UsageError for a name with nothing behind it: it would lift a limit without a word.

    Inside params a null is a value, as in `--param name=null`.
    """
    if isinstance(tree, Leaf):
        if tree.text is None:
            raise UsageError(
                f"{path}:{tree.line}: {'.'.join(map(str, place))} has no value (null).",
                fix=f"Write {_allowed(place)}, or leave it out. {HELP}",
            )
        return
    if isinstance(tree, Items):
        for index, child in enumerate(tree.children):
            _refuse_nulls(path, child, (*place, index))
        return
    for name, child in tree.children.items():
        if name not in JSON_FIELDS or isinstance(child, Leaf):
            _refuse_nulls(path, child, (*place, name))


def _allowed(place: Place) -> str:
    """Return what may stand at a place, in words: "one of warn, fail", "a value such as 64"."""
    schema = Project.model_json_schema(ref_template="{model}")
    parts, at = schema["$defs"], schema
    for part in place:
        at = at.get("items") if isinstance(part, int) else _schema_of(at, part)
        if at is None:
            return "a value"
        at = next((one for one in at.get("anyOf", ()) if one.get("type") != "string"), at)
        at = parts.get(at.get("$ref"), at)
    kinds = at.get("items", at) if at.get("type") == "array" else at
    kinds = parts.get(kinds.get("$ref"), kinds)
    if "enum" in kinds:
        return f"one of {', '.join(kinds['enum'])}"
    if "examples" in kinds:
        return f"a value such as {kinds['examples'][0]}"
    if "properties" in kinds:
        names = list(kinds["properties"])
        rest = " …" if len(names) > MOST_NAMES else ""
        return f"fields of it ({', '.join(names[:MOST_NAMES])}{rest})"
    return {"boolean": "true or false", "object": "names with a value each"}.get(
        kinds.get("type", ""), "text"
    )


def _schema_of(schema: dict[str, Any], name: str) -> dict[str, Any] | None:
    named = schema.get("properties", {}).get(name)
    others = schema.get("additionalProperties")
    return named if named is not None else others if isinstance(others, dict) else None


def _with_defaults(values: Written) -> Written:
    """Return the file's values with its `defaults` under those of every experiment."""
    defaults = values.get("defaults")
    experiments = values.get("experiments")
    if not isinstance(defaults, dict) or not isinstance(experiments, dict):
        return values
    known = {name: value for name, value in defaults.items() if name in Setting.model_fields}
    for_hours = {name: value for name, value in known.items() if _holds_for_hours(name, value)}
    for_plans = {name: value for name, value in known.items() if name not in OF_MACHINES}

    def of(given: dict[str, Written]) -> dict[str, Written]:
        return for_hours if "hours" in given else for_plans if "plan" in given else known

    filled = {
        name: {**of(given), **given} if isinstance(given, dict) else given
        for name, given in experiments.items()
    }
    return {**values, "experiments": filled}


def _holds_for_hours(name: str, value: Written) -> bool:
    """Whether a default holds for hours of a machine, which say themselves what plans differ in."""
    given = listed(value)
    is_choice = name == "nodes" and isinstance(given, list) and len(given) > 1
    return name not in OF_SEARCHES and not is_choice


def _first_error(path: Path, tree: Branch, error: ValidationError) -> UsageError:
    """Return the first thing that is wrong, unknown names before wrong values."""
    found = sorted(error.errors(), key=lambda one: one["type"] != "extra_forbidden")[0]
    place = tuple(found["loc"])
    stands = _stands_in_defaults(tree, place)
    line = line_of(tree, stands)
    where = ".".join(str(part) for part in stands if part != "__root__")
    if found["type"] == "extra_forbidden":
        known = _known_fields(stands[:-1])
        parent = ".".join(map(str, stands[:-1])) or "a project"
        return UsageError(
            f"{path}:{line}: {parent} has no field {stands[-1]!r}."
            f"{did_you_mean(str(stands[-1]), known)}",
            fix=f"Known fields: {', '.join(known)}.",
        )
    if found["type"] == "missing":
        parent = ".".join(map(str, stands[:-1])) or "the project"
        return UsageError(
            f"{path}:{line_of(tree, stands[:-1])}: {parent} has no {stands[-1]}.",
            fix=f"Add `{stands[-1]}: …`. {HELP}",
        )
    said = _in_words(found)
    return UsageError(f"{path}:{line}: {where + ': ' if where else ''}{said}", fix=HELP)


def _in_words(found: ErrorDetails) -> str:
    """Return what pydantic says of a value in the words of a file's reader."""
    message = found["msg"].removeprefix("Value error, ")
    if found["type"] == "value_error":
        return message
    return f"{found['input']!r} is not taken: {message[:1].lower()}{message[1:]}."


def _stands_in_defaults(tree: Branch, place: Place) -> Place:
    """Return where a value of an experiment was written: there, or among the defaults."""
    if len(place) < 3 or place[0] != "experiments" or _found(tree, place[:3]) is not None:
        return place
    elsewhere = ("defaults", *place[2:])
    return place if _found(tree, elsewhere[:2]) is None else elsewhere


def _found(tree: Tree, place: Place) -> Tree | None:
    """Return what stands at a place, None where nothing does."""
    at: Tree | None = tree
    for part in place:
        if isinstance(at, Branch) and isinstance(part, str):
            at = at.children.get(part)
        elif isinstance(at, Items) and isinstance(part, int) and part < len(at.children):
            at = at.children[part]
        else:
            return None
    return at


def line_of(tree: Tree, place: Place) -> int:
    """Return the line of what stands at a place of a file, or of the nearest thing around it."""
    for end in range(len(place), -1, -1):
        at = _found(tree, place[:end])
        if at is not None:
            return at.line
    return 1


def _known_fields(place: Place) -> list[str]:
    """Return the names that the map at a place may have."""
    model: Any = Project
    for part in place:
        if isinstance(part, int) or not isinstance(model, type):
            continue
        if model is Project and part == "experiments":
            model = dict
        elif model is dict:
            model = Experiment
        else:
            model = _part_model(model, part)
    return list(model.model_fields) if _is_model(model) else list(Project.model_fields)


def _part_model(model: Any, name: str) -> Any:
    """Return the model of a field of a model, looking into lists and None."""
    if not _is_model(model) or name not in model.model_fields:
        return model
    annotation = model.model_fields[name].annotation
    options = [annotation, *getattr(annotation, "__args__", ())]
    return next((one for one in options if _is_model(one)), model)


def _is_model(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, BaseModel)


def _refuse_unknown_names(path: Path, tree: Branch, project: Project) -> None:
    """Raise UsageError for an experiment that comes after one that is not there, or after itself.

    Raises:
        UsageError: With the line of the experiment.
    """
    names = list(project.experiments)
    for name, experiment in project.experiments.items():
        line = line_of(tree, ("experiments", name, "after"))
        for before in experiment.after:
            if before not in project.experiments:
                raise UsageError(
                    f"{path}:{line}: {name} comes after {before!r}, which is not there."
                    f"{did_you_mean(before, names)}",
                    fix=f"Experiments: {', '.join(names)}.",
                )
        if experiment.start is not None and experiment.start < project.start:
            raise UsageError(
                f"{path}:{line_of(tree, ('experiments', name, 'start'))}: {name} starts in"
                f" {experiment.start}, before the project does ({project.start}).",
                fix="Give a later month, or start the project earlier.",
            )
    _refuse_circles(path, tree, {name: one.after for name, one in project.experiments.items()})


def _refuse_other_months(path: Path, tree: Branch, project: Project) -> None:
    """Raise UsageError for a line of cost in a month that the project does not have.

    Raises:
        UsageError: With the line of that month.
    """
    dated = [
        *((("storage", i, "start"), one.start) for i, one in enumerate(project.storage)),
        *((("egress", i, "month"), one.month) for i, one in enumerate(project.egress)),
        *((("extras", i, "month"), one.month) for i, one in enumerate(project.extras)),
    ]
    for place, month in dated:
        if month is not None and not project.start <= month <= project.end:
            raise UsageError(
                f"{path}:{line_of(tree, place)}: {'.'.join(map(str, place))}: {month} is no month"
                f" of the project, which goes from {project.start} to {project.end}.",
                fix="Give one of its months, or change `start` and `months` of the project.",
            )


def _refuse_same_names(path: Path, tree: Branch, project: Project) -> None:
    """Raise UsageError for two sets of runs of one name: a report would count each for both."""
    same = same_names(project, path.parent)
    if same is None:
        return
    name, *both = same
    (first, first_words), (second, second_words) = both
    raise UsageError(
        f"{path}:{line_of(tree, second)}: two sets of runs would be called {name}: {first_words}"
        f" (line {line_of(tree, first)}) and {second_words} (line {line_of(tree, second)}).",
        fix="Give one of them another name: a report keeps its figures by it.",
    )


def _refuse_circles(path: Path, tree: Branch, after: Mapping[str, Sequence[str]]) -> None:
    ended: set[str] = set()
    while len(ended) < len(after):
        free = {name for name, before in after.items() if set(before) <= ended} - ended
        if not free:
            left = [name for name in after if name not in ended]
            raise UsageError(
                f"{path}:{line_of(tree, ('experiments', left[0], 'after'))}: {_waiting(left)}.",
                fix="Leave one `after` out.",
            )
        ended |= free


def _waiting(names: Sequence[str]) -> str:
    if len(names) == 1:
        return f"{names[0]} comes after itself"
    return f"{', '.join(names)} wait for each other"
