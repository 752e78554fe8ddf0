"""The values of one map that the user wrote, taken by name and checked; errors say the line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from types import MappingProxyType

from ..errors import UsageError, did_you_mean
from .tree import Branch, Items, Leaf, Tree

LARGEST_NUMBER = Decimal(10) ** 18


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

    def expect(
        self,
        required: Sequence[str],
        known: Sequence[str],
        *,
        also_called: Mapping[str, str] = MappingProxyType({}),
        example: str | None = None,
    ) -> None:
        """Raise one error that names every field that is unknown and every one that is missing.

        Args:
            required: names that must have a value.
            known: all names that may be there.
            also_called: what people write for a known name → that name.
            example: the least that does, for the error.
        """
        unknown = [name for name in self._children if name not in known]
        missing = [name for name in required if not self.has(name)]
        if not (unknown or missing):
            return
        told = []
        if unknown:
            told.append(f"has no field {_joined([repr(name) for name in unknown], 'or')}")
        if missing:
            told.append(f"lacks {_joined(missing, 'and')}")
        meant = [_meant(name, known, also_called) for name in unknown]
        fixes = []
        if missing:
            added = f"Add {_joined(missing, 'and')}."
            fixes.append(added if example is None else f"Write it like {example}")
        if not all(meant):
            fixes.append(f"Known fields: {', '.join(known)}.")
        line = self.line_of(unknown[0]) if unknown else self.line
        message = f"{self.what} {', and '.join(told)}.{''.join(meant)}"
        raise self.error(message, line=line, fix=" ".join(fixes) or None)

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
        text = " ".join(child.text.split())
        if not text.isprintable():
            # It would be printed in tables: no escape sequence may reach the terminal.
            raise self.error(f"{name} is {text!r}; plain text only.", line=child.line)
        return text

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
            raise self.error(
                f"{name} is {text}; it must be at least {least}.", line=self.line_of(name)
            )
        if most is not None and value > most:
            raise self.error(
                f"{name} is {text}; it must be at most {most}.", line=self.line_of(name)
            )
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
                    fix=f"Known fields: {', '.join(dict.fromkeys(self._known))}.",
                )


def _meant(given: str, known: Sequence[str], also_called: Mapping[str, str]) -> str:
    """Return the known name that people write otherwise, or those that are close, as a sentence."""
    usual = also_called.get(given.casefold())
    return f" For {given!r} write {usual}." if usual else did_you_mean(given, known)


def _joined(names: Sequence[str], word: str) -> str:
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last
