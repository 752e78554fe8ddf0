"""Outcomes of split layouts that are kept: found bit by bit, for equal facts alone."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.types import Link
from gpuplan.planner.constants import Constants
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Machine, Question, Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.search.found import Found
from gpuplan.planner.search.search import search
from gpuplan.planner.search.search_space import space_of
from gpuplan.planner.search.splits.kept_outcomes import KeptOutcomes
from gpuplan.planner.search.splits.outcome import Outcome
from gpuplan.planner.search.splits.predictor import SplitPredictor
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

EXAMPLE = Path(__file__).parents[4] / "examples" / "decoder.py"
KEY = ("best", 1 / 3, float("inf"))
BASE = Setup(layout=Layout(), precision="bf16-amp", micro_batch=1, offload=frozenset({"optimizer"}))
OUTCOME = Outcome(
    found=(
        Found(
            layout=Layout(data=4, tensor=2, pipeline=2, zero_stage=1, shard=4),
            base=BASE,
            micro_batch=2,
            grad_accum=8,
            recompute="full",
            recompute_share=0.25,
            step_s=0.1 + 0.2,
            over_likely=1.1 / 3,
        ),
    ),
    fitting=3,
    out_of_memory=2,
    indivisible=1,
    timed=3,
)


class Shelf:
    """Bytes by key, in memory."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def get(self, key: str) -> bytes | None:
        return self.content.get(key)

    def put(self, key: str, content: bytes) -> None:
        self.content[key] = content


def outcomes(shelf: Shelf, profile: Profile, **question: object) -> KeptOutcomes:
    asked = Question(work=Work(global_batch=64), **question)  # pyright: ignore[reportArgumentType]
    cache = ModelCache(profile, kept=shelf)
    return KeptOutcomes.of(cache, space_of(asked, profile))


def outcome(found: KeptOutcomes, key: tuple[object, ...], make: Callable[[], Outcome]) -> Outcome:
    """Return the outcome of one key."""
    return found.outcomes([key], lambda missing: [make() for _ in missing])[0]


def unknown() -> Outcome:
    raise AssertionError("computed again")


def test_what_was_kept_is_found_as_it_was(toy: Profile) -> None:
    shelf = Shelf()
    first = outcomes(shelf, toy)
    assert outcome(first, KEY, lambda: OUTCOME) == OUTCOME
    assert first.flag(("legal",), lambda: False) is False
    first.values.save()
    again = outcomes(shelf, toy)
    assert outcome(again, KEY, unknown) == OUTCOME
    assert again.flag(("legal",), lambda: True) is False
    again.values.save()
    assert len(shelf.content) == 1


def test_only_what_is_not_known_is_computed_and_all_of_it_together(toy: Profile) -> None:
    found, computed = outcomes(Shelf(), toy), []

    def make(missing: list[int]) -> list[Outcome]:
        computed.append(missing)
        return [replace(OUTCOME, fitting=i) for i in missing]

    keys = [(*KEY, i) for i in range(4)]
    assert [one.fitting for one in found.outcomes(keys[1:3], make)] == [0, 1]
    assert [one.fitting for one in found.outcomes(keys, make)] == [0, 0, 1, 3]
    assert [one.fitting for one in found.outcomes(keys, make)] == [0, 0, 1, 3]
    assert computed == [[0, 1], [0, 3]]


def test_other_facts_find_nothing(toy: Profile, make_decoder: Callable[..., Profile]) -> None:
    shelf = Shelf()
    first = outcomes(shelf, toy)
    outcome(first, KEY, lambda: OUTCOME)
    first.values.save()
    other = replace(OUTCOME, fitting=0)
    cache = ModelCache(toy, kept=shelf)
    space = space_of(Question(work=Work(global_batch=64)), toy)
    slower = Constants({**dict(cache.constants.items()), "network": 2.0})
    for one in (
        outcomes(shelf, make_decoder(layers=7)),
        KeptOutcomes.of(cache, replace(space, global_batch=128)),
        KeptOutcomes.of(cache.with_constants(slower), space),
        KeptOutcomes.of(cache.with_curves(cache.curve_choice.without(["T4"])), space),
    ):
        assert outcome(one, KEY, lambda: other) == other
    assert outcome(outcomes(shelf, toy), (*KEY, 1), lambda: other) == other


def test_a_changed_curve_file_of_the_user_finds_nothing(
    toy: Profile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf, file = Shelf(), tmp_path / "curves.json"
    monkeypatch.setenv("GPUPLAN_CURVES", str(file))
    file.write_text("{}")
    first = outcomes(shelf, toy)
    outcome(first, KEY, lambda: OUTCOME)
    first.values.save()
    assert outcome(outcomes(shelf, toy), KEY, unknown) == OUTCOME
    file.write_text("{ }")
    with pytest.raises(AssertionError, match="computed again"):
        outcome(outcomes(shelf, toy), KEY, unknown)


@pytest.mark.parametrize("damage", [b"", b"nothing", b"half"])
def test_damaged_outcomes_are_computed_again(toy: Profile, damage: bytes) -> None:
    shelf = Shelf()
    first = outcomes(shelf, toy)
    outcome(first, KEY, lambda: OUTCOME)
    first.values.save()
    (name,) = shelf.content
    shelf.content[name] = shelf.content[name][:-9] if damage == b"half" else damage
    with pytest.raises(AssertionError, match="computed again"):
        outcome(outcomes(shelf, toy), KEY, unknown)


def test_sites_differ_by_device_link_and_nodes(toy: Profile) -> None:
    found = outcomes(Shelf(), toy)
    devices = load_catalogue().accelerators
    link = Link(name="fabric", bytes_per_s=50e9, rdma=True)
    one = Site(
        accelerator=devices["H100-80GB-SXM"], per_node=8, nodes=1, intra_link=link, inter_link=link
    )
    others = (
        replace(one, accelerator=devices["A100-80GB-SXM"]),
        replace(one, per_node=4),
        replace(one, link_domain=72),
        replace(one, inter_link=link.model_copy(update={"rdma": False})),
        replace(one, intra_link=link.model_copy(update={"bytes_per_s": 25e9})),
    )
    assert len({found.site(site) for site in (one, *others)}) == 6
    assert found.site(one) == found.site(replace(one))


@pytest.mark.slow
def test_a_search_asked_again_is_the_same_and_predicts_no_split_layout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dims = {"layers": 40, "hidden": 8192, "heads": 64, "kv_heads": 8, "ffn": 28672, "vocab": 4096}
    spec = parse_model_spec(str(EXAMPLE), params={**dims, "seq_len": 512, "ffn_kind": "swiglu"})
    profile = make_profile(spec, numerics=("amp16", "fp32", "pure16"), use_cache=False)
    machine = Machine(accelerators=("H100:8",), max_nodes=8)
    question = Question(machine=machine, work=Work(global_batch=64))
    catalogue, shelf = load_catalogue(), Shelf()
    first = search(question, profile, catalogue, kept=shelf)
    assert first.plans
    assert first.feasible > len(first.plans)

    def refused(*_: object) -> SplitPredictor:
        raise AssertionError("predicted again")

    monkeypatch.setattr(SplitPredictor, "of", refused)
    assert search(question, profile, catalogue, kept=shelf) == first
    longer = replace(question, work=Work(global_batch=64, tokens=10**9))
    assert search(longer, profile, catalogue, kept=shelf).plans
    with pytest.raises(AssertionError, match="predicted again"):
        search(question, profile, catalogue)
