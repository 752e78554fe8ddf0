"""What one rank runs and sends when the model is split: closed forms on hand-written layers."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from whole_blocks import (
    ACTIVATION_BYTES,
    FFN,
    HEADS,
    HIDDEN,
    SEQ,
    attention,
    flops,
    linear,
    segment_of,
    trace_of,
)

from gpuplan.planner.hardware.collectives import Group, Groups
from gpuplan.planner.parallelism.column_row_parallel import GATHERED_RANKS, parallel_styles
from gpuplan.planner.parallelism.pipeline_chunks import chunk_sizes
from gpuplan.planner.parallelism.pipeline_stages import (
    in_flight,
    stage_counts,
    stage_of_instances,
)
from gpuplan.planner.parallelism.rank_trace import Split, split_trace
from gpuplan.planner.plan.errors import UnsupportedError
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.software.fp8_operands import gathered_bytes
from gpuplan.planner.step.expert_exchange import distinct_share
from gpuplan.profiles.profile import Affine, Kernel, Profile, StepTrace


def test_roles_follow_the_residual_stream(toy: Profile) -> None:
    styles = parallel_styles(trace_of(toy), splits_head=True)
    block = styles["layers"].style
    assert [block[f"b.{name}"] for name in ("qkv", "out", "up", "down")] == [
        "column",
        "row",
        "column",
        "row",
    ]
    assert styles[None].style == {"head": "column"}
    assert parallel_styles(trace_of(toy), splits_head=False)[None].style == {"head": "whole"}


def test_square_projections_before_attention_are_columns(toy: Profile) -> None:
    block = parallel_styles(trace_of(toy, separate=True), splits_head=False)["layers"].style
    assert [block[f"b.{name}"] for name in "qkv"] == ["column"] * 3
    assert block["b.out"] == "row"


@pytest.mark.parametrize("tensor", [2, 4, 8])
@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_flops_of_a_rank_are_the_whole_over_its_degree(
    toy: Profile, tensor: int, sequence_parallel: bool
) -> None:
    trace = trace_of(toy)
    split = Split(tensor=tensor, splits_vocabulary=True, sequence_parallel=sequence_parallel)
    assert flops(split_trace(trace, split).trace) == pytest.approx(flops(trace) / tensor)


def test_flops_under_context_parallelism_are_divided_too(toy: Profile) -> None:
    trace = trace_of(toy)
    share = split_trace(trace, Split(context=4)).trace
    assert flops(share) == pytest.approx(flops(trace) / 4)
    kernels = [k for s in share.segments for k in s.kernels if k.kind == "attention"]
    assert {k.dims["seq_q"].base for k in kernels} == {SEQ / 4}
    assert {k.dims["seq_kv"].base for k in kernels} == {SEQ}


def test_a_degree_of_one_changes_nothing(toy: Profile) -> None:
    trace = trace_of(toy)
    share = split_trace(trace, Split(splits_vocabulary=True))
    assert flops(share.trace) == flops(trace)
    assert not any(share.exchanges)


def test_the_product_of_each_pass_is_split_on_its_own_axis(toy: Profile) -> None:
    share = split_trace(trace_of(toy), Split(tensor=4))
    segment, _ = segment_of(share, "backward", "layers")
    up = [k for k in segment.kernels if k.module == "b.up"]
    down = [k for k in segment.kernels if k.module == "b.down"]
    assert [(k.dims["m"].base, k.dims["n"].base, k.dims["k"].base) for k in up] == [
        (0, HIDDEN, FFN / 4),
        (FFN / 4, HIDDEN, 0),
    ]
    assert [(k.dims["m"].base, k.dims["n"].base, k.dims["k"].base) for k in down] == [
        (0, FFN / 4, HIDDEN),
        (HIDDEN, FFN / 4, 0),
    ]


@pytest.mark.parametrize(("sequence_parallel", "share"), [(False, 1.0), (True, 1 / 4)])
def test_the_residual_stream_is_whole_but_for_sequence_parallelism(
    toy: Profile, sequence_parallel: bool, share: float
) -> None:
    split = Split(tensor=4, sequence_parallel=sequence_parallel)
    segment, _ = segment_of(split_trace(trace_of(toy), split), "forward", "layers")
    sizes = [k.dims["elements"].per_sample for k in segment.kernels if k.kind == "pointwise"]
    norm, qkv, second_norm, activation, residual = sizes
    assert [norm, second_norm, residual] == [SEQ * HIDDEN * share] * 3
    assert (qkv, activation) == (3 * SEQ * HIDDEN / 4, SEQ * FFN / 4)


@pytest.mark.parametrize("phase", ["forward", "backward"])
def test_a_block_reduces_twice_in_each_pass(toy: Profile, phase: str) -> None:
    """Shoeybi et al. 2019, figure 4: f and g around attention and around the feed-forward part."""
    split = Split(tensor=4, splits_vocabulary=True)
    share = split_trace(trace_of(toy), split)
    _, index = segment_of(share, phase, "layers")
    exchanges = share.exchanges[index]
    assert [(e.kind, e.total_bytes.per_sample) for e in exchanges] == [
        ("all_reduce", ACTIVATION_BYTES)
    ] * 2


def test_sequence_parallelism_gathers_and_scatters_instead(toy: Profile) -> None:
    share = split_trace(trace_of(toy), Split(tensor=4, sequence_parallel=True))
    _, index = segment_of(share, "forward", "layers")
    kinds = sorted(e.kind for e in share.exchanges[index])
    assert kinds == ["all_gather", "all_gather", "reduce_scatter", "reduce_scatter"]
    assert {e.total_bytes.per_sample for e in share.exchanges[index]} == {ACTIVATION_BYTES}


@pytest.mark.parametrize(("phase", "bytes_each"), [("forward", 1), ("backward", 2)])
def test_what_is_gathered_for_8_bit_products_is_smaller(
    toy: Profile, phase: str, bytes_each: int
) -> None:
    """Transformer Engine gathers two copies of a gradient in MXFP8, and one of an input."""
    gathered = gathered_bytes("megatron", "fp8", frozenset({"mxfp8"}))
    split = Split(tensor=4, sequence_parallel=True, splits_vocabulary=True, gathered=gathered)
    share = split_trace(trace_of(toy), split)
    segment, index = segment_of(share, phase, "layers")
    sizes = {kind: set[float]() for kind in ("all_gather", "reduce_scatter")}
    for one in share.exchanges[index]:
        sizes[one.kind].add(one.total_bytes.per_sample)
    assert sizes["all_gather"] == {bytes_each * SEQ * HIDDEN}
    assert sizes["reduce_scatter"] == {ACTIVATION_BYTES}
    # Inputs of columns forward, gradients of rows backward are cast on each rank's own tokens.
    marked = {k.module for k in segment.kernels if GATHERED_RANKS in k.dims}
    assert marked == ({"b.qkv", "b.up"} if phase == "forward" else {"b.out", "b.down"})
    _, root = segment_of(share, "forward", None)
    heads = [e for e in share.exchanges[root] if e.kind == "all_gather"]
    assert heads and all(e.total_bytes.per_sample == ACTIVATION_BYTES for e in heads)


def test_a_plan_of_separate_layers_reduces_for_each(toy: Profile) -> None:
    """torch's ColwiseParallel: q, k, v and up each reduce the gradient of their input."""
    split = Split.of(Layout(tensor=4), "torch-eager")
    share = split_trace(trace_of(toy, separate=True), split)
    _, index = segment_of(share, "backward", "layers")
    assert len(share.exchanges[index]) == 4


