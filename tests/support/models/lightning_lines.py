"""A LightningModule with a loader that keeps its order, a schedule each step and each epoch."""

import lightning
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Lines(lightning.LightningModule):
    def __init__(
        self,
        batch_size: int = 8,
        shuffle: bool = False,
        every: str = "epoch",
        numbered: bool = False,
    ):
        super().__init__()
        self.save_hyperparameters()
        self.network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        inputs, targets = batch
        loss = F.mse_loss(self.network(inputs), targets)
        if self.hparams["numbered"]:
            loss = loss * (1 + batch_idx % 3)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        inputs, targets = batch
        self.log("val_loss", F.mse_loss(self.network(inputs), targets))

    def configure_optimizers(self):  # pyright: ignore[reportIncompatibleMethodOverride]
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.05)
        if self.hparams["every"] == "epoch":
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
            return [optimizer], [{"scheduler": scheduler, "interval": "epoch", "frequency": 2}]
        scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.05, total_steps=200)
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": scheduler, "interval": "step"},
        }

    def train_dataloader(self) -> DataLoader:
        return self._loader(64, seed=1, shuffle=self.hparams["shuffle"])

    def val_dataloader(self) -> DataLoader:
        return self._loader(27, seed=2, shuffle=False)

    def _loader(self, samples: int, *, seed: int, shuffle: bool) -> DataLoader:
        values = torch.Generator().manual_seed(seed)
        inputs = torch.randn(samples, 4, generator=values)
        targets = inputs.sum(1, keepdim=True).sin()
        batch_size = self.hparams["batch_size"]
        return DataLoader(TensorDataset(inputs, targets), batch_size=batch_size, shuffle=shuffle)
