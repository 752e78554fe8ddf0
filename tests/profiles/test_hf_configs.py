"""The configurations that come with gpuplan: what they are, and how they are named."""

import json
from pathlib import Path

import pytest

from gpuplan.catalog.errors import UsageError
from gpuplan.profiles.hf_configs import (
    CONFIGS,
    ShippedConfig,
    config_path,
    shipped_config,
    shipped_configs,
    stored_dtype,
    trained_length,
)


def test_every_folder_is_in_the_index_with_a_licence_that_allows_it() -> None:
    folders = {str(file.parent.relative_to(CONFIGS)) for file in CONFIGS.rglob("config.json")}
    assert {each.name for each in shipped_configs()} == folders
    assert {each.licence for each in shipped_configs()} == {"Apache-2.0", "MIT"}
    assert all(each.source.startswith("huggingface.co/") for each in shipped_configs())


@pytest.mark.slow
@pytest.mark.parametrize("shipped", shipped_configs(), ids=lambda each: each.name)
def test_a_model_built_from_it_has_as_many_parameters_as_published(shipped: ShippedConfig) -> None:
    import torch
    import transformers  # of the dev extra, as the tests are

    config = transformers.AutoConfig.from_pretrained(shipped.path, local_files_only=True)
    architecture = (config.architectures or [""])[0]
    with torch.device("meta"):
        model = getattr(transformers, architecture)(config)
    assert sum(each.numel() for each in model.parameters()) == shipped.parameters


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "qwen/qwen3-8b", "Qwen3-8B"])
def test_a_name_is_taken_with_or_without_its_owner_in_any_case(name: str) -> None:
    assert config_path(name) == CONFIGS / "Qwen/Qwen3-8B" / "config.json"


def test_names_without_their_owner_are_unique() -> None:
    short = [each.name.split("/")[1].lower() for each in shipped_configs()]
    assert len(short) == len(set(short))
    assert shipped_config("no such model") is None


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    assert config_path("Qwen/Qwen3-8B") is None


@pytest.mark.parametrize(
    "place", ["configs/one/config.json", "./mine", "/no/such/folder", "mine.json"]
)
def test_what_is_no_name_is_left_to_whoever_reads_paths(place: str) -> None:
    assert config_path(place) is None


def test_a_name_without_an_owner_that_nobody_knows_says_what_is_near() -> None:
    with pytest.raises(UsageError, match="Did you mean Qwen3-8B") as caught:
        config_path("qwen3-9b")
    assert "hf:OWNER/qwen3-9b" in (caught.value.fix or "")
    with pytest.raises(UsageError, match="comes with no configuration of this name"):
        config_path("mine")


def test_a_name_that_does_not_come_with_gpuplan_says_how_to_get_it() -> None:
    with pytest.raises(UsageError, match="Did you mean Qwen/Qwen3-8B") as caught:
        config_path("Qwen/Qwen3-9B")
    assert caught.value.fix is not None
    assert "hf download Qwen/Qwen3-9B config.json --local-dir Qwen3-9B" in caught.value.fix
    assert "hf:Qwen3-9B" in caught.value.fix and "terms" not in caught.value.fix
    with pytest.raises(UsageError, match="does not come with") as caught:
        config_path("meta-llama/Llama-3.1-8B")
    assert "accept its terms" in (caught.value.fix or "")


@pytest.mark.parametrize(
    ("content", "dtype"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"dtype": "float16", "torch_dtype": "bfloat16"}, "float16"),
        ({}, None),
        ([], None),
        ({"dtype": 16}, None),
    ],
)
def test_the_dtype_of_the_weights_is_read(tmp_path: Path, content: object, dtype: object) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(content))
    assert stored_dtype(path) == dtype
    assert stored_dtype(tmp_path / "none.json") is None


@pytest.mark.parametrize(
    ("config", "tokens"),
    [
        ({"model_type": "t5"}, 512),
        ({"model_type": "t5", "n_positions": 256}, None),
        ({"model_type": "mt5"}, 1024),
        ({"model_type": "llama"}, None),
        ([], None),
    ],
)
def test_a_config_without_a_length_has_that_of_its_kind(
    tmp_path: Path, config: object, tokens: int | None
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    found = trained_length(path)
    assert (found.tokens if found else None) == tokens
    assert trained_length(tmp_path / "gone.json") is None


def test_no_config_that_comes_with_gpuplan_needs_that_rule() -> None:
    assert not any(trained_length(each.path) for each in shipped_configs())
