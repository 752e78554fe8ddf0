"""Whether one training step fits in memory: on one accelerator, or on each of several."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from ..catalog.errors import GpuplanError, UsageError
from ..catalog.text.quantity import format_gib
from ..catalog.vocabulary import FrozenChoice, FrozenPrecision, Offloaded, Precision, Recompute
from ..planner.plan.layout import Layout
from ..planner.plan.refusals import refuse_no_tuple, refuse_other_word
from ..profiles.user_model.spec import ModelSpec
from .answers import own_precision
from .models.inputs import Inputs, read_inputs

if TYPE_CHECKING:
    from ..catalog.embedded import Catalogue
    from ..catalog.types import Accelerator
    from ..planner.predict.fits import FitsAnswer
    from ..profiles.profile import Profile


def fits(
    model: str | Path | ModelSpec | Inputs,
    on: str,
    *,
    params: Mapping[str, Any] | None = None,
    precision: Precision | None = None,
    micro_batch: int | None = None,
    recompute: Recompute = "none",
    layout: Layout | None = None,
    optimizer: str | None = None,
    offload: Collection[Offloaded] = (),
    offers: Path | None = None,
    frozen_precision: FrozenChoice | None = None,
) -> FitsAnswer:
    """Return whether a training step fits an accelerator, with what is spare or would help.

    Args:
        model: A model as for `profile`, or what `read_inputs` returned.
        on: Any known name of one accelerator, or several of it: "H100:8".
        params: Values for the functions of the file.
        precision: Default: the file's own, else fp32.
        micro_batch: Samples per device; default: that of `make_batch`, else 1.
        recompute: What is computed again in the backward pass instead of kept.
        layout: How the state is split over devices like this one; default: one device, or of
            several the first that fits: each holds all of it (DDP), each holds a share (FSDP).
        optimizer: A what-if instead of the file's own.
        offload: What is kept in host memory.
        offers: The user's own machines, whose accelerators are then known too.
        frozen_precision: How parameters that are not trained are kept; "fp32" is as `precision`
            says. Default: "bf16" under adapters on a config whose dtype is bfloat16, as people load
            it, else "fp32". Where "bf16" or "nf4" is given and no precision, that is bf16-amp, or
            fp16-amp beside "nf4" on a device without bf16 units.

    Raises:
        GpuplanError: The file, an option or the catalogue is at fault.
    """
    from ..catalog.names import resolve_accelerator

    _refuse_no_setting(precision, micro_batch, recompute, layout, offload)
    if not isinstance(model, Inputs):
        # A remedy may be 16-bit autocast, whatever was asked about.
        precisions: tuple[Precision, ...] = () if precision is None else (precision, "bf16-amp")
        model = read_inputs(model, params=params, precisions=precisions, offers=offers)
    one, count = counted(on)
    name = resolve_accelerator(one, catalogue=model.catalogue)
    accelerator = model.catalogue.accelerators.get(name)
    if accelerator is None:
        raise UsageError(
            f"{name} is sold, but no specification of it is known.",
            fix="add it to a file for --offers.",
        )
    if count and layout is not None and layout.accelerators != count:
        raise UsageError(
            f"{on} are {count} accelerators, and the layout {layout} takes {layout.accelerators}.",
            fix=f"leave --layout out, or give one of {count}, such as fsdp{count}.",
        )
    asked = partial(
        _fits,
        model,
        accelerator,
        precision=precision,
        micro_batch=micro_batch,
        recompute=recompute,
        optimizer=optimizer,
        offload=frozenset(offload),
        frozen_precision=frozen_precision,
    )
    if layout is not None or not count:
        return asked(layout=layout)
    return _first_that_fits([partial(asked, layout=one) for one in _layouts_of(count)])


def _refuse_no_setting(
    precision: object,
    micro_batch: object,
    recompute: object,
    layout: object,
    offload: Collection[object],
) -> None:
    """Raise UsageError, by the argument's name, for what is no setting of a step."""
    if precision is not None:
        refuse_other_word("precision", str(precision), get_args(Precision))
    if micro_batch is not None:
        is_whole = isinstance(micro_batch, Integral) and not isinstance(micro_batch, bool)
        if not is_whole or not micro_batch > 0:  # pyright: ignore[reportOperatorIssue]
            raise UsageError(
                f"micro_batch={micro_batch!r} is not a whole number above zero.",
                fix="give how many samples a device takes at once, such as micro_batch=8.",
            )
    refuse_other_word("recompute", str(recompute), get_args(Recompute))
    if layout is not None and not isinstance(layout, Layout):
        raise UsageError(
            f"layout={layout!r} is not a Layout.", fix=f"write gpuplan.parse_layout({layout!r})."
        )
    refuse_no_tuple("offload", offload)
    for one in offload:
        refuse_other_word("offload", str(one), get_args(Offloaded))


def counted(on: str) -> tuple[str, int | None]:
    """Return the name of an accelerator, and how many of it are meant, if that is said.

    >>> counted("H100:8"), counted("H100")
    (('H100', 8), ('H100', None))

    Raises:
        UsageError: None of it are.
    """
    name, colon, count = on.rpartition(":")
    if not colon or not count.isdecimal():
        return on, None
    if not int(count):
        raise UsageError(f"--on {on} means no accelerator.", fix=f"write {name} or {name}:8.")
    return name, int(count)


