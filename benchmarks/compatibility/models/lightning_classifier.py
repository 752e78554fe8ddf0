# pyright: reportMissingImports=false, reportIncompatibleMethodOverride=false
"""A LightningModule around torchvision's ResNet-18, with a scheduler and metrics."""

import lightning as L
import torch
import torch.nn.functional as F
import torchvision


class Classifier(L.LightningModule):
    def __init__(self, classes: int = 10, rate: float = 0.1):
        super().__init__()
        self.save_hyperparameters()
        self.net = torchvision.models.resnet18(num_classes=classes)

    def forward(self, images):
        return self.net(images)

    def training_step(self, batch, batch_idx):
        images, labels = batch
        logits = self(images)
        loss = F.cross_entropy(logits, labels)
        self.log("loss", loss)
        self.log("accuracy", (logits.argmax(1) == labels).float().mean(), prog_bar=True)
        return loss

    def configure_optimizers(self):
        optimizer = torch.optim.SGD(self.parameters(), lr=self.hparams["rate"], momentum=0.9)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100)
        return {"optimizer": optimizer, "lr_scheduler": scheduler}

    def train_dataloader(self):
        images = torch.randn(64, 3, 224, 224)
        data = torch.utils.data.TensorDataset(images, torch.randint(10, (64,)))
        return torch.utils.data.DataLoader(data, batch_size=32)
