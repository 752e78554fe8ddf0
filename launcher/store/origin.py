"""What an estimate was made from: the model, its files, the question. Kept with its plans."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

from ...catalog.frozen import FrozenModel
from ...planner.plan.question import Question
from ...profiles.curves.choice import USUAL_CURVES, CurveChoice
from ...profiles.user_model.file_text import local_files
from ...profiles.user_model.spec import ModelSpec

RELATIVE = re.compile(rb"^\s*from\s+\.", re.MULTILINE)


class Origin(FrozenModel):
    """Where an estimate is from; enough to ask again, and to see that nothing has changed."""

    folder: str
    """Where the command was run, absolute."""
    spec_json: str
    files_hash: str
    """Hash of the model file and of the modules beside it that it imports."""
    question: Question
    offers: str | None = None
    """The user's own machines and prices, absolute."""
    pricebook: str | None = None
    """The user's own terms, absolute."""
    curves: tuple[str, ...] = ()
    """The user's own kernel times that predictions rest on before all others, absolute."""
    without_curves_of: tuple[str, ...] = ()
    """Accelerators that were predicted as if nobody had measured them."""

    @property
    def spec(self) -> ModelSpec:
        """Return the model, with its params."""
        return ModelSpec.from_json(self.spec_json)


def origin_of(
    spec: ModelSpec,
    question: Question,
    *,
    folder: Path,
    offers: Path | None,
    pricebook: Path | None = None,
    curve_choice: CurveChoice = USUAL_CURVES,
) -> Origin:
    """Return what an estimate of a model, asked now, is made from."""
    return Origin(
        folder=str(folder),
        spec_json=spec.to_json(),
        files_hash=files_hash(spec),
        question=question,
        offers=_absolute(offers),
        pricebook=_absolute(pricebook),
        curves=tuple(str(one.expanduser().absolute()) for one in curve_choice.given),
        without_curves_of=tuple(sorted(curve_choice.left_out)),
    )


def _absolute(path: Path | None) -> str | None:
    return None if path is None else str(path.expanduser().absolute())


def files_hash(spec: ModelSpec) -> str:
    """Return the SHA-256 of a model's file and of the modules beside it that it imports.

    A file that cannot be read any more counts as changed.
    """
    paths = _files(spec.path) if spec.kind == "file" else {spec.path}
    hashes: dict[str, str | None] = {}
    for path in sorted(paths):
        try:
            hashes[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError:
            hashes[str(path)] = None
    return hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()


def _files(path: Path) -> set[Path]:
    """Return the files; of a package that imports relatively, all that lie beside the importer."""
    found = set(local_files(path))
    for file in tuple(found):
        try:
            is_relative = RELATIVE.search(file.read_bytes()) is not None
        except OSError:
            continue
        if is_relative:
            found |= set(file.parent.glob("*.py"))
    return found
