"""What the plan becomes in each framework: its config, what is refused, what the script must do."""

import json
from typing import Any

import pytest
import yaml
from answers import make_plan

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.frameworks.launch import launch
from gpuplan.launcher.frameworks.types import Device, FrameworkLaunch
from gpuplan.planner.plan.plan import Plan


def planned(layout: str, **changes: Any) -> Plan:
    nodes = {"nodes": 2} if make_plan(layout=layout).accelerators == 16 else {}
    plan = make_plan(layout=layout, **nodes, **changes)
    return plan.model_copy(
        update={"global_batch": plan.layout.data * plan.micro_batch * plan.grad_accum}
    )


def launched(framework: str, layout: str, **changes: Any) -> FrameworkLaunch:
    return launch(planned(layout, **changes), "train.py", framework)


def deepspeed(layout: str, **changes: Any) -> dict[str, Any]:
    text = launched("deepspeed", layout, **changes).files["deepspeed.json"]
    assert isinstance(text, str)
    return json.loads(text)


def accelerate(layout: str, **changes: Any) -> dict[str, Any]:
    text = launched("accelerate", layout, **changes).files["accelerate.yaml"]
    assert isinstance(text, str)
    return yaml.safe_load(text)


def zero_of(config: dict[str, Any]) -> dict[str, Any]:
    """Return the block on ZeRO of DeepSpeed's own settings in an accelerate.yaml."""
    own = json.loads(config["deepspeed_config"]["deepspeed_config_file"])
    return own["zero_optimization"]


@pytest.mark.parametrize(
    ("layout", "zero"),
    [
        ("dp8", {"stage": 0}),
        ("dp8.zero1", {"stage": 1, "overlap_comm": True}),
        ("dp8.zero2", {"stage": 2, "overlap_comm": True}),
        ("dp4.zero1.pp2", {"stage": 1}),
        ("fsdp8", {"stage": 3}),
    ],
)
def test_deepspeed_reduces_as_the_plan_counts_it(layout: str, zero: dict[str, Any]) -> None:
    """By default it holds buckets of 1 to 2 GB, and ZeRO-1 and 2 reduce after the backward pass."""
    bucket = {"reduce_bucket_size": 50_000_000} if zero["stage"] else {}
    assert deepspeed(layout)["zero_optimization"] == zero | bucket


def test_deepspeed_gathers_as_much_as_the_plan_counts() -> None:
    """By default a billion parameters, so that an 8B on eight ranks took 1 GB more than priced."""
    zero = deepspeed("fsdp8", gathered_parameters=486_000_000)["zero_optimization"]
    assert zero["stage3_max_live_parameters"] == 486_000_000
    assert zero["stage3_max_reuse_distance"] == 486_000_000
    large = deepspeed("fsdp8", gathered_parameters=3_000_000_000)["zero_optimization"]
    assert large["stage3_max_live_parameters"] == 10**9, "its own default, which is less"
    told = launched("deepspeed", "fsdp8", gathered_parameters=486_000_000).notes
    assert not any("stage3_max" in note for note in told)
    # A plan of a version that did not say how many.
    assert any("stage3_max" in note for note in launched("deepspeed", "fsdp8").notes)


@pytest.mark.parametrize(("layout", "stage"), [("dp8", 0), ("dp8.zero1", 1), ("fsdp8", 3)])
def test_deepspeed_has_the_stage_and_batches_that_multiply(layout: str, stage: int) -> None:
    config = deepspeed(layout, micro_batch=3, grad_accum=5)
    assert config["zero_optimization"]["stage"] == stage
    assert config["train_batch_size"] == 3 * 5 * 8
    assert "optimizer" not in config


@pytest.mark.parametrize("layout", ["dp4.tp2", "dp4.pp2", "dp4.cp2"])
def test_deepspeed_works_out_the_batch_where_ranks_do_more_than_data(layout: str) -> None:
    config = deepspeed(layout)
    assert "train_batch_size" not in config
    assert config["train_micro_batch_size_per_gpu"] == 4


@pytest.mark.parametrize(
    ("precision", "block"),
    [
        ("bf16-amp", {"bf16": {"enabled": True}}),
        ("fp16-amp", {"fp16": {"enabled": True}}),
        ("fp32", {}),
        ("tf32", {}),
    ],
)
def test_deepspeed_has_the_numbers_of_the_plan(precision: str, block: dict[str, Any]) -> None:
    config = deepspeed("fsdp8", precision=precision)
    assert {key: config[key] for key in ("bf16", "fp16") if key in config} == block


