"""The child process: loads and traces one user's file, answers, and ends at once.

Run as `python -m gpuplan.profiles.tracing_process.child_main`; `child.Child` starts it.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.metadata
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NoReturn

from ..profile import NUMERICS_OF_PRECISION, Numerics, Profile
from ..user_model import failures
from ..user_model.spec import ModelSpec

if TYPE_CHECKING:
    from ..trace.busy_loops import BusyLoop
    from ..trace.gpu.target import Target
    from ..trace.trace import AtWork, StepsDone
    from ..user_model.assumptions import Assumption
    from ..user_model.workload import Workload

PROGRESS = b"progress "
"""Begins a line that comes before the answer and says, in JSON, how far this process is."""
_IS_POSIX = os.name == "posix"
LARGEST_WATCHED_FILE_BYTES = 4 * 2**20
MAX_WATCHED_FILES = 500
"""A file that reads more than these reads its data set, on which no trace depends."""
WATCHED_PACKAGES = (
    "accelerate",
    "diffusers",
    "einops",
    "lightning",
    "peft",
    "pytorch_lightning",
    "timm",
    "torchvision",
    "transformers",
    "xformers",
)
"""Packages that define models: a Profile is remade when the version of one that it used changes."""


def main() -> None:
    """Answer one request, then end with everything that the user's code started."""
    serve(_answer_with_progress)


def _answer_with_progress(request: dict[str, Any], stream: IO[bytes]) -> bytes:
    """Return the answer to one request, and write before how far it is.

    A line for each step that was recorded, and some within a step of many operations.
    """

    def tell(news: dict[str, Any]) -> None:
        stream.write(PROGRESS + json.dumps(news).encode() + b"\n")
        stream.flush()

    def on_step(numerics: str, operations: int) -> None:
        tell({"numerics": numerics, "operations": operations})

    def at_work(operations: int, loop: BusyLoop | None) -> None:
        tell({"so_far": operations, "loop": None if loop is None else [loop.place, loop.share]})

    return answer(request, on_step, at_work)


def serve(respond: Callable[[dict[str, Any], IO[bytes]], bytes]) -> None:
    """Answer one request and end.

    Args:
        respond: Returns the answer to a request; may write lines of progress to the stream before.
    """
    request_stream, answer_stream = take_over_standard_streams()
    request = json.loads(request_stream.readline())
    threading.Thread(target=_end_with_parent, args=(request_stream,), daemon=True).start()
    answer_stream.write(respond(request, answer_stream))
    answer_stream.close()
    _end()


def run(
    spec: ModelSpec,
    numerics: Sequence[Numerics] | None,
    optimizer: str | None,
    on_step: StepsDone | None = None,
    at_work: AtWork | None = None,
) -> tuple[dict[str, Any], str]:
    """Return what the Profile was made of (files, package versions), and the Profile as JSON."""
    opened = _watch_opened_files(spec.path)
    # Of what torch is made nothing is ever garbage, and to look for some takes 0.2 s.
    gc.disable()
    from ..trace.gpu.packages import with_stand_ins
    from ..trace.gpu.target import Target
    from ..user_model.contract import load_workload

    gc.freeze()
    gc.enable()

    target = Target(
        casts=False, data_dependent=_refuse_values, paused=nullcontext, keep=lambda _copy: None
    )

    def traced() -> Profile:
        workload = load_workload(spec, importing=lambda: _as_on_gpu(target))
        return _trace(workload, numerics, optimizer, spec.assumptions, on_step, at_work)

    notes: list[str] = []
    profile = with_stand_ins(traced, notes)
    if notes:
        profile = profile.model_copy(update={"notes": (*profile.notes, *notes)})
    if target.compiles:
        profile = profile.model_copy(update={"file_compiles": True})
    files = _hashes(spec.path, opened)
    source_hash = hashlib.sha256(json.dumps(sorted(files.values())).encode()).hexdigest()
    profile = profile.model_copy(update={"source_hash": source_hash})
    return {"files": files, "packages": _package_versions()}, profile.model_dump_json()


