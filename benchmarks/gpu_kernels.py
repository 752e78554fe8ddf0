"""Show where the time of measured steps goes: kernels by kind, and what the host takes.

One command, on a machine with torch, a GPU and this checkout (gpuplan need not be installed):

    python benchmarks/gpu_kernels.py --out kernels.json
    python benchmarks/gpu_kernels.py --out kernels.json --only bert-large

`gpu_evidence.py` says how long a step takes, this why: the kernels of some of its cases by name and
shape, single products, attention by each of torch's ways, streams of memory, and the host's time of
one operation as it is, under autocast and in checkpoints. Parts are written one by one.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from evidence.cases import MODELS, Case
from evidence.step import TrainingStep
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy, layer_norm, linear, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint, create_selective_checkpoint_contexts

STEPS = (
    ("gpt2-124m", "bf16-amp", "none"),
    ("bert-large", "bf16-amp", "selective"),
    ("bert-large", "bf16-amp", "none"),
    ("decoder-1b", "bf16", "none"),
    ("decoder-1b", "bf16-amp", "none"),
    ("unet-diffusion", "bf16-amp", "none"),
    ("unet-diffusion", "tf32", "none"),
    ("gnn", "fp32", "none"),
    ("lstm", "fp32", "none"),
    ("gpt2-350m", "bf16-amp", "none"),
    ("resnet50", "bf16-amp", "none"),
    ("dlrm", "fp32", "none"),
)
"""Those that predictions miss by most, beside like ones that they meet (docs/evidence.md)."""
WARM_UP, TIMED, PROFILED = 4, 5, 2
MOST_ROWS = 70


def main() -> None:
    """Measure all parts, or those whose name holds a word."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="JSON, rewritten after each part")
    parser.add_argument("--only", action="append", default=[], help="parts whose name holds it")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    found: dict[str, Any] = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version()}
    for name, part in parts(options.device):
        if options.only and not any(word in name for word in options.only):
            continue
        started_s = time.perf_counter()
        try:
            found[name] = part()
        except Exception as error:  # One that fails must not cost the others their time.
            found[name] = f"{type(error).__name__}: {error}"[:400]
        print(f"{name}: {time.perf_counter() - started_s:.1f} s", flush=True)
        options.out.write_text(json.dumps(found), encoding="utf-8")
        gc.collect()
        if options.device == "cuda":
            torch.cuda.empty_cache()


