"""Held-out predictions: what somebody knows who never saw a run."""

import pytest

from gpuplan.planner.constants import Constants, known_constants
from gpuplan.planner.validation.folds import (
    PROTOCOLS,
    fold_key,
    held_out_accelerators,
    held_out_constants,
    sources_seen,
)

RUN = {"configuration": "gpt2 dp8", "source": "vtrain-single", "accelerator": "A100-80GB-SXM"}
USUAL = Constants.shipped()


def test_nothing_is_held_out_without_a_protocol():
    assert held_out_constants(None, **RUN) == USUAL
    assert held_out_accelerators(None, RUN["accelerator"]) == frozenset()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fold_has_constants_of_its_own(protocol):
    found = held_out_constants(protocol, **RUN)
    assert found != USUAL
    assert found.keys() == USUAL.keys()
    hidden = held_out_accelerators(protocol, RUN["accelerator"])
    assert hidden == ({RUN["accelerator"]} if protocol == "accelerator" else set())


def test_a_source_that_was_never_seen_is_predicted_as_usual():
    assert held_out_constants("source", **{**RUN, "source": "my cluster"}) == USUAL


def test_what_only_one_source_shows_falls_back_to_its_prior_without_it():
    """Only milabench published steps of a CDNA3 device."""
    name = "memory_step.CDNA3"
    prior = known_constants()[name].prior
    without = held_out_constants("source", **{**RUN, "source": "milabench"})
    assert without[name] == pytest.approx(prior, rel=0.01)
    assert USUAL[name] > 1.1 * prior


def test_the_sources_of_a_stack_are_counted_by_architecture():
    """Blackwell: two vendors' tables and MLPerf's; one of the tables shows nothing but GB200."""
    assert sources_seen("Blackwell", "megatron") == 3
    assert sources_seen("Blackwell", "megatron", without=["dgxc"]) == 2
    assert sources_seen("Blackwell", "megatron", without=["GB200"]) == 2
    assert sources_seen("Blackwell", "megatron", without=["GB200", "B200-180GB-SXM"]) == 0
    assert sources_seen("Rubin", "megatron") == 0


def test_held_out_constants_know_which_runs_they_were_fitted_without():
    assert held_out_constants("source", **RUN).fitted_without == {RUN["source"]}
    assert held_out_constants("accelerator", **RUN).fitted_without == {RUN["accelerator"]}
    assert held_out_constants("configuration", **RUN).fitted_without == set()
    assert held_out_constants("source", **{**RUN, "source": "mine"}).fitted_without == set()
    assert USUAL.fitted_without == set()


def test_runs_of_one_configuration_share_a_fold():
    keys = {
        fold_key("configuration", configuration="a", source=source, accelerator="T4")
        for source in ("x", "y")
    }
    assert len(keys) == 1
