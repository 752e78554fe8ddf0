"""What a file left on its parameters, where a layout puts other ones in their places.

FSDP and tensor parallelism make a new parameter out of each: torch keeps the values alone. Marks
that the file set (`parameter.no_decay = True`), and reads in `build_optimizer()`, go over to the
new one. A hook, or a list in which a module keeps a parameter to compute with, would still belong
to the old one and do nothing: those are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import nn

from ....catalog.errors import UserFileError

OTHER_LAYOUT = "or choose a plan of data parallelism (DDP), which leaves parameters as they are."


class Originals:
    """The parameters of a model before it is spread over processes."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._held = [
            (f"{path}.{name}".lstrip("."), module, name, parameter)
            for path, module in model.named_modules()
            for name, parameter in module._parameters.items()
            if parameter is not None
        ]

    def hand_over(self) -> None:
        """Give what is marked on parameters to those that are in their places now.

        Raises:
            UserFileError: a hook, or a list of a module, still holds one that was replaced.
        """
        replaced: dict[int, str] = {}
        for path, module, name, old in self._held:
            new = module._parameters.get(name)
            if new is None or new is old:
                continue
            replaced[id(old)] = path
            if old._backward_hooks or old._post_accumulate_grad_hooks:
                raise UserFileError(
                    f"The model has a hook on its parameter {path}, which this layout replaces.",
                    fix=f"do in forward() what the hook does, {OTHER_LAYOUT}",
                )
            for mark, value in vars(old).items():
                if mark not in vars(new):
                    setattr(new, mark, value)
        self._refuse_kept(replaced)

    def _refuse_kept(self, replaced: Mapping[int, str]) -> None:
        for path, module in self._model.named_modules() if replaced else ():
            for attribute, value in vars(module).items():
                if attribute in ("_parameters", "_buffers", "_modules"):
                    continue
                kept = next((one for one in _parameters_in(value) if id(one) in replaced), None)
                if kept is not None:
                    raise UserFileError(
                        f"{f'{path}.{attribute}'.lstrip('.')} of the model keeps the parameter"
                        f" {replaced[id(kept)]} beside its place, and this layout replaces it"
                        " there.",
                        fix="keep several parameters in a torch.nn.ParameterList or ParameterDict,"
                        f" {OTHER_LAYOUT}",
                    )


def _parameters_in(value: Any) -> Iterator[nn.Parameter]:
    """Yield the parameters that an attribute is, or holds in a list, tuple, set or dictionary."""
    inside: Iterable[Any] = [value]
    if isinstance(value, Mapping):
        inside = list(value.values())
    elif isinstance(value, list | tuple | set):
        inside = value
    yield from (one for one in inside if isinstance(one, nn.Parameter))
