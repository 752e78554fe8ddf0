# pyright: reportMissingImports=false
"""Classifiers of images and videos in torchvision, by name. Auxiliary heads are trained too."""

import torch
import torch.nn.functional as F
from torchvision.models import get_model

VIDEOS = {"r3d_18", "mc3_18", "r2plus1d_18", "s3d", "mvit_v1_b", "mvit_v2_s", "swin3d_t"}
SIZES = {"inception_v3": 299, "vit_h_14": 224, "efficientnet_b7": 600, "efficientnet_v2_s": 384}


def build_model(name="resnet50"):
    return get_model(name, weights=None)


def make_batch(batch_size=4, name="resnet50"):
    size = SIZES.get(name, 224)
    frames = (16,) if name in VIDEOS else ()
    inputs = torch.randn(batch_size, 3, *frames, size, size)
    return inputs, torch.randint(400 if name in VIDEOS else 1000, (batch_size,))


def compute_loss(model, batch):
    inputs, labels = batch
    output = model(inputs)
    heads = output if isinstance(output, tuple) else (output,)
    return sum(F.cross_entropy(head, labels) for head in heads if head is not None)
