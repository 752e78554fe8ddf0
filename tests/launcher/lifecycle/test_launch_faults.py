"""Faults at the steps of commands: a part of the matrix that `make soak` plays as a whole."""

import os
from pathlib import Path

import pytest
from launch_fault_cases import COMMANDS, FAULTS, Case, cases
from launch_faults import play

from gpuplan.launcher.store import estimates

SEED = 7
DRAWN = cases(SEED, len(COMMANDS) * len(FAULTS))
"""Every fault meets every command once."""
PART = DRAWN[::3]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)  # Of a command that may write nowhere, somebody else reads it.
    return tmp_path


@pytest.mark.parametrize("case", PART, ids=str)
def test_nothing_is_left_lost_or_launched_twice(folder: Path, case: Case, require) -> None:
    require("posix", "" if hasattr(os, "fork") else "no processes are forked here")
    assert play(case, folder) == []


def test_a_case_leaves_the_patience_of_the_store_as_it_was(folder: Path, require) -> None:
    require("posix", "" if hasattr(os, "fork") else "no processes are forked here")
    before = estimates.LOCK_TIMEOUT_S
    play(PART[0], folder)
    assert before == estimates.LOCK_TIMEOUT_S


def test_a_seed_draws_the_same_cases_again() -> None:
    assert cases(SEED, 150) == cases(SEED, 150) != cases(SEED + 1, 150)
    assert {(one.command, one.fault) for one in DRAWN} == {
        (command, fault) for command in COMMANDS for fault in FAULTS
    }
