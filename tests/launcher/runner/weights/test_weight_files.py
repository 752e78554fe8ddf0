"""Safetensors files and folders as people have them: whole, in parts, damaged, or no such files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.runner.weights.files import stored_tensors
from gpuplan.launcher.runner.weights.names import matched, names_of
from gpuplan.launcher.runner.weights.reading import MappedFiles, read_into
from gpuplan.launcher.runner.weights.writing import WORDS, Output, write_weights
from gpuplan.profiles.user_model.lora import add_adapters
from gpuplan.profiles.user_model.lora_settings import parse_lora

PLAIN = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool]


@pytest.fixture
def tensors() -> dict[str, torch.Tensor]:
    whole = {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in PLAIN}
    return {**whole, "number": torch.tensor(3.0), "empty": torch.empty(0, 4)}


def test_what_safetensors_writes_is_read(tmp_path: Path, tensors: dict[str, torch.Tensor]) -> None:
    save_file(tensors, tmp_path / "model.safetensors")

    stored = stored_tensors(tmp_path)

    assert set(stored) == set(tensors)
    for name, value in tensors.items():
        assert torch.equal(MappedFiles().tensor(stored[name]), value)


def test_a_tensor_that_is_not_aligned_is_read(tmp_path: Path) -> None:
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [1, 5]}}).encode()
    value = torch.tensor([2.5]).numpy().tobytes()
    (tmp_path / "a.safetensors").write_bytes(
        len(header).to_bytes(8, "little") + header + b"\0" + value
    )

    assert MappedFiles().tensor(stored_tensors(tmp_path)["a"]).item() == 2.5


def test_tensors_of_another_dtype_are_filled_in_place(tmp_path: Path) -> None:
    save_file({"a": torch.tensor([1.5, 2.0], dtype=torch.bfloat16)}, tmp_path / "a.safetensors")
    target = nn.Parameter(torch.zeros(2))

    read_into({"a": target}, stored_tensors(tmp_path))

    assert target.tolist() == [1.5, 2.0]


@pytest.mark.parametrize("max_file_bytes", [10**9, 30])
def test_what_is_written_is_read_by_safetensors(
    tmp_path: Path, tensors: dict[str, torch.Tensor], max_file_bytes: int
) -> None:
    outputs = [
        Output(
            name=name,
            shape=tuple(value.shape),
            dtype=value.dtype,
            sources=(name,),
            source_bytes=value.nbytes,
            make=lambda found, name=name: found[name],
        )
        for name, value in tensors.items()
    ]
    paths = write_weights(
        tmp_path,
        outputs,
        lambda names: {name: tensors[name] for name in names},
        stem="model",
        max_file_bytes=max_file_bytes,
        metadata={"format": "pt"},
    )

    files = [path for path in paths if path.suffix == ".safetensors"]
    found = {name: value for path in files for name, value in load_file(path).items()}
    assert (len(files) > 1) == (max_file_bytes == 30)
    assert set(found) == set(stored_tensors(tmp_path)) == set(tensors)
    assert all(torch.equal(found[name], value) for name, value in tensors.items())
    assert all(path.stat().st_size % 8 == 0 or value for path in files for value in (1,))


def test_every_dtype_of_the_format_has_a_word() -> None:
    assert len(WORDS) == 16


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.safetensors", b"", "its header is longer than the file"),
        ("a.safetensors", b"\xff" * 20, "its header is longer than the file"),
        ("a.safetensors", b"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"),
        ("a.safetensors", (2).to_bytes(8, "little") + b"[]", "its header is no JSON"),
        ("a.safetensors", (2).to_bytes(8, "little") + b"{}", "holds no tensor"),
        ("pytorch_model.bin", b"PK", "is a pickle"),
        ("model.safetensors.index.json", b"{}", "is no index"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": "../../etc/passwd"}}',
            "no file beside it",
        ),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": "model-00001-of-00001.safetensors"}}',
            "1 of 1 files are missing",
        ),
        ("notes.txt", b"", "has no .safetensors file"),
    ],
)
def test_what_cannot_be_read_is_said(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)

    with pytest.raises(UsageError, match=said) as raised:
        stored_tensors(tmp_path)
    assert raised.value.fix


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}, "takes 4 bytes"),
        ({"dtype": "F32", "shape": [9], "data_offsets": [0, 36]}, "it ends before a does"),
        ({"dtype": "F4", "shape": [2], "data_offsets": [0, 1]}, "has the dtype 'F4'"),
        ({"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}, "does not say where a lies"),
        ([], "does not say where a lies"),
    ],
)
def test_a_header_that_lies_is_refused(tmp_path: Path, entry: object, said: str) -> None:
    text = json.dumps({"a": entry}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0" * 4)

    with pytest.raises(UsageError, match=said):
        stored_tensors(path)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.body = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight


def test_one_name_of_a_tied_weight_is_enough(tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in Net().state_dict().items()}
    del state["embed.weight"]
    found = _matched(tmp_path, Net(), state)

    assert found.stored["embed.weight"] == found.stored["head.weight"]
    assert not found.begun_anew


def test_two_values_of_a_tied_weight_are_refused(tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in Net().state_dict().items()}
    _matched(tmp_path, Net(), state)
    with pytest.raises(UsageError, match="have two values"):
        _matched(tmp_path, Net(), {**state, "head.weight": state["head.weight"] + 1})


def test_names_that_differ_are_refused_and_can_be_allowed(tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in Net().state_dict().items()}
    other = {"score.weight" if name == "body.0.weight" else name: v for name, v in state.items()}

    with pytest.raises(UsageError) as raised:
        _matched(tmp_path, Net(), other)
    assert "1 of the model's 9 are missing in the files (body.0.weight)" in str(raised.value)
    assert "1 of the files' 9 are not in the model (score.weight)" in str(raised.value)
    assert "--allow-missing 'body.0.*'" in str(raised.value)

    found = _matched(
        tmp_path, Net(), other, allow_missing=("body.0.*",), allow_unexpected=("score.*",)
    )
    assert found.begun_anew == ("body.0.weight",)
    assert found.left_out == ("score.weight",)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.model."])
def test_a_prefix_of_all_names_is_found(tmp_path: Path, prefix: str) -> None:
    inner = {name: value.clone() for name, value in Net().state_dict().items()}
    outer = nn.ModuleDict({"backbone": Net()})

    longer = _matched(tmp_path, Net(), {prefix + name: value for name, value in inner.items()})
    shorter = _matched(tmp_path, outer, inner)

    assert longer.renamed == f"without {prefix!r} before the names in the files"
    assert shorter.renamed == "with 'backbone.' before the names in the files"
    assert not longer.begun_anew and not shorter.begun_anew


def test_another_size_is_refused(tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in Net().state_dict().items()}
    state["body.0.bias"] = torch.zeros(4)
    with pytest.raises(UsageError, match=r"body\.0\.bias is 4 in the files and 3 in the model"):
        _matched(tmp_path, Net(), state)


def test_quantised_weights_are_refused(tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in Net().state_dict().items()}
    state["body.0.bias"] = torch.zeros(3, dtype=torch.int8)
    with pytest.raises(UsageError, match="body.0.bias is I8"):
        _matched(tmp_path, Net(), state)


def test_adapters_begin_anew_around_the_weights_of_the_base(tmp_path: Path) -> None:
    state = {name: value.clone() for name, value in Net().state_dict().items()}
    adapted = Net()
    settings = parse_lora("r=2,targets=0")
    add_adapters(adapted, settings)

    found = _matched(tmp_path, adapted, state)

    assert found.begun_anew == ("body.0.down.weight", "body.0.up.weight")
    assert found.stored["body.0.base.weight"].shape == (3, 3)


def _matched(
    folder: Path, model: nn.Module, state: dict[str, torch.Tensor], **allowed: tuple[str, ...]
):
    path = folder / "model.safetensors"
    save_file(state, path)
    return matched(names_of(model), stored_tensors(path), place="here", **allowed)
