"""The JSON Schema of a project file, for editors; the examples keep to it."""

import json
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest
import yaml

from gpuplan.api import read_project
from gpuplan.planner.budget.project.project import Project

ROOT = Path(__file__).parents[4]
EXAMPLES = sorted((ROOT / "examples" / "projects").glob("*.yaml"))


def schema() -> dict:
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Project.model_json_schema(),
    }


def test_the_committed_schema_is_that_of_the_file(golden: Callable[[Path, str], None]) -> None:
    text = json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"
    golden(ROOT / "docs" / "schema" / "project-1.0.json", text)


@pytest.mark.parametrize("file", EXAMPLES, ids=lambda file: file.stem)
def test_an_example_is_read_and_keeps_to_the_schema(file: Path) -> None:
    assert read_project(file).experiments
    written = json.loads(json.dumps(yaml.safe_load(file.read_text()), default=str))
    jsonschema.validate(written, schema())


def test_the_file_of_the_page_is_read(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "budget.md").read_text(encoding="utf-8")
    text = page.split("```yaml\n")[1].split("```")[0]
    (tmp_path / "gpuplan.yaml").write_text(text)
    assert list(read_project(tmp_path).experiments) == ["sweep", "final"]


def test_the_page_explains_every_field() -> None:
    page = (ROOT / "docs" / "budget.md").read_text(encoding="utf-8")
    definitions = schema()["$defs"]
    named = {
        *schema()["properties"],
        *definitions["Experiment"]["properties"],
        *definitions["Funding"]["properties"],
        *definitions["Runs"]["properties"],
        *definitions["Retry"]["properties"],
        *definitions["BudgetLimits"]["properties"],
    }
    assert {name for name in named if name not in page} == set()
