# pyright: reportMissingImports=false
"""Pairs of image and text encoders of open_clip, by name, with its own contrastive loss."""

import open_clip
import torch


def build_model(name="ViT-B-32"):
    return open_clip.create_model(name, pretrained=None)


def make_batch(batch_size=8, name="ViT-B-32"):
    config = open_clip.get_model_config(name)
    size = config["vision_cfg"].get("image_size", 224)
    tokens = config["text_cfg"].get("context_length", 77)
    words = config["text_cfg"].get("vocab_size", 49408)
    return torch.randn(batch_size, 3, size, size), torch.randint(words, (batch_size, tokens))


def compute_loss(model, batch):
    output = model(*batch)
    if isinstance(output, dict):
        output = output["image_features"], output["text_features"], output["logit_scale"]
    if getattr(model, "logit_bias", None) is not None:
        return open_clip.loss.SigLipLoss()(*output[:3], logit_bias=model.logit_bias)
    return open_clip.ClipLoss()(*output[:3])
