"""A browser for tests of pages: Debian's Chromium, driven by playwright, with axe-core."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Not installed for `make test`, which checks types: only for `make test-report`.
    from playwright.sync_api import Browser, BrowserContext, Page  # pyright: ignore[reportMissingImports]

CHROMIUM = Path(os.environ.get("CHROMIUM", "/usr/bin/chromium"))
AXE = Path(__file__).parents[2] / ".cache" / "axe-core" / "axe.min.js"
"""Put there by scripts/install-report-tests.sh; it is not ours to keep in this repository."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
"""Of axe-core: https://github.com/dequelabs/axe-core/blob/develop/doc/API.md"""


def missing() -> str | None:
    """Return what is not installed of all that a test of a page needs; None if nothing."""
    if importlib.util.find_spec("playwright") is None:
        return "playwright"
    if not CHROMIUM.exists():
        return str(CHROMIUM)
    return None if AXE.exists() else str(AXE)


@contextmanager
def running() -> Iterator[Browser]:
    """Yield a browser that reaches no network."""
    from playwright.sync_api import sync_playwright  # pyright: ignore[reportMissingImports]

    # Root may not use Chromium's sandbox, and the pages are ours.
    options = ["--no-sandbox", "--disable-gpu", "--proxy-server=127.0.0.1:9"]
    with sync_playwright() as engine:
        browser = engine.chromium.launch(executable_path=str(CHROMIUM), args=options)
        yield browser
        browser.close()


@contextmanager
def contexts(browser: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Yield `context(size, scheme, **options)`: a window of its own for a page; all are closed."""
    opened: list[BrowserContext] = []

    def opening(size: tuple[int, int], scheme: Any, **options: Any) -> BrowserContext:
        viewport: Any = {"width": size[0], "height": size[1]}
        opened.append(browser.new_context(viewport=viewport, color_scheme=scheme, **options))
        return opened[-1]

    yield opening
    for one in opened:
        one.close()


class Seen:
    """A page as it was opened, a file or an address: what it asked for and complained about."""

    def __init__(self, page: Page, what: Path | str) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.asked: list[str] = []
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(what if isinstance(what, str) else what.as_uri())

    def open_all(self) -> None:
        """Unfold everything."""
        self.page.evaluate("document.querySelectorAll('details').forEach(d => d.open = true)")

    def violations(self) -> list[dict[str, Any]]:
        """Return what axe-core finds wrong."""
        self.page.add_script_tag(content=AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate(f"axe.run({{runOnly: {RULES!r}}})")
        return [
            {"id": one["id"], "nodes": [node["html"][:120] for node in one["nodes"][:3]]}
            for one in found["violations"]
        ]
