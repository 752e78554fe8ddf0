"""Packages that cannot be installed without CUDA: what a trace runs where a file imports one.

FlashAttention, xFormers and apex are built for a GPU, and the machine that plans has none. Where
the import of one fails, a package of the same name takes its place for this process
(`stand_ins.py`). A package that is installed is never replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, TypeVar

from ....catalog.errors import UserFileError
from .stand_ins import MODULES

Made = TypeVar("Made")

FLASH_OF_TRANSFORMERS = "has been toggled on, but it cannot be used"
"""Of what transformers raises for attn_implementation="flash_attention_2" where there is none."""
CHECK_OF_TRANSFORMERS = "_check_and_adjust_attn_implementation"
"""Its method that takes and returns the name of the attention, since 4.54."""
ASKED_BY_TRANSFORMERS = "the flash_attn that transformers is told to use"
PACKAGES: Mapping[str, str] = {
    "flash_attn": "torch's fused attention",
    "flash_attn_interface": "torch's fused attention",
    "xformers": "torch's fused attention",
    "apex": "torch's own norms and AdamW",
    ASKED_BY_TRANSFORMERS: "torch's fused attention",
}
"""The packages, and what a trace runs where they would run."""


def with_stand_ins(make: Callable[[], Made], notes: list[str]) -> Made:
    """Return what `make` returns, once more from the start for each package that it lacks.

    Args:
        make: runs the user's file.
        notes: gets a sentence for each package that another took the place of.

    Raises:
        ModuleNotFoundError: of a package that nothing stands in for; what else `make` raises.
    """
    while True:
        try:
            return make()
        except ImportError as error:
            package = _lacking(error)
            if package is None or package in _StandIns.provided:
                raise
            if package == ASKED_BY_TRANSFORMERS and not _attend_without_flash():
                raise
            _StandIns.provide(package)
            notes.append(
                f"{package} is not installed here: the trace runs {PACKAGES[package]} in its place"
            )


def _lacking(error: ImportError) -> str | None:
    """Return the package that was not found, and has a stand-in."""
    if FLASH_OF_TRANSFORMERS in str(error):
        return ASKED_BY_TRANSFORMERS
    package = (error.name or "").partition(".")[0]
    return package if isinstance(error, ModuleNotFoundError) and package in PACKAGES else None


def _attend_without_flash() -> bool:
    """Let models of transformers that ask for FlashAttention take torch's own, which it checks."""
    models = sys.modules.get("transformers.modeling_utils")
    base = getattr(models, "PreTrainedModel", None)
    check = getattr(base, CHECK_OF_TRANSFORMERS, None)
    if base is None or check is None:
        return False

    def checked(model: Any, asked: str | None, *settings: Any, **named: Any) -> Any:
        own = "sdpa" if asked and asked.startswith("flash_attention") else asked
        return check(model, own, *settings, **named)

    setattr(base, CHECK_OF_TRANSFORMERS, checked)
    return True


class _StandIns(MetaPathFinder, Loader):
    """Finds the modules of packages that another took the place of in this process."""

    provided: set[str] = set()

    @classmethod
    def provide(cls, package: str) -> None:
        """Let later imports of a package find what stands in for it."""
        if not any(isinstance(one, cls) for one in sys.meta_path):
            sys.meta_path.append(cls())
        cls.provided.add(package)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how to load a module that has a stand-in."""
        package = fullname.partition(".")[0]
        if package not in self.provided or fullname not in MODULES:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in MODULES)
        return ModuleSpec(fullname, self, is_package=is_package)

    def create_module(self, spec: ModuleSpec) -> None:
        """Let Python make the module."""

    def exec_module(self, module: ModuleType) -> None:
        """Fill a module, which refuses whatever else it is asked for."""
        vars(module).update(MODULES[module.__name__])

        def missing(name: str) -> Any:
            if name.startswith("__"):
                raise AttributeError(name)
            if f"{module.__name__}.{name}" in MODULES:
                return import_module(f"{module.__name__}.{name}")
            package = module.__name__.partition(".")[0]
            raise UserFileError(
                f"{package} is not installed here, and nothing stands in for its {name}.",
                fix=f"for an estimate, write there what {name} does in torch calls of the same"
                f" shapes, or run this where {package} is installed.",
            )

        vars(module)["__getattr__"] = missing
