"""Parts of a model that `build_model()` put in evaluation mode, such as frozen batch norms.

A run puts the whole model in training mode, as `model.train()` of a loop does and as the estimate
is traced: a model that `from_pretrained` gives is in evaluation mode whole, and would train without
its dropout. Parts that the file alone had put at rest are named, for they train then.
"""

from __future__ import annotations

from torch import nn

NAMED = 3


class RestingModules:
    """The parts of a model that were in evaluation mode when it was built, in one that trains."""

    def __init__(self, model: nn.Module) -> None:
        """Note them, before the run puts all in training mode."""
        parts = list(model.named_modules()) if model.training else []
        self._resting = [(name, one) for name, one in parts if not one.training]

    def words(self) -> str | None:
        """Return which of them train now, in words; None where none does."""
        names = [name for name, one in self._resting if one.training]
        if not names:
            return None
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return (
            f"{', '.join(names[:NAMED])}{more}, which build_model() put in evaluation mode"
            " (eval()), train: a run puts the whole model in training mode, as model.train() of a"
            " loop does."
            " To keep them so, override train() of the model"
        )