def test_what_cannot_be_split_is_refused(toy: Profile) -> None:
    with pytest.raises(UnsupportedError, match="attention heads|width"):
        split_trace(trace_of(toy), Split(tensor=3))
    with pytest.raises(UnsupportedError, match="no experts"):
        split_trace(trace_of(toy), Split(expert=2))


@pytest.mark.parametrize(
    ("layers", "chunks", "sizes"),
    [
        (24, 4, [6, 6, 6, 6]),
        (70, 12, [5, *[6] * 10, 5]),  # BLOOM: embedding and head count as layers.
        (126, 64, [1, *[2] * 62, 1]),
        (32, 5, [6, 7, 7, 6, 6]),
    ],
)
def test_layers_are_dealt_to_chunks(layers: int, chunks: int, sizes: list[int]) -> None:
    assert chunk_sizes(layers, chunks) == sizes
    assert sum(sizes) == layers


def test_more_chunks_than_layers_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="too few"):
        chunk_sizes(4, 16)


@pytest.mark.parametrize("pipeline", [1, 2, 4, 8])
def test_stages_together_run_the_whole_schedule(toy: Profile, pipeline: int) -> None:
    trace = trace_of(toy)
    stages = stage_of_instances(trace, Layout(pipeline=pipeline))
    counts = stage_counts(trace, stages, pipeline)
    whole = np.bincount(trace.schedule, minlength=len(trace.segments)).astype(float)
    optimizer = [s.phase == "optimizer" for s in trace.segments]
    whole[optimizer] = 0
    assert counts.sum(axis=0).tolist() == whole.tolist()
    head = next(i for i, s in enumerate(trace.segments) if (s.phase, s.block) == ("forward", None))
    assert counts[-1, head] == 1


