"""From a named model to its Profile: read, check, look up, else trace in a child process.

Never imports torch: a Profile from the cache costs milliseconds, and tracing happens elsewhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pydantic import ValidationError

from ...catalog.errors import UsageError, UserFileError
from ..measured import MeasuredProfile
from ..missing_numerics import fails_in_sixteen_bit_layers, fails_under_autocast
from ..profile import NUMERICS_OF_PRECISION, Numerics, Profile
from ..user_model.file_text import read_source
from ..user_model.spec import ModelSpec
from . import cache
from .child import Child

STEP_TRACER = "in trace_workload"
"""Is in the traceback of a step that failed, and not in that of a file that could not be loaded."""


class PendingProfile:
    """A Profile that is being made while its caller does something else.

    Args:
        spec: The model.
        ready: The Profile, where it is there already.
        child: The process that makes it, otherwise.
        key: Under which the cache keeps it; None to keep it nowhere.
        numerics: The numerics classes that it is made in; None for the file's own.
        dispensable: Those among them that the Profile may lack where a step fails in them.
        optimizer: An optimizer to trace instead of the file's.
        on_output: Called with what the user's code printed (and the traceback of a failure).
        on_slow: Is told once, in words, what makes a trace long that is.
    """

    def __init__(
        self,
        spec: ModelSpec,
        *,
        ready: Profile | None = None,
        child: Child | None = None,
        key: str | None = None,
        numerics: Sequence[Numerics] | None = None,
        dispensable: Collection[Numerics] = (),
        optimizer: str | None = None,
        on_output: Callable[[str], None] | None = None,
        on_slow: Callable[[str], None] | None = None,
    ) -> None:
        self._spec = spec
        self._ready = ready
        self._child = child
        self._key = key
        self._numerics = numerics
        self._dispensable = dispensable
        self._optimizer = optimizer
        self._on_output = on_output
        self._on_slow = on_slow

    @property
    def cached(self) -> bool:
        """Whether it was there already."""
        return self._child is None

    def result(self) -> Profile:
        """Wait for and return the Profile.

        Raises:
            UserFileError: the file failed, took too long, or does not follow the contract.
            UsageError: a param that none of its functions takes.
        """
        if self._ready is not None:
            return self._ready
        if self._child is None:
            raise RuntimeError("the profile was cancelled")
        answer, profile = self._traced(self._child)
        if self._key is not None:
            cache.store(
                self._key,
                profile.model_dump_json(),
                files=answer["files"],
                packages=answer["packages"],
            )
        self._ready = profile
        return profile

    def cancel(self) -> None:
        """End the work; the process that does it is gone when this returns."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _traced(self, child: Child) -> tuple[dict[str, Any], Profile]:
        """Return what the child answered, and the Profile; made in fewer numerics if need be."""
        try:
            return self._answered(child)
        except UserFileError as error:
            if self._fails_without_autocast(child, error):
                return self._under_autocast(error)
            fewer = self._without_failed(child)
            if fewer == list(self._numerics or ()) or STEP_TRACER not in child.traceback:
                raise
            failure = error
        # Whichever of the numerics failed: a step that fails in the others too fails here again.
        self._child = Child(self._spec, numerics=fewer, optimizer=self._optimizer)
        answer, profile = self._answered(self._child)
        own = NUMERICS_OF_PRECISION.get(profile.file_precision or "")
        if own is not None and own not in fewer:
            raise failure
        is_cast = "amp16" in fewer or "amp16" not in (self._numerics or ())
        note = (fails_in_sixteen_bit_layers if is_cast else fails_under_autocast)(failure.message)
        return answer, profile.model_copy(update={"notes": (*profile.notes, note)})

    def _fails_without_autocast(self, child: Child, failure: UserFileError) -> bool:
        """Return whether the step in fp32 failed, which nobody asked for by name.

        A base that the file keeps in bf16 beside adapters in fp32 runs under the file's autocast
        alone, and a trace in fp32 leaves that out.
        """
        if STEP_TRACER not in child.traceback or "type" not in failure.message:
            return False
        if self._numerics is None:
            return not child.traced
        went_on = "amp16" in child.traced and "fp32" not in child.traced
        return went_on and "fp32" in self._dispensable

    def _under_autocast(self, failure: UserFileError) -> tuple[dict[str, Any], Profile]:
        """Return the Profile of a file that runs under its own autocast alone.

        Raises:
            UserFileError: it sets none, or fails under it too; what went wrong first.
        """
        wanted = [each for each in self._numerics or () if each == "pure16"]
        notes: list[str] = []
        while True:
            numerics = ["amp16", *wanted]
            self._child = Child(self._spec, numerics=numerics, optimizer=self._optimizer)
            try:
                answer, profile = self._answered(self._child)
                break
            except UserFileError as again:
                if not wanted or "pure16" not in self._dispensable:
                    raise failure from None
                wanted = []
                notes = [fails_in_sixteen_bit_layers(again.message)]
        if NUMERICS_OF_PRECISION.get(profile.file_precision or "") != "amp16":
            raise failure
        return answer, profile.model_copy(update={"notes": (*profile.notes, *notes)})

    def _without_failed(self, child: Child) -> list[Numerics]:
        """Return the numerics to try again, after a step of this child failed.

        They are traced in the order of their names: what came before one that was traced went well.
        """
        went_well = {"amp16"} if "fp32" in child.traced else set[str]()
        dispensable = set(self._dispensable) - went_well - {"fp32"}
        return [each for each in self._numerics or () if each not in dispensable]

    def _answered(self, child: Child) -> tuple[dict[str, Any], Profile]:
        try:
            answer = child.result(on_slow=self._on_slow)
        finally:
            self._report(child)
        return answer, Profile.model_validate_json(answer["profile"])

    def _report(self, child: Child) -> None:
        text = child.printed() + child.traceback
        if self._on_output is not None and text:
            self._on_output(text)


