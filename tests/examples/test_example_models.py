"""The example files: their parameter counts, and one real training step of each at a small size."""

import importlib
import inspect
from types import ModuleType

import pytest
import torch

KNOWN_PARAMETERS = [
    ("gpt2", {}, 124_439_808),
    ("decoder", {}, 8_030_261_248),
    ("bert", {}, 335_174_458),
    ("bert", {"layers": 12, "hidden": 768, "heads": 12, "ffn": 3072}, 109_514_298),
    ("resnet50", {}, 25_557_032),
    ("vit", {}, 304_326_632),
    ("vit", {"layers": 12, "hidden": 768, "heads": 12, "ffn": 3072}, 86_567_656),
    ("unet_diffusion", {}, 35_746_307),
    ("unet3d_medical", {}, 31_195_904),
    ("lstm", {}, 66_034_000),
    ("dlrm", {}, 540_677_217),
    ("gnn", {}, 206_895),
    ("lines", {}, 27_456),
    ("lora", {}, 8_030_261_248 + 9_437_184),
]

SMALL_BERT = {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "vocab": 50, "seq_len": 16}
SMALL_DECODER = {
    "layers": 2,
    "hidden": 32,
    "heads": 4,
    "kv_heads": 2,
    "ffn": 48,
    "vocab": 50,
    "seq_len": 16,
}
SMALL = [
    ("gpt2", {"layers": 2, "hidden": 32, "heads": 4, "vocab": 50, "seq_len": 16}),
    ("decoder", SMALL_DECODER),
    ("bert", SMALL_BERT),
    ("bert", {**SMALL_BERT, "attention": "eager"}),
    ("bert", {**SMALL_BERT, "head": "span"}),
    ("resnet50", {"classes": 5, "image": 64}),
    ("resnet50", {"classes": 5, "image": 64, "channels_last": False}),
    ("vit", {"layers": 2, "hidden": 32, "heads": 4, "ffn": 64, "image": 32, "classes": 5}),
    ("unet_diffusion", {"channels": 32, "multipliers": [1, 2], "image": 8, "attention_at": 4}),
    ("unet3d_medical", {"features": [4, 8, 8], "patch": 16}),
    ("lstm", {"hidden": 16, "vocab": 50, "seq_len": 7}),
    ("dlrm", {"rows": [7, 11, 3], "dim": 4, "bottom": [8], "top": [8]}),
    ("gnn", {"features": 6, "hidden": 8, "classes": 3, "nodes": 9, "edges": 8}),
    ("lora", {**SMALL_DECODER, "rank": 4}),
    ("lines", {"hidden": 8}),
    ("lines", {"hidden": 8, "matrices": "muon"}),
]


@pytest.fixture(autouse=True)
def examples_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the folder of the examples first, as gpuplan does with the folder of a user's file."""
    folder = importlib.import_module("gpuplan.examples").__path__[0]
    monkeypatch.syspath_prepend(folder)


def load(name: str) -> ModuleType:
    return importlib.import_module(name)


def call(function, *args, **params):
    """Call a function of the contract with the params it takes, as gpuplan does."""
    taken = inspect.signature(function).parameters
    return function(*args, **{key: value for key, value in params.items() if key in taken})


def count(model: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "params", "expected"), KNOWN_PARAMETERS)
def test_parameters_equal_the_published_count(name: str, params: dict, expected: int) -> None:
    module = load(name)
    with torch.device("meta"):
        assert count(module.build_model(**params)) == expected
    assert f"{expected:,}" in (module.__doc__ or "") or name == "lora"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "params"), SMALL)
def test_one_training_step_reaches_every_trainable_parameter(name: str, params: dict) -> None:
    module = load(name)
    torch.manual_seed(0)
    model = call(module.build_model, **params)
    batch = call(module.make_batch, 2, **params)
    trainable = [p for p in model.parameters() if p.requires_grad]
    before = [p.detach().clone() for p in trainable]
    optimizer = torch.optim.SGD(trainable, lr=0.1)

    loss = module.compute_loss(model, batch)
    loss.backward()
    optimizer.step()

    assert loss.shape == ()
    assert torch.isfinite(loss)
    assert all(p.grad is not None for p in trainable)
    assert any(not torch.equal(p, old) for p, old in zip(trainable, before, strict=True))


@pytest.mark.parametrize("name", ["gpt2", "decoder", "bert", "lstm"])
def test_tokens_per_sample_follow_the_sequence_length(name: str) -> None:
    module = load(name)
    tokens, _ = module.make_batch(1, vocab=11, seq_len=24)
    assert module.TOKENS_PER_SAMPLE(seq_len=24) == tokens.numel() == 24


def test_lora_trains_the_adapters_alone() -> None:
    with torch.device("meta"):
        model = load("lora").build_model()
    trainable = [name for name, p in model.named_parameters() if p.requires_grad]
    assert sum(model.get_parameter(name).numel() for name in trainable) == 9_437_184
    assert all(name.endswith(("down.weight", "up.weight")) for name in trainable)


def test_resnet50_is_in_channels_last_order_unless_told_otherwise() -> None:
    module = load("resnet50")
    images, _ = module.make_batch(2, image=32)
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert module.build_model().stem[0].weight.stride()[1] == 1
    assert module.make_batch(2, image=32, channels_last=False)[0].is_contiguous()


def test_deepview_entry_points_run_an_iteration() -> None:
    module = load("deepview_resnet")
    model = module.deepview_model_provider()
    before = model.head.weight.detach().clone()
    images, labels = module.deepview_input_provider(batch_size=2)
    module.deepview_iteration_provider(model)(images[:, :, :64, :64], labels)
    assert count(model) == 25_557_032
    assert not torch.equal(model.head.weight, before)


@pytest.mark.slow
def test_lightning_module_takes_a_step() -> None:
    module = load("lightning_classifier")
    classifier = module.Classifier(width=8, batch_size=4)
    batch = next(iter(classifier.train_dataloader()))
    classifier.training_step(batch, 0).backward()
    assert all(p.grad is not None for p in classifier.parameters())
    with torch.device("meta"):
        assert f"{count(module.Classifier()):,}" in (module.__doc__ or "")


@pytest.mark.slow
def test_hugging_face_config_describes_a_llama() -> None:
    import transformers

    folder = importlib.import_module("gpuplan.examples").__path__[0]
    config = transformers.AutoConfig.from_pretrained(f"{folder}/hf_llama_config")
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
        ours = load("decoder").build_model(
            layers=8, hidden=1024, heads=16, kv_heads=4, ffn=2816, vocab=32000, seq_len=2048
        )
    assert count(model) == count(ours)
