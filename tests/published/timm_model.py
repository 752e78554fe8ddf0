"""Image classifiers of timm by name, as timm 0.6's own benchmark trains them.

Source: benchmark.py of huggingface/pytorch-image-models at v0.6.7 (2022-07): random images and
labels on the device, cross entropy, SGD with Nesterov momentum. Of a model with several outputs the
first alone is trained. Needs timm 0.6.7; its profiles are kept in `timm_model.profiles.jsonl.xz`.
"""

import timm  # pyright: ignore[reportMissingImports]
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(name: str = "resnet50", nhwc: bool = False) -> nn.Module:
    model = timm.create_model(name, pretrained=False)
    if nhwc:
        model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
    return model


def make_batch(batch_size: int, img: int = 224, nhwc: bool = False) -> tuple[Tensor, Tensor]:
    images = torch.randn(batch_size, 3, img, img)
    if nhwc:
        images = images.contiguous(memory_format=torch.channels_last)
    return images, torch.randint(1000, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, labels = batch
    output = model(images)
    return F.cross_entropy(output[0] if isinstance(output, tuple) else output, labels)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, nesterov=True)