def make_profile(
    spec: ModelSpec,
    *,
    numerics: Sequence[Numerics] | None = None,
    optimizer: str | None = None,
    use_cache: bool = True,
    on_output: Callable[[str], None] | None = None,
    on_slow: Callable[[str], None] | None = None,
) -> Profile:
    """Return the Profile of a model, from the cache or by tracing it in a child process.

    Args:
        spec: The model, its params and its time limit.
        numerics: The numerics classes to trace; None for the file's own.
        optimizer: An optimizer to trace instead of the file's.
        use_cache: Whether to look for the Profile in the cache, and to keep it there.
        on_output: Called with what the user's code printed (and the traceback of a failure).
        on_slow: Is told once, in words, what makes a trace long that is.

    Raises:
        UserFileError: the file failed, took too long, or does not follow the contract.
        UsageError: the file cannot be read, or a param is taken by none of its functions.
    """
    return begin_profile(
        spec,
        numerics=numerics,
        optimizer=optimizer,
        use_cache=use_cache,
        on_output=on_output,
        on_slow=on_slow,
    ).result()


def begin_profile(
    spec: ModelSpec,
    *,
    numerics: Sequence[Numerics] | None = None,
    dispensable: Collection[Numerics] = (),
    optimizer: str | None = None,
    use_cache: bool = True,
    on_output: Callable[[str], None] | None = None,
    on_slow: Callable[[str], None] | None = None,
) -> PendingProfile:
    """Start to make a Profile and return at once; arguments as for `make_profile`.

    The caller must end with `result()` or `cancel()`.

    Args:
        spec: The model, its params and its time limit.
        numerics: The numerics classes to trace; None for the file's own.
        dispensable: Those among them that the Profile may lack, with a note that says why, where a
            step fails in them. The cache remembers that it did.
        optimizer: An optimizer to trace instead of the file's.
        use_cache: Whether to look for the Profile in the cache, and to keep it there.
        on_output: Called with what the user's code printed.
        on_slow: Is told once, in words, what makes a trace long that is.
    """
    if spec.kind == "profile":
        return PendingProfile(spec, ready=_written_profile(spec))
    key = cache.cache_key(spec, numerics=numerics, optimizer=optimizer) if use_cache else None
    found = cache.load(key) if key else None
    if found is not None and set(numerics or ()) - set(dispensable) <= set(found.numerics()):
        return PendingProfile(spec, ready=found)
    if spec.kind == "file":
        read_source(spec.path)
    child = Child(spec, numerics=numerics, optimizer=optimizer)
    return PendingProfile(
        spec,
        child=child,
        key=key,
        numerics=numerics,
        dispensable=dispensable,
        optimizer=optimizer,
        on_output=on_output,
        on_slow=on_slow,
    )


def _written_profile(spec: ModelSpec) -> Profile:
    """Return the Profile, measured or not, in a file that `gpuplan profile` wrote."""
    if spec.params or spec.inputs:
        raise UsageError(
            f"{spec.text} is a finished profile: --param and --input cannot change it.",
            fix="give the model file instead.",
        )
    try:
        content = spec.path.read_bytes()
        kind = MeasuredProfile if "measured" in json.loads(content) else Profile
        return kind.model_validate_json(content)
    except ValueError as error:
        text = spec.path.read_text(errors="replace")
        fix = "write one with `gpuplan profile model.py --format json --out-file profile.json`."
        if '"model_type"' in text or '"architectures"' in text:
            fix = f"write hf:{spec.text} if it is the config of a Hugging Face model."
        reason = _why_no_profile(error)
        raise UserFileError(f"{spec.text} is not a profile: {reason}.", fix=fix) from None


def _why_no_profile(error: ValueError) -> str:
    """Return what is wrong with the text of a Profile, in a few words."""
    if isinstance(error, json.JSONDecodeError | UnicodeDecodeError):
        return "it is not JSON"
    if not isinstance(error, ValidationError):
        return str(error).splitlines()[0]
    faults = error.errors(include_url=False, include_context=False)
    first = ".".join(map(str, faults[0]["loc"])) or "its content"
    more = f", and {len(faults) - 1:,} more" if len(faults) > 1 else ""
    return f"{first} is {'missing' if faults[0]['type'] == 'missing' else 'wrong'}{more}"
