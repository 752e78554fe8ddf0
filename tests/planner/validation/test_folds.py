"""Held-out predictions: other constants inside, the usual ones outside."""

import pytest

from gpuplan.planner.constants import fitted, known_constants
from gpuplan.planner.validation.folds import PROTOCOLS, fold_key, held_out
from gpuplan.profiles.curves.user_curves import is_left_out

RUN = {"configuration": "gpt2 dp8", "source": "vtrain-single", "accelerator": "A100-80GB-SXM"}


def constants() -> dict[str, float]:
    return {name: fitted(name) for name in known_constants()}


def test_nothing_is_held_out_without_a_protocol():
    usual = constants()
    with held_out(None, **RUN):
        assert constants() == usual


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_fold_has_constants_of_its_own_only_inside(protocol):
    usual = constants()
    with held_out(protocol, **RUN):
        assert constants() != usual
        assert is_left_out(RUN["accelerator"]) == (protocol == "accelerator")
    assert constants() == usual
    assert not is_left_out(RUN["accelerator"])


def test_a_source_that_was_never_seen_is_predicted_as_usual():
    usual = constants()
    with held_out("source", **{**RUN, "source": "my cluster"}):
        assert constants() == usual


def test_what_only_one_source_shows_falls_back_to_its_prior_without_it():
    """Only milabench published steps of a CDNA3 device."""
    name = "memory_step.CDNA3"
    prior = known_constants()[name].prior
    with held_out("source", **{**RUN, "source": "milabench"}):
        assert fitted(name) == pytest.approx(prior, rel=0.01)
    assert fitted(name) > 1.1 * prior


def test_runs_of_one_configuration_share_a_fold():
    keys = {
        fold_key("configuration", configuration="a", source=source, accelerator="T4")
        for source in ("x", "y")
    }
    assert len(keys) == 1
