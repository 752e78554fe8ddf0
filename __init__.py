"""gpuplan: what training a PyTorch model needs, takes and costs on every accelerator clouds sell.

`gpuplan.api` is the whole public surface; its names are re-exported here on first use, so that
`import gpuplan` stays instant.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Return a public name of `gpuplan.api`, importing it on first use."""
    if name.startswith("_"):
        raise AttributeError(name)
    api = import_module(f"{__name__}.api")
    if name in api.__all__:
        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
