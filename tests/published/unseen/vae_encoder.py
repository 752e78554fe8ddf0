"""Encoder of Stable Diffusion's VAE (diffusers, AutoencoderKL.encoder), trained by itself.

34,163,664 parameters with the 1 x 1 convolution that follows it, which the encoder alone has not.
"""

import torch
import torch.nn.functional as F
from dit_vae import Encoder
from torch import Tensor, nn


def build_model() -> nn.Module:
    return Encoder()


def make_batch(batch_size: int, image: int = 512) -> tuple[Tensor, Tensor]:
    wanted = torch.randn(batch_size, 8, image // 8, image // 8)
    return torch.randn(batch_size, 3, image, image), wanted


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(batch[0]), batch[1])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-3)
