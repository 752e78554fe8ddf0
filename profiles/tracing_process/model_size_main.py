"""The child process that counts the bytes of a model on torch's meta device, which takes none.

Run as `python -m gpuplan.profiles.tracing_process.model_size_main`; `child.Child` starts it.
"""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Iterable
from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

from ..user_model import failures
from ..user_model.spec import ModelSpec
from .child_main import serve
from .model_size import ModelSize

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..user_model.workload import Workload


def main() -> None:
    """Answer one request, then end with everything that the user's code started."""
    serve(answer)


def answer(request: dict[str, Any], _stream: IO[bytes]) -> bytes:
    """Return the size as JSON after a line that is the header, or the error in it."""
    gc.disable()  # As where a Profile is made.
    from ..trace.gpu.packages import with_stand_ins
    from ..user_model.contract import load_workload

    gc.freeze()
    gc.enable()

    spec = ModelSpec.from_json(request["spec"])
    try:
        size = with_stand_ins(lambda: size_of(load_workload(spec), **request["count"]), [])
        return b"{}\n" + json.dumps(asdict(size)).encode()
    except BaseException as error:
        described = failures.describe_failure(error, spec.path, spec.params)
        header = {"error": failures.to_json(described), "traceback": traceback.format_exc()}
        return json.dumps(header).encode() + b"\n"


def size_of(
    workload: Workload, *, precision: str | None, frozen_precision: str | None
) -> ModelSize:
    """Return the size of a model that is built, and kept, as the runner does it."""
    import torch

    from ..user_model.structure.frozen import cast_frozen

    with torch.device("meta"):
        model = workload.build_model()
    built_bytes = _bytes_of(model.parameters())
    if precision == "bf16":
        model = model.to(torch.bfloat16)
    if frozen_precision == "bf16":
        cast_frozen(model, torch.bfloat16)
    trained = [one for one in model.parameters() if one.requires_grad]
    gradient_bytes, optimizer_bytes = _of_optimizer(workload, trained)
    return ModelSize(
        built_bytes=built_bytes,
        weight_bytes=_bytes_of(model.parameters()),
        gradient_bytes=gradient_bytes,
        optimizer_bytes=optimizer_bytes,
    )


def _of_optimizer(workload: Workload, trained: list[nn.Parameter]) -> tuple[int, int]:
    """Return the bytes of the gradients and of the optimizer's state; 0 for what is not known."""
    import torch

    try:
        optimizer = workload.build_optimizer(trained)
        if any(getattr(one, "_post_accumulate_grad_hooks", None) for one in trained):
            return 0, 0
        for one in trained:
            one.grad = torch.empty_like(one)
        held = {id(one) for each in trained for one in (each, each.grad)}
        gradient_bytes = _bytes_of(trained)
    except Exception:
        return 0, 0
    try:
        optimizer.step()
        values = [one for each in optimizer.state.values() for one in each.values()]
        tensors = {id(one): one for one in values if isinstance(one, torch.Tensor)}
    except Exception:
        return gradient_bytes, 0
    return gradient_bytes, _bytes_of(one for key, one in tensors.items() if key not in held)


def _bytes_of(tensors: Iterable[Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in tensors)


if __name__ == "__main__":
    main()
