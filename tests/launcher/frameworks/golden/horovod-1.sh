#!/bin/sh
# horovod on 1 x 8: run this on every node.
set -eu
node_rank=0
node_ips=127.0.0.1
main_address="$(printf '%s\n' "$node_ips" | head -n 1)"
port="${MASTER_PORT:-29500}"
host_slots="$(printf '%s\n' "$node_ips" | sed 's/$/:8/' | paste -sd , -)"
export GPUPLAN_PLAN_NODES=1
export GPUPLAN_PLAN_PER_NODE=8
export GPUPLAN_PLAN_ID=e27067c65e
export GPUPLAN_PLAN_LAYOUT=dp8
export GPUPLAN_PLAN_DATA=8
export GPUPLAN_PLAN_SHARD=1
export GPUPLAN_PLAN_ZERO_STAGE=0
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
if command -v horovodrun >/dev/null 2>&1; then
    exec horovodrun -np 8 -H "$host_slots" python3 train.py --lr 3e-4
fi
exec mpirun -np 8 -H "$host_slots" --allow-run-as-root -bind-to none -map-by slot -mca pml ob1 -mca btl '^openib' -x PATH -x LD_LIBRARY_PATH -x GPUPLAN_PLAN_NODES -x GPUPLAN_PLAN_PER_NODE -x GPUPLAN_PLAN_ID -x GPUPLAN_PLAN_LAYOUT -x GPUPLAN_PLAN_DATA -x GPUPLAN_PLAN_SHARD -x GPUPLAN_PLAN_ZERO_STAGE -x GPUPLAN_PLAN_TENSOR -x GPUPLAN_PLAN_PIPELINE -x GPUPLAN_PLAN_VIRTUAL_STAGES -x GPUPLAN_PLAN_CONTEXT -x GPUPLAN_PLAN_EXPERT -x GPUPLAN_PLAN_SEQUENCE_PARALLEL -x GPUPLAN_PLAN_PRECISION -x GPUPLAN_PLAN_MICRO_BATCH -x GPUPLAN_PLAN_GRAD_ACCUM -x GPUPLAN_PLAN_GLOBAL_BATCH -x GPUPLAN_PLAN_RECOMPUTE -x GPUPLAN_PLAN_COMPILE -x GPUPLAN_PLAN_OPTIMIZER -x GPUPLAN_PLAN_OFFLOADED -x GPUPLAN_PLAN_SYNC_EVERY python3 train.py --lr 3e-4
# note: call hvd.init(), and wrap the optimizer in hvd.DistributedOptimizer
# note: take micro-batches of 4 samples on each data-parallel rank, and step after 2 of them
# note: wrap the forward pass in torch.autocast("cuda", torch.bfloat16)
