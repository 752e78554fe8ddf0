"""Which stored tensor each weight of a model is read from: by name, or refused with a reason.

Every name of the model must be in the files, and every name in the files in the model, but for
those that are allowed to differ: a new head (`--allow-missing 'score.*'`), a head that is left out
(`--allow-unexpected 'lm_head.*'`), what transformers itself ignores, and the adapters of `--lora`,
which begin anew. Of the names of one tied weight one is enough.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from ....catalog.errors import UsageError, did_you_mean
from ....profiles.user_model.lora import LowRankAdapter
from .files import StoredTensor
from .reading import MappedFiles

NAMES_SHOWN = 4
OF_ADAPTER = ("down.weight", "up.weight")
CONVERT = (
    " Where transformers converts weights as it loads them (mixtures of experts), write them once"
    ' as the model has them: python -c "import transformers as t, safetensors.torch as s;'
    " s.save_model(t.{kind}.from_pretrained('{place}'), 'converted.safetensors')\""
)
MISSING_OPTION, UNEXPECTED_OPTION = "--allow-missing", "--allow-unexpected"


@dataclass(frozen=True, kw_only=True)
class ModelNames:
    """What a whole model is made of, before it is spread over the processes."""

    shapes: Mapping[str, tuple[int, ...]]
    """Of parameters and persistent buffers, by name; a tied weight under all of its names."""
    floating: frozenset[str]
    """Names of those that are floating-point numbers."""
    ties: tuple[tuple[str, ...], ...]
    """The names of each weight that has several, in the order of the model."""
    stored_as: Mapping[str, str]
    """What the files call a weight that an adapter was put around."""
    new: frozenset[str]
    """Names of adapters, which begin anew where the files have none."""
    prefix: str | None = None
    """Of the names of the model without its head, as transformers has it: `transformer.`"""
    transformers_class: str | None = None
    """Of a model of transformers, which may give weights other names as it loads them."""
    ignored_missing: tuple[str, ...] = ()
    """Regular expressions of transformers."""
    ignored_unexpected: tuple[str, ...] = ()

    @property
    def tied_to(self) -> dict[str, tuple[str, ...]]:
        """Return all names of a tied weight by each of them."""
        return {name: group for group in self.ties for name in group}


def names_of(model: nn.Module) -> ModelNames:
    """Return the names of a model, whole, on any device."""
    state = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    groups: dict[int, list[str]] = defaultdict(list)
    for held in (model.named_parameters, model.named_buffers):
        for name, value in held(remove_duplicate=False):
            groups[id(value)] += [name] if name in state else []
    adapters = [path for path, one in model.named_modules() if isinstance(one, LowRankAdapter)]
    prefix = getattr(model, "base_model_prefix", None)
    return ModelNames(
        shapes={name: tuple(value.shape) for name, value in state.items()},
        floating=frozenset(name for name, value in state.items() if value.is_floating_point()),
        ties=tuple(tuple(group) for group in groups.values() if len(group) > 1),
        stored_as={
            name: f"{path}.{name.removeprefix(f'{path}.base.')}"
            for path in adapters
            for name in state
            if name.startswith(f"{path}.base.")
        },
        new=frozenset(f"{path}.{last}" for path in adapters for last in OF_ADAPTER),
        prefix=f"{prefix}." if isinstance(prefix, str) and prefix else None,
        transformers_class=type(model).__name__ if hasattr(model, "save_pretrained") else None,
        ignored_missing=_expressions(model, "_keys_to_ignore_on_load_missing"),
        ignored_unexpected=_expressions(model, "_keys_to_ignore_on_load_unexpected"),
    )


@dataclass(frozen=True, kw_only=True)
class Matched:
    """Which stored tensor each name of a model is read from."""

    stored: Mapping[str, StoredTensor]
    """By the model's name."""
    begun_anew: tuple[str, ...]
    """Names of the model that keep the values they were built with."""
    left_out: tuple[str, ...]
    """Names in the files that are not read."""
    renamed: str | None
    """How names differ by a prefix, in words; None where they do not."""


def matched(
    names: ModelNames,
    stored: Mapping[str, StoredTensor],
    *,
    place: str,
    allow_missing: Sequence[str] = (),
    allow_unexpected: Sequence[str] = (),
) -> Matched:
    """Return where each weight of a model is read from.

    Args:
        names: of the whole model.
        stored: what the files hold, by their names.
        place: the path of the files, for messages.
        allow_missing: names of the model that the files may lack; `*` stands for any part.
        allow_unexpected: names in the files that the model may lack.

    Raises:
        UsageError: names are missing or unexpected, shapes or dtypes differ, or two names of a
            tied weight have two values.
    """
    best: Matched | None = None
    for renamed, table in _renamings(names, stored):
        found = _match(names, table, renamed)
        missing = _not_allowed(found.begun_anew, allow_missing, names.ignored_missing, names.new)
        unexpected = _not_allowed(found.left_out, allow_unexpected, names.ignored_unexpected)
        if not missing and not unexpected:
            _check_shapes(names, found, place)
            _check_ties(names, table, place)
            return found
        best = best or found
    assert best is not None, "the names as they are come first"
    missing = _not_allowed(best.begun_anew, allow_missing, names.ignored_missing, names.new)
    unexpected = _not_allowed(best.left_out, allow_unexpected, names.ignored_unexpected)
    raise _other_names(place, names, stored, missing, unexpected)


