"""Packages that are built for CUDA are stood in for, where a file imports one that is missing."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from gpuplan import api
from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.gpu import packages
from gpuplan.profiles.trace.gpu.packages import MODULES, PACKAGES, with_stand_ins

pytestmark = pytest.mark.slow

FILE = """
import torch
from torch import nn
import torch.nn.functional as F
{imported}

class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(256, 768)
        self.norm = {norm}

    def forward(self, x):
        qkv = self.qkv(self.norm(x)).unflatten(-1, (3, 4, 64))
        q, k, v = qkv.unbind(2)
        return ({attend}).flatten(2)

def build_model(): return Attention()
def make_batch(batch_size=2): return torch.randn(batch_size, 512, 256),
def compute_loss(model, batch):
    with torch.autocast("cuda", torch.bfloat16):
        return model(batch[0]).square().mean()
"""
SDPA = (
    "F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2),"
    " is_causal={causal}).transpose(1, 2)"
)
FLASH = "from flash_attn import flash_attn_func, flash_attn_qkvpacked_func"
END_TO_END = (
    "xops.memory_efficient_attention(*(x.flatten(0, 1)[None] for x in (q, k, v)),"
    " attn_bias={mask}.from_seqlens([512] * len(q))).unflatten(1, (-1, 512))[0]"
)
LENGTHS = "torch.arange(0, q.shape[0] * 512 + 1, 512, device=q.device, dtype=torch.int32)"


@pytest.fixture(autouse=True)
def nothing_installed(require: Callable[[str, str], None]) -> None:
    require("no-cuda-packages", "what is installed is used")


def profile_of(
    folder: Path, imported: str, attend: str, norm: str = "nn.LayerNorm(256)"
) -> Profile:
    path = folder / "model.py"
    path.write_text(FILE.format(imported=imported, attend=attend, norm=norm))
    return api.profile(path, precision="bf16-amp")


def flops(profile: Profile) -> float:
    step = profile.step("amp16")
    kernels = (one for at in step.schedule for one in step.segments[at].kernels)
    return sum(one.flops.per_sample for one in kernels if one.kind == "attention")


@pytest.fixture
def no_packages(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Forget what this process was given, before and after."""

    def forget() -> None:
        for name in [one for one in sys.modules if one.partition(".")[0] in PACKAGES]:
            del sys.modules[name]
        sys.meta_path[:] = [one for one in sys.meta_path if not isinstance(one, packages._StandIns)]
        packages._StandIns.provided.clear()

    forget()
    yield
    forget()


@pytest.mark.parametrize(
    ("imported", "attend", "causal"),
    [
        (FLASH, "flash_attn_func(q, k, v, causal=True)", True),
        (FLASH, "flash_attn_func(q, k, v, 0.1)", False),
        (FLASH, "flash_attn_qkvpacked_func(qkv, causal=True)", True),
        (
            "from flash_attn import flash_attn_kvpacked_func",
            "flash_attn_kvpacked_func(q, torch.stack((k, v), 2))",
            False,
        ),
        (
            "from flash_attn.flash_attn_interface import flash_attn_varlen_func",
            f"flash_attn_varlen_func(q.flatten(0, 1), k.flatten(0, 1), v.flatten(0, 1), {LENGTHS},"
            f" {LENGTHS}, 512, 512, causal=True).unflatten(0, (-1, 512))",
            True,
        ),
        (
            "import xformers.ops as xops",
            "xops.memory_efficient_attention(q, k, v, attn_bias=xops.LowerTriangularMask())",
            True,
        ),
        (
            "import xformers.ops as xops",
            END_TO_END.format(mask="xops.fmha.BlockDiagonalMask"),
            False,
        ),
        (
            "from xformers.ops import fmha, memory_efficient_attention",
            END_TO_END.format(mask="fmha.attn_bias.BlockDiagonalCausalMask").replace("xops.", ""),
            True,
        ),
    ],
    ids=["causal", "whole", "qkv", "kv", "varlen", "xformers", "end to end", "causal ones"],
)
def test_attention_is_torch_s_fused_kernel(
    tmp_path: Path, imported: str, attend: str, causal: bool
) -> None:
    found = profile_of(tmp_path, imported, attend)
    same = profile_of(tmp_path, "", SDPA.format(causal=causal))
    assert flops(found) == flops(same) > 0
    assert [note for note in found.notes if "is not installed here" in note]
    assert not [note for note in same.notes if "is not installed here" in note]


def test_a_window_costs_what_it_sees(tmp_path: Path) -> None:
    whole = flops(profile_of(tmp_path, FLASH, "flash_attn_func(q, k, v)"))
    local = flops(profile_of(tmp_path, FLASH, "flash_attn_func(q, k, v, window_size=(64, 64))"))
    assert 0.4 * whole < local < whole


