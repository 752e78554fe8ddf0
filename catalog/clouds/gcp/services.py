"""One service of a Google client library, without the others of its package.

`google.cloud.compute_v1` imports a hundred services as soon as any of them is asked for, which
takes most of the time and a third of the memory of a refresh. Here the package is entered without
its `__init__`; whoever asks it for anything else gets it whole.
"""

from __future__ import annotations

import re
import sys
import threading
from importlib import import_module
from importlib.util import find_spec, module_from_spec
from types import ModuleType
from typing import Any

_ENTERING = threading.RLock()


def client_class(package: str, name: str) -> Any:
    """Return a class such as `MachineTypesClient`; raise ImportError where it is not installed.

    Args:
        package: `google.cloud.compute_v1`.
        name: Of the class.
    """
    with _ENTERING:
        _enter(package)
        return getattr(import_module(f"{package}.services.{_service(name)}"), name)


class _Entered(ModuleType):
    """A package whose `__init__` has not run: it runs when an attribute is missing."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if name.startswith("__") or spec is None or spec.loader is None:
            raise AttributeError(name)
        with _ENTERING:
            if type(self) is _Entered:
                self.__class__ = ModuleType  # pyright: ignore[reportAttributeAccessIssue]
                spec.loader.exec_module(self)
        return getattr(self, name)


def _enter(package: str) -> None:
    if package in sys.modules:
        return
    spec = find_spec(package)
    if spec is None:
        raise ModuleNotFoundError(package)
    module = module_from_spec(spec)
    module.__class__ = _Entered
    sys.modules[package] = module
    # Services import this one by name, which would ask the package for an attribute.
    import_module(f"{package}.gapic_version")


def _service(name: str) -> str:
    """Return the module of a client.

    >>> _service("MachineTypesClient")
    'machine_types'
    """
    words = re.findall(r"[A-Z][a-z0-9]*", name.removesuffix("Client"))
    return "_".join(word.lower() for word in words)
