from typing import Any

import pytest

from gpuplan.catalog.snapshot import load_catalogue
from gpuplan.catalog.vocabulary import PRECISIONS
from gpuplan.planner.validation.record_defaults import StatedRun, UnstatedError, state_run
from gpuplan.profiles.records import RunRecord


def stated(
    accelerator: str = "A100-80GB-SXM", takes: tuple[str, ...] = (), **fields: Any
) -> StatedRun:
    record = {
        "id": "run",
        "model": "decoder.py",
        "accelerator": accelerator,
        "accelerators": 1,
        "micro_batch": 2,
        "measured": {"step_time_s": 1.0},
    }
    catalogue = load_catalogue()
    instances = [one for one in catalogue.instances.values() if one.accelerator == accelerator]
    return state_run(
        RunRecord.model_validate(record | fields),
        catalogue.accelerators[accelerator],
        instances=instances,
        model_takes=takes,
    )


def names(run: StatedRun) -> set[str]:
    return {text.split("=")[0] for text in run.assumed}


def test_a_bare_record_is_filled_in_and_every_field_named():
    run = stated()
    assert (run.setup.stack, run.setup.compile, run.setup.recompute, run.setup.precision) == (
        "torch-eager",
        False,
        "none",
        "fp32",
    )
    assert (run.setup.layout.accelerators, run.setup.micro_batch, run.setup.grad_accum) == (1, 2, 1)
    assert names(run) == {
        "stack", "compile", "recompute", "precision", "optimizer", "grad_accum", "features"
    }  # fmt: skip


def test_a_pipeline_is_filled_once_a_step_unless_the_record_says_more():
    assert stated().setup.pipeline_passes == 1
    assert stated(pipeline_passes=8).setup.pipeline_passes == 8


def test_a_share_of_the_layers_is_recomputed_where_the_record_says_so():
    assert stated(recompute="full").setup.recompute_share == 1.0
    assert stated(recompute="full", recompute_share=0.2625).setup.recompute_share == 0.2625
    with pytest.raises(ValueError, match="recompute_share"):
        stated(recompute="full", recompute_share=0)


def test_a_full_record_assumes_nothing_but_what_its_software_does_unsaid():
    run = stated(
        accelerators=16,
        per_node=8,
        inter_node_gbit_s=1600,
        layout={"data": 16, "shard": 16, "zero_stage": 3},
        precision="bf16-amp",
        grad_accum=4,
        recompute="full",
        attention="flash",
        compile=False,
        stack="torch-eager",
        optimizer="adamw",
        takes=("attention",),
    )
    assert names(run) == {"features"}
    assert {"kept-logits", "fused-cross-entropy"} <= run.setup.features
    assert (run.site.per_node, run.site.nodes) == (8, 2)
    assert run.site.inter_link.bytes_per_s == 200e9
    assert run.site.intra_link.bytes_per_s == 300e9
    assert run.params["attention"] == "fused"


@pytest.mark.parametrize(
    ("precision", "planned"),
    [("mxfp8", "fp8"), ("nvfp4", "fp8"), ("int8", "bf16-amp"), *((one, one) for one in PRECISIONS)],
)
@pytest.mark.parametrize("stack", ["torch-compile", "megatron"])
def test_every_precision_that_records_name_is_predicted(stack, precision, planned):
    run = stated("B200-180GB-SXM", stack=stack, date="2026-05", precision=precision)
    assert run.setup.precision == planned
    assert (precision in run.setup.features) == (precision != planned)
    engine = "transformer-engine" in run.setup.features
    assert engine == (stack == "megatron")


def test_scales_by_row_are_gathered_in_16_bits():
    by_tensor = stated("H100-80GB-SXM", precision="fp8", fp8_recipe="tensorwise")
    by_row = stated("H100-80GB-SXM", precision="fp8", fp8_recipe="rowwise")
    assert by_row.setup.features - by_tensor.setup.features == {"fp8-rowwise"}


