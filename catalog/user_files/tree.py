"""Files that people write (YAML, CSV) → a tree of text that remembers its lines. Safe to feed.

Only maps, lists and plain text come out: no tags, no anchors, no aliases, no repeated keys. Files
and nesting are bounded, so that a hostile file ends in one message instead of a full memory.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import yaml

from ..errors import UsageError

MAX_BYTES = 256 * 1024
MAX_DEPTH = 12

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Leaf:
    """One value as it was written; None where the file says nothing (null, an empty cell)."""

    text: str | None
    line: int


@dataclass(frozen=True)
class Branch:
    """A map of the file."""

    children: dict[str, Tree]
    line: int


@dataclass(frozen=True)
class Items:
    """A list of the file."""

    children: tuple[Tree, ...]
    line: int


Tree: TypeAlias = Leaf | Branch | Items


def read_tree(path: Path, *, holds: str, help: str, bare_list: str | None = None) -> Branch:
    """Return the map that a YAML file holds, or {"offers": rows} of a CSV file.

    Args:
        path: The file.
        holds: What such a file begins with, for the error of one that holds no map.
        help: Where to read about such files.
        bare_list: What a list is the value of that is all that the file holds; None: an error.

    Raises:
        UsageError: The file cannot be read, is malformed, or uses what is refused; with its line.
    """
    text = _read_text(path)
    return (
        _read_csv(path, text)
        if path.suffix.lower() == ".csv"
        else _read_yaml(path, text, holds=holds, help=help, bare_list=bare_list)
    )


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(
            f"Cannot read {path}: {error.strerror or error}.", fix="Check the path."
        ) from error
    if len(raw) > MAX_BYTES:
        raise UsageError(
            f"{path} is larger than {MAX_BYTES // 1024} KiB.",
            fix="Split it: such a file has one entry per instance type.",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: not UTF-8 text.", fix="Save it as UTF-8.") from error


def _read_yaml(path: Path, text: str, *, holds: str, help: str, bare_list: str | None) -> Branch:
    try:
        _refuse_tricks(path, text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        raise UsageError(f"{path}:{line}: {problem}.", fix=help) from error
    tree = Leaf(None, 1) if node is None else _to_tree(path, node)
    if isinstance(tree, Items) and bare_list is not None:
        tree = Branch({bare_list: tree}, tree.line)
    if not isinstance(tree, Branch):
        raise UsageError(f"{path}:1: the file must be a map with `{holds}`.", fix=help)
    return tree


def _refuse_tricks(path: Path, text: str) -> None:
    """Raise on anchors, tags, deep nesting and second documents, before anything is built."""
    depth = documents = 0
    for event in yaml.parse(text, Loader=_Loader):
        line = event.start_mark.line + 1
        documents += isinstance(event, yaml.DocumentStartEvent)
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        trick = None
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            trick = "anchors and aliases (& and *) are"
        elif getattr(event, "tag", None):
            trick = f"the tag {event.tag} is"
        elif depth > MAX_DEPTH:
            trick = f"nesting deeper than {MAX_DEPTH} levels is"
        elif documents > 1:
            trick = "a second document is"
        if trick:
            raise UsageError(
                f"{path}:{line}: {trick} not allowed here.", fix="Write it out plainly."
            )


def _to_tree(path: Path, node: yaml.Node) -> Tree:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        return Items(tuple(_to_tree(path, item) for item in node.value), line)
    if not isinstance(node, yaml.MappingNode):
        is_null = node.tag == "tag:yaml.org,2002:null"
        return Leaf(None if is_null else str(node.value), line)
    children: dict[str, Tree] = {}
    for key, value in node.value:
        name = str(key.value)
        if not isinstance(key, yaml.ScalarNode):
            raise UsageError(f"{path}:{line}: a name must be plain text.")
        if name in children:
            raise UsageError(f"{path}:{key.start_mark.line + 1}: {name!r} is there twice.")
        children[name] = _to_tree(path, value)
    return Branch(children, line)


def _read_csv(path: Path, text: str) -> Branch:
    """Return the rows as offers; a column `owned.power_w` stands for `owned: {power_w: …}`."""
    reader = csv.reader(io.StringIO(text), strict=True)
    items: list[Tree] = []
    try:
        header = [name.strip() for name in next(reader, [])]
        if len(set(header)) != len(header) or not all(header):
            raise UsageError(f"{path}:1: a column has no name, or one is there twice.")
        for cells in reader:
            line = reader.line_num
            if not cells:
                continue
            if len(cells) != len(header):
                raise UsageError(
                    f"{path}:{line}: {len(cells)} cells under {len(header)} columns.",
                    fix='Put text that holds commas in "quotes".',
                )
            items.append(_csv_row(header, cells, line))
    except csv.Error as error:
        raise UsageError(f"{path}:{reader.line_num}: {error}.") from error
    return Branch({"offers": Items(tuple(items), 1)}, 1)


def _csv_row(header: list[str], cells: list[str], line: int) -> Branch:
    children: dict[str, Tree] = {}
    for column, cell in zip(header, cells, strict=True):
        if not cell.strip():
            continue
        part, dot, name = column.partition(".")
        if not dot:
            children[column] = Leaf(cell, line)
            continue
        branch = children.setdefault(part, Branch({}, line))
        if isinstance(branch, Branch):
            branch.children[name] = Leaf(cell, line)
    return Branch(children, line)
