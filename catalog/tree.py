"""Files that people write (YAML, CSV) → a tree of text that remembers its lines. Safe to feed.

Only maps, lists and plain text come out: no tags, no anchors, no aliases, no repeated keys. Files
and nesting are bounded, so that a hostile file ends in one message instead of a full memory.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TypeAlias

import yaml

from .errors import UsageError, did_you_mean

MAX_BYTES = 256 * 1024
MAX_DEPTH = 12
LARGEST_NUMBER = Decimal(10) ** 18

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


def read_tree(path: Path) -> Branch:
    """Return the map that a YAML file holds, or {"offers": rows} of a CSV file.

    Raises:
        UsageError: The file cannot be read, is malformed, or uses what is refused; with its line.
    """
    text = _read_text(path)
    return _read_csv(path, text) if path.suffix.lower() == ".csv" else _read_yaml(path, text)


class Fields:
    """Takes the values of one map by name, checking each; what nobody took is an error."""

    def __init__(self, path: Path, tree: Tree, *, what: str) -> None:
        self.path = path
        self.what = what
        self.line = tree.line
        if not isinstance(tree, Branch):
            raise self.error(
                f"{what} must be a map of names and values.", fix="Write `name: value`."
            )
        self._children = tree.children
        self._known: list[str] = []

    def error(self, message: str, *, line: int | None = None, fix: str | None = None) -> UsageError:
        """Return the error to raise, with the file and the line before the message."""
        return UsageError(f"{self.path}:{line or self.line}: {message}", fix=fix)

    def line_of(self, name: str) -> int:
        """Return the line on which a value stands, or that of the map if it is not there."""
        return self._children[name].line if name in self._children else self.line

    def has(self, name: str) -> bool:
        """Return whether the file gives a value under this name."""
        self._known.append(name)
        child = self._children.get(name)
        return child is not None and not (isinstance(child, Leaf) and child.text is None)

    def text(self, name: str) -> str | None:
        """Return the text under a name, or None if it is not given."""
        if not self.has(name):
            return None
        child = self._children[name]
        if not isinstance(child, Leaf) or child.text is None:
            raise self.error(f"{name} must be one value.", line=child.line)
        return child.text.strip()

    def required_text(self, name: str) -> str:
        """Return the text under a name that must be there."""
        text = self.text(name)
        if not text:
            raise self.error(f"{self.what} has no {name}.", fix=f"Add `{name}: …`.")
        return text

    def number(
        self,
        name: str,
        *,
        above: int | None = None,
        least: int | None = None,
        most: int | None = None,
    ) -> Decimal | None:
        """Return the number under a name within these limits, or None if it is not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            value = Decimal(text.replace("_", ""))
        except InvalidOperation:
            value = Decimal("NaN")
        if not value.is_finite() or abs(value) > LARGEST_NUMBER:
            raise self.error(f"{name} is {text!r}, not a number.", line=self.line_of(name))
        if above is not None and value <= above:
            raise self.error(
                f"{name} is {text}; it must be above {above}.", line=self.line_of(name)
            )
        if least is not None and value < least:
            raise self.error(f"{name} is {text}; at least {least}.", line=self.line_of(name))
        if most is not None and value > most:
            raise self.error(f"{name} is {text}; at most {most}.", line=self.line_of(name))
        return value

    def required_number(self, name: str, *, above: int | None = None) -> Decimal:
        """Return the number under a name that must be there."""
        value = self.number(name, above=above)
        if value is None:
            raise self.error(f"{self.what} has no {name}.", fix=f"Add `{name}: …`.")
        return value

    def boolean(self, name: str) -> bool | None:
        """Return yes or no under a name, or None if it is not given."""
        text = self.text(name)
        if text is None:
            return None
        answers = {"yes": True, "true": True, "no": False, "false": False}
        if text.casefold() not in answers:
            raise self.error(f"{name} is {text!r}; give yes or no.", line=self.line_of(name))
        return answers[text.casefold()]

    def date(self, name: str) -> date | None:
        """Return the ISO date under a name, or None if it is not given."""
        text = self.text(name)
        if text is None:
            return None
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise self.error(
                f"{name} is {text!r}; give a date like 2026-11-20.", line=self.line_of(name)
            ) from None

    def part(self, name: str) -> Fields | None:
        """Return the map under a name, or None if it is not given."""
        if not self.has(name):
            return None
        return Fields(self.path, self._children[name], what=name)

    def parts(self, name: str) -> list[Fields]:
        """Return the maps of the list under a name; empty if it is not given."""
        if not self.has(name):
            return []
        child = self._children[name]
        if not isinstance(child, Items):
            raise self.error(
                f"{name} must be a list.", line=child.line, fix="Begin each entry with `- `."
            )
        what = "an offer" if name == "offers" else f"an entry of {name}"
        return [Fields(self.path, item, what=what) for item in child.children]

    def refuse_unknown(self) -> None:
        """Raise on the first name that nothing asked for, with the closest known ones."""
        for name, child in self._children.items():
            if name not in self._known:
                raise self.error(
                    f"{self.what} has no field {name!r}.{did_you_mean(name, self._known)}",
                    line=child.line,
                    fix=f"Known fields: {', '.join(self._known)}.",
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
            fix="Give a file of offers, one entry per instance type.",
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError(f"{path}:{line}: not UTF-8 text.", fix="Save it as UTF-8.") from error


def _read_yaml(path: Path, text: str) -> Branch:
    try:
        _refuse_tricks(path, text)
        node = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 1 if mark else 1
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "not YAML"
        raise UsageError(
            f"{path}:{line}: {problem}.", fix="See the templates in docs/templates."
        ) from error
    tree = Leaf(None, 1) if node is None else _to_tree(path, node)
    if not isinstance(tree, Branch):
        raise UsageError(
            f"{path}:1: the file must be a map with `offers:`.",
            fix="See the templates in docs/templates.",
        )
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