def with_reruns(trace: StepTrace) -> StepTrace:
    """Return a step that runs every block again before its backward pass."""
    forward = next(s for s in trace.segments if s.phase == "forward" and s.block is not None)
    segments = (*trace.segments, forward.model_copy(update={"phase": "recompute"}))
    schedule: list[int] = []
    for index in trace.schedule:
        one = trace.segments[index]
        if one.phase == "backward" and one.block is not None:
            schedule.append(len(segments) - 1)
        schedule.append(index)
    return trace.model_copy(update={"segments": segments, "schedule": schedule})


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(("pipeline", "virtual"), [(1, 1), (2, 1), (4, 1), (8, 1), (2, 2), (2, 4)])
def test_stages_are_those_of_a_walk(toy: Profile, again: bool, pipeline: int, virtual: int) -> None:
    trace = with_reruns(trace_of(toy)) if again else trace_of(toy)
    sizes = chunk_sizes(8, pipeline * virtual)
    dealt = [chunk % pipeline for chunk, size in enumerate(sizes) for _ in range(size)]
    layer, back, expected, current = 0, 0, [], 0
    for segment in (trace.segments[i] for i in trace.schedule):
        if segment.phase == "optimizer":
            expected.append(-1)
            continue
        if segment.block is not None:
            current = dealt[layer if segment.phase == "forward" else 7 - back]
            layer += segment.phase == "forward"
            back += segment.phase == "backward"
            expected.append(current)
        elif segment.phase == "forward":
            expected.append({0: 0, 8: pipeline - 1}.get(layer, current))
        else:
            expected.append({0: pipeline - 1, 8: 0}.get(back, current))
    layout = Layout(pipeline=pipeline, virtual_stages=virtual)
    assert stage_of_instances(trace, layout).tolist() == expected


def test_micro_batches_in_flight() -> None:
    one_f_one_b = [in_flight(stage, Layout(pipeline=4), 16) for stage in range(4)]
    assert one_f_one_b == [4, 3, 2, 1]
    assert in_flight(0, Layout(pipeline=4), 2) == 2
    # Korthikanti et al. 2022, section 4.2.3: 1 + (p - 1) / (p v) times as many.
    p, v = 8, 4
    interleaved = in_flight(0, Layout(pipeline=p, virtual_stages=v), 64)
    assert interleaved == pytest.approx(p * (1 + (p - 1) / (p * v)))


