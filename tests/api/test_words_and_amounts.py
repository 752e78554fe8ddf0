"""Arguments that make no sense are refused by their names, before anything is computed."""

from pathlib import Path
from typing import Any

import pytest

from gpuplan import api
from gpuplan.catalog.errors import UsageError

MODEL = """
import torch

def build_model(): return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Linear(8, 8))
def make_batch(batch_size): return (torch.randn(batch_size, 8),)
def compute_loss(model, batch): return model(*batch).square().mean()
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(MODEL)
    return path


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"micro_batch": -3}, "micro_batch=-3 is not a whole number above zero"),
        ({"micro_batch": 0}, "micro_batch=0 is not"),
        ({"micro_batch": "8"}, "micro_batch='8' is not"),
        ({"micro_batch": 1.5}, "micro_batch=1.5 is not"),
        ({"micro_batch": True}, "micro_batch=True is not"),
        ({"precision": "fp7"}, "precision='fp7' is not one of .* Did you mean fp8"),
        ({"recompute": "some"}, "recompute='some' is not one of none, selective, full"),
        ({"layout": "fsdp8"}, r"layout='fsdp8' is not a Layout"),
        ({"offload": "optimizer"}, "offload='optimizer' is one word"),
        ({"offload": ("opt",)}, "offload='opt' is not one of optimizer"),
    ],
)
def test_fits_names_what_is_no_setting(file: Path, given: dict[str, Any], message: str) -> None:
    """`fits(micro_batch=-3)` was a yes; others ended in a traceback from inside."""
    with pytest.raises(UsageError, match=message):
        api.fits(file, "A100-40GB-SXM", **given)


def test_a_precision_that_is_none_is_refused_by_profile_too(file: Path) -> None:
    word: Any = "fp7"
    with pytest.raises(UsageError, match="precision='fp7' is not one of"):
        api.profile(file, precision=word)
    with pytest.raises(UsageError, match="precision='fp7' is not one of"):
        api.step_summary(api.profile(file), precision=word)


@pytest.mark.parametrize("paths", ["no.jsonl", Path("no.jsonl"), ["no.jsonl"], [Path("no.jsonl")]])
def test_records_are_named_by_one_path_or_several(paths: Any) -> None:
    with pytest.raises(UsageError, match="Cannot read the run records no.jsonl"):
        api.validate(paths)