def test_deepspeed_keeps_everything_in_bf16_only_where_zero_does() -> None:
    assert deepspeed("fsdp8", precision="bf16")["bf16"]["bf16_master_weights_and_grads"]
    with pytest.raises(UsageError, match="bf16 without ZeRO"):
        deepspeed("dp8", precision="bf16")


def test_deepspeed_offloads_what_the_plan_keeps_in_host_memory() -> None:
    config = deepspeed("dp8.zero2", offload=True, offloaded=("optimizer",))
    assert config["zero_optimization"]["offload_optimizer"]["device"] == "cpu"
    assert "offload_param" not in config["zero_optimization"]
    assert config["zero_force_ds_cpu_optimizer"] is False
    config = deepspeed("fsdp8", offload=True, offloaded=("parameters", "activations"))
    assert {"offload_optimizer", "offload_param"} <= config["zero_optimization"].keys()
    assert config["activation_checkpointing"]["cpu_checkpointing"] is True


@pytest.mark.parametrize(
    ("layout", "kind"),
    [("dp8", "MULTI_GPU"), ("dp8.zero1", "DEEPSPEED"), ("dp8.zero2", "FSDP"), ("fsdp8", "FSDP")],
)
def test_accelerate_takes_the_library_that_has_the_stage(layout: str, kind: str) -> None:
    config = accelerate(layout)
    assert config["distributed_type"] == kind
    assert config["num_processes"] == 8
    if kind == "FSDP":
        assert config["fsdp_config"]["fsdp_version"] == 2
        gathered_again = config["fsdp_config"]["fsdp_reshard_after_forward"]
        assert gathered_again == (layout == "fsdp8")


def test_accelerate_gives_deepspeed_the_settings_of_the_plan() -> None:
    """Its own fields leave buckets of 1 to 2 GB, and reduce after the backward pass."""
    config = accelerate("dp8.zero1", micro_batch=3, grad_accum=5)
    own = json.loads(config["deepspeed_config"]["deepspeed_config_file"])
    assert own == deepspeed("dp8.zero1", micro_batch=3, grad_accum=5)
    assert zero_of(config)["reduce_bucket_size"] == 50_000_000 and own["bf16"]["enabled"]
    # Beside such a file accelerate refuses each of these.
    refused = {"zero_stage", "gradient_accumulation_steps", "mixed_precision"}
    assert not refused & (config.keys() | config["deepspeed_config"].keys())


def test_accelerate_is_told_of_fp8_beside_deepspeed_by_an_option() -> None:
    (way,) = launched("accelerate", "dp8.zero1", precision="fp8").ways
    assert ("--mixed_precision", "fp8") in zip(way.arguments, way.arguments[1:], strict=False)
    for layout, precision in [("fsdp8", "fp8"), ("dp8.zero1", "bf16-amp")]:
        (way,) = launched("accelerate", layout, precision=precision).ways
        assert "--mixed_precision" not in way.arguments


def test_accelerate_spells_a_hybrid_mesh_out() -> None:
    sizes = accelerate("hsdp2x8")["parallelism_config"]
    assert sizes == {
        "parallelism_config_dp_replicate_size": 2,
        "parallelism_config_dp_shard_size": 8,
        "parallelism_config_tp_size": 1,
        "parallelism_config_cp_size": 1,
    }
    sizes = accelerate("fsdp2.tp2.cp2")["parallelism_config"]
    assert list(sizes.values()) == [1, 2, 2, 2]
    assert "parallelism_config" not in accelerate("fsdp8")


def test_accelerate_takes_recompute_compile_offload_and_precision() -> None:
    config = accelerate(
        "fsdp8",
        recompute="full",
        compile=True,
        precision="fp8",
        offload=True,
        offloaded=("parameters", "activations"),
    )
    assert config["fsdp_config"]["fsdp_activation_checkpointing"] is True
    assert config["fsdp_config"]["fsdp_activation_checkpointing_offload"] is True
    assert config["fsdp_config"]["fsdp_offload_params"] is True
    assert config["dynamo_config"] == {"dynamo_backend": "INDUCTOR"}
    assert config["mixed_precision"] == "fp8"
    config = accelerate("fsdp8", offload=True, offloaded=("optimizer",))
    assert config["distributed_type"] == "DEEPSPEED"
    assert zero_of(config)["offload_optimizer"]["device"] == "cpu"
    assert "offload_param" not in zero_of(config)


def test_accelerate_says_that_processors_get_plain_data_parallel() -> None:
    launched = launch(planned("fsdp8"), "train.py", "accelerate", device="cpu")
    assert "distributed_type: MULTI_GPU" in str(launched.files["accelerate.yaml"])
    assert any("plain DDP" in note for note in launched.notes)


