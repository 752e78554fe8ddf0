"""U-Net of Stable Diffusion 2, 865,910,724 parameters, trained on latents encoded beforehand.

Source: the config of stabilityai/stable-diffusion-2-base (unet/config.json); mosaicml/diffusion and
the MLPerf benchmark train this U-Net on noised latents and the outputs of a frozen text encoder.
Needs diffusers; its profiles are kept in `sd2_unet.profiles.jsonl.xz`.
"""

import torch
import torch.nn.functional as F
from diffusers import UNet2DConditionModel  # pyright: ignore[reportMissingImports]
from torch import Tensor, nn


def build_model(latent: int = 32, channels_last: bool = False) -> nn.Module:
    model = UNet2DConditionModel(
        sample_size=latent,
        cross_attention_dim=1024,
        attention_head_dim=(5, 10, 20, 20),
        use_linear_projection=True,
    )
    return model.to(memory_format=memory_format(channels_last))


def make_batch(
    batch_size: int = 32, latent: int = 32, channels_last: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    latents = torch.randn(batch_size, 4, latent, latent)
    latents = latents.to(memory_format=memory_format(channels_last))
    return latents, torch.randint(1000, (batch_size,)), torch.randn(batch_size, 77, 1024)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    return F.mse_loss(model(*batch).sample, batch[0])


def memory_format(channels_last: bool) -> torch.memory_format:
    return torch.channels_last if channels_last else torch.contiguous_format
