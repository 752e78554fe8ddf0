import json
from pathlib import Path

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.profiles.records import (
    Measured,
    RecordedLayout,
    RunRecord,
    parse_software_date,
    read_records,
)

MINIMAL = {"model": "decoder.py", "accelerator": "A100-80GB-SXM", "measured": {"step_time_s": 1.5}}


def write(path: Path, *lines: object) -> Path:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text("\n".join(texts) + "\n")
    return path


def test_a_minimal_record_is_named_after_its_line(tmp_path):
    (first, second) = read_records(write(tmp_path / "runs.jsonl", MINIMAL, "", MINIMAL))
    assert (first.id, second.id) == ("runs.jsonl:1", "runs.jsonl:3")
    assert first.measured.step_time_s == 1.5
    assert first.measured.peak_memory_bytes is None
    assert first.micro_batch is None


def test_unknown_keys_survive_a_round_trip(tmp_path):
    line = MINIMAL | {"id": "a", "colour": "red", "measured": {"step_time_s": 2, "loss": 3.5}}
    (record,) = read_records(write(tmp_path / "runs.jsonl", line))
    written = json.loads(record.model_dump_json())
    assert written["colour"] == "red"
    assert written["measured"]["loss"] == 3.5
    assert RunRecord.model_validate(written) == record


def test_nulls_are_not_stated(tmp_path):
    line = MINIMAL | {"grad_accum": None, "features": None, "layout": {"data": 4, "shard": None}}
    (record,) = read_records(write(tmp_path / "runs.jsonl", line))
    assert record.grad_accum is None
    assert record.features == ()
    assert (record.layout.data, record.layout.shard, record.layout.tensor) == (4, None, 1)


def test_gib_become_bytes(tmp_path):
    line = MINIMAL | {"measured": {"peak_memory_gib": 2, "memory_meaning": "reserved"}}
    (record,) = read_records(write(tmp_path / "runs.jsonl", line))
    assert record.measured.peak_memory_bytes == 2 * 2**30


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{not json", "not JSON"),
        ("[1, 2]", "a run record is a JSON object, this is a list"),
        ('{"model": "m.py", "accelerator": "L4"}', "measured is missing"),
        (MINIMAL | {"measured": {"step_time_s": -1}}, "measured.step_time_s is -1; it must be"),
        ('{"measured": {"step_time_s": NaN}}', "NaN is not a number"),
        (MINIMAL | {"layout": {"tensor": 0}}, "layout.tensor is 0; it must be greater"),
        (MINIMAL | {"micro_batch": 1.5}, "micro_batch is 1.5; it must be"),
        (MINIMAL | {"stack": "jax"}, 'stack is "jax"; it must be'),
        (MINIMAL | {"params": [1]}, "params is [1]; it must be"),
        (MINIMAL | {"measured": {"step_time_s": True}}, "step_time_s is true; it must be a number"),
        (
            MINIMAL | {"measured": {"step_time_ms": 250}},
            "measured.step_time_ms is no field of a run record. Did you mean measured.step_time_s?",
        ),
        (MINIMAL | {"micro_batc": 8}, "micro_batc is no field of a run record."),
        (MINIMAL | {"layout": {"zero_stages": 1}}, "Did you mean layout.zero_stage?"),
        (MINIMAL | {"measured": {"oom": True, "step_time_s": 1}}, "measured.oom is true beside"),
    ],
)
def test_a_bad_line_is_one_message_with_file_and_line(tmp_path, line, said):
    path = write(tmp_path / "runs.jsonl", MINIMAL, line)
    with pytest.raises(UsageError) as raised:
        read_records(path)
    assert f"{path}:2: " in raised.value.message
    assert said in raised.value.message
    assert len(raised.value.message.splitlines()) == 1
    assert raised.value.exit_code == 2


def test_a_key_like_a_field_that_is_stated_is_kept(tmp_path):
    line = MINIMAL | {"measured": {"step_time_s": 0.25, "step_time_ms": 250}}
    (record,) = read_records(write(tmp_path / "runs.jsonl", line))
    assert record.measured.model_extra == {"step_time_ms": 250}


@pytest.mark.parametrize(
    ("document", "said", "fix"),
    [
        (json.dumps([MINIMAL, MINIMAL]), "is a list in JSON", "jq -c '.[]'"),
        (json.dumps(MINIMAL, indent=2), "is an object in JSON", "jq -c '.'"),
    ],
)
def test_one_json_document_is_told_how_to_become_lines(tmp_path, document, said, fix):
    with pytest.raises(UsageError) as raised:
        read_records(write(tmp_path / "runs.json", document))
    assert said in raised.value.message
    assert fix in str(raised.value.fix)


