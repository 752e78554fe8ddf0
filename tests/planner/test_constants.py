"""The table of constants: complete, sourced, and replaceable for a while."""

import re
from pathlib import Path

import pytest

import gpuplan.planner
from gpuplan.planner.constants import fitted, known_constants, using


def test_every_constant_has_a_prior_with_a_source_and_a_value_not_far_from_it():
    for one in known_constants().values():
        assert one.source
        assert 0 < one.spread <= 1
        assert 0 < one.prior <= (one.most or float("inf"))
        assert 0 < one.value <= (one.most or float("inf"))
        factor = 8 if one.name.startswith("doubt.") else 4
        assert one.prior / factor < one.value < factor * one.prior, one.name


def test_other_values_hold_only_inside_the_block():
    usual = fitted("hiding_share")
    with using({"hiding_share": 0.5}):
        assert fitted("hiding_share") == 0.5
        with using({"network": 1.2}):
            assert fitted("hiding_share") == 0.5
            assert fitted("network") == 1.2
    assert fitted("hiding_share") == usual


def test_a_name_that_is_not_a_constant_is_refused():
    with pytest.raises(KeyError), using({"hiding_shore": 0.5}):
        pass


def test_every_constant_is_used_somewhere():
    folder = Path(gpuplan.planner.__file__).parent
    text = "\n".join(path.read_text() for path in folder.rglob("*.py"))
    for name in known_constants():
        family = name.split(".")[0]
        assert re.search(rf'"{family}["./]|"{family}\.', text) or f'"{family}.{{' in text, name
