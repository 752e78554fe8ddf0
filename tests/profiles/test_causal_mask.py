"""Whether the masks of attention are causal: as the file makes them, and never taken on trust."""

from pathlib import Path

import pytest

from gpuplan.profiles.causal_mask import causal_mask_line

CALL = "F.scaled_dot_product_attention(q, k, v, attn_mask={mask})"
FILE = """import torch
import torch.nn.functional as F
from torch import nn


class Attends(nn.Module):
    def __init__(self, t, other):
        super().__init__()
        {made}

    def forward(self, q, k, v, given=None):
        t = q.shape[2]
        return {call}
"""
MADE, CALLED = 9, 13


def line_of(
    folder: Path, made: str, *, mask: str = "self.mask[:t, :t]", call: str = CALL
) -> str | None:
    path = folder / "model.py"
    path.write_text(FILE.format(made=made, call=call.format(mask=mask)))
    return causal_mask_line(path, [f"model.py:{CALLED}, in forward gives attention a mask, which"])


@pytest.mark.parametrize(
    "made",
    [
        'self.register_buffer("mask", torch.tril(torch.ones(t, t)).bool())',
        'self.register_buffer("mask", tensor=torch.ones(t, t, dtype=torch.bool).tril())',
        'self.register_buffer("mask", torch.tril(torch.ones(t, t)).view(1, 1, t, t) == 1)',
        "self.mask = torch.tril(torch.ones(t, t), diagonal=0).to(torch.bool)",
        "self.mask = ~torch.triu(torch.ones(t, t), diagonal=1).bool()",
        "self.mask = torch.logical_not(torch.ones(t, t, dtype=torch.bool).triu(1))",
        "self.mask = torch.triu(torch.ones(t, t), diagonal=1) == 0",
        'self.mask = torch.triu(torch.full((t, t), float("-inf")), diagonal=1)',
        "self.mask = torch.full((t, t), -torch.inf).triu(1)",
        "self.mask = nn.Transformer.generate_square_subsequent_mask(t)",
    ],
)
def test_a_triangle_of_what_came_before_is_causal(tmp_path: Path, made: str) -> None:
    assert line_of(tmp_path, made) == f"model.py:{MADE}"


@pytest.mark.parametrize(
    "made",
    [
        "self.mask = torch.tril(torch.ones(t, t), diagonal=1).bool()",
        "self.mask = torch.triu(torch.ones(t, t)).bool()",
        "self.mask = torch.triu(torch.ones(t, t), diagonal=1).bool()",
        "self.mask = torch.tril(torch.ones(t, t))",
        "self.mask = torch.tril(torch.ones(t, t)).bool() & other",
        "self.mask = torch.tril(torch.ones(t, t)).bool(); self.mask |= other",
        "self.mask = torch.tril(other).bool()",
        "self.mask = torch.tril(torch.ones(t, t)).bool() if t else other",
        "self.mask = torch.ones(t, t, dtype=torch.bool).tril().triu(-128)",
        "self.mask = other",
        "self.other = torch.tril(torch.ones(t, t)).bool()",
    ],
    ids=[
        "sees the next one", "sees what comes after", "hides what came before",
        "adds ones to the scores", "with padding", "with padding later", "of what is given",
        "at times another", "a window", "given", "another name",
    ],
)  # fmt: skip
def test_any_other_mask_is_not_known(tmp_path: Path, made: str) -> None:
    assert line_of(tmp_path, made) is None


TRIL = "self.mask = torch.tril(torch.ones(t, t)).bool()"


def test_the_mask_has_to_be_that_of_the_call(tmp_path: Path) -> None:
    assert line_of(tmp_path, TRIL, call="F.scaled_dot_product_attention(q, k, v, self.mask)")
    assert line_of(tmp_path, TRIL, mask="self.mask[:, :, None, :t]")
    assert line_of(tmp_path, TRIL, mask="self.mask[1:, :t]") is None
    assert line_of(tmp_path, TRIL, mask="given") is None
    assert line_of(tmp_path, TRIL, mask="self.mask & given") is None
    assert line_of(tmp_path, TRIL, call="other(q, k, v)") is None


def test_every_line_with_a_mask_counts(tmp_path: Path) -> None:
    line_of(tmp_path, TRIL)
    path, said = tmp_path / "model.py", "gives attention a mask, which"
    here = f"model.py:{CALLED}, in forward {said}"
    assert causal_mask_line(path, [here, "another note"]) == f"model.py:{MADE}"
    assert causal_mask_line(path, [here, f"layers.py:{CALLED}, in forward {said}"]) is None
    assert causal_mask_line(path, [f"t5 {said}"]) is None
    assert causal_mask_line(path, []) is None


def test_a_file_that_is_gone_or_damaged_shows_nothing(tmp_path: Path) -> None:
    note = "model.py:1 gives attention a mask, which"
    assert causal_mask_line(tmp_path / "model.py", [note]) is None
    (tmp_path / "model.py").write_text("def")
    assert causal_mask_line(tmp_path / "model.py", [note]) is None
