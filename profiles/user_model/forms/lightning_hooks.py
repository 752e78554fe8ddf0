"""What a LightningModule may have that only a Trainer runs. Standard library only."""

from __future__ import annotations

import ast

HOOKS = (
    "backward",
    "configure_callbacks",
    "configure_gradient_clipping",
    "configure_model",
    "lr_scheduler_step",
    "optimizer_step",
    "optimizer_zero_grad",
    "transfer_batch_to_device",
)
"""Beside every `on_…` of a module."""
OF_TRAINER = ("trainer", "current_epoch", "global_step", "fabric", "logger")
"""Attributes that only a Trainer gives their values."""
MANUAL = "automatic_optimization"


def not_run(classes: list[ast.ClassDef]) -> tuple[str, ...]:
    """Return what of a LightningModule's classes gpuplan's runner does not run, by name."""
    methods = {
        item.name
        for one in classes
        for item in one.body
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    hooks = {f"{name}()" for name in methods if name in HOOKS or name.startswith("on_")}
    used = {name for one in classes for name in _of_self(one)}
    return (*sorted(hooks), *(f"self.{name}" for name in (*OF_TRAINER, MANUAL) if name in used))


def _of_self(one: ast.ClassDef) -> set[str]:
    """Return the names of attributes of `self` in a class's code."""
    return {
        node.attr
        for node in ast.walk(one)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    }
