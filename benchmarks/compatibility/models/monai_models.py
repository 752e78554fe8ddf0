# pyright: reportMissingImports=false
"""Networks of MONAI for medical volumes, by name: one channel in, four classes out."""

import torch
from monai.losses import DiceCELoss
from monai.networks import nets

SIZE = 96
LEVELS = {"spatial_dims": 3, "in_channels": 1, "out_channels": 4}


def build_model(name="UNet"):
    return getattr(nets, name)(**MODELS[name][0])


def make_batch(batch_size=2, name="UNet"):
    volumes = torch.randn(batch_size, 1, SIZE, SIZE, SIZE)
    if MODELS[name][1]:
        return volumes, torch.randint(4, (batch_size,))
    return volumes, torch.randint(4, (batch_size, 1, SIZE, SIZE, SIZE))


def compute_loss(model, batch):
    volumes, labels = batch
    output = model(volumes)
    output = output[0] if isinstance(output, (tuple, list)) else output
    if output.dim() == 2:
        return torch.nn.functional.cross_entropy(output, labels)
    return DiceCELoss(to_onehot_y=True, softmax=True)(output, labels)


CLASSIFIER = {"spatial_dims": 3, "in_channels": 1, "out_channels": 4}
RESNET = {"block": "basic", "layers": [2, 2, 2, 2], "block_inplanes": [64, 128, 256, 512]}
MODELS = {
    "UNet": (
        LEVELS | {"channels": (16, 32, 64, 128, 256), "strides": (2, 2, 2, 2), "num_res_units": 2},
        False,
    ),
    "BasicUNet": (LEVELS, False),
    "AttentionUnet": (
        LEVELS | {"channels": (16, 32, 64, 128), "strides": (2, 2, 2)},
        False,
    ),
    "DynUNet": (
        LEVELS
        | {
            "kernel_size": [3, 3, 3, 3],
            "strides": [1, 2, 2, 2],
            "upsample_kernel_size": [2, 2, 2],
        },
        False,
    ),
    "SegResNet": (LEVELS, False),
    "SwinUNETR": (LEVELS | {"feature_size": 48}, False),
    "UNETR": (LEVELS | {"img_size": (SIZE, SIZE, SIZE)}, False),
    "VNet": (LEVELS, False),
    "DenseNet121": (CLASSIFIER, True),
    "ResNet": (RESNET | {"spatial_dims": 3, "n_input_channels": 1, "num_classes": 4}, True),
}
