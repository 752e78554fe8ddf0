"""The model files that `gpuplan init` writes."""

from __future__ import annotations

from collections.abc import Sequence

from ...catalog.errors import UsageError, UserFileError, did_you_mean
from ...profiles.user_model.source import ModelClass, contract_lines
from ...profiles.user_model.spec import ModelSpec

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


def example() -> str:
    """Return a commented model file that can be profiled as it is."""
    return EXAMPLE


def chosen(classes: Sequence[ModelClass], spec: ModelSpec) -> ModelClass:
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


def around(model: ModelClass, spec: ModelSpec) -> str:
    """Return a model file that imports a class from beside it and feeds it.

    Raises:
        UsageError: the name of that file cannot be imported.
    """
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
