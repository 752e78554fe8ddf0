"""Options that several commands share, grouped as `--help` prints them, and the values they take.

Amounts are written as people say them ("10B" tokens, "48h", "$500"); a list may be typed with
commas or by repeating the option; a name that is not known is answered with the closest ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from ...catalog.errors import GpuplanError, UsageError, did_you_mean
from ...catalog.text.amounts import parse_bytes, parse_count, parse_duration_s, parse_usd
from ...planner.plan.layout import parse_layout
from .contradictions import refuse_contradictions
from .other_names import REQUIRED, with_own_name
from .settings import named_settings

F = TypeVar("F", bound=Callable[..., Any])

GROUPS = (
    "Project",
    "Work",
    "Machine",
    "Layout",
    "Measuring",
    "Training",
    "Job",
    "Checkpoints",
    "Own script",
    "Money",
    "Guard",
    "Output",
    "Model file",
)
"""Headings of `--help`, in this order; options of no group come last, as "Other"."""


TYPED = "gpuplan.typed"
"""Key of the words after the name of a command, in the `meta` of its context."""


class GroupedOption(click.Option):
    """An option with the heading of `--help` that it is listed under."""

    def __init__(self, *args: Any, group: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.group = group


class GroupedCommand(click.Command):
    """A command whose `--help` lists its options under the headings of `GROUPS`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the command line, and refuse one that contradicts itself."""
        words = tuple(args)
        try:
            rest = super().parse_args(ctx, args)
        except click.BadOptionUsage as error:
            raise self._with_form(error, ctx) from error
        except click.NoSuchOption as error:
            raise with_own_name(error, self.get_params(ctx), ctx) from error
        ctx.meta[TYPED] = words
        if not ctx.resilient_parsing:
            refuse_contradictions(ctx, words)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; a value that is refused and was not typed is said to be a setting."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            names = named_settings(error.message)
            if names:
                said = (
                    f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} from your settings"
                )
                error.fix = f"{error.fix or ''} {said} (gpuplan config list).".lstrip()
            raise

    def _with_form(self, error: click.BadOptionUsage, ctx: click.Context) -> click.BadOptionUsage:
        """Return an error that an option stands without its value, with what the option takes."""
        named = [p for p in self.get_params(ctx) if error.option_name in p.opts]
        record = named[0].get_help_record(ctx) if named else None
        if record is None or not error.message.endswith("requires an argument."):
            return error
        form, purpose = record
        purpose = purpose.removesuffix(REQUIRED)
        message = f"{error.message}\nTo fix: write {form}: {purpose}"
        return click.BadOptionUsage(error.option_name, message, ctx)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each group that has an option."""
        sections: dict[str, list[tuple[str, str]]] = {group: [] for group in (*GROUPS, "Other")}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                sections[getattr(param, "group", None) or "Other"].append(record)
        for heading, records in sections.items():
            if records:
                with formatter.section(heading):
                    formatter.write_dl(records, col_max=26)


def option(group: str, *names: str, **attributes: Any) -> Callable[[F], F]:
    """Return the decorator of an option that stands in a group of `--help`."""
    assert group in GROUPS
    return click.option(*names, cls=GroupedOption, group=group, **attributes)


