"""Lets torchvision be imported where its compiled operators cannot be loaded.

Run as a script it puts itself into its environment, where every interpreter then imports it;
`scripts/install.sh` does so wherever it installs torchvision. A build of torchvision for CUDA needs
a library that a CPU build of torch does not bring; its import then ends at two operators that were
never declared. Their schemas are enough to trace models: those are of torchvision's own sources
(csrc/ops/nms.cpp and csrc/ops/quantized of version 0.28).
"""

import importlib.util
import shutil
import sys
import sysconfig
from importlib.abc import MetaPathFinder
from pathlib import Path

SCHEMAS = {
    "torchvision::nms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "torchvision::qnms": "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
}


class DeclareOperators(MetaPathFinder):
    """Declares the operators when torchvision is first looked for; finds nothing itself."""

    def find_spec(self, fullname, path, target=None):
        """Return None: torchvision is found where it is installed."""
        if fullname == "torchvision":
            sys.meta_path.remove(self)
            declare_missing_operators()


def declare_missing_operators():
    """Declare the operators, unless torchvision's own library can be loaded and does so."""
    import torch

    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return
    for library in Path(found.origin).parent.glob("_C*"):
        try:
            torch.ops.load_library(str(library))
            return
        except OSError:
            pass
    for name, schema in SCHEMAS.items():
        torch.library.define(name, schema)


def install():
    """Copy this file to where packages are, with a path file that imports it at every start."""
    packages = Path(sysconfig.get_path("purelib"))
    shutil.copy(__file__, packages)
    name = Path(__file__).stem
    (packages / f"{name}.pth").write_text(f"import {name}\n")


if __name__ == "__main__":
    install()
else:
    sys.meta_path.insert(0, DeclareOperators())
