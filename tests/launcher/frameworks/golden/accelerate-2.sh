#!/bin/sh
# accelerate on 2 x 8: run this on every node.
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
config="${GPUPLAN_CONFIG_DIR:-$(mktemp -d)}"
mkdir -p "$config"
printf %s 'compute_environment: LOCAL_MACHINE
distributed_type: FSDP
num_machines: 2
machine_rank: 0
num_processes: 16
mixed_precision: bf16
use_cpu: false
same_network: true
rdzv_backend: static
main_training_function: main
fsdp_config:
  fsdp_version: 2
  fsdp_reshard_after_forward: true
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_state_dict_type: SHARDED_STATE_DICT
  fsdp_offload_params: false
  fsdp_activation_checkpointing: false
' >"$config"/accelerate.yaml
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
export ACCELERATE_GRADIENT_ACCUMULATION_STEPS=2
exec accelerate launch --config_file "$config"/accelerate.yaml --machine_rank "$node_rank" --main_process_ip "$main_address" --main_process_port "$port" train.py --lr 3e-4
# note: take micro-batches of 4 samples on each data-parallel rank, inside `with accelerator.accumulate(model)`
# note: accumulate by GradientAccumulationPlugin(num_steps=2, sync_each_batch=True): without it every rank keeps whole gradients between micro-batches
# note: name the class of your blocks in fsdp_config.fsdp_transformer_layer_cls_to_wrap, unless the model is of Hugging Face
