"""Which micro-batch `fits` is about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.predict.fits import FUSED, FitsAnswer, fits
from gpuplan.profiles.passes.optimizers import with_optimizer
from gpuplan.profiles.profile import Profile


@pytest.mark.parametrize(
    ("asked", "own", "taken", "source"),
    [(8, 48, 8, "option"), (None, 48, 48, "file"), (None, None, 1, "default")],
)
def test_the_micro_batch_is_the_one_asked_for_else_the_files_own(
    toy: Profile, asked: int | None, own: int | None, taken: int, source: str
) -> None:
    device = load_catalogue().accelerators["A100-40GB-SXM"]
    profile = toy.model_copy(update={"default_micro_batch": own})
    answer = fits(profile, device, precision="fp32", micro_batch=asked)
    assert (answer.micro_batch, answer.micro_batch_source) == (taken, source)
    same = fits(profile, device, precision="fp32", micro_batch=taken)
    assert answer.peak_memory_bytes == same.peak_memory_bytes


def test_what_may_run_out_of_memory_is_neither_the_largest_nor_a_remedy(
    small_decoder: Profile,
) -> None:
    """181 samples were called the largest that fit, with half a chance of running out."""
    device = load_catalogue().accelerators["A100-40GB-SXM"]

    def asked(size: int) -> FitsAnswer:
        return fits(small_decoder, device, precision="bf16-amp", micro_batch=size)

    largest = asked(1).largest_micro_batch
    assert largest is not None and not asked(largest).is_doubtful and asked(largest).remedies == ()
    coin = largest
    while asked(coin).fits:
        coin += max(1, largest // 100)
    coin -= max(1, largest // 100)
    tossed = asked(coin)
    assert tossed.fits and tossed.is_doubtful and tossed.may_run_out and tossed.p_oom > 0.1
    assert tossed.largest_micro_batch == largest
    assert f"--micro-batch {largest}" in [one.text for one in tossed.remedies]


def test_the_largest_is_called_safe_only_where_it_is(
    make_rigid_decoder: Callable[..., Profile],
) -> None:
    model = make_rigid_decoder(layers=4, hidden=2048)
    device = load_catalogue().accelerators["A100-80GB-SXM"]
    roomy = fits(model, device, precision="fp32", micro_batch=1)
    assert roomy.largest_is_safe and not roomy.is_doubtful
    needed = roomy.peak_memory_bytes.value
    tight = device.model_copy(update={"memory_visible_bytes": int(1.01 * needed)})
    answer = fits(model, tight, precision="fp32", micro_batch=1)
    assert answer.is_doubtful and answer.largest_micro_batch is not None
    assert not answer.largest_is_safe


def test_an_answer_is_one_line_in_a_notebook(small_decoder: Profile) -> None:
    device = load_catalogue().accelerators["A10G"]
    answer = fits(small_decoder, device, precision="bf16-amp", micro_batch=2)
    assert repr(answer) == str(answer)
    assert repr(answer).startswith("<Fits: yes, ") and "on A10G, micro-batch 2, bf16-amp" in repr(
        answer
    )
    none = answer.model_copy(update={"fits": False, "largest_micro_batch": None})
    assert repr(none).startswith("<Fits: no, ") and "not even one sample fits" in repr(none)


def test_one_number_of_accelerators_is_proposed(small_decoder: Profile) -> None:
    """Six of them filled the screen."""
    device = load_catalogue().accelerators["A10G"]
    size = fits(small_decoder, device, precision="bf16-amp", micro_batch=1).largest_micro_batch or 0
    answer = fits(small_decoder, device, precision="bf16-amp", micro_batch=size + 1)
    assert len([one for one in answer.remedies if "--layout" in one.text]) <= 1


def test_sparse_gradients_have_neither_another_optimizer_nor_shards(
    small_decoder: Profile,
) -> None:
    """`fits` of such tables ended in an error about an optimizer that nobody had asked for."""
    profile = small_decoder.model_copy(update={"sparse_parameters": 1000})
    device = load_catalogue().accelerators["A10G"]
    answer = fits(profile, device, precision="bf16-amp", micro_batch=10**6)
    assert not answer.fits
    assert not any("--optimizer" in one.text or "fsdp" in one.text for one in answer.remedies)


def test_no_remedy_is_one_that_a_base_in_bf16_cannot_have(small_decoder: Profile) -> None:
    """Offload beside `--frozen-precision bf16` ended in an error."""
    base = small_decoder.step("amp16").model_copy(update={"numerics": "frozen16"})
    steps = (*small_decoder.steps, base)
    profile = small_decoder.model_copy(update={"steps": steps, "trainable_parameters": 1000})
    device = load_catalogue().accelerators["A10G"]
    size = 10**6
    answer = fits(profile, device, precision="bf16-amp", micro_batch=size, frozen_precision="bf16")
    assert not answer.fits or answer.is_doubtful
    assert not any("--offload" in one.text or "fsdp" in one.text for one in answer.remedies)


def test_an_optimizer_without_temporaries_is_a_remedy(
    make_rigid_decoder: Callable[..., Profile],
) -> None:
    """At the end of a step foreach Adam holds as much as all gradients beside the state."""
    model = with_optimizer(make_rigid_decoder(layers=40, hidden=2048), "adam")
    device = load_catalogue().accelerators["A100-80GB-SXM"]
    needed = fits(model, device, precision="fp32", micro_batch=1).peak_memory_bytes.value
    short = device.model_copy(update={"memory_visible_bytes": int(0.97 * needed)})
    answer = fits(model, short, precision="fp32", micro_batch=1)
    assert not answer.fits or answer.is_doubtful
    assert answer.remedies[0].text == FUSED == "fused=True in the file's optimizer"


def test_memory_that_the_allocator_can_give_back_is_not_run_out_of(small_decoder: Profile) -> None:
    """66 GiB were needed, 92 taken with room: on 80 GB "a chance of 50 %" was said, always."""
    device = load_catalogue().accelerators["A100-40GB-SXM"]

    def asked(size: int) -> FitsAnswer:
        return fits(small_decoder, device, precision="bf16-amp", micro_batch=size)

    largest = asked(1).largest_micro_batch or 0
    sizes = [largest + one * max(1, largest // 100) for one in range(1, 12)]
    short = [one for one in map(asked, sizes) if one.fits and one.memory_is_short]
    assert short, "no size fills the pool"
    for one in short:
        assert one.least_memory_bytes is not None
        peak = one.peak_memory_bytes
        assert one.least_memory_bytes <= peak.value == peak.capacity
        assert one.is_doubtful and one.p_oom <= 0.5 + 1e-6
    chances = [one.p_oom for one in short]
    assert chances == sorted(chances) and chances[0] < 0.45, "no longer a coin's"


def test_a_step_that_adds_gradients_up_may_not_fit_where_one_micro_batch_does(
    small_decoder: Profile,
) -> None:
    device = load_catalogue().accelerators["A100-80GB-SXM"]

    def asked(memory_bytes: float) -> FitsAnswer:
        smaller = device.model_copy(update={"memory_visible_bytes": memory_bytes})
        return fits(small_decoder, smaller, precision="bf16-amp", micro_batch=1)

    def said(answer: FitsAnswer) -> list[str]:
        return [note for note in answer.notes if "with gradient accumulation" in note]

    peak_bytes = asked(float(2**33)).peak_memory_bytes.value
    # The smallest device on which one micro-batch surely fits.
    low, high = 0.5 * peak_bytes, 2 * peak_bytes
    assert asked(high).fits and said(asked(high)) == []
    for _ in range(13):
        middle = (low + high) / 2
        surely = not asked(middle).is_doubtful and asked(middle).fits
        low, high = (low, middle) if surely else (middle, high)
    (note,) = said(asked(high))
    assert "runs out of memory with a chance of" in note or "is slowed by the allocator" in note
