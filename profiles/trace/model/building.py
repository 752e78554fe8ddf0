"""The model of a file as it is traced: on the device, in a storage dtype, with an optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from ....catalog.errors import UserFileError
from ...profile import MOSTLY_FROZEN, Numerics
from ...user_model.structure.blocks import BlockRun, find_blocks
from ...user_model.structure.frozen import cast_frozen
from ...user_model.workload import Workload
from ..machine import Machine
from ..on_device import SIXTEEN_BIT, move_to_device, on_device
from .gradient_kinds import (
    GradientKinds,
    RefusedGradientsError,
    expected_kinds,
    make_state,
    state_tensors,
)

Storage = Literal["as built", "16 bits", "frozen in 16 bits"]
"""How the parameters of a traced model are kept."""
STORAGE: dict[Numerics, Storage] = {"pure16": "16 bits", "frozen16": "frozen in 16 bits"}
"""Where it is not as the file builds them."""


@dataclass
class Built:
    """A model on the device, its optimizer after a first step, and its repeated blocks."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    blocks: tuple[BlockRun, ...]
    kinds: GradientKinds
    """Which gradients there are not, or not dense; of the layers until `is_learnt`."""
    is_learnt: bool = False
    """Whether a step showed that they are others than its layers say."""
    refusal: RefusedGradientsError | None = None
    """Why the optimizer has no state yet: it takes no gradients of the kinds that layers say."""

    def optimizer_state(self) -> Iterator[torch.Tensor]:
        """Return the tensors that the optimizer keeps on the device."""
        return state_tensors(self.optimizer)


class Models:
    """Builds the model of a file, once for each storage dtype."""

    def __init__(self, workload: Workload, machine: Machine) -> None:
        self._workload = workload
        self._machine = machine
        self._built: dict[Storage, Built] = {}
        self.compiles = False
        """Whether building one called torch.compile."""

    def built(self, numerics: Numerics) -> Built:
        """Return the model in the storage dtype of this numerics class.

        Raises:
            UserFileError: no parameter of it is trained.
        """
        storage = STORAGE.get(numerics, "as built")
        if storage not in self._built:
            self._built[storage] = self._build(storage)
        return self._built[storage]

    @property
    def is_mostly_frozen(self) -> bool:
        """Whether by far the most parameters of the model that was built first are frozen."""
        parameters = list(next(iter(self._built.values())).model.parameters())
        trained = sum(p.numel() for p in parameters if p.requires_grad)
        return trained <= MOSTLY_FROZEN * sum(p.numel() for p in parameters)

    def learn(self, built: Built, kinds: GradientKinds) -> None:
        """Give the model an optimizer whose state is that of the gradients that there are.

        Raises:
            RefusedGradientsError: the optimizer takes none of these kinds.
        """
        drop_gradients(built.model)
        if built.refusal is not None and kinds.is_same(built.kinds):
            raise built.refusal
        built.kinds, built.is_learnt = kinds, True
        with self._machine.running(paused=True):
            built.optimizer = self._optimizer(built.model, kinds)

    def _build(self, storage: Storage) -> Built:
        with self._machine.running(paused=True) as target:
            model = self._workload.build_model()
            move_to_device(model)
            if storage == "16 bits":
                model.to(SIXTEEN_BIT)
            elif storage == "frozen in 16 bits":
                cast_frozen(model, SIXTEEN_BIT)
            model.train()
            if any(nn.parameter.is_lazy(p) for p in model.parameters()):
                self._workload.compute_loss(model, on_device(self._workload.make_batch(2)))
                move_to_device(model)
            trainable = [p for p in model.parameters() if p.requires_grad]
            if not trainable:
                raise UserFileError(
                    f"{self._workload.name}: build_model() returned a model with no trainable "
                    f"parameter ({sum(p.numel() for p in model.parameters()):,} frozen ones).",
                    fix="leave requires_grad=True on the parameters that training should change.",
                )
            kinds = expected_kinds(model)
            refusal: RefusedGradientsError | None = None
            try:
                optimizer = self._optimizer(model, kinds)
            except RefusedGradientsError as error:
                # A model may look rows up without a layer that says so: F.embedding(sparse=True).
                # The first step shows which gradients there are; the optimizer takes none before.
                refusal = error
                drop_gradients(model)
                optimizer = self._workload.build_optimizer(model.parameters())
        self.compiles |= target.compiles
        return Built(model, optimizer, find_blocks(model), kinds, refusal=refusal)

    def _optimizer(self, model: nn.Module, kinds: GradientKinds) -> torch.optim.Optimizer:
        """Return the optimizer of a model with its state, on a machine that runs and is paused."""
        optimizer = self._workload.build_optimizer(model.parameters())
        self._machine.recorder.start("optimizer")
        try:
            make_state(optimizer, kinds, name=self._workload.name)
        finally:
            self._machine.recorder.start("forward")
        return optimizer


def drop_gradients(model: nn.Module) -> None:
    """Leave no parameter a gradient."""
    for parameter in model.parameters():
        parameter.grad = None