def _renamings(
    names: ModelNames, stored: Mapping[str, StoredTensor]
) -> Iterator[tuple[str | None, dict[str, StoredTensor]]]:
    """Yield the stored tensors under their names, then with a prefix more or less.

    A model that holds another one inside has its names with a prefix; so have files that were
    written from inside a wrapper (`module.`, `_orig_mod.`).
    """
    yield None, dict(stored)
    wanted = [names.stored_as.get(name, name) for name in names.shapes]
    first = next(iter(stored))
    longer = {name.removesuffix(first) for name in wanted if name.endswith(f".{first}")}
    if names.prefix is not None:
        longer.add(names.prefix)
    for prefix in sorted(longer):
        added = {
            name if name in wanted else prefix + name: tensor for name, tensor in stored.items()
        }
        yield f"with {prefix!r} before the names in the files", added
    shorter = {
        name.removesuffix(one) for one in wanted[:1] for name in stored if name.endswith(f".{one}")
    }
    for prefix in sorted(shorter):
        cut = {name.removeprefix(prefix): tensor for name, tensor in stored.items()}
        if len(cut) == len(stored):
            yield f"without {prefix!r} before the names in the files", cut


def _match(names: ModelNames, stored: Mapping[str, StoredTensor], renamed: str | None) -> Matched:
    found: dict[str, StoredTensor] = {}
    tied_to = names.tied_to
    for name in names.shapes:
        for other in (name, *tied_to.get(name, ())):
            source = names.stored_as.get(other, other)
            if source not in stored and other in stored:
                source = other  # Files of a run with adapters have the model's own names.
            if source in stored:
                found[name] = stored[source]
                break
    read = {names.stored_as.get(name, name) for name in names.shapes} | set(names.shapes)
    return Matched(
        stored=found,
        begun_anew=tuple(name for name in names.shapes if name not in found),
        left_out=tuple(name for name in stored if name not in read),
        renamed=renamed,
    )


def _not_allowed(
    given: Sequence[str],
    allowed: Sequence[str],
    ignored: Sequence[str],
    new: frozenset[str] = frozenset(),
) -> list[str]:
    return [
        name
        for name in given
        if name not in new
        and not any(fnmatchcase(name, pattern) for pattern in allowed)
        and not any(re.search(pattern, name) for pattern in ignored)
    ]


def _check_shapes(names: ModelNames, found: Matched, place: str) -> None:
    wrong = [
        f"{name} is {_shape(one.shape)} in the files and {_shape(names.shapes[name])} in the model"
        for name, one in found.stored.items()
        if one.shape != names.shapes[name]
    ]
    if wrong:
        raise UsageError(
            f"The weights in {place} are of another size: {_some(wrong)}.",
            fix="give the --param values of the model that they are of, or leave a tensor out with"
            f" {UNEXPECTED_OPTION} and {MISSING_OPTION} under another name in the model.",
        )
    kinds = [
        f"{name} is {one.dtype} in the files and"
        f" {'floating-point' if name in names.floating else 'not floating-point'} in the model"
        for name, one in found.stored.items()
        if one.is_floating_point != (name in names.floating)
    ]
    if kinds:
        raise UsageError(
            f"The weights in {place} are of another kind: {_some(kinds)}.",
            fix="write them as floating-point numbers; quantised weights are not read.",
        )


def _check_ties(names: ModelNames, stored: Mapping[str, StoredTensor], place: str) -> None:
    """Refuse two values for one weight: the model would keep only one of them."""
    files = MappedFiles()
    for group in names.ties:
        held = [name for name in group if name in stored]
        for name in held[1:]:
            first, other = stored[held[0]], stored[name]
            if first != other and not torch.equal(files.tensor(first), files.tensor(other)):
                raise UsageError(
                    f"{held[0]} and {name} are one weight (tied) in the model, and have two values"
                    f" in {place}.",
                    fix="build the model with tie_word_embeddings=False, or write one value.",
                )


def _other_names(
    place: str,
    names: ModelNames,
    stored: Mapping[str, StoredTensor],
    missing: Sequence[str],
    unexpected: Sequence[str],
) -> UsageError:
    said, fixes = [], []
    if missing:
        near = did_you_mean(missing[0], stored) if len(missing) == 1 else ""
        said.append(
            f"{len(missing)} of the model's {len(names.shapes)} are missing in the files"
            f" ({_some(missing)}){'.' + near if near else ''}"
        )
        fixes.append(f"{MISSING_OPTION} {_pattern(missing)!r} for those that are to begin anew")
    if unexpected:
        said.append(
            f"{len(unexpected)} of the files' {len(stored)} are not in the model"
            f" ({_some(unexpected)})"
        )
        fixes.append(f"{UNEXPECTED_OPTION} {_pattern(unexpected)!r} for those to be left out")
    message = f"The weights in {place} have other names than the model: {'; '.join(said)}."
    fix = f"give the weights of this model and its --param values, or {' and '.join(fixes)}."
    if missing and unexpected and names.transformers_class is not None:
        fix += CONVERT.format(kind=names.transformers_class, place=place)
    return UsageError(message, fix=fix)


def _pattern(names: Sequence[str]) -> str:
    """Return a pattern of the first name: the module that holds it, or the name itself."""
    module = names[0].rpartition(".")[0]
    return f"{module}.*" if module else names[0]


def _some(words: Sequence[str]) -> str:
    shown = ", ".join(words[:NAMES_SHOWN])
    return shown + (", …" if len(words) > NAMES_SHOWN else "")


def _shape(shape: tuple[int, ...]) -> str:
    return "×".join(map(str, shape)) or "a number"


def _expressions(model: nn.Module, name: str) -> tuple[str, ...]:
    found: Any = getattr(model, name, None)
    return tuple(map(str, found)) if isinstance(found, list | tuple | set) else ()
