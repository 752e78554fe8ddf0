"""The closed forms of FSDP equal torch's own `fully_shard`, call by call and byte by byte."""

import json
from math import prod
from pathlib import Path

import pytest
import torch

from gpuplan.examples import decoder
from gpuplan.planner.parallelism.fsdp import (
    Made,
    Moment,
    Sharding,
    Unit,
    buffer_bytes,
    collective_calls,
    gathered_parameters,
    units_of,
)
from gpuplan.planner.plan.layout import parse_layout
from gpuplan.profiles.profile import ParameterTensor, Profile

GOLDEN = sorted((Path(__file__).parent / "fsdp_golden").glob("*-reshard.json"))
KINDS = {
    "all_gather_into_tensor": "all_gather",
    "reduce_scatter_tensor": "reduce_scatter",
    "all_reduce": "all_reduce",
}
WIDTH = {"bfloat16": 2, "float32": 4}


def units_of_model(params: dict) -> tuple[Unit, Unit]:
    with torch.device("meta"):
        model = decoder.build_model(**params)
    block, root = [], []
    for name, parameter in model.named_parameters():
        tensor = ParameterTensor(rows=parameter.shape[0], row_elements=prod(parameter.shape[1:]))
        if name.startswith("blocks.0."):
            block.append(tensor)
        elif not name.startswith("blocks."):
            root.append(tensor)
    return unit("blocks", block, params["layers"]), unit(None, root, 1)


def unit(name: str | None, tensors: list[ParameterTensor], count: int) -> Unit:
    elements = sum(t.rows * t.row_elements for t in tensors)
    return Unit(
        name=name, count=count, parameters=elements, trainable=elements, tensors=tuple(tensors)
    )


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_every_collective_and_its_bytes(path: Path) -> None:
    golden = json.loads(path.read_text())
    calls = collective_calls(
        units_of_model(golden["params"]),
        shard=golden["shard"],
        replicas=golden["ranks"] // golden["shard"],
        gather_bytes=WIDTH[golden["param_dtype"]],
    )
    traced = [
        (c["phase"], KINDS[c["kind"]], max(c["in_bytes"], c["out_bytes"]))
        for c in golden["collectives"]
    ]
    assert [(c.phase, c.kind, c.total_bytes) for c in calls] == traced


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_largest_sharding_buffers(path: Path) -> None:
    golden = json.loads(path.read_text())
    block, root = units_of_model(golden["params"])
    params = golden["params"]
    head = params["vocab"] * params["hidden"] + params["hidden"]
    moments = [
        Moment(phase="forward", unit="blocks", previous=None, following="blocks"),
        Moment(phase="forward", unit="blocks", previous="blocks", following="blocks"),
        Moment(phase="backward", unit="blocks", previous="blocks", following="blocks"),
        Moment(phase="backward", unit=None, previous="blocks", following=None, final=True),
    ]
    sharding = Sharding(
        units={"blocks": block, None: root},
        shard=golden["shard"],
        gather_bytes=WIDTH[golden["param_dtype"]],
    )
    made = Made(root=0.0 if params["tied_embeddings"] else head / root.parameters)
    largest = max(buffer_bytes(moment, sharding, made) for moment in moments)
    assert largest == pytest.approx(golden["sharding_buffers_peak"]["bytes"], rel=1e-9)


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_sharded_state(path: Path) -> None:
    golden = json.loads(path.read_text())
    block, root = units_of_model(golden["params"])
    shard = golden["shard"]
    elements = block.count * block.padded(shard) + root.padded(shard)
    assert 4 * elements // shard == golden["persistent_bytes"]["parameters"]
    assert 4 * elements // shard == golden["persistent_bytes"]["gradients"]


def test_gathered_at_most_are_the_root_and_two_blocks(small_decoder: Profile) -> None:
    block, root = units_of(small_decoder)
    eight = gathered_parameters(small_decoder, parse_layout("fsdp8"))
    assert eight == root.padded(8) + 2 * block.padded(8) < small_decoder.parameters
    assert gathered_parameters(small_decoder, parse_layout("hsdp2x4")) is not None
    for layout in ("dp8", "dp8.zero1", "dp8.zero2", "fsdp1"):
        assert gathered_parameters(small_decoder, parse_layout(layout)) is None