class Count(click.ParamType):
    """A number of things above zero, with a suffix if it is large: 512, 300M, 10B, 1.5T, 1e9."""

    name = "number"

    def __init__(self, *, whole: bool = False) -> None:
        self.whole = whole

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float | int:
        """Return the number; whole ones as int."""
        try:
            return parse_count(value, whole=self.whole)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Duration(click.ParamType):
    """A span of time with its unit, in seconds: 90min, 48h, 3d, 2w.

    Args:
        bare_unit: The unit of a number without one; None: it is an error.
    """

    name = "duration"

    def __init__(self, *, bare_unit: str | None = None) -> None:
        self.bare_unit = bare_unit

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the seconds."""
        if isinstance(value, float):
            return value
        try:
            return parse_duration_s(value, bare_unit=self.bare_unit)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Bytes(click.ParamType):
    """A size with its unit, in bytes: 500GB, 1.5TB, 2TiB."""

    name = "size"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return the bytes."""
        if isinstance(value, float):
            return value
        try:
            return parse_bytes(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Dollars(click.ParamType):
    """An amount of US dollars above zero: 500, $500, 1,500.50, 2k."""

    name = "usd"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Decimal:
        """Return the amount."""
        try:
            return parse_usd(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class ChangeText(click.ParamType):
    """A change of a sum: a share of it, 10%, or US dollars, $500."""

    name = "share|usd"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Decimal, bool]:
        """Return the number, and whether it is a share."""
        if isinstance(value, tuple):
            return value
        text = str(value).strip()
        try:
            if not text.endswith("%"):
                return parse_usd(text), False
            number = Decimal(text.removesuffix("%").strip()) / 100
        except (ValueError, ArithmeticError):
            number = Decimal(-1)
        if not (number.is_finite() and number >= 0):
            self.fail(f"{value!r} is no change of a sum; write 10% or $500.", param, ctx)
        return number, True


class OneOf(click.ParamType):
    """One of a few words; another is answered with the closest."""

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(words)
        self.name = "|".join(self.words)

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return the words as they are typed; click before 8.2 gives no context."""
        return self.name

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return what is allowed where it must be given; click before 8.2 gives no context."""
        return f"Give one of {', '.join(self.words)}."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the word as we spell it."""
        folded = _folded(value).replace("_", "-")
        if folded not in self.words:
            self.fail(
                f"{value!r} is not one of {', '.join(self.words)}."
                f"{did_you_mean(folded, self.words)}",
                param,
                ctx,
            )
        return folded

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Return the words that begin with what is typed."""
        return [CompletionItem(word) for word in self.words if word.startswith(incomplete)]


class RecomputeText(OneOf):
    """A recompute policy, "full" perhaps with a number of layers: full:10."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the policy as we spell it, with the number behind a colon."""
        word, colon, number = str(value).partition(":")
        policy = super().convert(word, param, ctx)
        if not colon:
            return policy
        if policy != "full" or not number.isascii() or not number.isdigit() or int(number) < 1:
            self.fail(
                f"{value!r}: layers are counted as full:10, a whole number from 1 on.", param, ctx
            )
        return f"{policy}:{int(number)}"


class LayoutText(click.ParamType):
    """A layout in its one-line form, such as fsdp16 or hsdp2x8.tp4."""

    name = "layout"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the Layout."""
        try:
            return parse_layout(str(value))
        except GpuplanError as error:
            self.fail(str(error), param, ctx)


class ListOf(click.ParamType):
    """Values separated by commas; with `multiple=True` the option may be repeated as well."""

    def __init__(self, item: click.ParamType | None = None) -> None:
        self.item = item or click.STRING
        self.name = "name,…" if self.item is click.STRING else f"{self.item.name},…"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:
        """Return words as they are typed, and kinds of values in capitals."""
        return self.name if isinstance(self.item, OneOf) else self.name.upper()

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[Any, ...]:
        """Return the converted items, in the order they were typed."""
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if not all(parts):
            self.fail(f"{value!r} has an empty item.", param, ctx)
        return tuple(self.item.convert(part, param, ctx) for part in parts)


def list_option(
    group: str, name: str, item: click.ParamType | None = None, **attributes: Any
) -> Callable[[F], F]:
    """Return the decorator of an option that takes comma lists, repeats, or both."""
    return option(group, name, type=ListOf(item), multiple=True, callback=_flatten, **attributes)


def parse_cluster(text: str) -> dict[str, tuple[Any, ...]]:
    """Return the machines that "4xp5.48xlarge" or "H100:8" (one of it) names: nodes of one kind.

    Raises:
        UsageError: The text is not of that form.
    """
    match = re.fullmatch(r"\s*(?:([1-9]\d*)\s*[x×*]\s*)?(\S+)\s*", text)  # noqa: RUF001
    if match is None or (match[1] is None and not re.fullmatch(r"[A-Za-z][^:]*:\d+", match[2])):
        raise UsageError(
            f"--cluster {text} is not of the form NxNAME.",
            fix="write 4xp5.48xlarge (an instance type) or 4xH100:8 (nodes of eight H100).",
        )
    kind = "accelerator" if ":" in match[2] else "instance"
    return {"nodes": (int(match[1] or 1),), kind: (match[2],)}


def model_options(command: F) -> F:
    """Add the MODEL argument and how its file is to be read."""
    decorators = (
        click.argument("model"),
        option("Work", "--param", "params", multiple=True, metavar="KEY=VALUE",
               help="A parameter for the functions of the file; repeatable."),
        option("Work", "--lora", metavar="r=R[,targets=A+B]",
               help="Train low-rank adapters of an hf: model alone; targets: as peft's."),
        option("Model file", "--input", "inputs", multiple=True, metavar="SHAPE[:DTYPE]",
               help="One input tensor, for MODEL.py:ClassName; without the batch, as 3,224,224."),
        option("Model file", "--assume-true", multiple=True, metavar="FILE:LINE",
               help="A condition on values, which a trace does not know, that holds in training."),
        option("Model file", "--assume-false", multiple=True, metavar="FILE:LINE",
               help="One that does not hold."),
        option("Model file", "--assume-size", multiple=True, metavar="FILE:LINE=SIZE",
               help="How many values a mask, nonzero or unique finds: 64, 64/sample or 50%."),
        option("Model file", "--timeout", type=Duration(bare_unit="s"), default="120s",
               show_default=True,
               help="Longest time the file may take to load, and each traced step."),
        option("Model file", "--no-cache", is_flag=True,
               help="Trace the file again, even if a trace of it is cached."),
        option("Output", "-v", "--verbose", is_flag=True,
               help="Show on stderr what the file printed, and the full traceback if it failed."),
    )  # fmt: skip
    return _apply(decorators, command)


def output_options(*formats: str) -> Callable[[F], F]:
    """Return the decorator that adds `--format`, `--out-file` and `-q`."""
    return lambda command: _apply(
        (
            option(
                "Output",
                "--format",
                "form",
                type=OneOf(formats),
                default=None,
                help="Output format; default: by the name of --out-file, else table.",
            ),
            option(
                "Output",
                "-o",
                "--out-file",
                type=click.Path(dir_okay=False),
                metavar="FILE",
                help="Write to this file instead of printing; it is never left incomplete.",
            ),
            option(
                "Output", "-q", "--quiet", is_flag=True, help="No progress and no notes on stderr."
            ),
        ),  # fmt: skip
        command,
    )


def _apply(decorators: Iterable[Callable[[Any], Any]], command: F) -> F:
    for decorator in reversed(tuple(decorators)):
        command = decorator(command)
    return command


def _flatten(
    _ctx: click.Context, _param: click.Parameter, lists: Iterable[tuple[Any, ...]]
) -> tuple[Any, ...]:
    return tuple(dict.fromkeys(item for items in lists for item in items))


def _folded(value: Any) -> str:
    return str(value).strip().casefold()


def with_options(options: tuple[Callable[[Any], Any], ...], command: F) -> F:
    """Add options to a command, in this order."""
    for decorator in reversed(options):
        command = decorator(command)
    return command