def test_many_bad_lines_are_counted(tmp_path):
    path = write(tmp_path / "runs.jsonl", *["{"] * 14)
    with pytest.raises(UsageError, match="and 4 more lines"):
        read_records(path)


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\xff\xfe\x00"])
def test_a_file_without_records_is_an_error(tmp_path, content):
    path = tmp_path / "runs.jsonl"
    path.write_bytes(content)
    with pytest.raises(UsageError):
        read_records(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(UsageError, match="nowhere.jsonl: No such file"):
        read_records(tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(
    ("text", "accelerator", "expected"),
    [
        ("2022-02", "", (2022, 2)),
        ("2021", "", (2021, 1)),
        ("NGC 20.01-20.10", "", (2020, 1)),
        ("NGC 23-25", "", (2023, 1)),
        ("NeMo 26.04.01", "", (2026, 4)),
        ("2026-07/08", "", (2026, 7)),
        ("A100 tables 2023-05..10; H100 2023-10..2024-01", "H100-80GB-SXM", (2023, 10)),
        ("A100 tables 2023-05..10; H100 2023-10..2024-01", "A100-80GB-SXM", (2023, 5)),
        ("Neuron 2.24.0", "Trainium1", None),
        (None, "", None),
    ],
)
def test_software_dates(text, accelerator, expected):
    assert parse_software_date(text, accelerator) == expected


@pytest.mark.parametrize("name", ["published_llm.jsonl", "published_single_gpu.jsonl"])
def test_published_records_are_readable(name):
    records = read_records(Path(__file__).parents[1] / "published" / name)
    assert len({record.id for record in records}) == len(records) > 200
    assert all(
        record.measured.step_time_s or record.measured.peak_memory_gib or record.measured.oom
        for record in records
    )


def runs_of(source_group, model_name):
    published = Path(__file__).parents[1] / "published"
    return [
        record
        for name in ("published_single_gpu.jsonl", "more_single_gpu.jsonl")
        for record in read_records(published / name)
        if (record.source_group, record.model_name) == (source_group, model_name)
    ]


def test_runs_of_one_program_state_its_images_and_its_pass_before_training():
    """milabench's loader is one program for every device (benchmate/dataloader.py)."""
    runs = runs_of("milabench", "resnet50-noio")
    assert len(runs) == 28
    assert {run.params["image"] for run in runs} == {244}
    assert {tuple(run.features) for run in runs} == {("checked-software", "fp32-forward-first")}


def test_the_vocabulary_head_of_one_program_sees_what_it_was_trained_on():
    """DeepLearningExamples scores masked positions alone, and in SQuAD the two ends of a span."""
    runs = runs_of("dle", "BERT/BERT")
    heads = {(run.model, run.params["seq_len"], run.params.get("head")) for run in runs}
    assert len(runs) == 10
    assert heads == {("bert_masked.py", 128, None), ("bert_masked.py", 384, "span")}


@pytest.mark.parametrize("name", ["bert_base_squad", "bert_large_squad"])
def test_lambda_s_bert_is_that_of_the_same_program(name):
    assert {run.model for run in runs_of("lambda", name)} == {"bert_masked.py"}


def test_norms_of_one_program_are_fused_since_its_release_that_fuses_them():
    """NeMo-Automodel's Llama of 2025 has transformers' norms, of 2026-01 Transformer Engine's."""
    published = Path(__file__).parents[1] / "published" / "more_llm.jsonl"
    runs = [r for r in read_records(published) if r.id.startswith("automodel-20")]
    models = {r.id.split("-")[1]: r.model for r in runs if "Llama-3-70B-lora" in r.id}
    assert models == {"2025": "decoder_lora_written_out.py", "2026": "decoder_lora.py"}


@pytest.mark.parametrize("kind", [RunRecord, RecordedLayout, Measured])
def test_the_page_that_messages_name_lists_every_field(kind):
    text = (Path(__file__).parents[2] / "docs" / "json.md").read_text(encoding="utf-8")
    section = text.split("### The fields of a run record")[1].split("\n## ")[0]
    missing = [name for name in kind.model_fields if f"`{name}`" not in section]
    assert not missing
