#!/bin/sh
# deepspeed on 2 x 8: run this on every node.
set -eu
node_rank="${SKYPILOT_NODE_RANK:-${NODE_RANK:?set it to the rank of this node, from 0}}"
node_ips="${SKYPILOT_NODE_IPS:-${NODE_IPS:?set it to the addresses of all nodes}}"
node_ips="$(printf '%s\n' "$node_ips" | tr -s ' ,\t' '\n\n\n' | sed '/^$/d')"
if [ "$(printf '%s\n' "$node_ips" | wc -l)" -ne 2 ]; then
    echo 'This launch is for 2 nodes, and the addresses are of another number.' >&2
    exit 2
fi
main_address="$(printf '%s\n' "$node_ips" | head -n 1)"
port="${MASTER_PORT:-29500}"
hostfile="$(printf '%s\n' "$node_ips" | sed 's/$/ slots=8/')"
config="${GPUPLAN_CONFIG_DIR:-$(mktemp -d)}"
mkdir -p "$config"
printf %s '{
  "train_micro_batch_size_per_gpu": 4,
  "gradient_accumulation_steps": 2,
  "train_batch_size": 128,
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
printf %s "$hostfile"'
' >"$config"/hostfile
export GPUPLAN_PLAN_NODES=2
export GPUPLAN_PLAN_PER_NODE=8
export GPUPLAN_PLAN_ID=ba19111e14
export GPUPLAN_PLAN_LAYOUT=dp16.zero2
export GPUPLAN_PLAN_DATA=16
export GPUPLAN_PLAN_SHARD=16
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
export GPUPLAN_PLAN_GLOBAL_BATCH=128
export GPUPLAN_PLAN_RECOMPUTE=none
export GPUPLAN_PLAN_COMPILE=0
export GPUPLAN_PLAN_OPTIMIZER=adamw
export GPUPLAN_PLAN_OFFLOADED=''
export GPUPLAN_PLAN_SYNC_EVERY=1
export GPUPLAN_DEEPSPEED_CONFIG="$config"/deepspeed.json
exec deepspeed --hostfile="$config"/hostfile --no_ssh --node_rank="$node_rank" --master_addr="$main_address" --master_port="$port" train.py --lr 3e-4
# note: train.py is given --local_rank, as DeepSpeed does
# note: give deepspeed.initialize the file that GPUPLAN_DEEPSPEED_CONFIG names, or write {deepspeed_config} in the command where its path belongs
# note: take micro-batches of 4 samples on each data-parallel rank
