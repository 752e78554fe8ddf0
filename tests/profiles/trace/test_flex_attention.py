"""flex_attention is traced as a fused kernel over the blocks that its mask keeps."""

import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

from gpuplan.profiles.profile import Profile
from gpuplan.profiles.trace.gpu.flex import KeptBlocks, kept_blocks
from gpuplan.profiles.trace.trace import trace_workload
from gpuplan.profiles.user_model.workload import Workload

TOKENS, HEADS, WIDTH = 1024, 4, 64
BLOCKS = (128, 128)

Attention = Callable[..., torch.Tensor]
"""Of queries, keys, values and what they were made of."""


def causal(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return query >= key


def window(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return (query >= key) & (query - key < 256)


def every_third_block(batch: Any, head: Any, query: Any, key: Any) -> Any:
    return (query // 128 + key // 128) % 3 == 0


def exact_share(mask: Any, tokens: int) -> float:
    return 1 - create_block_mask(mask, None, None, tokens, tokens, device="cpu").sparsity() / 100


@pytest.mark.parametrize("mask", [causal, window, every_third_block])
@pytest.mark.parametrize("tokens", [1024, 1000, 4096])
def test_the_share_of_kept_blocks_is_that_of_torch(mask: Any, tokens: int) -> None:
    kept = kept_blocks(mask, tokens, tokens, BLOCKS)
    # Of the last block, which 1,000 tokens do not fill, torch counts what there is.
    assert kept.share == pytest.approx(exact_share(mask, tokens), rel=0.05 if tokens % 128 else 0)
    assert kept.causal == (mask is causal) and not kept.reads_data


def test_of_a_long_mask_a_part_of_its_rows_is_looked_at() -> None:
    kept = kept_blocks(window, 2**17, 2**17, BLOCKS)
    # Of 1,024 blocks a row of blocks keeps 3, the first two fewer.
    assert kept.share == pytest.approx(3 / 1024, rel=0.05)


def test_documents_on_the_device_are_taken_as_one() -> None:
    documents = torch.zeros(TOKENS, dtype=torch.long, device="meta")

    def mask(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return (documents[query] == documents[key]) & (query >= key)

    kept = kept_blocks(mask, TOKENS, TOKENS, BLOCKS)
    assert kept.causal and kept.reads_data
    assert "as if all values that the mask reads were equal" in kept.said(compiled=True)


def test_what_a_mask_holds_is_not_kept_alive() -> None:
    documents = torch.zeros(TOKENS, dtype=torch.long, device="meta")
    held = weakref.ref(documents)

    def mask(batch: Any, head: Any, query: Any, key: Any, documents: Any = documents) -> Any:
        return documents[query] == documents[key]

    assert kept_blocks(mask, TOKENS, TOKENS, BLOCKS).share == 1
    del mask, documents
    assert held() is None


def test_a_mask_may_be_an_object() -> None:
    class Within:
        __slots__ = ()
        __hash__ = None  # pyright: ignore[reportAssignmentType]

        def __call__(self, *places: Any) -> Any:
            return window(*places)

    assert kept_blocks(Within(), TOKENS, TOKENS, BLOCKS) == kept_blocks(
        window, TOKENS, TOKENS, BLOCKS
    )


def test_where_zeros_would_hide_everything_all_blocks_count() -> None:
    lengths = torch.zeros(1, dtype=torch.long, device="meta")

    def mask(batch: Any, head: Any, query: Any, key: Any) -> Any:
        return key < lengths[batch]

    assert kept_blocks(mask, TOKENS, TOKENS, BLOCKS) == KeptBlocks(1.0, False, reads_data=True)


def test_a_mask_that_fails_keeps_everything() -> None:
    def mask(batch: Any, head: Any, query: Any, key: Any) -> Any:
        raise ValueError("no such window")

    kept = kept_blocks(mask, TOKENS, TOKENS, BLOCKS)
    assert kept == KeptBlocks(1.0, False, unknown="ValueError: no such window")
    assert "over 100 % of its blocks of scores, since its mask cannot" in kept.said(compiled=True)


class Block(nn.Module):
    def __init__(self, attend: Attention, key_heads: int) -> None:
        super().__init__()
        self.attend = attend
        self.query = nn.Linear(HEADS * WIDTH, HEADS * WIDTH)
        self.key = nn.Linear(HEADS * WIDTH, key_heads * WIDTH)
        self.value = nn.Linear(HEADS * WIDTH, key_heads * WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = (
            layer(x).unflatten(-1, (-1, WIDTH)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        return self.attend(*heads, x).transpose(1, 2).flatten(2)


def profile_of(attend: Attention, key_heads: int = HEADS) -> Profile:
    return profile_of_model(lambda: Block(attend, key_heads))


def profile_of_model(build_model: Callable[[], nn.Module]) -> Profile:
    workload = Workload(
        name="flexible",
        path=Path(__file__),
        build_model=build_model,
        make_batch=lambda size: (torch.randn(size, TOKENS, HEADS * WIDTH),),
        compute_loss=lambda model, batch: model(*batch).square().mean(),
        build_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    )
    return trace_workload(workload)


def attention_flops(profile: Profile) -> float:
    step = profile.step("fp32")
    kernels = (kernel for at in step.schedule for kernel in step.segments[at].kernels)
    return sum(one.flops.per_sample for one in kernels if one.kind == "attention")


def flexible(mask: Any = None, **settings: Any) -> Attention:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        blocks = mask and create_block_mask(mask, None, None, TOKENS, TOKENS, device=x.device)
        found: Any = flex_attention(q, k, v, block_mask=blocks, **settings)
        return found if isinstance(found, torch.Tensor) else found[0]

    return attend


def dense(is_causal: bool) -> Attention:
    return lambda q, k, v, x: F.scaled_dot_product_attention(q, k, v, is_causal=is_causal)


@pytest.mark.slow
def test_a_causal_mask_is_the_fused_kernel_s_own() -> None:
    profile = profile_of(flexible(causal))
    assert attention_flops(profile) == attention_flops(profile_of(dense(is_causal=True))) > 0
    assert any("calls flex_attention" in note and "causal" in note for note in profile.notes)
    assert profile.unused_parameters == 0


@pytest.mark.slow
def test_a_sparse_mask_costs_what_it_keeps() -> None:
    whole = attention_flops(profile_of(dense(is_causal=False)))
    assert attention_flops(profile_of(flexible())) == whole
    found = attention_flops(profile_of(flexible(window)))
    assert found / whole == pytest.approx(exact_share(window, TOKENS), abs=128 / TOKENS)
    assert found < 0.5 * whole


@pytest.mark.slow
def test_heads_that_share_keys_and_statistics_are_traced() -> None:
    whole = attention_flops(profile_of(dense(is_causal=False)))
    grouped = profile_of(flexible(enable_gqa=True, return_aux=AuxRequest(lse=True)), key_heads=1)
    assert attention_flops(grouped) == whole


@pytest.mark.slow
def test_to_compile_attention_is_not_to_compile_the_model() -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.compile(flex_attention)(q, k, v)  # pyright: ignore[reportReturnType]

    profile = profile_of(attend)
    assert not profile.file_compiles
    assert not [note for note in profile.notes if "Only torch.compile" in note]
    assert [note for note in profile_of(flexible()).notes if "Only torch.compile" in note]


@pytest.mark.slow
def test_what_a_changed_score_reads_gets_a_gradient() -> None:
    class Slopes(Block):
        def __init__(self) -> None:
            super().__init__(self.sloping, HEADS)
            self.slopes = nn.Parameter(torch.ones(HEADS))

        def sloping(self, q: Any, k: Any, v: Any, x: Any) -> Any:
            def steeper(score: Any, batch: Any, head: Any, query: Any, key: Any) -> Any:
                return score + self.slopes[head] * (key - query)

            return flex_attention(q, k, v, score_mod=steeper)

    profile = profile_of_model(Slopes)
    assert profile.unused_parameters == 0
    assert attention_flops(profile) == attention_flops(profile_of(dense(is_causal=False)))
