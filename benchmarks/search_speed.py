"""How many layouts a second the search predicts, beside a plain loop over the same model.

A candidate counts when both its memory and its step time were computed. The search computes them
for whole arrays; the loop asks for one setup at a time (`planned_step_s` and `memory_parts`, with
the same caches). Growth is that of a search of one 70B decoder over the whole catalogue. Seconds
are the processor's, which other work on the machine hardly changes, unless they are said to be
those on the wall. docs/benchmarks.md says what came out.

    python benchmarks/search_speed.py [--nodes 1,8,64,512] [--accelerators H100:8,…]
        [--sellers verda aws aws,gcp,azure]
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace

import numpy as np
from run import LLAMA_70B, ROOT

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.hardware.cluster import Site
from gpuplan.planner.plan.errors import UnsupportedError
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.question import Machine, Money, Question, Work
from gpuplan.planner.plan.setup import Setup
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.planner.predict.memory.peak_memory import memory_parts
from gpuplan.planner.predict.step_time import planned_step_s
from gpuplan.planner.search.machines.offers import survey
from gpuplan.planner.search.search_space import space_of
from gpuplan.planner.search.splits.outcome import Asked
from gpuplan.planner.search.splits.predictor import SplitPredictor
from gpuplan.planner.search.splits.rows import Kind
from gpuplan.planner.search.splits.steps import SplitSteps
from gpuplan.planner.search.sweep import Sweep
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

GLOBAL_BATCH = 512
LOOP_S = 5.0
"""How long the plain loop runs."""
REPEATS = 50
MOST_NODES = 512
BARS_A_SECOND = 2
HEADINGS = (
    "nodes to",
    "machines sold",
    "processor s",
    "",
    "candidates",
    "a second",
    "split, timed",
    "peak memory",
)


def main() -> None:
    """Print both speeds, and how a whole search grows with its nodes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", default="1,8,64", help="largest node counts, comma-separated")
    parser.add_argument("--accelerators", default="", help="only these, comma-separated")
    parser.add_argument(
        "--sellers", nargs="*", default=[], help="machines of these alone, on the last of --nodes"
    )
    options = parser.parse_args()
    words = (word.partition("=") for word in LLAMA_70B.split())
    params: dict[str, object] = {name: int(value) for name, _, value in words}
    spec = parse_model_spec(str(ROOT / "examples" / "decoder.py"), params=params)
    profile = make_profile(spec, numerics=("amp16", "fp32", "pure16"))
    warm_speed(profile)
    named = tuple(name for name in options.accelerators.split(",") if name)
    nodes = [int(count) for count in options.nodes.split(",")]
    machines = [Machine(max_nodes=count, accelerators=named) for count in nodes]
    for sellers in options.sellers:
        providers = tuple(sellers.split(","))
        machines.append(Machine(max_nodes=nodes[-1], accelerators=named, providers=providers))
    print(f"\n| {' | '.join(HEADINGS)} |\n|---:|---:|---:|:---|---:|---:|---:|---:|")
    for machine in machines:
        print(growth_row(profile, machine), flush=True)


def warm_speed(profile: Profile) -> None:
    """Print candidates a second of the arrays and of the loop, on 1 to 512 nodes of 8 H100."""
    cache, site = ModelCache(profile), one_node("H100:8")
    question = Question(machine=Machine(max_nodes=MOST_NODES), work=Work(global_batch=GLOBAL_BATCH))
    base = Setup(layout=Layout(), precision="bf16-amp", micro_batch=1)
    bases = [replace(base, autocast=False), base]
    space, kind = space_of(question, profile), Kind(site.per_node, site.domain)
    predictor = SplitPredictor.of(cache, space, base, [kind])
    assert predictor is not None
    rows = np.concatenate([predictor.rows.legal[kind, nodes] for nodes in space.node_counts])
    asked = [Asked(nodes, float("inf")) for nodes in space.node_counts]
    predictor.best(site, bases, asked)  # Makes the tables.
    began_s, began, timed = time.perf_counter(), time.process_time(), 0
    for _ in range(REPEATS):
        steps = SplitSteps(cache, predictor.rows, predictor.tables, site, bases, rows)
        for i, one in enumerate(bases):
            own = rows[predictor.fits.runs_under(one, several=True)[rows]]
            these, _, _ = predictor.fits.of(site, one, own, i, float("inf"))
            steps.step_s(these, np.arange(len(these.row)))
            timed += len(these.row)
    seconds, wall_s = time.process_time() - began, time.perf_counter() - began_s
    print(
        f"arrays: {timed / seconds:,.0f} candidates a second of one core,"
        f" {timed / wall_s:,.0f} on the wall ({timed // REPEATS:,} of them)"
    )
    print(f"a plain loop: {loop_speed(cache, site, predictor, rows):,.0f} candidates a second")


def loop_speed(cache: ModelCache, site: Site, predictor: SplitPredictor, rows: np.ndarray) -> float:
    """Return the candidates a second of one setup after the other, drawn at random."""
    drawn = np.random.default_rng(0).permutation(rows)
    began, predicted = time.process_time(), 0
    for row in drawn.tolist():
        layout = predictor.rows.layout(predictor.rows.rows[row])
        setup = Setup(
            layout=layout,
            precision="bf16-amp",
            micro_batch=1,
            grad_accum=max(1, GLOBAL_BATCH // layout.data),
            recompute="full",
            autocast=layout.zero_stage < 2,
        )
        placed = replace(site, nodes=layout.accelerators // site.per_node)
        try:
            planned_step_s(cache, placed, setup)
            memory_parts(cache, setup)
        except UnsupportedError:
            continue
        predicted += 1
        if time.process_time() - began > LOOP_S:
            break
    return predicted / (time.process_time() - began)


def one_node(name: str) -> Site:
    """Return one node of an accelerator that is sold with a known network."""
    market = survey(load_catalogue(), Machine(accelerators=(name,)), Money())
    choice = next(c for c in market.choices if c.instance.inter_link.bytes_per_s is not None)
    return Site(
        accelerator=choice.accelerator,
        per_node=int(choice.instance.accelerators),
        nodes=1,
        intra_link=choice.instance.intra_link,
        inter_link=choice.instance.inter_link,
        link_domain=choice.instance.link_domain_accelerators,
    )


def growth_row(profile: Profile, machine: Machine) -> str:
    """Return the row of one search with everything made anew but the traced profile."""
    question = Question(machine=machine, work=Work(global_batch=GLOBAL_BATCH))
    market = survey(load_catalogue(), machine, question.money)
    sweep = Sweep(question, ModelCache(profile), space_of(question, profile), market)
    began = time.process_time()
    list(sweep.candidates())
    seconds = time.process_time() - began
    peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
    cells = (
        f"{machine.max_nodes:,}",
        f"{len(market.choices):,}",
        f"{seconds:.1f}",
        "█" * max(1, round(BARS_A_SECOND * seconds)),
        f"{sweep.tried:,}",
        f"{sweep.tried / seconds:,.0f}",
        f"{sweep.timed:,}",
        f"{peak_mb:,.0f} MB",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
