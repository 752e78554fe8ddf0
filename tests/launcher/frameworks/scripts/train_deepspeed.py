"""A script of DeepSpeed: stage, batches and numbers come from the JSON that it was given."""
# pyright: reportMissingImports=false

import argparse
import sys

import deepspeed
import torch
from told import make_batch, make_model, tell

# On processors DeepSpeed compiles an all-reduce for one machine; without it gloo does the same, so
# that no compiler is needed and the test takes seconds.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False

parser = argparse.ArgumentParser()
parser.add_argument("folder")
parser.add_argument("--local_rank", type=int)
parser.add_argument("--name")
deepspeed.add_config_arguments(parser)
arguments = parser.parse_args()

model = make_model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
engine, *_ = deepspeed.initialize(args=arguments, model=model, optimizer=optimizer)
dtype = next(engine.module.parameters()).dtype
losses = []
for step in range(60):
    inputs, targets = make_batch(engine.global_rank, step, engine.train_micro_batch_size_per_gpu())
    loss = torch.nn.functional.mse_loss(engine(inputs.to(dtype)).float(), targets)
    engine.backward(loss)
    engine.step()
    losses.append(loss.item())

sys.argv = [sys.argv[0], arguments.folder, "--name", arguments.name]
tell(
    engine.module,
    losses,
    stage=engine.zero_optimization_stage(),
    dtype=str(dtype),
    batch=engine.train_batch_size(),
    steps=engine.global_steps,
)
