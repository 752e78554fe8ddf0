# pyright: reportMissingImports=false
"""Image classifiers of timm, by name, on images of the size that timm gives for them."""

import timm
import torch
import torch.nn.functional as F


def build_model(name="resnet50"):
    return timm.create_model(name, pretrained=False)


def make_batch(batch_size=8, name="resnet50"):
    config = timm.models.get_pretrained_cfg(name)
    size = config.input_size if config else (3, 224, 224)
    return torch.randn(batch_size, *size), torch.randint(1000, (batch_size,))


def compute_loss(model, batch):
    images, labels = batch
    return F.cross_entropy(model(images), labels)
