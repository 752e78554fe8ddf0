"""What the plateaus of stages share, and that sharing changes none of their bytes."""

from dataclasses import fields, replace

import numpy as np

from gpuplan.planner.memory.stages.plateaus import Sizes, sizes_of, stage_shape
from gpuplan.planner.memory.stages.stream import Streams, streams_of
from gpuplan.planner.parallelism.pipeline_stages import stage_of_instances
from gpuplan.planner.parallelism.rank_trace import Split, split_trace
from gpuplan.planner.plan.layout import Layout
from gpuplan.planner.predict.kept.model_cache import ModelCache
from gpuplan.profiles.profile import Profile

SIZES = np.array([1.0, 2.0, 8.0, 32.0])


def streams_and_stage(profile: Profile, *, tensor: int = 1) -> tuple[Streams, np.ndarray]:
    """Return the storages of a rank's share, and the instances of its first of two stages."""
    trace = ModelCache(profile).steps.trace_in("amp16", "none")
    share = split_trace(trace, Split(tensor=tensor, sequence_parallel=tensor > 1))
    return streams_of(share, 1), stage_of_instances(share.trace, Layout(pipeline=2)) == 0


def one_by_one(sizes: Sizes) -> Sizes:
    """Return the same sizes with a column for each micro-batch."""
    columns = np.ascontiguousarray(sizes.values(sizes.columns).T)
    return replace(sizes, columns=columns, is_linear=False)


def test_two_columns_give_every_byte_that_a_column_for_each_size_does(
    small_decoder: Profile,
) -> None:
    streams, own = streams_and_stage(small_decoder)
    sizes = sizes_of(streams, SIZES)
    assert sizes.is_linear
    two, each = (stage_shape(streams, own, one) for one in (sizes, one_by_one(sizes)))
    assert np.array_equal(two.saved_bytes, each.saved_bytes)
    for name in (one.name for one in fields(two.envelope) if one.name.endswith("_bytes")):
        found, wanted = getattr(two.envelope, name), getattr(each.envelope, name)
        assert np.array_equal(found, wanted), name


def test_sizes_that_rounding_bends_have_a_column_each(small_decoder: Profile) -> None:
    streams, _ = streams_and_stage(small_decoder)
    growth = streams.growth.copy()
    growth[1, 0] += 100.0
    bent = sizes_of(replace(streams, growth=growth), SIZES)
    assert not bent.is_linear
    exact = growth[0, 0] + growth[1, 0] * SIZES
    assert np.array_equal(bent.values(bent.columns)[0], np.ceil(exact / 512) * 512)


def test_tensor_degrees_share_when_storages_live_and_not_how_large_they_are(
    small_decoder: Profile,
) -> None:
    two, own = streams_and_stage(small_decoder, tensor=2)
    four, _ = streams_and_stage(small_decoder, tensor=4)
    one, _ = streams_and_stage(small_decoder)
    assert two.storages is four.storages
    assert one.storages != two.storages, "what is gathered is a storage more"
    shapes = [stage_shape(each, own, sizes_of(each, SIZES)) for each in (two, four)]
    halves = [shape.envelope.activation_bytes.max() for shape in shapes]
    assert halves[1] < halves[0]
