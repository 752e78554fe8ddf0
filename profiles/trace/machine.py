"""The machine that a step is traced on: what it runs, records, and answers of values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NoReturn

from ...catalog.errors import UserFileError
from ..user_model import failures
from ..user_model.workload import Workload
from .assumed import CHECK_PASSES, Assumed
from .callers import calling_frame, calling_modules, is_called_by
from .gpu.answers import gpu_machine
from .gpu.target import Target
from .padding import ALL_SEEN, LIBRARY, NOT_KNOWN, OF_ALL, mask_asked_for
from .recording.recorder import Recorder
from .torch_private import without_dynamo
from .unknown_value import UnknownValue, is_condition, is_whole_number

MASK_CHECK = ("torch.nn.modules.transformer", "_detect_is_causal_mask")
"""Where torch compares a mask that it was given with a causal one, to take a faster kernel."""
DISTRIBUTION = "torch.distributions.distribution"
VALIDITY_CHECKS = ((DISTRIBUTION, "__init__"), (DISTRIBUTION, "_validate_sample"))
"""Where torch raises a ValueError for parameters or samples outside a distribution's support."""

NONZERO = "torch.nonzero"
NO_VALUES = (
    "make every shape independent of the data while gpuplan traces, for example with torch.where,"
    " a fixed capacity, or padding; where a value scales a tensor, take .detach() instead of"
    " .item(). What .item() returns may be printed and logged."
)
NO_SIZES = (
    "Or make the shape independent of the data while gpuplan traces: torch.where with three"
    " arguments, a fixed capacity, or padding."
)


