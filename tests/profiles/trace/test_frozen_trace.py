"""A model that is mostly frozen is traced with its frozen parameters in 16 bits too."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from gpuplan import api
from gpuplan.planner.memory.plateaus import Envelope, envelope
from gpuplan.profiles.profile import Profile
from gpuplan.profiles.user_model.contract import load_workload
from gpuplan.profiles.user_model.structure.frozen import cast_frozen

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[3] / "examples" / "lora.py"
DIMS = {"layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocab": 96}
DIMS |= {"seq_len": 32, "rank": 2}
BATCH = 3


@pytest.fixture(scope="module")
def profile() -> Profile:
    return api.profile(EXAMPLE, params=DIMS, numerics=("amp16", "pure16"))


def shape_of(profile: Profile, numerics: str) -> Envelope:
    return envelope(profile.step(numerics), np.array([BATCH]))  # pyright: ignore[reportArgumentType]


def test_only_where_by_far_the_most_is_frozen(profile: Profile) -> None:
    assert profile.is_mostly_frozen
    assert profile.numerics() == ("amp16", "pure16", "frozen16")
    assert api.profile(EXAMPLE, params=DIMS, precision="bf16").numerics() == ("pure16",)
    whole = api.profile(EXAMPLE.with_name("decoder.py"), params={"layers": 1}, precision="bf16-amp")
    assert whole.numerics() == ("amp16",) and whole.frozen_linears is None


def test_frozen_weights_take_half_the_bytes_and_no_copies(profile: Profile) -> None:
    plain, frozen = shape_of(profile, "amp16"), shape_of(profile, "frozen16")
    saved = 2 * (profile.parameters - profile.trainable_parameters)
    kept = plain.persistent_bytes["parameters"] - frozen.persistent_bytes["parameters"]
    assert kept == pytest.approx(saved, rel=0.02)  # Each tensor is rounded to 512 bytes.
    assert frozen.persistent_bytes["optimizer"] == plain.persistent_bytes["optimizer"]
    linears = profile.frozen_linears
    assert linears is not None
    copies = plain.weight_copy_bytes.max() - frozen.weight_copy_bytes.max()
    assert copies >= 2 * 0.9 * linears.parameters


def test_the_quantised_weights_are_those_of_the_blocks(profile: Profile) -> None:
    h, kv, ffn = 64, 32, 128
    layer = h * (h + 2 * kv) + h * h + 3 * h * ffn
    linears = profile.frozen_linears
    assert linears is not None
    assert (linears.parameters, linears.largest) == (2 * layer, h * ffn)


def test_a_real_step_keeps_what_the_trace_says(profile: Profile) -> None:
    """Two real steps on the processor: dtypes, bytes of the state, bytes saved for backward."""
    workload = load_workload(api.model(EXAMPLE, params=DIMS))
    model = workload.build_model()
    cast_frozen(model, torch.bfloat16)
    optimizer = workload.build_optimizer(model.parameters())
    before = {n: p.detach().clone() for n, p in model.named_parameters()}
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16):
            loss = workload.compute_loss(model, workload.make_batch(BATCH))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    changed = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    trained = {n for n, p in model.named_parameters() if p.requires_grad}
    assert changed == trained
    assert {p.dtype for p in model.parameters() if not p.requires_grad} == {torch.bfloat16}
    kept = sum(p.nbytes for p in model.parameters())
    state = sum(
        v.nbytes for each in optimizer.state.values() for v in each.values() if v.numel() > 1
    )
    shape = shape_of(profile, "frozen16")
    assert shape.persistent_bytes["parameters"] == pytest.approx(kept, rel=0.02)
    assert shape.persistent_bytes["optimizer"] == pytest.approx(state, rel=0.1)


def test_what_backward_needs_is_saved_once(tmp_path: Path) -> None:
    """The bytes that autograd really saves in the forward pass are the trace's activations."""
    file = tmp_path / "stack.py"
    file.write_text(
        "import torch\n"
        "from torch import nn\n"
        "def build_model(width=256, layers=4):\n"
        "    first = nn.Linear(width, width // 16, bias=False)\n"
        "    rest = [nn.Linear(width // 16, width, bias=False)]\n"
        "    rest += [nn.Linear(width, width, bias=False) for _ in range(layers)]\n"
        "    for one in rest: one.requires_grad_(False)\n"
        "    return nn.Sequential(first, *rest)\n"
        "def make_batch(batch_size, width=256): return (torch.randn(batch_size, width),)\n"
        "def compute_loss(model, batch): return model(*batch).float().square().mean()\n"
    )
    traced = api.profile(file, numerics=("amp16",))
    shape = shape_of(traced, "frozen16")
    plain = shape_of(traced, "amp16")
    workload = load_workload(api.model(file))
    model = workload.build_model()
    cast_frozen(model, torch.bfloat16)
    own = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = -(-storage.nbytes() // 512) * 512
        return tensor

    batch = workload.make_batch(BATCH)
    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda one: one),
        torch.autocast("cpu", torch.bfloat16),
    ):
        workload.compute_loss(model, batch)
    held = (shape.activation_bytes[:, 0] + shape.weight_copy_bytes).max()
    assert held == pytest.approx(sum(saved.values()), abs=4 * 2**10)
    # Without it, the 16-bit copies of four frozen layers are saved as well.
    assert (plain.activation_bytes[:, 0] + plain.weight_copy_bytes).max() > held + 4 * 2 * 256**2


def test_a_hugging_face_model_with_adapters_is_traced_so_too(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 64,
        "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 2,
        "vocab_size": 50, "max_position_embeddings": 64,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    found = api.read_inputs(f"hf:{tmp_path}", lora="r=2").profile
    assert "frozen16" in found.numerics()
    assert found.trainable_parameters == 2 * 2 * 2 * (64 + 64)
    assert found.params == {"lora": "r=2,alpha=8,targets=q_proj+v_proj"}
