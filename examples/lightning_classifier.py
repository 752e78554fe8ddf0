"""An image classifier as one LightningModule, which gpuplan reads unchanged; 1,556,106 parameters.

Needs the `lightning` package (`pip install lightning`). The data are random images of CIFAR-10's
shape.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

try:
    import lightning
except ImportError as error:
    raise ImportError(
        "lightning_classifier.py needs the package lightning: pip install lightning"
    ) from error


class Classifier(lightning.LightningModule):
    def __init__(self, width: int = 64, classes: int = 10, batch_size: int = 128):
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, 2 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(2 * width, 4 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.Conv2d(4 * width, 8 * width, 3, stride=2, padding=1),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8 * width, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self(images), labels)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)

    def train_dataloader(self) -> DataLoader:
        samples = 8 * self.hparams["batch_size"]
        images = torch.randn(samples, 3, 32, 32)
        labels = torch.randint(self.hparams["classes"], (samples,))
        return DataLoader(TensorDataset(images, labels), batch_size=self.hparams["batch_size"])
