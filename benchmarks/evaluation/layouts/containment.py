"""Which published layouts the searched space contains: one line for each that it does not.

    python -m benchmarks.evaluation.layouts.containment CONFIGURATIONS.jsonl

A line of the file is one configuration that somebody tuned: `dims` of a decoder, `accelerator`,
`devices`, `layout` (tp, pp, cp, ep, dp, vpp), `seq_len`, `micro_batch`, `global_batch`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from gpuplan.catalog.errors import UserFileError
from gpuplan.catalog.snapshot import Catalogue, load_catalogue
from gpuplan.planner.parallelism.legal_layouts import Limits, Shape, legal_shapes, limits_of
from gpuplan.profiles.tracing_process.service import make_profile
from gpuplan.profiles.user_model.spec import parse_model_spec

DECODER = Path(__file__).parents[3] / "examples" / "decoder.py"
USUAL_PER_NODE = 8
ODD_WIDTHS_HEAD = 64
"""Width of a head where hidden over heads is odd, which rotary positions exclude: gpt-oss's
(openai/gpt-oss-120b, config.json, head_dim)."""
LimitsOf = Callable[[dict[str, Any]], Limits | None]


def verdict(record: dict[str, Any], catalogue: Catalogue, limits_of_model: LimitsOf) -> str:
    """Return "contained", or why a configuration is not in the space or cannot be looked for."""
    given = {name: degree or 1 for name, degree in record["layout"].items() if name != "fsdp"}
    ranks, known = record["devices"], catalogue.accelerators
    name = record["accelerator"]
    if not isinstance(ranks, int) or (name not in known and not name.startswith("H100")):
        return "unreadable: the row is a table's head or names no accelerator"
    shape = Shape(
        tensor=given["tp"],
        sequence_parallel=given["tp"] > 1,
        context=given["cp"],
        expert=given["ep"],
        pipeline=given["pp"],
        virtual_stages=given["vpp"],
    )
    if ranks % shape.ranks or given["dp"] != ranks // shape.ranks:
        return "unreadable: its degrees do not multiply to its devices"
    limits = limits_of_model(record)
    if limits is None:
        return "unreadable: the model cannot be expressed"
    per_node, domain = nodes_of(name, catalogue)
    if shape == Shape() or shape in legal_shapes(limits, ranks, per_node, domain):
        return "contained"
    return f"missing: {shape.layout(ranks // shape.ranks)} on {ranks} {name}"


def nodes_of(accelerator: str, catalogue: Catalogue) -> tuple[int, int]:
    """Return accelerators of a node, and of a domain of the fast link."""
    found = [
        (int(one.accelerators), one.link_domain_accelerators)
        for one in catalogue.instances.values()
        if one.accelerator == accelerator and one.link_domain_accelerators
    ]
    per_node, domain = found[0] if found else (USUAL_PER_NODE, None)
    return per_node, domain or per_node


def traced_limits() -> LimitsOf:
    """Return what traces each model once."""
    known: dict[str, Limits | None] = {}

    def limits_of_model(record: dict[str, Any]) -> Limits | None:
        params = {"seq_len": record["seq_len"], **record["dims"]}
        params.setdefault("kv_heads", params["heads"])
        if params["hidden"] // params["heads"] % 2:
            params["head_dim"] = ODD_WIDTHS_HEAD  # The dims do not state it.
        key = json.dumps(params, sort_keys=True)
        if key not in known:
            known[key] = _limits(params)
        return known[key]

    return limits_of_model


def _limits(params: dict[str, Any]) -> Limits | None:
    spec = parse_model_spec(str(DECODER), params=params)
    try:
        profile = make_profile(spec, numerics=("pure16",))
    except UserFileError:
        return None
    return limits_of(profile.step("pure16"), profile.tokens_per_sample)


def main() -> None:
    """Print the share that is contained, and every other configuration."""
    lines = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    records = [json.loads(line) for line in lines]
    catalogue, limits = load_catalogue(), traced_limits()
    verdicts = [verdict(record, catalogue, limits) for record in records]
    counts = Counter(one.partition(":")[0] for one in verdicts)
    read = counts["contained"] + counts["missing"]
    print(f"{counts['contained']} of {read} published layouts are in the space", end=" ")
    print(f"({counts['contained'] / max(1, read):.1%}); {counts['unreadable']} cannot be read")
    for record, one in zip(records, verdicts, strict=True):
        if one != "contained":
            print(f"- {record['model']}: {one}")


if __name__ == "__main__":
    main()