class Machine:
    """The target, the recorder and the patches, to be entered together."""

    def __init__(
        self, workload: Workload, assumed: Assumed, notes: list[str], *, casts: bool
    ) -> None:
        self.workload = workload
        self.assumed = assumed
        self.notes = notes
        self.hiding_masks: Callable[[], Mapping[str, bool]] = dict
        """Gives of each mask in a batch whether it hides a token (`padding.hiding_masks`)."""
        self.recorder = Recorder("meta", self._data_dependent, self._size)
        self.target = Target(
            casts=casts,
            data_dependent=self._data_dependent,
            item=self._item,
            note=self._note,
            paused=self.recorder.paused,
            keep=self.recorder.keep,
        )

    @contextmanager
    def running(self, *, paused: bool = False) -> Iterator[Target]:
        """Enter the machine."""
        with (
            gpu_machine(self.target),
            without_dynamo(),
            self.target,
            self.recorder,
            self.recorder.paused() if paused else nullcontext(),
        ):
            yield self.target

    def _data_dependent(self, operation: str) -> float:
        """Return what stands for a value: of known code, or as stated; or raise."""
        known = self._stand_in()
        return self._needed(operation) if known is None else known

    def _needed(self, operation: str, read_at: str | None = None) -> float:
        """Return what the user states for a value that decides something, or raise.

        Args:
            operation: that needs it.
            read_at: where `.item()` read it, if it did.
        """
        frame = calling_frame(passing=())
        stated: float | None = None
        if is_condition(operation) and self.target.looks_for_zeros:
            stated = False
        elif is_condition(operation):
            stated = self.assumed.condition(frame)
            if stated is None and is_called_by(*MASK_CHECK):
                self._note("passes a mask to nn.Transformer: the trace takes it as causal")
                stated = True
            elif stated is None and any(is_called_by(*one) for one in VALIDITY_CHECKS):
                self._note(CHECK_PASSES)
                stated = True
        elif is_whole_number(operation):
            stated = self.assumed.size(frame, None)
        return self._refuse(operation, read_at=read_at) if stated is None else stated

    def _size(self, operation: str, available: int) -> int:
        """Return how many values an operation finds, as the user states it; or raise."""
        stated = self.assumed.size(calling_frame(passing=()), available)
        return self._refuse(operation, available) if stated is None else stated

    def _item(self) -> float:
        """Return what `Tensor.item()` does: an unknown value, to be printed or logged."""
        known = self._stand_in()
        if known is not None:
            return known
        frame = calling_frame(passing=())
        stated = self.assumed.size(frame, None)
        if stated is not None:
            return stated
        self._note(
            "reads a value with .item(): in a trace it is unknown (printed as nan), and the wait "
            "for the device is not in the step time"
        )
        return UnknownValue(partial(self._needed_later, frame and self.assumed.place(frame)))

    def _needed_later(self, read_at: str | None, operation: str) -> float:
        """Return what the user states for a value that `.item()` gave at another line, or raise."""
        return self._needed(operation, read_at=read_at)

    def _note(self, text: str) -> None:
        """Say what the user's line does, once."""
        line = self._line()
        note = f"{line.where if line else self.workload.name} {text}"
        if note not in self.notes:
            self.notes.append(note)

    def _stand_in(self) -> float | None:
        """Return a value that the code which reads it can go on with, if it is known code."""
        if self.recorder.phase == "optimizer":
            # An optimizer scales by what it reads (a norm, a count).
            return 1.0
        callers = calling_modules()
        if "torch.nn.init" in callers:
            # "Is any value still out of range?"
            return 0.0
        if LIBRARY in callers:
            return self._all_seen()
        return None

    def _all_seen(self) -> float:
        """Return what transformers reads of a mask: "Is nothing padded, nothing packed?"."""
        asked = mask_asked_for()
        if asked is None:
            return 1.0
        hides = self.hiding_masks().get(asked)
        if hides:
            self.target.pads = True
            return 0.0
        if asked == OF_ALL:
            said = NOT_KNOWN if hides is None else ALL_SEEN
            self.notes.extend(() if said in self.notes else (said,))
        return 1.0

    def _line(self) -> failures.UserLine | None:
        frame = calling_frame()
        return failures.line_of(frame, frame.f_lineno, self.workload.path) if frame else None

    def _refuse(
        self, operation: str, looked_at: int | None = None, read_at: str | None = None
    ) -> NoReturn:
        """Refuse an operation whose result depends on data.

        Args:
            operation: How it is called.
            looked_at: Of how many values it finds some; None where it finds none.
            read_at: Where `.item()` read the value, if it did.
        """
        line = self._line()
        # The backward pass is torch's own: no line of the file runs in it.
        where = line.where if line else f"{self.workload.name}, {self.recorder.phase} pass"
        if operation == NONZERO and line and "where" in line.source:
            operation = "torch.where with a condition alone"
        read = f" read at {read_at}," if read_at else ""
        raise UserFileError(
            f"{where}: {operation}{read} needs the values of a tensor, and a trace"
            f" knows only shapes.{line.shown if line else ''}",
            fix=self._way_to_state(operation, looked_at, read_at),
        )

    def _way_to_state(
        self, operation: str, looked_at: int | None, read_at: str | None = None
    ) -> str:
        """Return the ways out, that first with which the user states what is not known."""
        frame = calling_frame(passing=())
        place = None if frame is None else self.assumed.place(frame)
        if place is not None and is_condition(operation):
            return (
                f"{NO_VALUES} Or state how it comes out in your training with --assume-true {place}"
                f" or --assume-false {place}."
            )
        if read_at is not None and not is_whole_number(operation):
            place = read_at
        elif place is None or not (looked_at or is_whole_number(operation)):
            return NO_VALUES
        share = looked_at and self.recorder.routed_share(looked_at)
        if share:
            one = f"{share.percent} {share.reason}"
            return (
                "state how many it finds in your training: if these are the tokens of one expert,"
                f" --assume-size {place}={one} Else {_sizes_at(place)} {NO_SIZES}"
            )
        if looked_at:
            return f"state how many it finds in your training: {_sizes_at(place)} {NO_SIZES}"
        return (
            f"{NO_VALUES} Or state the number in your training: --assume-size {place}=64"
            " (or 64/sample)."
        )


def _sizes_at(place: str) -> str:
    return (
        f"--assume-size {place}=64 (or 64/sample, or 50% of the values that are looked at; in a"
        " layer of experts tokens × k ÷ experts)."
    )