def test_norms_of_apex_are_torch_s(tmp_path: Path) -> None:
    imported = "from apex.normalization import FusedLayerNorm, FusedRMSNorm"
    attend = SDPA.format(causal=True)
    found = profile_of(tmp_path, imported, attend, norm="FusedLayerNorm(256)")
    assert found.flops == profile_of(tmp_path, "", attend).flops
    assert profile_of(tmp_path, imported, attend, norm="FusedRMSNorm(256)").parameters


@pytest.mark.parametrize(
    ("imported", "said", "fix"),
    [
        ("from flash_attn import flash_attn_with_kvcache", "stands in for its flash_attn_with", ""),
        ("from flash_attn.bert_padding import pad_input", "flash_attn.bert_padding", "plain"),
        # CUDA builds of torch bring triton.
        ("import mamba_ssm", "mamba_ssm is not installed, and is built for CUDA", "same shapes"),
        ("from apex import amp", "stands in for its amp", "same shapes"),
        ("import gpuplan_has_no_such_package", "is not installed", "pip install"),
        ("from ldm.util import default", "ldm is not installed", "if ldm is a folder"),
    ],
)
def test_what_nothing_stands_in_for_is_refused_as_such(
    tmp_path: Path, imported: str, said: str, fix: str
) -> None:
    with pytest.raises(UserFileError) as error:
        profile_of(tmp_path, imported, SDPA.format(causal=True))
    assert said in error.value.message
    assert fix.replace("plain", "torch calls") in str(error.value.fix)


def test_a_file_that_does_without_is_traced_without(tmp_path: Path) -> None:
    imported = "try:\n    import flash_attn\nexcept ImportError:\n    flash_attn = None"
    found = profile_of(tmp_path, imported, SDPA.format(causal=True))
    assert not [note for note in found.notes if "is not installed here" in note]


@pytest.mark.usefixtures("no_packages")
def test_outputs_are_those_of_attention() -> None:
    """Where there is data the stand-in computes with it."""
    notes: list[str] = []

    def attend() -> tuple[Any, Any]:
        from flash_attn import flash_attn_func  # pyright: ignore[reportMissingImports]

        x = torch.randn(2, 128, 4, 32)
        heads = x.transpose(1, 2)
        expected = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        return flash_attn_func(x, x, x, causal=True), expected.transpose(1, 2)

    found, expected = with_stand_ins(attend, notes)
    torch.testing.assert_close(found, expected)
    assert notes == [
        "flash_attn is not installed here: the trace runs torch's fused attention in its place"
    ]


@pytest.mark.usefixtures("no_packages")
@pytest.mark.parametrize("causal", [False, True])
def test_sequences_laid_end_to_end_see_themselves_alone(causal: bool) -> None:
    def attend() -> tuple[Any, Any]:
        from xformers.ops import (  # pyright: ignore[reportMissingImports]
            fmha,
            memory_efficient_attention,
        )

        lengths = [32, 32, 64, 16]
        mask = fmha.BlockDiagonalMask.from_seqlens(lengths)
        x = torch.randn(1, sum(lengths), 4, 32)
        parts = [one.transpose(1, 2) for one in x.split(lengths, 1)]
        apart = [F.scaled_dot_product_attention(p, p, p, is_causal=causal) for p in parts]
        found = memory_efficient_attention(x, x, x, mask.make_causal() if causal else mask)
        return found, torch.cat(apart, 2).transpose(1, 2)

    found, expected = with_stand_ins(attend, [])
    torch.testing.assert_close(found, expected)


def test_transformers_attends_with_torch_s_kernel_where_it_asks_for_flash(tmp_path: Path) -> None:
    path = tmp_path / "net.py"
    found: dict[str, Profile] = {}
    for name in ("flash_attention_2", "sdpa"):
        path.write_text(
            "import torch\nfrom transformers import AutoModelForCausalLM, LlamaConfig\n"
            "def build_model():\n"
            "    config = LlamaConfig(hidden_size=128, intermediate_size=256, vocab_size=512,"
            " num_hidden_layers=2, num_attention_heads=4)\n"
            f"    return AutoModelForCausalLM.from_config(config, attn_implementation={name!r})\n"
            "def make_batch(batch_size=2):\n"
            "    x = torch.randint(512, (batch_size, 64))\n"
            "    return {'input_ids': x, 'labels': x}\n"
        )
        found[name] = api.profile(path, precision="bf16-amp")
    asked, own = found.values()
    assert flops(asked) == flops(own) > 0
    assert [note for note in asked.notes if "transformers is told to use is not installed" in note]
    assert not [note for note in own.notes if "is not installed" in note]


def test_every_module_belongs_to_a_package_that_is_named() -> None:
    named = {name.partition(".")[0] for name in MODULES}
    assert named | {packages.ASKED_BY_TRANSFORMERS} == set(PACKAGES)
