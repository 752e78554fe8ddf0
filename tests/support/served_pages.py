"""A running `gpuplan ui` whose store has something of everything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import browser as engine
import kept_pages
import pytest

DESK, PHONE = (1280, 900), (360, 740)
"""Width and height of a screen, in pixels."""
Opener = Callable[..., engine.Seen]


@dataclass(frozen=True)
class Served:
    """A running `gpuplan ui`."""

    address: str
    """With the token."""
    pages: dict[str, str]
    home: Path
    process: subprocess.Popen[str]

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0]

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    def url(self, name: str) -> str:
        return self.base + self.pages[name]


@contextmanager
def serving(home: Path) -> Iterator[Served]:
    """Yield `gpuplan ui` on a store that has something of everything."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUPLAN_HOME", str(home))
        pages = kept_pages.fill(datetime.now(UTC))
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuplan", "ui"],
        env={**os.environ, "GPUPLAN_HOME": str(home)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield Served(process.stdout.readline().strip(), pages, home, process)
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)