def test_what_the_global_batch_implies():
    run = stated(accelerators=8, micro_batch=None, grad_accum=4, global_batch=64)
    assert (run.setup.layout.data, run.setup.micro_batch, run.setup.grad_accum) == (8, 2, 4)
    run = stated(accelerators=8, micro_batch=2, global_batch=64)
    assert run.setup.grad_accum == 4


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"precision": "fp6"}, "'fp6' is not predicted yet"),
        ({"micro_batch": None}, "neither micro_batch nor global_batch"),
        ({"accelerators": 2, "micro_batch": 3, "global_batch": 8}, "does not divide over 6"),
        ({"accelerators": 8, "layout": {"data": 4}}, "occupies 4 accelerators"),
        (
            {"accelerators": 6, "layout": {"data": 6, "zero_stage": 3, "shard": 4}},
            "shard 4 does not divide",
        ),
    ],
)
def test_what_cannot_be_predicted_says_why(fields, said):
    with pytest.raises(UnstatedError, match=said):
        stated(**fields)


@pytest.mark.parametrize(
    ("stack", "date", "expected"),
    [
        ("megatron", "2022-02", "eager"),
        ("megatron", "NeMo 25.11", "fused"),
        ("torch-eager", "2021", "eager"),
        ("torch-eager", "2024", "fused"),
        ("xla", "2023-07..09", "eager"),
        ("torch-eager", None, "fused"),
    ],
)
def test_attention_follows_stack_and_date(stack, date, expected):
    run = stated(stack=stack, date=date, takes=("attention",))
    assert run.params["attention"] == expected
    assert "attention" in names(run)


@pytest.mark.parametrize(
    ("precision", "date", "in_8_bits"),
    [
        ("fp8", "2024-03", False),
        ("fp8", "2024-04", True),
        ("mxfp8", "2025-09", False),
        ("nvfp4", "2025-09", False),
        ("bf16-amp", "2025-09", False),
    ],
)
def test_recipes_with_one_scale_a_tensor_gather_8_bits(
    precision: str, date: str, in_8_bits: bool
) -> None:
    run = stated(stack="megatron", precision=precision, date=date)
    assert ("fp8-parameters" in run.setup.features) == in_8_bits
    of_amd = stated("MI300X", stack="megatron", precision=precision, date=date)
    assert "fp8-parameters" not in of_amd.setup.features


@pytest.mark.parametrize("features", [[], ["transformer-engine"]])
@pytest.mark.parametrize(("date", "expected"), [("2023-10", "eager"), ("2024-06", "fused")])
def test_xla_has_fused_attention_on_gpus_since_it_calls_cudnn(date, expected, features):
    run = stated(
        stack="xla", accelerator="H100-80GB-SXM", date=date, features=features, takes=("attention",)
    )
    assert run.params["attention"] == expected


def test_only_params_that_the_model_takes_are_added():
    assert stated(attention="eager", channels_last=True).params == {}
    assert stated(channels_last=True, takes=("channels_last",)).params == {"channels_last": True}


def test_squad_is_trained_with_a_span_head():
    run = stated(model_name="bert_base_squad", takes=("head",))
    assert run.params == {"head": "span"}
    assert "params.head" in names(run)
    assert stated(model_name="bert_base", takes=("head",)).params == {}


def test_sixteen_bit_layers_of_their_own_are_not_cast():
    assert stated(precision="bf16-amp").setup.autocast
    assert not stated(stack="megatron").setup.autocast
    assert not stated(date="NGC 20.01").setup.autocast
    assert stated(date="NGC 20.10", features=["autocast"]).setup.autocast  # Apex's O1.
    assert not stated(precision="fp16-amp", features=["sixteen-bit-layers"]).setup.autocast
    sharded = {"data": 8, "shard": 8, "zero_stage": 3}
    assert not stated(accelerators=8, per_node=8, layout=sharded).setup.autocast


def test_a_fabric_that_is_not_stated_is_the_usual_one():
    run = stated("H100-80GB-SXM", accelerators=16, per_node=8)
    assert run.site.inter_link.bytes_per_s == 400e9
    assert "inter_node_gbit_s" in names(run)


def test_tpu_hosts_share_one_torus():
    run = stated("TPU-v5e", accelerators=512, per_node=4)
    assert (run.site.per_node, run.site.nodes, run.site.domain) == (4, 128, 256)
    assert run.setup.stack == "xla"
    assert run.setup.recompute == "full"


def test_compiled_recipes_step_with_a_fused_optimizer():
    assert "fused-optimizer" in stated(stack="torch-compile", compile=True).setup.features
    assert "fused-optimizer" not in stated(stack="torch-eager").setup.features
    foreach = stated(stack="torch-compile", compile=True, features=["foreach-optimizer"])
    assert "fused-optimizer" not in foreach.setup.features


