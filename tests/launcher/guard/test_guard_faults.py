"""Faults of a guard that runs: a part of the matrix that `make soak` plays as a whole."""

from pathlib import Path

import pytest
from guard_faults import GUARD_FAULTS, GuardCase, guard_cases, play_guard

SEED = 7


@pytest.mark.parametrize("case", guard_cases(SEED, len(GUARD_FAULTS)), ids=str)
def test_no_dollar_and_no_checkpoint_is_lost(tmp_path: Path, case: GuardCase) -> None:
    assert play_guard(case, tmp_path / "node") == []
