"""A browser, for tests of pages; they skip where none is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import browser as engine
import pytest

if TYPE_CHECKING:
    # Not installed for `make test`, which checks types: only for `make test-report`.
    from playwright.sync_api import Browser  # pyright: ignore[reportMissingImports]


@pytest.fixture(scope="module")
def chromium(require) -> Iterator[Browser]:
    require("browser", f"{engine.missing()} is not installed; make test-report installs it")
    with engine.running() as found:
        yield found
