"""Many Profiles at once: what `gpuplan validate` asks for.

One process per core imports torch and then forks for every model (`batch_main`); where the system
cannot fork, each Profile is made by a process of its own (`service`).
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...catalog.errors import GpuplanError, UserFileError
from ..process_group import end_group
from ..profile import Numerics, Profile
from ..user_model import failures
from ..user_model.file_text import read_source
from ..user_model.spec import ModelSpec, parse_model_spec
from . import cache
from .kept import find_kept
from .service import make_profile

MAX_WORKERS = 4
"""Each holds torch and one model's trace: about half a gigabyte."""


@dataclass(frozen=True, kw_only=True)
class ProfileRequest:
    """One model file with one set of params, and the numerics classes to trace it in."""

    path: Path
    params: Mapping[str, Any]
    numerics: frozenset[Numerics]

    @property
    def key(self) -> str:
        """Text that is equal for equal models, whatever they are traced in."""
        return f"{self.path}|{json.dumps(self.params, sort_keys=True, default=str)}"

    def spec(self) -> ModelSpec:
        """Return the model file with its params."""
        return parse_model_spec(str(self.path), params=self.params)

    def cache_key(self) -> str | None:
        """Return the name of its entry in the cache; None if the file cannot be read."""
        return cache.cache_key(self.spec(), numerics=sorted(self.numerics), optimizer=None)

    def content_key(self) -> str | None:
        """Return what is equal for equal models, wherever their file is (`cache.content_key`)."""
        return cache.content_key(self.spec(), numerics=sorted(self.numerics), optimizer=None)


Profiler = Callable[[Sequence[ProfileRequest]], Mapping[str, Profile | GpuplanError]]
"""Makes Profiles, by `ProfileRequest.key`; a failure is returned, not raised."""


def profile_all(requests: Sequence[ProfileRequest]) -> dict[str, Profile | GpuplanError]:
    """Return the Profile of every request, or the error it ended with, by key.

    Where Profiles are kept beside a model file (`kept`), they are taken and nothing is traced.
    """
    made: dict[str, Profile | GpuplanError] = {}
    others: list[ProfileRequest] = []
    for request in requests:
        profile = find_kept(request.path, request.params, request.numerics)
        if profile is None:
            others.append(request)
        else:
            made[request.key] = profile
    return made | trace_all(others)


def trace_all(requests: Sequence[ProfileRequest]) -> dict[str, Profile | GpuplanError]:
    """Return what `profile_all` does, traced or from the cache, whatever is kept elsewhere."""
    made: dict[str, Profile | GpuplanError] = {}
    todo: queue.SimpleQueue[ProfileRequest] = queue.SimpleQueue()
    for request in requests:
        found = cache.load(request.cache_key() or "")
        if found is not None and request.numerics <= set(found.numerics()):
            made[request.key] = found
        else:
            todo.put(request)
    if todo.empty():
        return made
    if hasattr(os, "fork"):
        count = min(os.cpu_count() or 1, todo.qsize(), MAX_WORKERS)
        workers = [threading.Thread(target=_work, args=(todo, made)) for _ in range(count)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for request in requests:
        if request.key not in made:
            made[request.key] = _profile_alone(request)
    return made


def _work(todo: queue.SimpleQueue[ProfileRequest], made: dict[str, Profile | GpuplanError]) -> None:
    """Make Profiles until none is left to do."""
    with _Forker() as forker:
        while True:
            try:
                request = todo.get_nowait()
            except queue.Empty:
                return
            try:
                made[request.key] = _profile_with(forker, request)
            except GpuplanError as error:
                made[request.key] = error


_PARSING = threading.Lock()


class _Forker:
    """A process that answers one request after the other; ended when the block is left."""

    def __enter__(self) -> _Forker:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", f"{__package__}.batch_main"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        end_group(self._process)
        self._process.communicate()

    def ask(self, spec: ModelSpec, numerics: Sequence[Numerics]) -> bytes:
        """Return the answer to one request; nothing if the process that made it died."""
        request = {
            "spec": spec.to_json(),
            "numerics": list(numerics),
            "optimizer": None,
            "timeout_s": spec.timeout_s,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
            length = int(self._process.stdout.readline() or b"0")
        except (BrokenPipeError, ValueError):
            return b""
        return self._process.stdout.read(length)


def _profile_with(forker: _Forker, request: ProfileRequest) -> Profile:
    # CPython 3.11's parser keeps a recursion count that two threads at once can upset.
    with _PARSING:
        read_source(request.path)
    spec = request.spec()
    content = forker.ask(spec, sorted(request.numerics))
    header, _, profile = content.partition(b"\n")
    if not content:
        raise UserFileError(
            f"{request.path.name} did not finish within {spec.timeout_s:g} seconds, or its process"
            " died",
            fix=f"run `gpuplan profile {request.path.name}` with the same params to see why.",
        )
    answer = json.loads(header)
    if "error" in answer:
        raise failures.from_json(answer["error"])
    key = request.cache_key()
    if key is not None:
        cache.store(key, profile.decode(), files=answer["files"], packages=answer["packages"])
    return Profile.model_validate_json(profile)


def _profile_alone(request: ProfileRequest) -> Profile | GpuplanError:
    try:
        return make_profile(request.spec(), numerics=sorted(request.numerics))
    except GpuplanError as error:
        return error
