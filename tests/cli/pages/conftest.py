"""Pages of a running `gpuplan ui`, opened in a browser."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import browser as engine
import pytest
from served_pages import DESK, Opener, Served, serving

if TYPE_CHECKING:
    # Not installed for `make test`, which checks types: only for `make test-report`.
    from playwright.sync_api import Browser  # pyright: ignore[reportMissingImports]


@pytest.fixture(scope="module")
def served(chromium: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("home")) as found:
        yield found


@pytest.fixture
def opened(chromium: Browser, served: Served) -> Iterator[Opener]:
    """Yield `opened(name, size, scheme)`: a page as a reader has it, who has the token."""

    def opening(
        name: str,
        size: tuple[int, int] = DESK,
        scheme: Any = "light",
        *,
        of: Served = served,
        has_clock: bool = False,
        **options: Any,
    ) -> engine.Seen:
        page = context(size, scheme, **options).new_page()
        page.goto(of.address)
        if has_clock:
            page.clock.install()
        return engine.Seen(page, of.url(name))

    with engine.contexts(chromium) as context:
        yield opening