def answer(
    request: dict[str, Any],
    on_step: StepsDone | None = None,
    at_work: AtWork | None = None,
) -> bytes:
    """Return the answer to one request: a line of JSON, then the Profile if it was made."""
    spec = ModelSpec.from_json(request["spec"])
    try:
        header, profile = run(spec, request["numerics"], request["optimizer"], on_step, at_work)
    except BaseException as error:
        described = failures.describe_failure(error, spec.path, spec.params)
        header = {"error": failures.to_json(described), "traceback": traceback.format_exc()}
        profile = ""
    return json.dumps(header).encode() + b"\n" + profile.encode()


@contextmanager
def _as_on_gpu(target: Target) -> Iterator[None]:
    """Import a file as on a machine with a GPU: `.cuda()` at its top works without one."""
    from ..trace.gpu.answers import gpu_machine

    with gpu_machine(target), target:
        yield


def _refuse_values(operation: str) -> NoReturn:
    raise ValueError(f"{operation} needs the values of a tensor, and a trace knows only shapes")


def _trace(
    workload: Workload,
    numerics: Sequence[Numerics] | None,
    optimizer: str | None,
    assumptions: Sequence[Assumption],
    on_step: StepsDone | None,
    at_work: AtWork | None,
) -> Profile:
    """Return the Profile in the numerics asked for, or those of the file's own precision."""
    from ..trace.trace import trace_workload

    def trace(numerics: Sequence[Numerics]) -> Profile:
        return trace_workload(
            workload,
            numerics=numerics,
            optimizer=optimizer,
            assumptions=assumptions,
            on_step=on_step,
            at_work=at_work,
        )

    if numerics is not None:
        return trace(numerics)
    profile = trace(["fp32"])
    own = NUMERICS_OF_PRECISION[profile.file_precision or "fp32"]
    if own == "fp32":
        return profile
    # Only a trace tells which precision the file sets.
    return trace([own])


def take_over_standard_streams() -> tuple[IO[bytes], IO[bytes]]:
    """Return private copies of standard input and output; the user's code gets neither.

    What it prints goes to standard error, and reading its input finds the end of the file.
    """
    request_stream = os.fdopen(os.dup(0), "rb")
    answer_stream = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    return request_stream, answer_stream


def _end_with_parent(request_stream: IO[bytes]) -> None:
    request_stream.read()
    _end()


def _end() -> None:
    """End this process and its group without running what the user's code left for the exit."""
    if _IS_POSIX:
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _watch_opened_files(path: Path) -> set[str]:
    """Return a set that fills with the files the user's code reads (configs, word lists, …)."""
    opened: set[str] = set()

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event != "open" or not isinstance(arguments[0], str | os.PathLike):
            return
        mode = arguments[1] or "r"
        if not any(letter in mode for letter in "wxa+"):
            opened.add(os.path.abspath(arguments[0]))

    sys.addaudithook(watch)
    opened.add(str(path))
    return opened


def _hashes(path: Path, opened: set[str]) -> dict[str, str]:
    """Return the SHA-256 of every file of the user's own that the model was made from."""
    modules = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    names = {os.path.abspath(one) for one in modules if one} | {str(path)}
    read = {name for name in opened if failures.is_users(name, path)}
    names |= read if len(read) <= MAX_WATCHED_FILES else set()
    hashes: dict[str, str] = {}
    for name in sorted(names):
        file = Path(name)
        if "__pycache__" in file.parts or not failures.is_users(name, path):
            continue
        if file.is_file() and file.stat().st_size <= LARGEST_WATCHED_FILE_BYTES:
            hashes[name] = hashlib.sha256(file.read_bytes()).hexdigest()
    return hashes


def _package_versions() -> dict[str, str]:
    versions: dict[str, str] = {}
    for name in WATCHED_PACKAGES:
        if name in sys.modules:
            try:
                versions[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                continue
    return versions


if __name__ == "__main__":
    main()