def parts(device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield what can be measured on a device, the shortest first."""
    yield "host_us", functools.partial(host_us, device)
    if device == "cuda":
        yield "products_us", products_us
        yield "attention_us", attention_us
        yield "streams_us", streams_us
    for name, precision, recompute in STEPS:
        model = MODELS[name]
        case = Case(
            name=name,
            model=model.file,
            params=model.params,
            precision=precision,
            micro_batch=model.usual,
            recompute=recompute,
        )
        yield f"step/{case.id}", functools.partial(profiled, case, device)


def profiled(case: Case, device: str) -> dict[str, Any]:
    """Return the time of a step, how long its launches take, and its kernels by operation."""
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = case.precision == "tf32"
    step = TrainingStep(case, device)
    for _ in range(WARM_UP):
        step()
    _wait(device)
    started_s = time.perf_counter()
    for _ in range(TIMED):
        step()
    submitted_s = time.perf_counter() - started_s
    _wait(device)
    whole_s = time.perf_counter() - started_s
    activity = torch.profiler.ProfilerActivity
    with torch.profiler.profile(
        activities=[activity.CPU, activity.CUDA], record_shapes=True
    ) as profile:
        for _ in range(PROFILED):
            step()
        _wait(device)
    rows = [
        (one.key, str(one.input_shapes)[:160], one.count / PROFILED, one.self_device_time_total)
        for one in profile.key_averages(group_by_input_shape=True)
        if one.self_device_time_total > 0
    ]
    rows.sort(key=lambda row: -row[3])
    calls = sum(one.name.startswith("aten::") for one in profile.events() or ())
    return {
        "step_ms": 1e3 * whole_s / TIMED,
        "launched_ms": 1e3 * submitted_s / TIMED,
        "operations": calls / PROFILED,
        "rows_us": [(*row[:3], row[3] / PROFILED) for row in rows[:MOST_ROWS]],
    }


def host_us(device: str) -> dict[str, float]:
    """Return microseconds of the host in one operation on tensors that take next to no time."""
    plain = torch.randn(64, 64, device=device)
    trained = torch.randn(64, 64, device=device, requires_grad=True)
    layer, norm = nn.Linear(64, 64, device=device), nn.LayerNorm(64, device=device)
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: plain + plain,
        "add with a gradient": lambda: trained + plain,
        "linear": lambda: layer(plain),
        "layer norm": lambda: norm(plain),
    }
    found = {name: _host_us(call, device) for name, call in calls.items()}
    with torch.autocast(device, torch.bfloat16):
        found |= {f"{name}, autocast": _host_us(call, device) for name, call in calls.items()}
    kept = functools.partial(create_selective_checkpoint_contexts, [torch.ops.aten.mm.default])
    ways: dict[str, dict[str, Any] | None] = {
        "none": None,
        "full": {},
        "selective": {"context_fn": kept},
    }

    def twenty(value: Tensor) -> Tensor:
        for _ in range(20):
            value = value + plain
        return value

    def both_passes(way: dict[str, Any] | None) -> None:
        done = (
            twenty(trained)
            if way is None
            else checkpoint(twenty, trained, use_reentrant=False, **way)
        )
        done.sum().backward()

    for name, way in ways.items():
        call = functools.partial(both_passes, way)
        found[f"20 operations, both passes, recompute {name}"] = _host_us(call, device, times=300)
    return found


def products_us() -> list[tuple[int, ...]]:
    """Return (m, k, n, forward, of the input, of the weight) of linear layers in bf16."""
    sizes = [
        (rows, width, vocab)
        for rows, width in ((16384, 768), (16384, 1024), (8192, 1280), (8192, 2048))
        for vocab in (50257, 50260, 50304)
    ]
    sizes += [(8192, 2048, n) for n in (512, 2048, 8192, 128256)]
    sizes += [(8192, 8192, 2048), (8192, 4096, 4096), (16384, 768, 3072), (16384, 3072, 768)]
    found = []
    for m, k, n in sizes:
        given, weight, out = _random(m, k), _random(n, k), _random(m, n)
        times = (
            _device_us(lambda: linear(given, weight)),  # noqa: B023
            _device_us(lambda: out @ weight),  # noqa: B023
            _device_us(lambda: out.t() @ given),  # noqa: B023
        )
        found.append((m, k, n, *times))
    return found


def attention_us() -> list[tuple[Any, ...]]:
    """Return (batch, heads, length, width, way, forward, both passes) of causal attention."""
    ways = {"torch's choice": None, "flash": SDPBackend.FLASH_ATTENTION}
    ways["cudnn"] = SDPBackend.CUDNN_ATTENTION
    found: list[tuple[Any, ...]] = []
    for size in (
        *((16, 12, 1024, 64), (4, 32, 2048, 64), (2, 24, 2048, 128), (1, 32, 8192, 64)),
        *((1, 32, 8192, width) for width in (72, 80, 96, 100, 112, 128)),
    ):
        query, key, value = (_random(*size).requires_grad_() for _ in range(3))
        after = _random(*size)

        def forward(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            return scaled_dot_product_attention(query, key, value, is_causal=True)

        def both(*tensors: Tensor, last: Tensor) -> None:
            torch.autograd.grad(forward(*tensors), tensors, last)

        one = functools.partial(forward, query, key, value)
        two = functools.partial(both, query, key, value, last=after)
        for name, way in ways.items():
            try:
                if way is None:
                    times = _device_us(one), _device_us(two)
                else:
                    with sdpa_kernel(way):
                        times = _device_us(one), _device_us(two)
            except RuntimeError as error:
                times = (str(error)[:200],)
            found.append((*size, name, *times))
    return found


def streams_us() -> dict[str, float]:
    """Return microseconds of memory-bound kernels on 256 MiB in bf16."""
    wide = _random(2**27)
    plain = wide.float()
    rows, scale = _random(16384, 2048), _random(2048)
    logits = torch.randn(4096, 50257, device="cuda", requires_grad=True)
    labels = torch.randint(0, 50257, (4096,), device="cuda")
    return {
        "add": _device_us(lambda: wide + wide),
        "copy": _device_us(wide.clone),
        "to fp32": _device_us(wide.float),
        "to bf16": _device_us(plain.bfloat16),
        "add in fp32": _device_us(lambda: plain + plain),
        "gelu": _device_us(lambda: nn.functional.gelu(wide)),
        "layer norm, 16384 x 2048": _device_us(lambda: layer_norm(rows, (2048,), scale, scale)),
        "cross-entropy, both passes, 4096 x 50257": _device_us(
            lambda: torch.autograd.grad(cross_entropy(logits, labels), logits)
        ),
    }


def _random(*size: int) -> Tensor:
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16)


def _device_us(call: Callable[[], object], times: int = 10) -> float:
    for _ in range(3):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        call()
    end.record()
    torch.cuda.synchronize()
    return 1e3 * begin.elapsed_time(end) / times


def _host_us(call: Callable[[], object], device: str, times: int = 3000) -> float:
    for _ in range(min(100, times)):
        call()
    _wait(device)
    started_s = time.perf_counter()
    for _ in range(times):
        call()
    taken_s = time.perf_counter() - started_s
    _wait(device)
    return 1e6 * taken_s / times


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
