"""Which micro-batch `fits` is about."""

from __future__ import annotations

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.predict.fits import fits
from gpuplan.profiles.profile import Profile


@pytest.mark.parametrize(
    ("asked", "own", "taken", "source"),
    [(8, 48, 8, "option"), (None, 48, 48, "file"), (None, None, 1, "default")],
)
def test_the_micro_batch_is_the_one_asked_for_else_the_files_own(
    toy: Profile, asked: int | None, own: int | None, taken: int, source: str
) -> None:
    device = load_catalogue().accelerators["A100-40GB-SXM"]
    profile = toy.model_copy(update={"default_micro_batch": own})
    answer = fits(profile, device, precision="fp32", micro_batch=asked)
    assert (answer.micro_batch, answer.micro_batch_source) == (taken, source)
    same = fits(profile, device, precision="fp32", micro_batch=taken)
    assert answer.peak_memory_bytes == same.peak_memory_bytes
