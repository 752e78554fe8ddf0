"""The training steps that are measured, the most informative first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

PRECISIONS = ("fp32", "tf32", "bf16-amp", "fp16-amp", "bf16")
RECOMPUTES = ("none", "selective", "full")
EAGER_S = 10.0
"""Seconds that an eager case is expected to take: building, warming up, measuring."""
COMPILED_S = 90.0
"""The same where the model is compiled first."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One training step to measure: a model file with its params, and how the step is run."""

    name: str
    """Name of the model, in the id of the case."""
    model: str
    """A model file in `examples/`, or the path of one."""
    params: dict[str, Any] = field(default_factory=dict)
    precision: str = "bf16-amp"
    micro_batch: int
    recompute: str = "none"
    compile: bool = False
    attention: str | None = None
    """Which attention runs: "fused" is torch's scaled_dot_product_attention."""

    def __post_init__(self) -> None:
        _check_choice("precision", self.precision, PRECISIONS)
        _check_choice("recompute", self.recompute, RECOMPUTES)
        if not isinstance(self.micro_batch, int) or self.micro_batch < 1:
            raise ValueError(f"micro_batch is {self.micro_batch!r}; it must be 1 or more")

    @property
    def id(self) -> str:
        """Return a name that no other case has, such as `gpt2-124m.bf16-amp.mb16.compile`."""
        parts = [self.name, self.precision, f"mb{self.micro_batch}"]
        if self.recompute != "none":
            parts.append(f"rc-{self.recompute}")
        return ".".join([*parts, "compile"] if self.compile else parts)

    @property
    def expected_s(self) -> float:
        """Return the seconds that measuring it is expected to take."""
        return COMPILED_S if self.compile else EAGER_S

    def to_json(self) -> str:
        """Return the case as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Case:
        """Return the case that `to_json` wrote."""
        return cls(**json.loads(text))


@dataclass(frozen=True)
class Model:
    """A model file with its params, and the micro-batch sizes it is trained at."""

    file: str
    params: dict[str, Any]
    usual: int
    others: tuple[int, ...] = ()
    attention: str | None = None
    precision: str = "bf16-amp"


def _gpt2(layers: int, hidden: int, heads: int) -> dict[str, Any]:
    return {"layers": layers, "hidden": hidden, "heads": heads, "vocab": 50257, "seq_len": 1024}


def _llama(layers: int, hidden: int, heads: int, ffn: int, **more: Any) -> dict[str, Any]:
    shape = {"layers": layers, "hidden": hidden, "heads": heads, "kv_heads": 8, "ffn": ffn}
    return {**shape, "vocab": 128256, "seq_len": 2048, **more}


def _decoder(*shape: int, **more: Any) -> dict[str, Any]:
    return _llama(*shape, tied_embeddings=True, attention="fused", **more)


MODELS: dict[str, Model] = {
    # Sizes of Radford et al. 2019, table 2 (350M is the usual name of the 24-layer model).
    "gpt2-124m": Model("gpt2.py", _gpt2(12, 768, 12), 16, (64, 4, 1, 32, 8, 2), "fused"),
    "resnet50": Model("resnet50.py", {"channels_last": True}, 128, (16, 256, 64, 512)),
    "bert-large": Model("bert.py", {"seq_len": 512, "attention": "fused"}, 16, (64, 4), "fused"),
    # Llama-3.2-1B and -3B (config.json of the releases), cut to 2,048 tokens.
    "decoder-1b": Model("decoder.py", _decoder(16, 2048, 32, 8192), 4, (1, 8, 2, 16), "fused"),
    "gpt2-774m": Model("gpt2.py", _gpt2(36, 1280, 20), 8, (2, 16), "fused"),
    "vit-l": Model("vit.py", {}, 64, (8, 256), "fused"),
    "unet-diffusion": Model("unet_diffusion.py", {}, 128, (16, 512), "fused"),
    "unet3d-medical": Model("unet3d_medical.py", {}, 2, (4, 1)),
    "lstm": Model("lstm.py", {}, 128, (20, 1024), precision="fp32"),
    "dlrm": Model("dlrm.py", {}, 2048, (16384,), precision="fp32"),
    "gnn": Model("gnn.py", {}, 256, (32, 1024), precision="fp32"),
    "gpt2-350m": Model("gpt2.py", _gpt2(24, 1024, 16), 16, (4, 32), "fused"),
    "decoder-3b": Model(
        "decoder.py", _decoder(28, 3072, 24, 8192, head_dim=128), 2, (1, 4), "fused"
    ),
    "lora-8b": Model("lora.py", _llama(32, 4096, 32, 14336), 1, (4,), "fused", "bf16"),
}


def all_cases() -> tuple[Case, ...]:
    """Return every case once, in the order in which they are worth measuring.

    First each model as it is usually trained; then other precisions, compiled models and
    recompute; then other micro-batches; last the steps that are near the memory of large devices.
    """
    return tuple({case.id: case for case in _in_order()}.values())


def read_cases(path: Path) -> tuple[Case, ...]:
    """Return the cases of a JSON file: a list of objects with the fields of `Case`.

    Raises:
        ValueError: it is no such list; the message names the case.
    """
    listed = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(listed, list) or not all(isinstance(item, dict) for item in listed):
        raise ValueError("it must be a list of objects")
    known = {one.name for one in fields(Case)}
    needed = {"name", "model", "micro_batch"}
    cases = []
    for number, item in enumerate(listed, start=1):
        if wrong := sorted(set(item) - known) or sorted(needed - set(item)):
            problem = "unknown key" if wrong[0] in item else "missing key"
            raise ValueError(f"case {number}: {problem} {wrong[0]!r}")
        try:
            cases.append(Case(**item))
        except ValueError as error:
            raise ValueError(f"case {number}: {error}") from None
        if cases[-1].id in [case.id for case in cases[:-1]]:
            raise ValueError(f"case {number}: another one is {cases[-1].id} too; rename one")
    return tuple(cases)


def _in_order() -> Iterator[Case]:
    for name in MODELS:
        yield _case(name)
    yield from _other_precisions()
    yield from _compiled(("gpt2-124m", "resnet50", "bert-large"))
    yield from _recomputed()
    yield from _other_micro_batches()
    yield from _compiled(("vit-l", "decoder-1b", "unet-diffusion", "gpt2-774m"))
    yield _case("gpt2-124m", precision="fp32", compile=True)
    yield from _large()


def _other_precisions() -> Iterator[Case]:
    for precision in ("tf32", "fp16-amp", "fp32", "bf16"):
        yield _case("gpt2-124m", precision=precision)
    for precision in ("tf32", "fp16-amp", "fp32"):
        yield _case("resnet50", precision=precision)
        yield _case("bert-large", precision=precision)
    yield _case("lstm", precision="bf16-amp")
    yield _case("dlrm", precision="bf16-amp")
    yield _case("gnn", precision="bf16-amp")
    yield _case("decoder-1b", precision="bf16")
    yield _case("decoder-3b", precision="bf16")
    for name in ("vit-l", "unet-diffusion", "unet3d-medical", "gpt2-774m"):
        yield _case(name, precision="tf32")
        yield _case(name, precision="fp16-amp")
    yield _case("unet-diffusion", precision="fp32")


def _compiled(names: tuple[str, ...]) -> Iterator[Case]:
    for name in names:
        yield _case(name, compile=True)


def _recomputed() -> Iterator[Case]:
    for recompute in ("full", "selective"):
        for name in ("gpt2-124m", "decoder-1b", "bert-large", "gpt2-774m", "vit-l"):
            yield _case(name, recompute=recompute)
    yield _case("decoder-3b", recompute="full", micro_batch=8)
    yield _case("lora-8b", recompute="full", micro_batch=4)


def _other_micro_batches() -> Iterator[Case]:
    longest = max(len(model.others) for model in MODELS.values())
    for place in range(longest):
        for name, model in MODELS.items():
            if place < len(model.others):
                yield _case(name, micro_batch=model.others[place])


def _large() -> Iterator[Case]:
    yield _case("decoder-3b", micro_batch=8)
    yield _case("gpt2-774m", precision="fp32", micro_batch=32)
    yield _case("decoder-1b", micro_batch=32)
    yield _case("decoder-3b", recompute="full", micro_batch=32)
    yield _case("gpt2-774m", micro_batch=64)
    yield _case("unet3d-medical", precision="fp32", micro_batch=16)


def _case(name: str, *, micro_batch: int | None = None, precision: str = "", **how: Any) -> Case:
    model = MODELS[name]
    return Case(
        name=name,
        model=model.file,
        params=model.params,
        precision=precision or model.precision,
        micro_batch=micro_batch or model.usual,
        attention=model.attention,
        **how,
    )


def _check_choice(what: str, given: str, allowed: tuple[str, ...]) -> None:
    if given not in allowed:
        raise ValueError(f"{what} is {given!r}; allowed: {', '.join(allowed)}")
