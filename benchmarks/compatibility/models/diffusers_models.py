# pyright: reportMissingImports=false
"""Denoisers and autoencoders of diffusers with the sizes of published checkpoints, by name."""

import diffusers
import torch
import torch.nn.functional as F

TEXT = 77


def build_model(name="sd15_unet"):
    cls, config, _ = MODELS[name]
    return getattr(diffusers, cls)(**config)


def make_batch(batch_size=2, name="sd15_unet"):
    return MODELS[name][2](batch_size)


def compute_loss(model, batch):
    output = model(**batch)
    value = getattr(output, "sample", None)
    if value is None:  # A ControlNet adds to every level of a U-Net.
        return sum(one.square().mean() for one in output.down_block_res_samples)
    return F.mse_loss(value, torch.zeros_like(value))


def unet(text_width, size=64, **more):
    def inputs(batch_size):
        batch = {
            "sample": torch.randn(batch_size, 4, size, size),
            "timestep": torch.randint(1000, (batch_size,)),
            "encoder_hidden_states": torch.randn(batch_size, TEXT, text_width),
        }
        return batch | {key: value(batch_size) for key, value in more.items()}

    return inputs


def sdxl(batch_size):
    batch = unet(2048, 128)(batch_size)
    added = {"text_embeds": torch.randn(batch_size, 1280), "time_ids": torch.randn(batch_size, 6)}
    return batch | {"added_cond_kwargs": added}


def plain_unet(batch_size):
    return {
        "sample": torch.randn(batch_size, 3, 64, 64),
        "timestep": torch.randint(1000, (batch_size,)),
    }


def image(size):
    return lambda batch_size: {"sample": torch.randn(batch_size, 3, size, size)}


def dit(batch_size):
    return {
        "hidden_states": torch.randn(batch_size, 4, 32, 32),
        "timestep": torch.randint(1000, (batch_size,)),
        "class_labels": torch.randint(1000, (batch_size,)),
    }


def pixart(batch_size):
    return {
        "hidden_states": torch.randn(batch_size, 4, 64, 64),
        "timestep": torch.randint(1000, (batch_size,)),
        "encoder_hidden_states": torch.randn(batch_size, 120, 4096),
        "added_cond_kwargs": {"resolution": None, "aspect_ratio": None},
    }


def flux(batch_size):
    return {
        "hidden_states": torch.randn(batch_size, 1024, 64),
        "encoder_hidden_states": torch.randn(batch_size, 256, 4096),
        "pooled_projections": torch.randn(batch_size, 768),
        "timestep": torch.rand(batch_size),
        "guidance": torch.rand(batch_size),
        "img_ids": torch.zeros(1024, 3),
        "txt_ids": torch.zeros(256, 3),
    }


def sd3(batch_size):
    return {
        "hidden_states": torch.randn(batch_size, 16, 64, 64),
        "encoder_hidden_states": torch.randn(batch_size, 154, 4096),
        "pooled_projections": torch.randn(batch_size, 2048),
        "timestep": torch.rand(batch_size),
    }


def video(batch_size):
    return {
        "hidden_states": torch.randn(batch_size, 16, 5, 60, 90),
        "encoder_hidden_states": torch.randn(batch_size, 226, 4096),
        "timestep": torch.rand(batch_size),
    }


SD15 = {"cross_attention_dim": 768, "attention_head_dim": 8}
SDXL = {
    "block_out_channels": (320, 640, 1280),
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
    "transformer_layers_per_block": (1, 2, 10),
    "attention_head_dim": (5, 10, 20),
    "cross_attention_dim": 2048,
    "use_linear_projection": True,
    "addition_embed_type": "text_time",
    "addition_time_embed_dim": 256,
    "projection_class_embeddings_input_dim": 2816,
}
VAE = {
    "block_out_channels": (128, 256, 512, 512),
    "down_block_types": ("DownEncoderBlock2D",) * 4,
    "up_block_types": ("UpDecoderBlock2D",) * 4,
    "layers_per_block": 2,
}
PIXART = {
    "attention_head_dim": 72,
    "in_channels": 4,
    "out_channels": 8,
    "sample_size": 64,
    "cross_attention_dim": 1152,
    "caption_channels": 4096,
    "norm_type": "ada_norm_single",
}
MODELS = {
    "sd15_unet": ("UNet2DConditionModel", SD15, unet(768)),
    "sd2_unet": (
        "UNet2DConditionModel",
        {
            "cross_attention_dim": 1024,
            "attention_head_dim": (5, 10, 20, 20),
            "use_linear_projection": True,
        },
        unet(1024),
    ),
    "sdxl_unet": ("UNet2DConditionModel", SDXL, sdxl),
    "ddpm_unet": ("UNet2DModel", {"sample_size": 64}, plain_unet),
    "vae": ("AutoencoderKL", VAE, image(256)),
    "vq_vae": ("VQModel", {}, image(64)),
    "sd15_controlnet": (
        "ControlNetModel",
        SD15,
        unet(768, controlnet_cond=lambda b: torch.randn(b, 3, 512, 512)),
    ),
    "dit_xl_2": (
        "DiTTransformer2DModel",
        {"num_attention_heads": 16, "attention_head_dim": 72, "in_channels": 4, "num_layers": 28},
        dit,
    ),
    "pixart_alpha": ("PixArtTransformer2DModel", PIXART, pixart),
    "flux_dev": ("FluxTransformer2DModel", {"guidance_embeds": True}, flux),
    "sd3_medium": (
        "SD3Transformer2DModel",
        {
            "sample_size": 128,
            "num_layers": 24,
            "num_attention_heads": 24,
            "joint_attention_dim": 4096,
            "caption_projection_dim": 1536,
            "pooled_projection_dim": 2048,
        },
        sd3,
    ),
    "cogvideox_2b": (
        "CogVideoXTransformer3DModel",
        {"num_attention_heads": 30, "sample_frames": 17},
        lambda b: {
            "hidden_states": torch.randn(b, 5, 16, 60, 90),
            "encoder_hidden_states": torch.randn(b, 226, 4096),
            "timestep": torch.randint(1000, (b,)),
        },
    ),
    "wan_1_3b": (
        "WanTransformer3DModel",
        {"num_attention_heads": 12, "num_layers": 30, "ffn_dim": 8960},
        video,
    ),
}
