"""What torch says of this machine, as JSON: run by `doctor_machine` in a process of its own.

A broken driver may end the process that asks; then only this one ends.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any


def main() -> None:
    """Print the facts, whatever else libraries print."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    json.dump(torch_facts(), answers)
    answers.close()


def torch_facts() -> dict[str, Any]:
    """Return the fields of `doctor_machine.TorchFacts`."""
    try:
        import torch
    except Exception as error:
        return {"import_error": f"{type(error).__name__}: {_line(error)}"}
    facts: dict[str, Any] = {
        "version": torch.__version__,
        "cuda_build": torch.version.cuda,
        "rocm_build": torch.version.hip,
        "gloo": torch.distributed.is_available() and torch.distributed.is_gloo_available(),
    }
    if not (torch.version.cuda or torch.version.hip):
        return facts
    try:
        torch.cuda.init()
    except Exception as error:
        return facts | {"cuda_error": _line(error)}
    places = range(torch.cuda.device_count())
    nccl = torch.distributed.is_available() and torch.distributed.is_nccl_available()
    version = _nccl_version() if nccl else None
    return facts | {
        "cudnn": torch.backends.cudnn.version(),
        "nccl": ".".join(map(str, version)) if version else None,
        "built_for": torch.cuda.get_arch_list(),
        "devices": [_device(place) for place in places],
        "peers": [
            [one, other]
            for one in places
            for other in places
            if one < other and torch.cuda.can_device_access_peer(one, other)
        ],
    }


def _nccl_version() -> tuple[object, ...]:
    from torch.cuda import nccl

    return nccl.version()


def _device(place: int) -> dict[str, Any]:
    import torch

    properties = torch.cuda.get_device_properties(place)
    found: dict[str, Any] = {
        "name": properties.name,
        "capability": f"{properties.major}.{properties.minor}",
    }
    try:
        free_bytes, total_bytes = torch.cuda.mem_get_info(place)
        # A product says more than a query: it needs a kernel for this very device.
        ones = torch.ones(8, 8, device=f"cuda:{place}")
        assert (ones @ ones).sum().item() == 8**3
    except Exception as error:
        return found | {"error": _line(error)}
    return found | {"visible_bytes": total_bytes, "free_bytes": free_bytes}


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


if __name__ == "__main__":
    sys.exit(main())
