"""What a run leaves in its folder."""

from pathlib import Path


def checkpoint(folder: Path, step: int) -> Path:
    path = folder / f"step-{step:08d}"
    path.mkdir(parents=True)
    (path / "run.json").write_text("{}")
    return path
