"""Profiles kept beside a model file: used while the file is what was traced."""

import json
import lzma
from pathlib import Path

import pytest

from gpuplan.profiles.profile import Profile
from gpuplan.profiles.records import read_records
from gpuplan.profiles.tracing_process import kept
from gpuplan.profiles.tracing_process.batch import ProfileRequest, profile_all

PUBLISHED = Path(__file__).parents[2] / "published"
RECORDS = {"timm.jsonl": 92, "diffusion.jsonl": 17}
A_MODEL = PUBLISHED / "sd2_unet.py"
PARAMS = {"latent": 64, "channels_last": True}


def a_profile() -> Profile:
    profile = kept.find_kept(A_MODEL, PARAMS, ["amp16"])
    assert profile is not None
    return profile


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """Return a model file that cannot be traced, with one Profile kept beside it."""
    file = tmp_path / "model.py"
    file.write_text("import a_package_that_nobody_has\n")
    kept.write_kept(file, [a_profile()], ["torch", "a_package_that_nobody_has"])
    return file


@pytest.mark.parametrize("name", RECORDS)
def test_every_published_model_that_needs_a_package_is_kept(name: str) -> None:
    records = read_records(PUBLISHED / name)
    assert len(records) == RECORDS[name]
    for record in records:
        file = PUBLISHED / record.model
        found = kept.find_kept(file, record.params, ["amp16"])
        assert found is not None and found.params == record.params, record.id
        if record.model_extra and record.model_extra["parameters_stated"]:
            # The source rounds to tens of thousands.
            stated = record.model_extra["parameters_stated"]
            assert found.parameters == pytest.approx(stated, rel=0.005), record.id


@pytest.mark.parametrize("name", ["timm_model.py", "sd2_unet.py"])
def test_what_is_kept_says_with_which_versions_it_was_traced(name: str) -> None:
    with lzma.open(kept.kept_file(PUBLISHED / name), "rt") as lines:
        made_from = json.loads(next(lines))
    package = {"timm_model.py": "timm", "sd2_unet.py": "diffusers"}[name]
    assert {"gpuplan", "torch", package} <= set(made_from["traced_with"])
    assert all(made_from["traced_with"].values())


def test_a_model_is_predicted_without_its_packages(model: Path) -> None:
    request = ProfileRequest(path=model, params=PARAMS, numerics=frozenset(("amp16",)))
    assert profile_all([request]) == {request.key: a_profile()}


def test_another_text_params_or_numerics_are_not_what_was_kept(model: Path) -> None:
    assert kept.find_kept(model, PARAMS, ["amp16"]) is not None
    assert kept.find_kept(model, {"latent": 32}, ["amp16"]) is None
    assert kept.find_kept(model, PARAMS, ["frozen16"]) is None
    model.write_text("import a_package_that_nobody_has  # changed\n")
    assert kept.find_kept(model, PARAMS, ["amp16"]) is None


def test_nothing_is_kept_beside_most_models(tmp_path: Path) -> None:
    assert kept.find_kept(tmp_path / "model.py", {}, ["amp16"]) is None


@pytest.mark.parametrize("content", [b"", b"text", lzma.compress(b""), lzma.compress(b"[1]\n[2]")])
def test_a_damaged_file_holds_nothing(model: Path, content: bytes) -> None:
    kept.kept_file(model).write_bytes(content)
    assert kept.find_kept(model, PARAMS, ["amp16"]) is None


def test_another_format_of_profiles_is_not_read(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "PROFILE_SCHEMA_VERSION", "99")
    assert kept.find_kept(model, PARAMS, ["amp16"]) is None