def test_groups_behind_tensor_ranks_share_the_network() -> None:
    assert Group.packed(4, 8, stride=2) == Group(per_node=4, nodes=1)
    assert Group.packed(16, 8, stride=4) == Group(per_node=2, nodes=8, sharing=4)
    assert Group.packed(16, 8, stride=8) == Group(per_node=1, nodes=16, sharing=8)
    assert Group.packed(16, 8) == Group(per_node=8, nodes=2)


@pytest.mark.parametrize(
    ("shard", "replicas", "domain", "nodes"),
    [(1, 72, 72, 1), (1, 128, 72, 2), (8, 16, 72, 2), (16, 24, 256, 2), (4, 2, 8, 1)],
)
def test_replicas_beyond_a_domain_use_the_network_whether_or_not_they_fill_the_next(
    shard: int, replicas: int, domain: int, nodes: int
) -> None:
    found = Groups.of_replicas(np.array([shard]), np.array([replicas]), domain, np.array([1]))
    assert found.nodes.tolist() == [nodes]


def test_tensor_ranks_share_what_they_send(make_decoder: Callable[..., Profile]) -> None:
    """The more ranks, the less each computes; what it exchanges stays."""
    trace = trace_of(make_decoder())
    work = [flops(split_trace(trace, Split(tensor=t)).trace) for t in (1, 2, 4)]
    assert all(more > less for more, less in pairwise(work))


def grouped(kernel: Kernel, kv_heads: int) -> Kernel:
    """Return an attention kernel whose keys and values have fewer heads."""
    return kernel.model_copy(update={"dims": {**kernel.dims, "kv_heads": Affine(kv_heads)}})


def grouped_trace(profile: Profile, kv_heads: int, *, separate: bool) -> StepTrace:
    """Return the step of a decoder whose query heads share `kv_heads` of keys and values."""
    dim = HIDDEN // HEADS
    widths = {"b.k": kv_heads * dim, "b.v": kv_heads * dim, "b.qkv": (HEADS + 2 * kv_heads) * dim}
    trace = trace_of(profile, separate=separate)
    segments = []
    for segment in trace.segments:
        kernels = []
        for kernel in segment.kernels:
            if kernel.kind == "attention":
                kernels.append(grouped(kernel, kv_heads))
            elif kernel.module in widths and segment.phase == "forward":
                kernels.append(linear(kernel.module, widths[kernel.module], HIDDEN))
            else:
                kernels.append(kernel)
        segments.append(segment.model_copy(update={"kernels": tuple(kernels)}))
    return trace.model_copy(update={"segments": tuple(segments)})


@pytest.mark.parametrize(
    ("kv_heads", "tensor", "kept"),
    [(2, 2, 1), (2, 4, 1), (1, 4, 1), (1, 8, 1), (4, 8, 1), (4, 2, 2)],
)
@pytest.mark.parametrize("separate", [True, False])
def test_ranks_beyond_the_heads_of_keys_replicate_them(
    toy: Profile, kv_heads: int, tensor: int, kept: int, separate: bool
) -> None:
    trace = grouped_trace(toy, kv_heads, separate=separate)
    segment, _ = segment_of(split_trace(trace, Split(tensor=tensor)), "forward", "layers")
    dim = HIDDEN // HEADS
    width = {kernel.module: kernel.dims["n"].base for kernel in segment.kernels if kernel.linear}
    if separate:
        assert width["b.q"] == HIDDEN / tensor
        assert width["b.k"] == width["b.v"] == kept * dim
    else:
        assert width["b.qkv"] == pytest.approx((HEADS / tensor + 2 * kept) * dim)
    core = next(kernel for kernel in segment.kernels if kernel.kind == "attention")
    assert (core.dims["heads"].base, core.dims["kv_heads"].base) == (HEADS / tensor, kept)


