"""The text below a field is its description in the JSON Schema."""

from gpuplan.planner.plan.answer.estimate import Estimate
from gpuplan.planner.plan.parts import EstimatedMemory
from gpuplan.planner.plan.schema import descriptions, schema_of


def test_every_field_of_an_estimate_is_described() -> None:
    schema = schema_of(Estimate, title="")
    parts = {"Estimate": schema, **schema["$defs"]}
    bare = [
        f"{name}.{key}"
        for name, part in parts.items()
        for key, field in part.get("properties", {}).items()
        if not field.get("description")
    ]
    assert bare == []


def test_inherited_fields_are_described() -> None:
    found = descriptions(EstimatedMemory)
    assert found["low"] == "Low end of the 80 % interval."
    assert found["capacity"] == "Bytes that the device shows to a process."
