# pyright: reportMissingImports=false
"""Detectors of torchvision, by name, with five boxes in each image of 512 pixels."""

import torch
from torchvision.models import get_model

CLASSES = 91
BOXES = 5


def build_model(name="fasterrcnn_resnet50_fpn"):
    return get_model(name, weights=None, weights_backbone=None, num_classes=CLASSES)


def make_batch(batch_size=2):
    corners = torch.rand(batch_size, BOXES, 2) * 200
    boxes = torch.cat([corners, corners + 100], dim=-1)
    masks = torch.zeros(batch_size, BOXES, 512, 512, dtype=torch.uint8)
    keypoints = torch.ones(batch_size, BOXES, 17, 3)
    labels = torch.randint(CLASSES, (batch_size, BOXES))
    return torch.rand(batch_size, 3, 512, 512), boxes, labels, masks, keypoints


def compute_loss(model, batch):
    names = ("boxes", "labels", "masks", "keypoints")
    targets = [dict(zip(names, one, strict=True)) for one in zip(*batch[1:], strict=True)]
    return sum(model(list(batch[0]), targets).values())
