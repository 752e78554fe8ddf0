"""Every layout gives the loss curve of one process, on real gloo processes.

They are forked from one that has torch loaded, but for a case each of 1, 2 and 4 processes that a
person's own command starts.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from runner_jobs import REPOSITORY, metrics, plan_of, run_with_torchrun, train

pytestmark = [pytest.mark.slow, pytest.mark.spread]

TOLERANCE = 1e-5
"""Tolerance of losses near 4.6 in fp32: sums of other orders differ in the last bits."""
GPT2 = REPOSITORY / "examples" / "gpt2.py"
GPT2_SIZE = {"layers": 4, "hidden": 32, "heads": 4, "vocab": 101, "seq_len": 16}
TENSORS = REPOSITORY / "tests" / "support" / "models" / "tensor_decoder.py"
TENSORS_SIZE = {
    **{"layers": 4, "hidden": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "vocab": 100},
    "seq_len": 16,
}
TIED = TENSORS.with_name("tied_decoder.py")
FLOATS = REPOSITORY / "tests" / "support" / "models" / "float_blocks.py"
REPEATS = pytest.mark.repeats
CLIP = 0.5
"""Below the norm of these models, so that the norm of every layout matters."""
FSDP = {"zero_stage": 3}


@pytest.fixture(scope="module")
def gpt2_alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """Losses of one process that accumulates all four micro-batches of a step."""
    return _train(tmp_path_factory.mktemp("one"), GPT2, GPT2_SIZE, 1, {}, grad_accum=4)


@pytest.fixture(scope="module")
def tensors_alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return _train(tmp_path_factory.mktemp("one"), TENSORS, TENSORS_SIZE, 1, {}, grad_accum=4)


@pytest.fixture(scope="module")
def floats_alone(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    return _train(tmp_path_factory.mktemp("one"), FLOATS, {}, 1, {}, grad_accum=4)


@pytest.mark.parametrize(
    ("layout", "more"),
    [
        # A kind of ranks alone is in others, with recomputed blocks or other kinds.
        pytest.param({"data": 4}, {}, marks=REPEATS),
        ({"data": 2}, {"recompute": "full"}),
        ({"data": 2, "shard": 2, **FSDP}, {"recompute": "selective"}),
        ({"data": 4, "shard": 2, **FSDP}, {"recompute": "full"}),
        ({"data": 2, "shard": 2, "zero_stage": 1}, {}),
        ({"data": 2, "shard": 2, "zero_stage": 2}, {}),
        pytest.param({"pipeline": 2}, {}, marks=REPEATS),
        ({"pipeline": 2, "virtual_stages": 2}, {"recompute": "full"}),
        ({"pipeline": 2, "data": 2}, {"recompute": "full", "recompute_layers": 1}),
        ({"pipeline": 2, "data": 2, "shard": 2, **FSDP}, {}),
    ],
    ids=lambda value: ".".join(f"{key}{item}" for key, item in value.items()),
)
def test_trains_as_one_process_does(
    tmp_path: Path, gpt2_alone: list[float], layout: dict[str, Any], more: dict[str, Any]
) -> None:
    processes = layout.get("data", 1) * layout.get("pipeline", 1)
    accum = 4 // layout.get("data", 1)
    found = _train(tmp_path, GPT2, GPT2_SIZE, processes, layout, grad_accum=accum, **more)

    assert found == pytest.approx(gpt2_alone, abs=TOLERANCE)


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param({"tensor": 2}, marks=pytest.mark.repeats),
        pytest.param({"tensor": 2, "sequence_parallel": True}, marks=pytest.mark.repeats),
        pytest.param(
            {"tensor": 2, "data": 2, "sequence_parallel": True}, marks=pytest.mark.repeats
        ),
        {"tensor": 2, "data": 2, "shard": 2, **FSDP},
        {"tensor": 2, "pipeline": 2, "sequence_parallel": True},
    ],
    ids=lambda value: ".".join(f"{key}{item}" for key, item in value.items()),
)
def test_tensor_ranks_train_as_one_process_does(
    tmp_path: Path, tensors_alone: list[float], layout: dict[str, Any]
) -> None:
    processes = 2 * layout.get("data", 1) * layout.get("pipeline", 1)
    accum = 4 // layout.get("data", 1)
    found = _train(tmp_path, TENSORS, TENSORS_SIZE, processes, layout, grad_accum=accum)

    assert found == pytest.approx(tensors_alone, abs=TOLERANCE)


@pytest.fixture(scope="module")
def tied_alone(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[float], list[float]]:
    """Losses, and norms of the gradients, of one process."""
    folder = tmp_path_factory.mktemp("one")
    return _train(folder, TIED, TENSORS_SIZE, 1, {}, grad_accum=4), _norms(folder)


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param({"tensor": 2}, marks=pytest.mark.repeats),
        pytest.param({"tensor": 2, "sequence_parallel": True}, marks=pytest.mark.repeats),
        pytest.param({"tensor": 2, "data": 2, "shard": 2, **FSDP}, marks=pytest.mark.repeats),
        {"tensor": 2, "pipeline": 2},
    ],
    ids=lambda value: ".".join(f"{key}{item}" for key, item in value.items()),
)
def test_a_tied_head_stays_one_weight_under_tensor_ranks(
    tmp_path: Path, tied_alone: tuple[list[float], list[float]], layout: dict[str, Any]
) -> None:
    processes = 2 * layout.get("data", 1) * layout.get("pipeline", 1)
    accum = 4 // layout.get("data", 1)
    found = _train(tmp_path, TIED, TENSORS_SIZE, processes, layout, grad_accum=accum)

    losses, norms = tied_alone
    assert found == pytest.approx(losses, abs=TOLERANCE)
    assert _norms(tmp_path) == pytest.approx(norms, rel=TOLERANCE)


@pytest.mark.parametrize(
    "tied",
    [pytest.param(False, id="untied", marks=pytest.mark.repeats), pytest.param(True, id="tied")],
)
def test_a_hugging_face_model_is_split_by_its_own_plan(tmp_path: Path, tied: bool) -> None:
    model = f"hf:{REPOSITORY / 'examples' / 'hf_llama_config'}"
    size = {
        "tie_word_embeddings": tied,
        **{"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4},
        **{"num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 128, "seq_len": 16},
    }
    alone = _train(tmp_path / "one", model, size, 1, {}, grad_accum=2)
    split = _train(tmp_path / "two", model, size, 2, {"tensor": 2}, grad_accum=2)

    assert split == pytest.approx(alone, abs=TOLERANCE)


def test_weights_that_the_first_process_hands_out_are_the_same(
    tmp_path: Path, gpt2_alone: list[float]
) -> None:
    layout = {"data": 2, "shard": 2, **FSDP}
    found = _train(tmp_path, GPT2, GPT2_SIZE, 2, layout, grad_accum=2, one_copy=True)

    assert found == pytest.approx(gpt2_alone, abs=TOLERANCE)


@pytest.mark.parametrize(
    ("precision", "stage"),
    [
        # fp16 is cast in the same places, and scales its loss beside.
        pytest.param("bf16-amp", 0, marks=REPEATS),
        ("fp16-amp", 0),
        pytest.param("bf16-amp", 3, marks=REPEATS),
        ("fp16-amp", 3),
        pytest.param("bf16", 0, marks=REPEATS),
        ("bf16", 3),
    ],
)
def test_mixed_precision_stays_near_fp32(
    tmp_path: Path, gpt2_alone: list[float], precision: str, stage: int
) -> None:
    layout = {"data": 2, "shard": 2 if stage else 1, "zero_stage": stage}
    found = _train(tmp_path, GPT2, GPT2_SIZE, 2, layout, grad_accum=2, precision=precision)

    assert found == pytest.approx(gpt2_alone, abs=0.02)
    assert found != pytest.approx(gpt2_alone, abs=TOLERANCE), "it ran in fp32"


@pytest.mark.parametrize(
    ("precision", "layout"),
    [
        pytest.param("bf16", {}, marks=REPEATS),
        ("bf16", {"pipeline": 2}),
        pytest.param("bf16-amp", {"data": 2, "shard": 2, **FSDP}, marks=REPEATS),
        ("bf16-amp", {"data": 2, "shard": 2, "pipeline": 2, **FSDP}),
    ],
)
def test_layers_of_16_bits_take_inputs_of_16_bits(
    tmp_path: Path, floats_alone: list[float], precision: str, layout: dict[str, Any]
) -> None:
    data = layout.get("data", 1)
    found = _train(
        tmp_path,
        FLOATS,
        {},
        data * layout.get("pipeline", 1),
        layout,
        grad_accum=4 // data,
        precision=precision,
    )

    assert found == pytest.approx(floats_alone, abs=0.05)
    assert found != pytest.approx(floats_alone, abs=TOLERANCE), "it ran in fp32"


@pytest.mark.parametrize(
    ("processes", "layout", "more"),
    [
        (1, {}, {}),
        # torch's compiler does not quote the folder of the interpreter: `command` avoids spaces.
        (2, {"data": 2, "shard": 2, **FSDP}, {"compile": True, "stack": "torch-compile"}),
        pytest.param(4, {"data": 4, "shard": 4, **FSDP}, {}, marks=pytest.mark.repeats),
    ],
    ids=["1 process", "2 processes, compiled", "4 processes"],
)
def test_what_torchrun_starts_trains_as_one_process_does(
    tmp_path: Path,
    gpt2_alone: list[float],
    processes: int,
    layout: dict[str, Any],
    more: dict[str, Any],
) -> None:
    plan = plan_of(layout, grad_accum=4 // processes, **more)
    found = train(
        tmp_path,
        GPT2,
        processes,
        run=run_with_torchrun,
        plan=plan,
        params=GPT2_SIZE,
        clip_grad_norm=CLIP,
    )

    assert found == pytest.approx(gpt2_alone, abs=TOLERANCE)


def _norms(folder: Path) -> list[float]:
    return [line["gradient_norm"] for line in metrics(folder)]


def _train(
    folder: Path,
    model: Path | str,
    params: dict[str, Any],
    processes: int,
    layout: dict[str, Any],
    *,
    one_copy: bool | None = None,
    **plan: Any,
) -> list[float]:
    return train(
        folder,
        model,
        processes,
        plan=plan_of(layout, **plan),
        params=params,
        clip_grad_norm=CLIP,
        one_copy=one_copy,
    )
