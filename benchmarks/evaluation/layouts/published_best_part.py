"""The part of docs/accuracy.md about layouts that somebody tuned, beside ours: one line a cell."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from ..tables import DASH, percent, row_of, signed

CELLS = Path(__file__).with_name("published_best.json")
CAUSES = Path(__file__).with_name("published_best.toml")
NEAR = 1.10
"""Published ÷ best, predicted: as good as our best."""
WANTED = 0.80
"""Share of the cells that are near."""
SHOWN = 0.015
"""Parts that differ by less of a step are not told."""
INTRODUCTION = """\
## Layouts that somebody tuned

A cell is a dense model, machines, global batch, precision and software for which a vendor or team
published the configuration it tuned. *Longer* is how much longer that step is predicted to be than
the best layout of our search there, and *where* in which parts, as shares of our step. Ours is of
those that are ranked: of others the chance that they run out of memory is above 2 %. Memory is the
share of a device that is predicted to be taken, theirs and ours. What a row's notes say of its
software (asynchronous tensor parallelism, an interleaved schedule) holds for both. Where theirs is
faster than all that are ranked, it is ours too. Nobody measured our layouts: a long step says that
the vendor knew better, or tuned less.
{near} of {cells} cells are within {bound} (wanted: {wanted}). Made by
`benchmarks/evaluation/layouts/published_best.py`; nothing is fitted to them.

To 2026-11-27 they were 9 of 19. Two things that were compared changed:

- Ours is searched in what the software offered at its date
  (`benchmarks/evaluation/layouts/offered.py`):
  Megatron-DeepSpeed before May 2022 had no sequence parallelism, no recompute of attention alone
  and no chunks of stages; torchtitan shards with FSDP, has no recompute of any number of layers but
  of every nth or of every second product, and accumulated no gradients before June 2025 (#1238).
- What was published ran, whatever memory is predicted. Where Megatron-Bridge's tables say nothing
  of recompute, its recipes set none (scripts/performance/configs/llama); as few layers as our
  memory prediction makes it were counted before. Shares above 100 % are therefore errors of our
  memory prediction. Four were 4 to 19 % above their device and one 47 %, until what Transformer
  Engine keeps of an 8-bit operand was counted as the one byte that it is (module/linear.py,
  layernorm_linear.py: `prepare_for_saving`). Expected: an eighth less of a layer; it is 15 %, and
  the four take 94, 97, 100 and 105 %. Of the last 3 points more are its parameters, which Blackwell
  holds once in 8 bits where scales are by tensor, and which are counted in 16. The fifth,
  LLAMA3_70B on GB300 in FP8, has the activations of 20 of its 80 layers in host memory: counted as
  if they were not it takes 127 %, without a quarter of them 98 %.

Since then torchtitan's pipelines are FSDP as torch's pipelines run it, gathered and reduced once a
step and whole in between, where they were taken for ZeRO-1 under autocast, which
fully_shard has not. Expected, by the code: 11 GiB of activations, 15 of temporaries and 18 of fp32
parameters less for its 405B, 12 of gathered ones more. Came out: 57 GiB allocated where the pool
took 72.7, and 58 for 82.5 without chunks, for 106 and 100 before. torch's own stages hold three
residual streams of every micro-batch of a step beside that, 6 and 3 GiB, which the runner here does
not; the rest is not explained, and such layouts have the largest margin against running out of
memory (`STAGED_FSDP_MARGIN`).

The 70B's steps are right with 8 tensor ranks: 596 and 656 tokens a second and device in bf16,
without and with asynchronous tensor parallelism, for 597 and 652 measured, and 832 and 917 in fp8
for 810 and 942, since what is gathered is cast before (715 and 812 until then; "Step time: five
folds by configuration"). The 405B, 130 and 102 for 128 and 100 with and without chunks until then,
is predicted a tenth too fast with the same mechanism: 141 and 111."""


def published_best_part() -> str:
    """Return the table of the cells that are kept, worst first; nothing where none are."""
    if not CELLS.exists():
        return ""
    kept = json.loads(CELLS.read_text(encoding="utf-8"))
    causes = tomllib.loads(CAUSES.read_text(encoding="utf-8"))["cause"]
    return table_part(kept["cells"], kept["left_out"], causes)


def table_part(
    cells: Sequence[Mapping[str, Any]],
    left_out: Sequence[str],
    causes: Sequence[Mapping[str, str]],
) -> str:
    """Return the part of the page.

    Args:
        cells: as `published_best.Cell` has them.
        left_out: one line for each row that has no cell.
        causes: `cell`, a pattern as in a shell, and `text`; the first that fits counts.
    """
    near = sum(cell["ratio"] <= NEAR for cell in cells)
    headings = "cell", "published", "ours", "longer", "where", "memory", "cause"
    lines = [row_of(headings), row_of(("---", "---", "---", "--:", "---", "--:", "---"))]
    for cell in sorted(cells, key=lambda one: -one["ratio"]):
        fills = (percent(cell[name], 0) for name in ("published_fill", "best_fill"))
        lines.append(
            row_of(
                (
                    cell["name"],
                    cell["published"],
                    cell["best"],
                    signed(cell["ratio"] - 1),
                    _where(cell["longer"]),
                    ", ".join(fills),
                    DASH if cell["ratio"] <= NEAR else _cause_of(cell["name"], causes),
                )
            )
        )
    said = INTRODUCTION.format(
        near=near, cells=len(cells), bound=percent(NEAR - 1, 0), wanted=percent(WANTED, 0)
    )
    parts = [said, "\n".join(lines)]
    if left_out:
        parts += ["No cell:", "\n".join(sorted(set(left_out)))]
    return "\n\n".join(parts)


def _where(longer: Mapping[str, float]) -> str:
    told = sorted(longer.items(), key=lambda one: -abs(one[1]))
    words = [f"{name} {signed(share)}" for name, share in told if abs(share) >= SHOWN]
    return ", ".join(words) or DASH


def _cause_of(name: str, causes: Sequence[Mapping[str, str]]) -> str:
    found = (one["text"] for one in causes if fnmatch(name.lower(), one["cell"].lower()))
    return next(found, "unknown")
