"""Waits of what a job folder holds a copy of, made shorter for tests that have to last as long."""

from __future__ import annotations

import re
from pathlib import Path


def shorten(folder: Path, **seconds: float) -> None:
    """Give constants other values in the copied file, below a folder, that states each of them."""
    for name, value in seconds.items():
        line = re.compile(rf"^{name} = [\d.]+$", re.MULTILINE)
        texts = {file: file.read_text(encoding="utf-8") for file in folder.rglob("*.py")}
        (stated,) = (file for file, text in texts.items() if line.search(text))
        stated.write_text(line.sub(f"{name} = {value}", texts[stated]), encoding="utf-8")