def _layouts_of(count: int) -> Iterator[Layout]:
    """Yield how so many accelerators hold the state: all of it on each, a share on each."""
    yield Layout(data=count)
    if count > 1:
        yield Layout(data=count, shard=count, zero_stage=3)


def _first_that_fits(asked: list[partial[FitsAnswer]]) -> FitsAnswer:
    """Return the first answer that is a sure yes, else the first yes, else the last answer.

    A layout that the model or the device does not allow is passed over, unless none is left.
    """
    found: list[FitsAnswer] = []
    refused: GpuplanError | None = None
    for one in asked:
        try:
            answer = one()
        except GpuplanError as error:
            refused = error
            continue
        found.append(answer)
        if answer.fits and not answer.is_doubtful:
            break
    if not found:
        assert refused is not None, "a layout is asked for"
        raise refused
    best = next((one for one in reversed(found) if one.fits), found[-1])
    if best is found[0]:
        return best
    whole = found[0]
    note = (
        f"where each accelerator holds the whole state ({whole.layout}) a step takes"
        f" {format_gib(whole.peak_memory_bytes.value)} of each; {best.layout} divides it among them"
    )
    return best.model_copy(update={"notes": (note, *best.notes)})


def _fits(
    model: Inputs,
    accelerator: Accelerator,
    *,
    precision: Precision | None,
    micro_batch: int | None,
    recompute: Recompute,
    layout: Layout | None,
    optimizer: str | None,
    offload: frozenset[Offloaded],
    frozen_precision: FrozenChoice | None,
) -> FitsAnswer:
    """Return the answer for one layout."""
    from ..planner.predict.fits import fits as answer
    from ..planner.software.frozen_base import may_keep
    from .models.config_facts import config_frozen

    frozen = None if frozen_precision in (None, "fp32") else frozen_precision
    if precision is None and frozen is not None:
        precision = _under_autocast(accelerator, frozen)
    precision = precision or own_precision(model.profile)
    usual = config_frozen(model.spec, model.profile) if frozen_precision is None else None
    notes = list(model.profile.notes)
    if usual is not None and may_keep(
        usual, precision, accelerator, layout=layout, offload=offload
    ):
        frozen = usual
        notes.append(
            f"what is not trained is kept in {usual}, as the config's dtype says and"
            " from_pretrained loads it: --frozen-precision fp32 or nf4 keeps it otherwise"
        )
    found = answer(
        model.profile,
        accelerator,
        precision=precision,
        micro_batch=micro_batch,
        recompute=recompute,
        layout=layout,
        optimizer=optimizer,
        offload=offload,
        frozen_precision=frozen,
    )
    running = _running_notes(accelerator, model.profile)
    together = _together_notes(accelerator, found.layout.accelerators, model.catalogue)
    return found.model_copy(update={"notes": (*together, *found.notes, *running, *notes)})


def _under_autocast(accelerator: Accelerator, frozen: FrozenPrecision) -> Precision:
    """Return the 16-bit autocast that runs beside a base in fewer bits: fp16 where bf16 is not had.

    Raises:
        UsageError: the base is in bf16, and the device has no units for that.
    """
    from ..planner.hardware.device import supported_precisions

    able = supported_precisions(accelerator)
    if "bf16-amp" in able or "fp16-amp" not in able:
        return "bf16-amp"
    if frozen == "bf16":
        raise UsageError(
            f"A bf16 base runs under bf16 autocast, for which {accelerator.name} has no units.",
            fix="give --frozen-precision nf4, which fp16-amp runs there, or fp32.",
        )
    return "fp16-amp"


def _together_notes(accelerator: Accelerator, count: int, catalogue: Catalogue) -> Iterator[str]:
    """Yield that no machines are sold that join so many of an accelerator, where that is so."""
    if count < 2:
        return
    sold = [one for one in catalogue.instances.values() if one.accelerator == accelerator.name]
    if any(one.accelerators >= count or one.inter_link.bytes_per_s is not None for one in sold):
        return
    here = f"this is the memory of each of {count}"
    if sold:
        most = max(one.accelerators for one in sold)
        yield (
            f"{here}: machines that are sold have {most:g} {accelerator.name} at most, and the"
            f" network between them is not known; `gpuplan estimate` takes {count} in one as yours"
        )
    elif accelerator.link_bytes_per_s is None:
        yield f"{here}: how several {accelerator.name} reach each other is not known"


def _running_notes(accelerator: Accelerator, profile: Profile) -> Iterator[str]:
    """Yield what training on a device takes besides memory, where torch as pip brings it fails."""
    from ..planner.search.answer.named_devices import why_not_trained
    from ..planner.search.machines.runs_here import torch_build_of

    build = torch_build_of(accelerator, profile)
    if not accelerator.can_train:
        yield f"nothing trains on {accelerator.name}, {why_not_trained(accelerator)}"
    elif accelerator.port_to is not None:
        yield f"{accelerator.name} runs a torch file after a port to {accelerator.port_to} only"
    elif build.why_not:
        yield f"{build.why_not[0].lower()}{build.why_not[1:]}".removesuffix(".")
    elif build.note:
        yield build.note
