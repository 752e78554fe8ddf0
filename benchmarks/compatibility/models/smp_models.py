# pyright: reportMissingImports=false
"""Segmentation models of segmentation-models-pytorch, by name and encoder, with its Dice loss."""

import segmentation_models_pytorch as smp
import torch

CLASSES, SIZE = 4, 256


def build_model(name="Unet", encoder="resnet34"):
    return getattr(smp, name)(encoder, encoder_weights=None, classes=CLASSES)


def make_batch(batch_size=4):
    labels = torch.randint(CLASSES, (batch_size, SIZE, SIZE))
    return torch.randn(batch_size, 3, SIZE, SIZE), labels


def compute_loss(model, batch):
    images, labels = batch
    return smp.losses.DiceLoss(mode="multiclass")(model(images), labels)
