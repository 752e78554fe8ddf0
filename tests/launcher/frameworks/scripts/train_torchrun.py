"""A plain torch script: DistributedDataParallel, sizes from the plan's variables."""

import os

import torch
from told import make_batch, make_model, tell

torch.distributed.init_process_group("gloo")
rank = torch.distributed.get_rank()
size = int(os.environ["GPUPLAN_PLAN_MICRO_BATCH"])
accumulated = int(os.environ["GPUPLAN_PLAN_GRAD_ACCUM"])
model = torch.nn.parallel.DistributedDataParallel(make_model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
losses = []
for step in range(60):
    inputs, targets = make_batch(rank, step, size)
    loss = torch.nn.functional.mse_loss(model(inputs), targets)
    (loss / accumulated).backward()
    losses.append(loss.item())
    if (step + 1) % accumulated == 0:
        optimizer.step()
        optimizer.zero_grad()
tell(model, losses, size=size)
torch.distributed.destroy_process_group()
