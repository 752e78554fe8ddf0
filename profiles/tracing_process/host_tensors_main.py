"""The child process that looks for tensors of the CPU among those of the GPU in a forward pass.

Run as `python -m gpuplan.profiles.tracing_process.host_tensors_main`; `child.Child` starts it. The
step runs as in a trace, on tensors without data, and ends with the first operation that a GPU would
refuse, or after the loss.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any, NoReturn
from unittest.mock import patch

from ...catalog.errors import UserFileError
from ..user_model import failures
from ..user_model.spec import ModelSpec
from .child_main import serve

if TYPE_CHECKING:
    from torch import Tensor, nn

    from ..user_model.workload import Workload

REFUSING = """
cat stack where mm addmm bmm baddbmm mv embedding gather scatter scatter_add index_select index_add
masked_fill nll_loss_forward nll_loss2d_forward mse_loss smooth_l1_loss huber_loss
binary_cross_entropy
""".split()  # noqa: SIM905 - a column of names is not read as fast
"""Operations, besides those that go element by element, whose tensors must be on one device.

Indexing takes indices of the CPU, and copying is what moves tensors.
"""
NEVER = ("copy", "copy_", "_to_copy", "fill", "fill_")
LARGEST_HOST_ELEMENTS = 2**26
"""Up to which a tensor that a step makes on the CPU is made there in the trace too."""


class _Ended(BaseException):
    """The forward pass is done, as far as it is wanted; no code of the user's is to catch it."""


def main() -> None:
    """Answer one request, then end with everything that the user's code started."""
    serve(answer)


def answer(request: dict[str, Any], _stream: IO[bytes]) -> bytes:
    """Return a line of JSON: what was found, or the error that kept anything from being."""
    spec = ModelSpec.from_json(request["spec"])
    try:
        error = host_tensors(spec)
        return json.dumps({"found": None if error is None else failures.to_json(error)}).encode()
    except BaseException as error:
        described = failures.describe_failure(error, spec.path)
        header = {"error": failures.to_json(described), "traceback": traceback.format_exc()}
        return json.dumps(header).encode() + b"\n"


def host_tensors(spec: ModelSpec) -> UserFileError | None:
    """Return what a step of a file mixes, with its line; None where nothing is found."""
    from ..trace.gpu.packages import with_stand_ins
    from ..trace.trace import trace_workload
    from ..user_model.contract import load_workload

    watch = _Watch(spec)
    workload = with_stand_ins(lambda: load_workload(spec, importing=_as_on_gpu), [])
    try:
        trace_workload(watch.around(workload), numerics=("fp32",), assumptions=spec.assumptions)
    except _Ended:
        return watch.found
    return None


class _Watch:
    """Sees the operations of a forward pass, and where they were asked for."""

    def __init__(self, spec: ModelSpec) -> None:
        self._spec = spec
        self.found: UserFileError | None = None

    def around(self, workload: Workload) -> Workload:
        """Return a workload whose loss is watched, and ends the trace."""

        def compute_loss(model: nn.Module, batch: Any) -> NoReturn:
            if not _has_large_constants(model):
                with self._watching():
                    workload.compute_loss(model, batch)
            raise _Ended

        return replace(workload, compute_loss=compute_loss)

    @contextmanager
    def _watching(self) -> Iterator[None]:
        from ..trace.gpu import target
        from ..trace.recording.recorder import Recorder
        from ..trace.torch_private import no_torch_function

        record, tiny = Recorder.__torch_dispatch__, target.TINY_ELEMENTS

        def look(mode: Recorder, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            with no_torch_function():
                self._look(func, (args, kwargs or {}))
            return record(mode, func, types, args, kwargs)

        with (
            patch.object(Recorder, "__torch_dispatch__", look),
            patch.object(target, "TINY_ELEMENTS", max(tiny, LARGEST_HOST_ELEMENTS)),
        ):
            yield

    def _look(self, func: Any, arguments: Any) -> None:
        """End the step if this operation would, in a line of the user's own."""
        from ..trace.recording.meta import tensors_in

        operands: list[Tensor] = tensors_in(arguments)
        on_gpu = any(one.is_meta for one in operands)
        on_host = [one for one in operands if not one.is_meta and one.dim() > 0]
        if not (on_gpu and on_host and _needs_one_device(func)):
            return
        from ..trace.callers import calling_frame

        frame = calling_frame(passing=())
        if frame is None or not failures.is_users(frame.f_code.co_filename, self._spec.path):
            return
        line = failures.line_of(frame, frame.f_lineno, self._spec.path)
        shape = list(on_host[0].shape)
        self.found = UserFileError(
            f"{line.where}: a tensor of the shape {shape} is on the CPU here, and what it is"
            f" computed with on the GPU: the first step would fail.{line.shown}",
            fix="make it where its input is, as in torch.arange(n, device=x.device), or, if it is a"
            " constant of the model, keep it with register_buffer().",
        )
        raise _Ended


@contextmanager
def _as_on_gpu() -> Iterator[None]:
    """Import a file as on a machine with a GPU: `.cuda()` at its top works without one."""
    from ..trace.gpu.answers import gpu_machine
    from ..trace.gpu.target import Target

    target = Target(
        casts=False, data_dependent=_refuse_values, paused=nullcontext, keep=lambda _copy: None
    )
    with gpu_machine(target), target:
        yield


def _refuse_values(operation: str) -> NoReturn:
    raise ValueError(f"{operation} needs the values of a tensor, and a trace knows only shapes")


def _has_large_constants(model: nn.Module) -> bool:
    """Return whether a tensor that is no parameter or buffer has no data in a trace.

    A large one is made without, as if it were on the device, and what it is computed with on the
    host would seem to be mixed.
    """
    import torch

    values = [one for module in model.modules() for one in vars(module).values()]
    return any(isinstance(one, torch.Tensor) and one.is_meta for one in values)


def _needs_one_device(func: Any) -> bool:
    import torch

    name = func._schema.name.removeprefix("aten::")
    if name in NEVER:
        return False
    return torch.Tag.pointwise in func.tags or name.rstrip("_") in REFUSING


if __name__ == "__main__":
    main()