def test_torch_before_2_wrote_zeros_into_gradients():
    assert "kept-gradients" in stated(stack="torch-eager", date="2021").setup.features
    assert "kept-gradients" not in stated(stack="torch-eager", date="2024-12").setup.features
    assert "kept-gradients" not in stated(stack="megatron", date="2021").setup.features
    assert "kept-gradients" not in stated(stack="torch-eager", date=None).setup.features


@pytest.mark.parametrize(
    ("fields", "is_engine"),
    [
        ({"precision": "fp8", "date": "2023-05", "attention": "fused"}, True),
        ({"precision": "bf16-amp", "date": "2023-05", "attention": "fused"}, False),
        ({"precision": "bf16-amp", "date": "2023-09", "attention": "fused"}, True),
        ({"precision": "bf16-amp", "date": "2023-09", "attention": "flash"}, False),
        ({"precision": "bf16-amp", "date": "2024-07", "attention": "flash"}, True),
        ({"precision": "fp16-amp", "date": "2024-07", "attention": "eager"}, False),
        ({"precision": "fp8", "date": "2024-07", "stack": "torch-compile"}, False),
    ],
)
def test_the_engine_of_megatron_is_told_from_precision_attention_and_date(fields, is_engine):
    run = stated("H100-80GB-SXM", **({"stack": "megatron"} | fields))
    assert ("transformer-engine" in run.setup.features) == is_engine
    said = any(text.startswith("features=transformer-engine") for text in run.assumed)
    assert said == is_engine


@pytest.mark.parametrize(
    ("fields", "copies"),
    [
        ({"layout": {"data": 4}}, True),
        ({"layout": {"data": 4, "shard": 4, "zero_stage": 1}}, True),
        ({"layout": {"data": 4, "shard": 4, "zero_stage": 3}}, False),
        ({"layout": {"data": 1}, "accelerators": 1}, False),
        ({"layout": {"data": 4}, "features": ["bucket-views"]}, False),
        ({"layout": {"data": 4}, "features": ["deepspeed"]}, False),
        ({"layout": {"data": 4}, "stack": "megatron"}, False),
    ],
)
def test_ddp_of_others_keeps_its_buckets_beside_gradients(fields, copies):
    run = stated("H100-80GB-SXM", **({"accelerators": 4, "stack": "torch-eager"} | fields))
    assert ("bucket-copies" in run.setup.features) == copies


def test_a_recipe_is_assumed_unless_a_run_reduces_as_megatron_does_by_itself():
    of_fp8: dict[str, Any] = {"stack": "megatron", "precision": "fp8", "date": "2024-05"}
    recipe = stated("H100-80GB-SXM", **of_fp8).setup.features
    assert {"reduce-bf16", "fp8-parameters"} <= recipe
    own = stated("H100-80GB-SXM", **of_fp8, features=["reduce-fp32"]).setup.features
    assert not {"reduce-bf16", "fp8-parameters"} & own
    assert "transformer-engine" in own


def test_the_engine_that_runs_on_gaudi_is_only_for_fp8():
    of_bf16: dict[str, Any] = {"stack": "megatron", "precision": "bf16-amp", "date": "2024-05"}
    assert "transformer-engine" not in stated("Gaudi2", **of_bf16).setup.features
    of_fp8: dict[str, Any] = of_bf16 | {"precision": "fp8"}
    assert "transformer-engine" in stated("Gaudi2", **of_fp8).setup.features


@pytest.mark.parametrize(
    ("fields", "layers", "chunks"),
    [
        ({"precision": "fp8"}, 96, 12),
        ({"precision": "fp8"}, 95, 1),
        ({"precision": "fp16-amp", "attention": "eager"}, 96, 1),
    ],
)
def test_recipes_interleave_as_far_as_the_layers_allow(fields, layers, chunks):
    run = stated(
        "H100-80GB-SXM",
        accelerators=16,
        layout={"data": 1, "tensor": 2, "pipeline": 8},
        stack="megatron",
        date="2024-05",
        params={"layers": layers},
        **fields,
    )
    assert run.setup.layout.virtual_stages == chunks
    assert ("layout.virtual_stages" in names(run)) == (chunks > 1)


def test_stages_that_are_stated_are_kept():
    layout = {"data": 1, "tensor": 2, "pipeline": 8, "virtual_stages": 3}
    fields = {"stack": "megatron", "precision": "fp8", "params": {"layers": 96}}
    run = stated("H100-80GB-SXM", accelerators=16, layout=layout, **fields)
    assert run.setup.layout.virtual_stages == 3
