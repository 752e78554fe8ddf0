"""Measure what torch.utils.checkpoint takes of the host around one block: `recompute_host_s`.

    .venv/bin/python benchmarks/recompute_host.py

The blocks are so narrow that their kernels take next to no time, and run on the processor: what is
left is the host's work. Of a step with every block recomputed the step without is subtracted, and
one more forward pass. Seconds of processor time; other programs slow it all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from evidence.cases import Case
from evidence.step import TrainingStep

LAYERS, STEPS = 8, 20
NARROW = {"layers": LAYERS, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 16}
MODELS = {
    "gpt2.py": {},
    "bert.py": {"attention": "fused"},
    "decoder.py": {"kv_heads": 4, "ffn": 128},
}


def main() -> None:
    """Print milliseconds of a block, by model, precision and kind of recompute."""
    torch.set_num_threads(1)
    print(f"{'model':12} {'precision':9}  forward  both  full adds  selective adds   (ms a block)")
    for model, more in MODELS.items():
        for precision in ("fp32", "bf16-amp"):
            plain = _step(model, {**NARROW, **more}, precision, "none")
            forward_s = _block_s(lambda: plain.forward())  # noqa: B023
            both_s = _block_s(lambda: plain.backward(plain.forward()))  # noqa: B023
            added = []
            for recompute in ("full", "selective"):
                step = _step(model, {**NARROW, **more}, precision, recompute)
                again_s = _block_s(lambda: step.backward(step.forward()))  # noqa: B023
                added.append(again_s - both_s - forward_s)
            cells = (forward_s, both_s, *added)
            print(f"{model:12} {precision:9} " + "".join(f"{1e3 * one:9.2f}" for one in cells))


def _step(model: str, params: dict, precision: str, recompute: str) -> TrainingStep:
    return TrainingStep(
        Case(
            name=model,
            model=model,
            params=params,
            precision=precision,
            micro_batch=1,
            recompute=recompute,
        ),
        "cpu",
    )


def _block_s(run: Callable[[], object]) -> float:
    """Return the least of several seconds of processor time of one block."""
    for _ in range(3):
        run()
    seconds = []
    for _ in range(STEPS):
        started_s = time.process_time()
        run()
        seconds.append(time.process_time() - started_s)
    return min(seconds) / LAYERS


if __name__ == "__main__":
    main()