@pytest.mark.parametrize(
    ("framework", "layout", "device", "said"),
    [
        ("accelerate", "dp8.zero1", "gpu", "install deepspeed"),
        ("lightning", "dp8.zero2", "gpu", "install deepspeed"),
        ("deepspeed", "dp8", "cpu", "have a C++ compiler"),
    ],
)
def test_what_a_framework_needs_besides_itself_is_said(
    framework: str, layout: str, device: Device, said: str
) -> None:
    notes = launch(planned(layout), "train.py", framework, device=device).notes
    assert any(note.startswith(said) for note in notes)
    plain = launch(planned("dp8"), "train.py", framework).notes
    assert not any(note.startswith(said) for note in plain)


@pytest.mark.parametrize(
    ("framework", "layout", "changes", "said"),
    [
        ("horovod", "fsdp8", {}, "shards or splits the model"),
        ("horovod", "dp4.tp2", {}, "shards or splits the model"),
        ("horovod", "dp8", {"offload": True, "offloaded": ("optimizer",)}, "offloads"),
        ("deepspeed", "hsdp2x8", {}, "shards over 8 of 16"),
        ("deepspeed", "fsdp4.pp2", {}, "pipeline stages and ZeRO 3"),
        ("deepspeed", "dp8.zero2", {"offload": True, "offloaded": ("parameters",)}, "ZeRO 2"),
        ("deepspeed", "dp8", {"offload": True, "offloaded": ("optimizer",)}, "without ZeRO"),
        ("accelerate", "dp4.pp2", {}, "pipeline"),
        ("accelerate", "dp4.tp2", {}, "without sharding parameters"),
        ("accelerate", "dp8.ep2", {}, "spreads experts"),
        ("accelerate", "dp8", {"offload": True, "offloaded": ("parameters",)}, "without sharding"),
        ("accelerate", "dp8.zero1", {"precision": "bf16"}, "needs DeepSpeed"),
    ],
)
def test_a_layout_that_a_framework_lacks_is_refused(
    framework: str, layout: str, changes: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        launched(framework, layout, **changes)
    assert refused.value.fix


@pytest.mark.parametrize("framework", ["torchrun", "lightning", "jax", "none"])
def test_what_only_the_script_can_do_is_said(framework: str) -> None:
    notes = launched(
        framework,
        "fsdp2.tp2.pp2",
        recompute="full",
        offload=True,
        offloaded=("optimizer",),
        micro_batch=7,
    ).notes
    text = "\n".join(notes)
    for word in ("2 ranks", "pipeline stages", "recompute every block", "of 7 samples"):
        assert word in text
    assert "host memory" in text


@pytest.mark.parametrize(
    ("layout", "changes", "said"),
    [
        ("dp8", {}, 'strategy="ddp", precision="bf16-mixed", accumulate_grad_batches=2'),
        ("dp8.zero1", {}, 'strategy="deepspeed_stage_1"'),
        ("dp8.zero2", {"offloaded": ("optimizer",)}, 'strategy="deepspeed_stage_2_offload"'),
        ("fsdp8", {"precision": "bf16"}, 'strategy="fsdp", precision="bf16-true"'),
        ("fsdp8", {"offloaded": ("parameters",)}, 'strategy="fsdp_cpu_offload"'),
        ("hsdp2x8", {}, 'sharding_strategy="HYBRID_SHARD", device_mesh=(2, 8)'),
        ("fsdp4.tp2", {}, "data_parallel_size=4, tensor_parallel_size=2"),
    ],
)
def test_lightning_is_told_the_trainer_to_make(
    layout: str, changes: dict[str, Any], said: str
) -> None:
    assert said in launched("lightning", layout, **changes).notes[0]


def test_the_path_of_the_deepspeed_config_goes_where_the_command_wants_it() -> None:
    from gpuplan.launcher.frameworks.shell import shell_line

    command = "train.py --deepspeed={deepspeed_config} {other}"
    line = shell_line(launch(planned("fsdp8"), command, "deepspeed").ways[0])
    assert line.endswith("train.py --deepspeed=\"$config\"/deepspeed.json '{other}'")
    with pytest.raises(UsageError, match="without a plan"):
        launch(None, command, "deepspeed")
    assert "{deepspeed_config}" in shell_line(launch(None, command, "torchrun").ways[0])


def test_a_script_can_read_the_plan_from_its_environment() -> None:
    environment = launched("torchrun", "hsdp2x8.tp1", offloaded=("parameters",)).environment
    assert environment["GPUPLAN_PLAN_LAYOUT"] == "hsdp2x8"
    assert environment["GPUPLAN_PLAN_SHARD"] == "8"
    assert environment["GPUPLAN_PLAN_OFFLOADED"] == "parameters"
    assert environment["GPUPLAN_PLAN_PER_NODE"] == "8"
    tf32 = launched("torchrun", "dp8", precision="tf32").environment
    assert tf32["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] == "1"


def test_sizes_that_are_not_the_plans_are_refused() -> None:
    with pytest.raises(UsageError, match="2 x 2 is 4 accelerators, and layout fsdp8 is for 8"):
        launch(planned("fsdp8"), "train.py", "torchrun", nodes=2, per_node=2)
    assert launch(planned("fsdp8"), "a.py", "torchrun", nodes=2).job.per_node == 4
    with pytest.raises(UsageError, match="1 or more"):
        launch(None, "train.py", "torchrun", per_node=0)


def test_an_unknown_framework_is_named_with_its_neighbours() -> None:
    with pytest.raises(UsageError, match="Did you mean deepspeed"):
        launch(None, "train.py", "deepsped")


def test_what_gradients_are_reduced_in_is_told() -> None:
    told = "reduce_dtype=torch.bfloat16"
    halved = launched("torchrun", "fsdp8", precision="bf16-amp", reduce_dtype="bf16").notes
    assert any(told in note for note in halved)
    assert not any(told in note for note in launched("torchrun", "fsdp8").notes)


def notes(framework: str, layout: str, **changes: Any) -> str:
    return "\n".join(launched(framework, layout, **changes).notes)


@pytest.mark.parametrize("framework", ["torchrun", "accelerate"])
def test_several_micro_batches_exchange_once_a_step_what_the_plan_counts_once(
    framework: str,
) -> None:
    gathers, adds = "set_reshard_after_backward(is_last)", "set_requires_all_reduce(is_last)"
    assert gathers in notes(framework, "dp8.zero2", grad_accum=4)
    assert adds in notes(framework, "hsdp2x8", grad_accum=4)
    for said in (gathers, adds, "no_sync"):
        assert said not in notes(framework, "fsdp8", grad_accum=4)
        assert said not in notes(framework, "dp8", grad_accum=1)
        assert said not in notes(framework, "dp8.zero2", grad_accum=1)
    # accelerate's own `accumulate` leaves DDP's reductions out.
    by_itself = framework == "accelerate"
    under = "3 of its 4 backward passes under `with model.no_sync()`"
    assert (under in notes(framework, "dp8", grad_accum=4)) is not by_itself
    if by_itself:
        assert "num_steps=4, sync_each_batch=True" in notes(framework, "fsdp8", grad_accum=4)
        assert "sync_each_batch" not in notes(framework, "fsdp8", grad_accum=1)
        assert "sync_each_batch" not in notes(framework, "dp8", grad_accum=4)


@pytest.mark.parametrize("framework", ["accelerate", "deepspeed"])
def test_tf32_is_told_where_no_variable_of_the_start_sets_it(framework: str) -> None:
    said = 'torch.set_float32_matmul_precision("high")'
    assert said in notes(framework, "dp8", precision="tf32")
    assert said not in notes(framework, "dp8", precision="fp32")


@pytest.mark.parametrize("framework", ["torchrun", "accelerate", "deepspeed", "horovod"])
def test_selective_recompute_keeps_products_and_attention(framework: str) -> None:
    said = notes(framework, "dp8", recompute="selective")
    assert "keep the results of matrix products, attention and convolutions" in said
    assert "create_selective_checkpoint_contexts" in said


def test_deepspeed_is_told_which_blocks_run_again() -> None:
    some = notes("deepspeed", "fsdp8", recompute="full", recompute_layers=10)
    assert "wrap the first 10 blocks (not the others) with deepspeed.checkpointing" in some
    assert "wrap every block with" in notes("deepspeed", "fsdp8", recompute="full")
    assert "deepspeed.checkpointing" not in notes("deepspeed", "fsdp8")


@pytest.mark.parametrize(
    ("precision", "dtype"), [("bf16-amp", "torch.bfloat16"), ("fp16-amp", "torch.float16")]
)
def test_a_4_bit_base_is_multiplied_in_the_dtype_of_the_plan(precision: str, dtype: str) -> None:
    """A plan for a T4, in fp16, asked for bfloat16, which a T4 has not."""
    plan = make_plan(layout="dp8", precision=precision, frozen_precision="nf4")
    note = "\n".join(launch(plan, "train.py", "torchrun").notes)
    assert f"bnb_4bit_compute_dtype={dtype})" in note
