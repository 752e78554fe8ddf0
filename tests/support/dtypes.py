"""Which dtypes the kernel times are asked in, by the catalogue alone."""

from gpuplan.catalog.types import Accelerator


def multiplies_in(device: Accelerator, dtype: str) -> bool:
    """Return whether a device multiplies matrices in this dtype.

    tf32 counts wherever fp32 does: without tf32 units torch runs plain fp32.
    """
    return dtype in device.peak_flops or (dtype == "tf32" and "fp32" in device.peak_flops)
