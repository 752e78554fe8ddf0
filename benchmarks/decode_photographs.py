"""How many photographs a core makes for training a second: `IMAGES_PER_S_PER_CORE` is from here.

    python benchmarks/decode_photographs.py

A worker of torch's DataLoader reads JPEG files of 500 x 375 pixels, decodes them with Pillow, crops
each at random to 224 x 224, mirrors half of them, normalises and batches them: what ImageNet is
trained with. `changed` does two more random things to each, as RandAugment does. Seconds are those
of the processor, over worker and parent, beyond what as few as one batch takes: other work on the
machine hardly changes them.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
from pathlib import Path

import numpy as np
import torch
from matplotlib.cbook import get_sample_data
from PIL import Image, ImageEnhance, ImageOps

SIZE = (500, 375)
CROP = 224
FILES = 64
GRAIN = (0, 3, 6)
"""Noise on top of the photograph, whose files are then of 70 to 120 kB, as ImageNet's are."""
BATCH = 128
BATCHES = 33
TURNS = 3
MEAN = torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)
STD = torch.tensor([0.229, 0.224, 0.225]).view(3, 1, 1)
CHANGES = (
    lambda image: image.rotate(15, resample=Image.Resampling.BILINEAR),
    lambda image: ImageEnhance.Color(image).enhance(1.3),
    ImageOps.autocontrast,
    lambda image: image.transform(
        image.size, Image.Transform.AFFINE, (1, 0.1, 0, 0, 1, 0), Image.Resampling.BILINEAR
    ),
)


class Photographs(torch.utils.data.Dataset):
    """Files that are read, decoded and cropped anew each time."""

    def __init__(self, files: list[Path], *, changes: int) -> None:
        self._files = files
        self._changes = changes

    def __len__(self) -> int:
        return BATCH * BATCHES

    def __getitem__(self, number: int) -> tuple[torch.Tensor, int]:
        image = _cropped(Image.open(self._files[number % len(self._files)]).convert("RGB"))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        for change in random.choices(CHANGES, k=self._changes):
            image = change(image)
        values = torch.from_numpy(np.array(image)).permute(2, 0, 1).contiguous()
        return values.to(torch.float32).div(255).sub_(MEAN).div_(STD), number


def _cropped(image: Image.Image) -> Image.Image:
    """Return a part of 8 to 100 % of the area, at most a third longer than wide, in one size."""
    area = image.width * image.height * random.uniform(0.08, 1)
    ratio = random.uniform(3 / 4, 4 / 3)
    width = min(image.width, round((area * ratio) ** 0.5))
    height = min(image.height, round((area / ratio) ** 0.5))
    left = random.randint(0, image.width - width)
    top = random.randint(0, image.height - height)
    part = image.crop((left, top, left + width, top + height))
    return part.resize((CROP, CROP), Image.Resampling.BILINEAR)


def write_files(folder: Path) -> list[Path]:
    """Write JPEG files of one photograph, each another part of it with another grain."""
    whole = Image.open(get_sample_data("grace_hopper.jpg", asfileobj=False)).convert("RGB")
    draw, files = np.random.default_rng(0), []
    for number in range(FILES):
        left, top = (int(draw.integers(0, whole.size[i] - SIZE[i])) for i in (0, 1))
        part = whole.crop((left, top, left + SIZE[0], top + SIZE[1]))
        grain = draw.normal(0, GRAIN[number % len(GRAIN)], (SIZE[1], SIZE[0], 1))
        values = (np.asarray(part) + grain).clip(0, 255).astype(np.uint8)
        files.append(folder / f"{number}.jpg")
        Image.fromarray(values).save(files[-1], quality=95)
    return files


def _processor_s(files: list[Path], *, changes: int, batches: int) -> float:
    """Return seconds of the processor that making some batches takes."""
    before = os.times()
    photographs = torch.utils.data.Subset(
        Photographs(files, changes=changes), range(BATCH * batches)
    )
    for _ in torch.utils.data.DataLoader(photographs, batch_size=BATCH, num_workers=1):
        pass
    return sum(now - then for now, then in zip(os.times()[:4], before[:4], strict=True))


def main() -> None:
    """Print photographs per second of the processor."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        files = write_files(Path(folder))
        size = statistics.mean(file.stat().st_size for file in files)
        print(f"{FILES} files of {SIZE[0]} x {SIZE[1]} pixels, {size / 1000:.0f} kB on average")
        for name, changes in (("cropped and mirrored", 0), ("changed", 2)):
            rates = []
            for _ in range(TURNS):
                few = _processor_s(files, changes=changes, batches=1)
                many = _processor_s(files, changes=changes, batches=BATCHES)
                rates.append(BATCH * (BATCHES - 1) / (many - few))
            print(f"{name:<22} {statistics.median(rates):.0f} a second of one core")


if __name__ == "__main__":
    main()