def test_a_fused_width_that_ranks_do_not_divide_is_split_by_heads(toy: Profile) -> None:
    """PaLM 540B: 48 heads of 256 and one of keys, on 12 ranks (arXiv:2204.02311, table 1)."""
    dim, heads, tensor = 256, 48, 12
    qkv = linear("b.qkv", (heads + 2) * dim, HIDDEN)
    core = attention()
    dims = {**core.dims, "heads": Affine(heads), "kv_heads": Affine(1), "head_dim": Affine(dim)}
    out = linear("b.out", HIDDEN, heads * dim)
    trace = trace_of(toy)
    forward = next(s for s in trace.segments if s.block and s.phase == "forward")
    one = forward.model_copy(update={"kernels": (qkv, core.model_copy(update={"dims": dims}), out)})
    alone = trace.model_copy(update={"segments": (one,), "schedule": [0]})
    (segment,) = split_trace(alone, Split(tensor=tensor)).trace.segments
    assert segment.kernels[0].dims["n"].base == pytest.approx((heads / tensor + 2) * dim)
    assert segment.kernels[2].dims["k"].base == heads * dim / tensor


def experts(width: int = 256) -> Kernel:
    count = 8
    return linear("b.ffn", width, HIDDEN).model_copy(
        update={
            "dims": {
                "batch": Affine(count),
                "m": Affine(0, 2 * SEQ / count),
                "n": Affine(width),
                "k": Affine(HIDDEN),
            },
            "flops": Affine(0, 2 * 2 * SEQ * width * HIDDEN),
        }
    )


def test_experts_are_spread_and_see_the_tokens_of_all_ranks(toy: Profile) -> None:
    trace = trace_of(toy)
    forward = next(s for s in trace.segments if s.block and s.phase == "forward")
    one = forward.model_copy(update={"kernels": (linear("b.qkv", 8, HIDDEN), experts())})
    mixture = trace.model_copy(update={"segments": (one,), "schedule": [0]})
    share = split_trace(mixture, Split(expert=4))
    product = share.trace.segments[0].kernels[1]
    assert (product.dims["batch"].base, product.dims["m"].per_sample) == (2, SEQ)
    assert product.flops == experts().flops
    ((exchange,),) = share.exchanges
    assert (exchange.kind, exchange.count, exchange.copies) == ("all_to_all", 2, 2)


def test_tensor_ranks_that_split_each_expert_gather_the_tokens_of_all(toy: Profile) -> None:
    trace = trace_of(toy)
    forward = next(s for s in trace.segments if s.block and s.phase == "forward")
    one = forward.model_copy(update={"kernels": (*forward.kernels, experts(width=24))})
    mixture = trace.model_copy(update={"segments": (one,), "schedule": [0]})
    whole, split = (
        split_trace(mixture, Split(tensor=2, expert=4, splits_experts=splits))
        for splits in (False, True)
    )
    found = [share.trace.segments[0].kernels[-1] for share in (whole, split)]
    assert [product.dims["m"].per_sample for product in found] == [SEQ / 2, SEQ]
    assert [product.dims["n"].base for product in found] == [24, 12]
    assert [product.dims["k"].base for product in found] == [HIDDEN, HIDDEN]
    assert found[0].flops == found[1].flops
    sent = {one.among: one.total_bytes for one in split.exchanges[0]}
    assert sent["expert_tensor"] == sent["expert"].times(2)
    assert "expert_tensor" not in {one.among for one in whole.exchanges[0]}


@pytest.mark.parametrize(("copies", "nodes"), [(1, 4), (8, 2), (8, 1000)])
def test_a_token_crosses_once_to_each_node(copies: int, nodes: int) -> None:
    share = distinct_share(copies, nodes)
    assert share <= 1
    assert share * copies <= nodes
    if copies == 1:
        assert share == pytest.approx(1)
