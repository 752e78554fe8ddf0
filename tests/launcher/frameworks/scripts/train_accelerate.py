"""A script of accelerate: what it wraps the model in comes from the file that it was given."""
# pyright: reportMissingImports=false

import os

import torch
from accelerate import Accelerator
from told import make_batch, make_model, tell

accelerator = Accelerator()
model = make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
model, optimizer = accelerator.prepare(model, optimizer)
size = int(os.environ["GPUPLAN_PLAN_MICRO_BATCH"])
losses, steps = [], 0
for step in range(60):
    inputs, targets = make_batch(accelerator.process_index, step, size)
    with accelerator.accumulate(model):
        loss = torch.nn.functional.mse_loss(model(inputs).float(), targets)
        accelerator.backward(loss)
        steps += accelerator.sync_gradients
        optimizer.step()
        optimizer.zero_grad()
    losses.append(loss.item())
tell(
    model,
    losses,
    steps=steps,
    kind=type(model).__name__,
    precision=accelerator.mixed_precision,
    processes=accelerator.num_processes,
)
accelerator.end_training()
