"""The global batch that is assumed for images, video and volumes."""

from collections.abc import Callable

import pytest

from gpuplan.planner.plan.question import Work
from gpuplan.planner.search.batch_rule import global_batch_of
from gpuplan.profiles.profile import Affine, BatchTensor, Profile


def _convolutional(profile: Profile, shape: tuple[int, ...]) -> Profile:
    """Return a profile whose samples have this shape and whose first kernel is a convolution."""
    step = profile.steps[0]
    kernel = step.segments[0].kernels[0].model_copy(update={"kind": "convolution"})
    segments = (step.segments[0].model_copy(update={"kernels": (kernel,)}), *step.segments[1:])
    return profile.model_copy(
        update={
            "tokens_per_sample": None,
            "batch_tensors": (BatchTensor(sample_shape=shape, dtype="float32"),),
            "steps": (step.model_copy(update={"segments": segments}),),
        }
    )


@pytest.mark.parametrize(
    ("shape", "samples"),
    [
        ((3, 224, 224), 256),
        ((384, 384, 3), 256),
        ((3, 800, 1088), 16),
        ((4, 128, 128, 128), 2),
        ((96, 96, 96, 1), 2),
        ((3, 16, 224, 224), 16),
        ((1, 16_000), 256),
    ],
)
def test_detection_and_volumes_have_a_smaller_batch_than_images_to_classify(
    make_decoder: Callable[..., Profile], shape: tuple[int, ...], samples: int
) -> None:
    profile = _convolutional(make_decoder(), shape)
    batch = global_batch_of(profile, Work(samples=1e9), 1e9)
    assert batch.samples == samples


LABEL = BatchTensor(sample_shape=(), dtype="int64")


@pytest.mark.parametrize(
    ("rows", "last", "labels", "from_weights", "samples"),
    [
        (Affine(0, 1), "gemm", (LABEL,), False, 1024),
        (Affine(0, 1), "gemm", (LABEL,), True, 256),  # a fine-tune is of smaller batches
        (Affine(0, 256), "gemm", (LABEL,), False, 256),  # a diffusion transformer
        (Affine(0, 1), "convolution", (LABEL,), False, 256),  # a U-Net with attention
        (Affine(0, 1), "gemm", (), False, 256),
    ],
)
def test_a_vision_transformer_that_classifies_has_a_larger_batch(
    make_decoder: Callable[..., Profile],
    rows: Affine,
    last: str,
    labels: tuple[BatchTensor, ...],
    from_weights: bool,
    samples: int,
) -> None:
    """ViT-B on ImageNet had the batch of a ResNet, whose steps 8 devices are too many for."""
    profile = _convolutional(make_decoder(), (3, 224, 224))
    step = profile.steps[0]
    convolution = step.segments[0].kernels[0]
    attention = convolution.model_copy(update={"kind": "attention"})
    head = step.segments[1].kernels[0]
    head = head.model_copy(update={"kind": last, "dims": {**head.dims, "m": rows}})
    first = step.segments[0].model_copy(update={"kernels": (convolution, attention)})
    second = step.segments[1].model_copy(update={"kernels": (head,)})
    step = step.model_copy(update={"segments": (first, second, *step.segments[2:])})
    tensors = (*profile.batch_tensors, *labels)
    profile = profile.model_copy(update={"batch_tensors": tensors, "steps": (step,)})
    work = Work(samples=1e9, from_weights=from_weights)
    assert global_batch_of(profile, work, 1e9).samples == samples


@pytest.mark.parametrize("shape", [(3, 16, 224, 224), (16, 3, 224, 224), (16, 224, 224, 3)])
def test_clips_with_a_label_each_have_the_batch_of_video_models(
    make_decoder: Callable[..., Profile], shape: tuple[int, ...]
) -> None:
    profile = _convolutional(make_decoder(), shape)
    tensors = (*profile.batch_tensors, LABEL)
    batch = global_batch_of(
        profile.model_copy(update={"batch_tensors": tensors}), Work(samples=1e9), 1e9
    )
    assert (batch.samples, batch.rule) == (64, "64 samples of videos")


def test_a_volume_of_three_channels_is_one_by_its_target(
    make_decoder: Callable[..., Profile],
) -> None:
    profile = _convolutional(make_decoder(), (3, 128, 128, 128))
    target = BatchTensor(sample_shape=(128, 128, 128), dtype="int64")
    segmented = profile.model_copy(update={"batch_tensors": (*profile.batch_tensors, target)})
    batch = global_batch_of(segmented, Work(samples=1e9), 1e9)
    assert (batch.samples, batch.rule) == (2, "2 samples of volumes")
    assert batch.rule_source is not None and "nnU-Net" in batch.rule_source
    assert global_batch_of(profile, Work(samples=1e9), 1e9).samples == 16


@pytest.mark.parametrize(
    ("shape", "rule"),
    [
        ((16_000,), "256 samples"),
        ((1, 16_000), "256 samples"),
        ((3, 64, 64), "256 samples of images"),
    ],
)
def test_sound_is_not_called_images(
    make_decoder: Callable[..., Profile], shape: tuple[int, ...], rule: str
) -> None:
    profile = _convolutional(make_decoder(), shape)
    batch = global_batch_of(profile, Work(samples=1e9), 1e9)
    assert batch.rule == rule
