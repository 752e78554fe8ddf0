#!/bin/sh
# torchrun on 2 x 8: run this on every node.
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
export GPUPLAN_PLAN_NODES=2
export GPUPLAN_PLAN_PER_NODE=8
export GPUPLAN_PLAN_ID=c1b4ed2b0d
export GPUPLAN_PLAN_LAYOUT=fsdp16
export GPUPLAN_PLAN_DATA=16
export GPUPLAN_PLAN_SHARD=16
export GPUPLAN_PLAN_ZERO_STAGE=3
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
exec torchrun --nnodes=2 --nproc-per-node=8 --node-rank="$node_rank" --master-addr="$main_address" --master-port="$port" train.py --lr 3e-4
# note: shard the model with fully_shard(…)
# note: take micro-batches of 4 samples on each data-parallel rank, and step after 2 of them
# note: compute in 16 bits by fully_shard(…, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)), without autocast
