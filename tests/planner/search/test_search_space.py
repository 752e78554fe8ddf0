"""What a question leaves free, spelled out: node counts, layouts, batches, precisions, stacks."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.answer.asked import AskedBatch
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.plan.plan import Precision
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.search.search_space import (
    LARGEST_FREE_MICRO_BATCH,
    Space,
    asked_stack,
    drives,
    node_counts,
    precisions_for,
    refuse_other_devices,
    space_of,
    stack_for,
)
from gpuplan.profiles.profile import Profile

DEVICES = load_catalogue().accelerators
FIXED = Choices(layouts=(Layout(data=8),), micro_batches=(4,))
ONE_MACHINE = Machine(instances=("p4d.24xlarge",), nodes=(1,))


def asked(
    profile: Profile, choices: Choices | None = None, machine: Machine | None = None
) -> Space:
    question = Question(choices=choices or Choices(), machine=machine or Machine())
    return space_of(question, profile)


@pytest.mark.parametrize(
    ("machine", "counts"),
    [
        (Machine(max_nodes=1), (1,)),
        (Machine(max_nodes=9), (1, 2, 4, 8)),
        (Machine(max_nodes=64), (1, 2, 4, 8, 16, 32, 64)),
        (Machine(nodes=(3, 5), max_nodes=1), (3, 5)),
        (Machine(nodes=(2, 4, 2)), (2, 4)),
    ],
)
def test_node_counts_double_unless_they_are_given(
    machine: Machine, counts: tuple[int, ...]
) -> None:
    assert node_counts(machine) == counts


@pytest.mark.parametrize(
    ("layers", "batch", "counts"),
    [
        (11, 512, (1, 2, 4, 8)),
        (11, 96, (1, 2, 3, 4, 6, 8, 12)),
        (24, 512, (1, 2, 3, 4, 6, 8, 12)),
        (70, 512, (1, 2, 3, 4, 6, 8, 12)),
        (80, 512, (1, 2, 4, 5, 8, 10)),
        (24, 480, (1, 2, 3, 4, 6, 8, 12)),
    ],
)
def test_other_numbers_of_nodes_are_tried_where_batch_or_stages_divide_by_them(
    make_decoder: Callable[..., Profile], layers: int, batch: int, counts: tuple[int, ...]
) -> None:
    question = Question(work=Work(global_batch=batch), machine=Machine(max_nodes=12))
    space = space_of(question, make_decoder(layers=layers))
    assert space.node_counts == counts
    assert [n for n in counts if not space.divides_batch(n)] == [
        n for n in counts if n % 3 == 0 and batch % 3 or n % 5 == 0 and batch % 5
    ]


@given(nodes=st.sampled_from([1, 2, 4, 16]), per_node=st.sampled_from([1, 2, 8]))
def test_every_layout_takes_all_ranks_and_none_is_there_twice(nodes: int, per_node: int) -> None:
    free = Space(
        node_counts=(nodes,),
        layouts=(),
        recomputes=("none",),
        micro_batches=np.array([1]),
        grad_accums=(),
        global_batch=None,
        batch=AskedBatch(source="layout"),
        fixed=False,
    )
    layouts = free.layouts_for(nodes, per_node)
    assert {layout.accelerators for layout in layouts} == {nodes * per_node}
    assert len(set(layouts)) == len(layouts)
    assert all(layout.is_data_parallel_only for layout in layouts)


@pytest.mark.parametrize(
    ("nodes", "per_node", "forms"),
    [
        (1, 1, ["dp1"]),
        (1, 4, ["dp4", "dp4.zero1", "dp4.zero2", "fsdp4"]),
        (2, 1, ["dp2", "dp2.zero1", "dp2.zero2", "fsdp2"]),
        (2, 4, ["dp8", "dp8.zero1", "dp8.zero2", "fsdp8", "hsdp2x4"]),
    ],
)
def test_the_data_parallel_layouts(
    toy: Profile, nodes: int, per_node: int, forms: list[str]
) -> None:
    assert [str(layout) for layout in asked(toy).layouts_for(nodes, per_node)] == forms


def test_given_layouts_are_tried_where_they_have_their_ranks(toy: Profile) -> None:
    eight, two = Layout(data=8), Layout(data=1, tensor=2)
    space = asked(toy, Choices(layouts=(eight, two)))
    assert space.layouts_for(1, 8) == [eight]
    assert space.layouts_for(2, 1) == [two]
    assert space.layouts_for(1, 4) == []


def test_a_layout_is_tried_on_the_nodes_that_it_takes(toy: Profile) -> None:
    bloom = Choices(layouts=(Layout(data=8, tensor=4, pipeline=12),))
    space = asked(toy, bloom)
    assert (space.nodes_of(8), space.nodes_of(16), space.nodes_of(5)) == ((48,), (24,), ())
    assert asked(toy, bloom, Machine(max_nodes=32)).nodes_of(8) == ()
    given = asked(toy, bloom, Machine(nodes=(2, 48)))
    assert given.nodes_of(8) == (2, 48), "numbers of nodes that are given are those tried"
    assert asked(toy).nodes_of(8) == asked(toy).node_counts


def test_the_batch_of_the_rule_divides_among_the_ranks_of_a_layout(toy: Profile) -> None:
    choices = Choices(layouts=(Layout(data=3, shard=3, zero_stage=3),))
    batch = asked(toy, choices).batch
    assert batch.source == "rule" and batch.samples is not None
    assert batch.samples % 3 == 0 and "divisible by 3" in (batch.rule or "")
    bloom = Choices(layouts=(Layout(data=8, tensor=4, pipeline=12),))
    on_48 = asked(toy, bloom, Machine(nodes=(48,))).batch.samples
    assert on_48 == asked(toy).batch.samples, "nodes need not divide what their ranks share"


@given(global_batch=st.integers(1, 100_000))
def test_micro_batches_are_powers_of_two_and_the_divisors(global_batch: int) -> None:
    profile = Profile.model_construct(blocks=(), steps=(), tokens_per_sample=None)
    question = Question(work=Work(global_batch=global_batch))
    sizes = space_of(question, profile).micro_batches.tolist()
    assert sizes == sorted(set(sizes))
    assert sizes[0] >= 1 and sizes[-1] == global_batch
    assert {d for d in range(1, 1001) if global_batch % d == 0} <= set(sizes)
    assert all(global_batch % size == 0 or size & (size - 1) == 0 for size in sizes)


def test_micro_batches_without_a_global_batch_end_somewhere(toy: Profile) -> None:
    free = Choices(layouts=(Layout(data=8),), grad_accums=(1,), micro_batches=(4,))
    assert asked(toy, free).global_batch is None
    sizes = asked(toy, FIXED, ONE_MACHINE).micro_batches
    assert sizes.max() <= LARGEST_FREE_MICRO_BATCH


def test_given_micro_batches_are_sorted_and_said_once(toy: Profile) -> None:
    assert asked(toy, Choices(micro_batches=(8, 2, 8))).micro_batches.tolist() == [2, 8]


def test_one_plan_leaves_nothing_free(toy: Profile) -> None:
    fixed = asked(toy, FIXED, ONE_MACHINE)
    assert fixed.fixed
    assert (fixed.recomputes, fixed.global_batch) == (("none",), None)
    assert not asked(toy, FIXED).fixed
    assert asked(toy).recomputes == ("none", "selective", "full")


def test_without_blocks_nothing_is_recomputed(toy: Profile) -> None:
    assert asked(toy.model_copy(update={"blocks": ()})).recomputes == ("none",)


def test_the_default_batch_of_the_file_is_never_the_global_one(toy: Profile) -> None:
    own = toy.model_copy(update={"default_micro_batch": 48})
    assert asked(own).batch.source == "rule"
    assert asked(own).global_batch == asked(toy).global_batch != 48
    assert space_of(Question(work=Work(global_batch=48)), own).global_batch == 48
    assert asked(own, FIXED, ONE_MACHINE).batch.source == "layout"


@pytest.mark.parametrize(
    ("device", "own", "fixed", "found"),
    [
        ("A100-80GB-SXM", None, False, ("tf32", "bf16-amp")),
        ("V100-32GB-SXM2", None, False, ("fp32", "fp16-amp")),
        ("A100-80GB-SXM", "fp16-amp", False, ("fp16-amp",)),
        ("V100-32GB-SXM2", "bf16-amp", False, ("fp16-amp",)),
        ("V100-32GB-SXM2", "bf16", False, ()),
        ("A100-80GB-SXM", None, True, ("fp32",)),
        ("V100-32GB-SXM2", "bf16-amp", True, ()),
    ],
)
def test_precisions_that_are_tried(
    toy: Profile, device: str, own: str | None, fixed: bool, found: tuple[Precision, ...]
) -> None:
    profile = toy.model_copy(update={"file_precision": own})
    assert precisions_for(DEVICES[device], profile, Choices(), fixed=fixed) == found


def test_precisions_that_are_asked_for_are_tried_where_the_device_has_them(toy: Profile) -> None:
    choices = Choices(precisions=("fp8", "bf16-amp"))
    assert precisions_for(DEVICES["H100-80GB-SXM"], toy, choices, fixed=False) == (
        "fp8",
        "bf16-amp",
    )
    assert precisions_for(DEVICES["A100-80GB-SXM"], toy, choices, fixed=False) == ("bf16-amp",)
    assert precisions_for(DEVICES["V100-32GB-SXM2"], toy, choices, fixed=False) == ()


@pytest.mark.parametrize(
    ("device", "compiles", "choices", "stack"),
    [
        ("A100-80GB-SXM", False, Choices(), "torch-eager"),
        ("A100-80GB-SXM", True, Choices(), "torch-compile"),
        ("A100-80GB-SXM", True, Choices(compile=False), "torch-eager"),
        ("A100-80GB-SXM", False, Choices(compile=True), "torch-compile"),
        ("TPU-v5p", True, Choices(), "xla"),
        ("TPU-v5p", False, Choices(stack="megatron"), "megatron"),
    ],
)
def test_the_stack_of_a_device(
    toy: Profile, device: str, compiles: bool, choices: Choices, stack: str
) -> None:
    profile = toy.model_copy(update={"file_compiles": compiles})
    assert stack_for(DEVICES[device], profile, choices) == stack


def test_xla_drives_tpus_and_the_other_stacks_gpus() -> None:
    gpu, tpu = DEVICES["H100-80GB-SXM"], DEVICES["TPU-v5e"]
    assert drives("xla", tpu) and not drives("xla", gpu)
    for stack in ("torch-eager", "torch-compile", "megatron"):
        assert drives(stack, gpu) and not drives(stack, tpu)


def test_torch_compile_runs_on_volta_and_newer_alone(small_decoder: Profile) -> None:
    old, new, tpu = (DEVICES[one] for one in ("P100-16GB-PCIe", "V100-16GB-SXM2", "TPU-v5e"))
    assert drives("torch-compile", new) and not drives("torch-compile", old)
    assert drives("torch-eager", old) and DEVICES["MI300X"].can_compile
    with pytest.raises(UsageError, match=r"on P100-16GB-PCIe: Triton.* capability 7\.0 or newer"):
        refuse_other_devices("torch-compile", [old])
    refuse_other_devices("torch-compile", [old, new])
    compiled = Choices(compile=True)
    assert asked_stack(small_decoder, compiled, [old]) == "torch-compile"
    assert asked_stack(small_decoder, compiled, [old, tpu]) is None
    assert asked_stack(small_decoder, Choices(), [old]) is None


def test_a_stack_that_drives_none_of_the_devices_is_refused_with_those_that_do() -> None:
    gpu, tpu = DEVICES["H100-80GB-SXM"], DEVICES["TPU-v5e"]
    with pytest.raises(UsageError, match="xla does not run torch code on H100-80GB-SXM") as error:
        refuse_other_devices("xla", [gpu, gpu])
    assert "give torch-eager or torch-compile or megatron" in str(error.value)
    with pytest.raises(UsageError, match="torch-eager does not run .* TPU-v5e") as error:
        refuse_other_devices("torch-eager", [tpu])
    assert "--stack xla" in str(error.value)
    refuse_other_devices("xla", [gpu, tpu])
    refuse_other_devices("xla", [])


def test_the_batch_of_the_rule_divides_among_the_nodes(toy: Profile) -> None:
    given = Question(machine=Machine(nodes=(3,)), work=Work(global_batch=512))
    assert space_of(given, toy).global_batch == 512
    for nodes in ((3,), (5, 6), (1, 2, 4)):
        batch = space_of(Question(machine=Machine(nodes=nodes)), toy).global_batch
        assert batch is not None
        assert all(batch % count == 0 for count in nodes)
