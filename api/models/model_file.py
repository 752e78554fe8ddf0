"""A model file to start from: an example, or one around a class that exists already."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from ...catalog.errors import UsageError, UserFileError, did_you_mean
from ...catalog.files import write_chosen
from ...planner.budget.project.months import Month
from ...planner.budget.project.project import PROJECT_FILE
from ...profiles.user_model.spec import ModelSpec, parse_model_spec
from ..answers import utc_now

if TYPE_CHECKING:
    from ...profiles.user_model.file_text import ModelClass

DEFAULT_FILE = "model.py"
DEFAULT_FILE_FROM = "gpuplan_model.py"

EXAMPLE = '''\
"""A model file for gpuplan: the functions that build, feed and train one model.

    gpuplan profile model.py
    gpuplan estimate model.py --param layers=24 --samples 10M

Every argument with a default can be set with --param. All functions but build_model and make_batch
may be left out. docs/model-file.md has the whole contract.
"""

import torch
from torch import nn


def build_model(hidden=512, layers=6, classes=1000):
    """Required. Return the model with its weights; nothing is downloaded or trained."""
    encoder = nn.TransformerEncoderLayer(hidden, nhead=8, batch_first=True)
    return Classifier(nn.TransformerEncoder(encoder, layers), hidden, classes)


def make_batch(batch_size=32, tokens=196, hidden=512, classes=1000):
    """Required. Return one batch: a tuple → model(*batch), or a dict → model(**batch).

    Random values do: only shapes and dtypes matter.
    """
    return torch.randn(batch_size, tokens, hidden), torch.randint(classes, (batch_size,))


def compute_loss(model, batch):
    """Return a scalar tensor. Default: model(*batch).loss, or the output itself if a scalar."""
    inputs, labels = batch
    return nn.functional.cross_entropy(model(inputs), labels)


def build_optimizer(parameters):
    """Return the optimizer. Default: AdamW(lr=1e-4)."""
    return torch.optim.AdamW(parameters, lr=3e-4, weight_decay=0.05)


# With this number (or a function of params), results are also per token.
# TOKENS_PER_SAMPLE = 196


class Classifier(nn.Module):
    """A transformer encoder with a linear head, to be replaced by your model."""

    def __init__(self, encoder, hidden, classes):
        super().__init__()
        self.encoder = encoder
        self.head = nn.Linear(hidden, classes)

    def forward(self, x):
        return self.head(self.encoder(x).mean(dim=1))
'''


def init(
    file: str | Path | None = None,
    *,
    source: str | Path | ModelSpec | None = None,
    force: bool = False,
) -> Path:
    """Write a model file to start from; return its path.

    Args:
        file: Where; default: model.py, or gpuplan_model.py beside the class's file.
        source: MODEL.py[:CLASS], a class that the file is written around; None: an example.
        force: Whether a file that is there is replaced.

    Raises:
        UsageError: The file exists or cannot be written, or there is no such class.
        UserFileError: The source has no model at all.
    """
    if source is None:
        target, text = Path(file or DEFAULT_FILE), EXAMPLE
    else:
        target, text = _around_class(source, file)
    _refuse_existing(target, force=force)
    _write(target, text)
    return target


def init_project(
    file: str | Path | None = None,
    *,
    force: bool = False,
    now: Callable[[], datetime] | None = None,
) -> Path:
    """Write a project file to start from, with comments, that begins next month; return its path.

    Args:
        file: Where; default: gpuplan.yaml.
        force: Whether a file that is there is replaced.
        now: The clock; default: the current time in UTC.

    Raises:
        UsageError: The file exists or cannot be written.
    """
    target = Path(file or PROJECT_FILE)
    _refuse_existing(target, force=force)
    start = Month.of((now or utc_now)().date()).plus(1)
    text = (files("gpuplan.api") / "projects/data/gpuplan.yaml").read_text(encoding="utf-8")
    _write(target, text.replace("START", str(start)))
    return target


def _refuse_existing(target: Path, *, force: bool) -> None:
    if target.exists() and not force:
        raise UsageError(
            f"{target} exists already.",
            fix="give another file name, or --force to replace it.",
        )


def _around_class(source: str | Path | ModelSpec, file: str | Path | None) -> tuple[Path, str]:
    """Return where the file around a class goes, and what it holds."""
    from ...profiles.user_model.file_text import model_classes, read_source

    spec = source if isinstance(source, ModelSpec) else parse_model_spec(str(source))
    if spec.kind != "file":
        raise UsageError(f"--from {spec.text} is not a Python file.", fix="give a .py file.")
    source_text = read_source(spec.path)
    if spec.class_name is None:
        _refuse_whole(source_text, spec)
    classes = model_classes(source_text, spec.path)
    text = _around(_chosen(classes, spec), spec)
    target = spec.path.parent / DEFAULT_FILE_FROM if file is None else Path(file)
    if target.absolute().parent != spec.path.parent:
        raise UsageError(
            f"{target} is not in the folder of {spec.path.name}, from which it imports.",
            fix=f"leave it out, or name a file in {spec.path.parent}.",
        )
    return target, text


def _refuse_whole(text: str, spec: ModelSpec) -> None:
    """Refuse a file that is a model file already: one around it would leave out what it says."""
    from ...profiles.user_model.file_text import defines_contract

    name = spec.path.name
    if defines_contract(text, spec.path):
        raise UsageError(
            f"{name} has build_model() and make_batch() already.",
            fix=f"gpuplan estimate {name}    or name one of its classes: --from {name}:CLASS.",
        )


def _write(target: Path, text: str) -> None:
    try:
        write_chosen(target, text)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise  # The command line knows what to say of a full disk.
        raise UsageError(
            f"Cannot write {target}: {error.strerror or error}.",
            fix="name a file in a folder you may write to.",
        ) from error


def _chosen(classes: Sequence[ModelClass], spec: ModelSpec) -> ModelClass:
    """Return the class named after the colon, else the last one that no other class uses.

    Raises:
        UsageError: there is no class of that name.
        UserFileError: there is no class with a `forward` at all.
    """
    if not classes:
        raise UserFileError(
            f"{spec.path.name} has no class with a forward().",
            fix="give the file that defines your torch.nn.Module.",
        )
    if spec.class_name is None:
        return classes[-1]
    names = [one.name for one in classes]
    if spec.class_name not in names:
        raise UsageError(
            f"{spec.path.name} has no class {spec.class_name} with a forward()."
            f"{did_you_mean(spec.class_name, names)}",
            fix=f"use one of {', '.join(names)}.",
        )
    return classes[names.index(spec.class_name)]


def _around(model: ModelClass, spec: ModelSpec) -> str:
    """Return a model file that imports a class from beside it and feeds it.

    Raises:
        UsageError: the name of that file cannot be imported.
    """
    from ...profiles.user_model.file_text import contract_lines

    if not spec.path.stem.isidentifier():
        raise UsageError(
            f"{spec.path.name} cannot be imported by its name.",
            fix=f"rename it, or paste these lines into it:\n{contract_lines(model)}",
        )
    in_package = (spec.path.parent / "__init__.py").exists()
    module = f".{spec.path.stem}" if in_package else spec.path.stem
    functions = contract_lines(model).replace("\ndef ", "\n\n\ndef ")
    return (
        f'"""{model.name} of {spec.path.name}, for gpuplan (docs/model-file.md)."""\n\n'
        f"import torch\n\nfrom {module} import {model.name}\n\n\n{functions}\n"
    )
