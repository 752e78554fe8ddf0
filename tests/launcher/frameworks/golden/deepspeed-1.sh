#!/bin/sh
# deepspeed on 1 x 8: run this on every node.
set -eu
node_rank=0
node_ips=127.0.0.1
main_address="$(printf '%s\n' "$node_ips" | head -n 1)"
port="${MASTER_PORT:-29500}"
config="${GPUPLAN_CONFIG_DIR:-$(mktemp -d)}"
mkdir -p "$config"
printf %s '{
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 2,
  "train_batch_size": 64,
  "zero_optimization": {
    "stage": 2,
    "reduce_bucket_size": 50000000,
    "overlap_comm": true
  },
  "zero_allow_untested_optimizer": true,
  "bf16": {
    "enabled": true
  }
}
' >"$config"/deepspeed.json
export GPUPLAN_PLAN_NODES=1
export GPUPLAN_PLAN_PER_NODE=8
export GPUPLAN_PLAN_ID=2d336f6a20
export GPUPLAN_PLAN_LAYOUT=dp8.zero2
export GPUPLAN_PLAN_DATA=8
export GPUPLAN_PLAN_SHARD=8
export GPUPLAN_PLAN_ZERO_STAGE=2
export GPUPLAN_PLAN_TENSOR=1
export GPUPLAN_PLAN_PIPELINE=1
export GPUPLAN_PLAN_VIRTUAL_STAGES=1
export GPUPLAN_PLAN_CONTEXT=1
export GPUPLAN_PLAN_EXPERT=1
export GPUPLAN_PLAN_SEQUENCE_PARALLEL=0
export GPUPLAN_PLAN_PRECISION=bf16-amp
export GPUPLAN_PLAN_MICRO_BATCH=4
export GPUPLAN_PLAN_GRAD_ACCUM=2
export GPUPLAN_PLAN_GLOBAL_BATCH=64
export GPUPLAN_PLAN_RECOMPUTE=none
export GPUPLAN_PLAN_COMPILE=0
export GPUPLAN_PLAN_OPTIMIZER=adamw
export GPUPLAN_PLAN_OFFLOADED=''
export GPUPLAN_PLAN_SYNC_EVERY=1
export GPUPLAN_DEEPSPEED_CONFIG="$config"/deepspeed.json
exec deepspeed --num_gpus=8 --master_port="$port" train.py --lr 3e-4
# note: train.py is given --local_rank, as DeepSpeed does
# note: give deepspeed.initialize the file that GPUPLAN_DEEPSPEED_CONFIG names, or write {deepspeed_config} in the command where its path belongs
# note: take micro-batches of 4 samples on each data-parallel rank
