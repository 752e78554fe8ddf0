"""The global batch: given ones are kept, others follow the rule for their kind of model."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuplan.catalog.errors import UsageError
from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.planner.plan.question import Choices, Machine, Question, Work
from gpuplan.planner.search.batch_rule import (
    FEWEST_STEPS,
    NEAR,
    contrastive_notes,
    global_batch_of,
)
from gpuplan.planner.search.search import search
from gpuplan.profiles.profile import Affine, BatchTensor, Profile


def language(toy: Profile, parameters: float, **changes: object) -> Profile:
    facts = {"parameters": int(parameters), "trainable_parameters": int(parameters)}
    return toy.model_copy(update={**facts, "tokens_per_sample": 2048.0, **changes})


@pytest.mark.parametrize(
    ("parameters", "samples", "tokens"),
    [
        (124e6, 256, "0.5M"),
        (1.3e9, 512, "1M"),
        (8e9, 1024, "2M"),
        (70e9, 2048, "4M"),
    ],
)
def test_a_language_model_has_the_batch_of_published_runs_of_its_size(
    toy: Profile, parameters: float, samples: int, tokens: str
) -> None:
    batch = global_batch_of(language(toy, parameters), Work(tokens=1e13), None)
    assert (batch.samples, batch.source) == (samples, "rule")
    assert batch.rule is not None and batch.rule.startswith(f"{tokens} tokens at ")
    assert batch.rule_source is not None and "arXiv" in batch.rule_source
    assert batch.tokens == samples * 2048


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (1.0, "1 tokens is no whole number of samples: it is 1 of 2,048 tokens each"),
        (3000.0, "3,000 tokens is no whole number of samples: it is 1 of 2,048 tokens each"),
        (0.5e6, None),
    ],
)
def test_a_batch_of_other_tokens_than_were_asked_for_is_told(
    toy: Profile, asked: float, told: str | None
) -> None:
    """One token became 2,048 without a word."""
    work = Work(tokens=1e9, global_batch_tokens=asked)
    machine = Machine(accelerators=("A100-40GB-SXM",), providers=("aws",))
    profile = language(toy, 1e6)
    question = Question(work=work, machine=machine, choices=Choices(recomputes=("none",)))
    outcome = search(question, profile, load_catalogue())
    notes = [note for note in outcome.notes if "no whole number of samples" in note]
    assert notes == ([] if told is None else [f"a global batch of {told}"])


@pytest.mark.parametrize(
    ("kinds", "rule"),
    [(["convolution"], "256 samples of images"), (["convolution", "rnn"], "256 samples")],
)
def test_convolutions_before_an_rnn_are_no_images(
    make_decoder: Callable[..., Profile], kinds: list[str], rule: str
) -> None:
    """Models of speech begin with convolutions, and say nothing of tokens."""
    profile = make_decoder().model_copy(update={"tokens_per_sample": None})
    step = profile.steps[0]
    segment = step.segments[0]
    kernels = [segment.kernels[0].model_copy(update={"kind": kind}) for kind in kinds]
    changed = segment.model_copy(update={"kernels": (*kernels, *segment.kernels)})
    steps = (step.model_copy(update={"segments": (changed, *step.segments[1:])}),)
    batch = global_batch_of(profile.model_copy(update={"steps": steps}), Work(samples=1e9), 1e9)
    assert batch.rule == rule


@pytest.mark.parametrize("tokens", [None, 77.0])
@pytest.mark.parametrize(
    ("phase", "rows", "batch", "compares"),
    [
        ("forward", Affine(0, 1), Affine(1, 0), True),
        ("forward", Affine(0, 2), Affine(1, 0), True),  # both views of a sample: SimCLR
        ("forward", Affine(512, 0), Affine(1, 0), False),
        ("forward", Affine(0, 1), Affine(0, 1), False),
        ("backward", Affine(0, 1), Affine(1, 0), False),
    ],
)
def test_a_loss_over_pairs_of_a_batch_has_the_batch_of_contrastive_runs(
    make_decoder: Callable[..., Profile],
    phase: str,
    rows: Affine,
    batch: Affine,
    compares: bool,
    tokens: float | None,
) -> None:
    profile = make_decoder().model_copy(update={"tokens_per_sample": tokens})
    step = profile.steps[0]
    dims = {"batch": batch, "m": rows, "n": Affine(0, 1), "k": Affine(512, 0)}
    segment = step.segments[0]
    logits = segment.kernels[0].model_copy(update={"kind": "gemm", "dims": dims})
    changed = segment.model_copy(update={"kernels": (logits,), "phase": phase})
    steps = (step.model_copy(update={"segments": (changed,)}),)
    profile = profile.model_copy(update={"steps": steps})
    found = global_batch_of(profile, Work(samples=1e9), 1e9)
    assert (found.rule == "4,096 samples of a contrastive loss") is compares
    assert bool(list(contrastive_notes(profile))) is compares
    seen = profile.model_copy(update={"mixes_samples": True})
    assert list(contrastive_notes(seen)) == []


@pytest.mark.parametrize(
    ("parameters", "per_sample", "tokens", "samples", "rule"),
    [
        (8e9, 4096, 1e9, 128, "128 samples of a fine-tune"),
        (8e9, 4096, 20e9, 512, "2M tokens at 8B parameters"),
        (8e9, 131072, 1e9, 8, "2M tokens at 8B parameters, less to leave 500 steps"),
        (124e6, 1024, 50e6, 64, "128 samples of a fine-tune, less to leave 500 steps"),
        (0.6e9, 4096, 0.5e9, 128, "128 samples of a fine-tune"),
    ],
)
def test_a_short_training_of_trained_weights_has_the_batch_of_fine_tunes(
    toy: Profile, parameters: float, per_sample: float, tokens: float, samples: int, rule: str
) -> None:
    profile = language(toy, parameters, tokens_per_sample=float(per_sample))
    work = Work(tokens=tokens, from_weights=True)
    batch = global_batch_of(profile, work, tokens / per_sample)
    assert batch.rule == rule
    assert batch.samples == samples
    first = global_batch_of(profile, Work(tokens=tokens), tokens / per_sample)
    assert first.rule is not None and "tokens at" in first.rule


@pytest.mark.parametrize(
    ("shapes", "from_weights", "samples"),
    [
        ([(128,), ()], True, 32),
        ([(128,), (), ()], True, 32),
        ([(128,), (128,)], True, 4096),
        ([(128,), ()], False, 4096),
        ([(3, 224, 224), (128,), ()], True, 4096),
    ],
)
def test_a_classifier_of_texts_with_trained_weights_has_a_small_batch(
    toy: Profile, shapes: list[tuple[int, ...]], from_weights: bool, samples: int
) -> None:
    """Three epochs of MNLI are more tokens than BERT has parameters, and no pre-training."""
    tensors = tuple(BatchTensor(sample_shape=each, dtype="int64") for each in shapes)
    profile = language(toy, 110e6, tokens_per_sample=128.0, batch_tensors=tensors)
    batch = global_batch_of(profile, Work(epochs=1, from_weights=from_weights), 1e8)
    assert batch.samples == samples


def test_without_an_amount_of_work_nothing_is_known_of_a_fine_tune(toy: Profile) -> None:
    batch = global_batch_of(language(toy, 8e9), Work(from_weights=True), None)
    assert batch.rule == "2M tokens at 8B parameters"


def test_adapters_of_a_large_model_have_a_small_batch(toy: Profile) -> None:
    lora = language(toy, 8e9, trainable_parameters=20_000_000)
    assert global_batch_of(lora, Work(), None).samples == 16


@pytest.mark.parametrize(
    ("shape", "dtype", "samples"),
    [((2048,), "int64", 16), ((), "int64", 8192), ((2048,), "float32", 8192)],
)
def test_adapters_are_known_by_sequences_where_the_file_counts_no_tokens(
    toy: Profile, shape: tuple[int, ...], dtype: str, samples: int
) -> None:
    """LoRA asked about in samples had the batch of models that nobody looked at."""
    tensors = (BatchTensor(sample_shape=shape, dtype=dtype),)
    changed = {"tokens_per_sample": None, "batch_tensors": tensors, "blocks": ()}
    lora = language(toy, 8e9, trainable_parameters=20_000_000, **changed)
    assert global_batch_of(lora, Work(), None).samples == samples


def test_a_table_has_a_large_batch_and_an_unknown_kind_says_that_it_is_assumed(
    toy: Profile,
) -> None:
    none = {"tokens_per_sample": None, "blocks": ()}
    table = toy.model_copy(update={**none, "batch_bytes": Affine(0, 400)})
    assert global_batch_of(table, Work(), None).samples == 8192
    other = toy.model_copy(update={**none, "batch_bytes": Affine(0, 1e6)})
    found = global_batch_of(other, Work(), None)
    assert found.samples == 256
    assert found.rule_source is not None and "assumed" in found.rule_source


@pytest.mark.parametrize(
    ("shapes", "dtype", "kind", "samples"),
    [
        (((96, 24), (24,)), "float32", "rnn", 128),
        (((96, 24), (24,)), "float32", "gemm", 256),  # windows of a series
        (((1024, 3), ()), "float32", "gemm", 256),  # a cloud of points
        (((1, 28, 28), ()), "float32", "gemm", 256),  # a small image
        (((26, 10), ()), "int64", "gemm", 8192),  # columns of several categories
        (((24,), ()), "float32", "gemm", 8192),
        (((24,), ()), "float32", "rnn", 128),
        (((35,), (35,)), "int64", "rnn", 128),
        ((), "float32", "rnn", 128),
        ((), "float32", "gemm", 8192),
    ],
)
def test_table_rows_are_flat_and_no_rnn_reads_them(
    make_decoder: Callable[..., Profile],
    shapes: tuple[tuple[int, ...], ...],
    dtype: str,
    kind: str,
    samples: int,
) -> None:
    profile = make_decoder()
    step = profile.steps[0]
    segment = step.segments[0]
    kernel = segment.kernels[0].model_copy(update={"kind": kind})
    one = step.model_copy(update={"segments": (segment.model_copy(update={"kernels": (kernel,)}),)})
    tensors = tuple(BatchTensor(sample_shape=shape, dtype=dtype) for shape in shapes)
    changed = {"tokens_per_sample": None, "blocks": (), "batch_bytes": Affine(0, 9312)}
    forecaster = profile.model_copy(update={**changed, "steps": (one,), "batch_tensors": tensors})
    assert global_batch_of(forecaster, Work(samples=1e9), 1e9).samples == samples


@pytest.mark.parametrize(("odd", "samples"), [(1, 256), (3, 192), (5, 320), (15, 240), (999, 256)])
def test_the_rule_divides_among_the_nodes_that_were_asked_for(
    toy: Profile, odd: int, samples: int
) -> None:
    """On three nodes a batch of 256 left layouts alone that split the model in three."""
    profile = language(toy, 5e8)
    rule = global_batch_of(profile, Work(), None, odd=odd)
    assert rule.samples == samples and rule.rule is not None
    assert ("divisible by" in rule.rule) == (samples != 256)
    few = global_batch_of(profile, Work(samples=1e5), 1e5, odd=odd)
    assert few.samples is not None and few.samples <= 200
    assert few.samples % (odd if odd < 200 else 1) == 0


@given(samples=st.floats(1, 1e9))
def test_the_rule_leaves_steps_enough(samples: float) -> None:
    profile = Profile.model_construct(
        parameters=10**9, trainable_parameters=10**9, tokens_per_sample=1024.0, steps=()
    )
    batch = global_batch_of(profile, Work(samples=samples), samples)
    assert batch.samples is not None and batch.rule is not None
    assert batch.samples == 1 or samples / batch.samples >= FEWEST_STEPS
    assert ("less to leave 500 steps" in batch.rule) == (1 < batch.samples < 512)
    assert ("less, of so few samples" in batch.rule) == (batch.samples == 1)


@given(tokens=st.floats(1e3, 1e8), per_sample=st.sampled_from([128.0, 1024.0, 2048.0, 8192.0]))
def test_a_batch_in_tokens_is_kept_to_a_few_percent(tokens: float, per_sample: float) -> None:
    profile = Profile.model_construct(tokens_per_sample=per_sample)
    batch = global_batch_of(profile, Work(global_batch_tokens=tokens), None)
    assert batch.source == "option"
    assert batch.samples is not None and batch.samples >= 1
    if tokens >= 10 * per_sample:
        assert batch.samples * per_sample == pytest.approx(tokens, rel=2 * NEAR)


@pytest.mark.parametrize(("tokens", "samples"), [(0.5e6, 512), (1e6, 1024), (4e6, 4096)])
def test_what_papers_call_half_a_million_tokens_divides_among_ranks(
    tokens: float, samples: int
) -> None:
    profile = Profile.model_construct(tokens_per_sample=1024.0)
    assert global_batch_of(profile, Work(global_batch_tokens=tokens), None).samples == samples


def test_tokens_of_a_model_without_tokens_are_refused(
    make_decoder: Callable[..., Profile],
) -> None:
    profile = make_decoder().model_copy(update={"tokens_per_sample": None})
    with pytest.raises(UsageError, match="does not say how many") as caught:
        global_batch_of(profile, Work(global_batch_tokens=1e6), None)
    assert "TOKENS_PER_SAMPLE" in str(caught.value.fix)


def test_a_product_across_samples_of_any_form_has_the_batch_of_contrastive_runs(
    toy: Profile,
) -> None:
    """A batched product with one operand expanded over the batch: only the trace sees it mix."""
    mixing = toy.model_copy(update={"tokens_per_sample": None, "mixes_samples": True})
    assert global_batch_of(mixing, Work(), None).samples == 4096


@pytest.mark.parametrize(
    ("elements", "compares"),
    [
        (Affine(-6, 5), True),  # B² at 2 and 3 samples
        (Affine(-8, 6), True),  # at 2 and 4
        (Affine(0, 1, 2), True),  # traced at 32 samples and more
        (Affine(-1, 1), False),  # the larger half of a batch
        (Affine(0, 5), False),
        (Affine(7, 0), False),
    ],
)
def test_a_matrix_of_distances_compares_the_samples_of_a_batch(
    toy: Profile, elements: Affine, compares: bool
) -> None:
    """`cdist` and differences of broadcast outputs are no matrix products."""
    step = toy.steps[0]
    segment = step.segments[0]
    kernel = segment.kernels[0].model_copy(
        update={"kind": "pointwise", "dims": {"elements": elements}}
    )
    changed = segment.model_copy(update={"kernels": (kernel,), "phase": "forward", "block": None})
    steps = (step.model_copy(update={"segments": (changed,)}),)
    profile = toy.model_copy(update={"steps": steps, "tokens_per_sample": None})
    found = global_batch_of(profile, Work(), None)
    assert (found.rule == "4,096 samples of a contrastive loss") is compares
    notes = list(contrastive_notes(profile))
    assert bool(notes) is compares
    # Only a line through small batches is right near them alone.
    assert any("traced sizes" in note for note in notes) is (compares and not elements.per_pair)
