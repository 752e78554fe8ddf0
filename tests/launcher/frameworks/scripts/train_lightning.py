"""A script of Lightning: the Trainer that the notes of the launch ask for."""

import os
import sys

import lightning
import torch
from told import make_batch, make_model, tell


class Module(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.model = make_model()
        self.losses: list[float] = []

    def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
        size = int(os.environ["GPUPLAN_PLAN_MICRO_BATCH"])
        inputs, targets = make_batch(self.global_rank, int(batch[0].item()), size)
        loss = torch.nn.functional.mse_loss(self.model(inputs).float(), targets)
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


devices = int(os.environ["GPUPLAN_PLAN_PER_NODE"])
trainer = lightning.Trainer(
    accelerator="cpu",
    devices=1 if "--wrong-devices" in sys.argv else devices,
    num_nodes=int(os.environ["GPUPLAN_PLAN_NODES"]),
    strategy="ddp",
    precision="bf16-mixed",
    accumulate_grad_batches=int(os.environ["GPUPLAN_PLAN_GRAD_ACCUM"]),
    max_epochs=1,
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
module = Module()
steps = torch.utils.data.TensorDataset(torch.arange(120))
trainer.fit(module, torch.utils.data.DataLoader(steps, batch_size=1))
tell(module, module.losses, steps=trainer.global_step, processes=trainer.world_size)
