"""What a device like the embedded H200 would measure."""

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.profiles.calibrate.schedule import Point
from gpuplan.profiles.curves.device_curves import DeviceCurves

H200 = load_catalogue().accelerators["H200-141GB-SXM"]


def true_s(point: Point, curves: DeviceCurves) -> float:
    """Return what a device like the embedded one would measure."""
    if point.part in ("gemm", "batched"):
        m, n, k, *batch = point.shape
        return float(curves.gemm_s(m, n, k, batch=batch[0] if batch else 1, dtype=point.dtype))
    if point.part.startswith("attention"):
        dim, heads, seq, group = point.shape
        shape = (1, heads, heads / group, seq, seq, dim)
        time = curves.attention_s(*shape, causal=True, dtype=point.dtype)
        return float(time) * (2.4 if "backward" in point.part else 1)
    if point.part.startswith("convolution"):
        return point.flops / 2e14 + 5e-6
    if point.part == "stream":
        share = {"pointwise": 0.9, "embedding": 0.5}.get(point.dtype, 0.8)
        return 2e-6 + point.size_bytes / (share * H200.memory_bandwidth_bytes_per_s)
    return float(curves.collective_s("all_reduce", point.shape[1], point.shape[0]))
