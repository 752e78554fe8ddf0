"""`gpuplan profile` and `gpuplan init`, from a file to what a person reads."""

import json
from pathlib import Path

import pytest
from rich.cells import cell_len

from gpuplan.catalog.text.quantity import format_bytes
from gpuplan.cli.main import run
from gpuplan.cli.render.profile import format_flops
from gpuplan.profiles.profile import Profile

EXAMPLES = Path(__file__).parents[3] / "examples"
WIDTH = 100
GPT2_PARAMETERS = 124_439_808
"""Parameters of the weights that OpenAI published, with the tied head counted once."""


@pytest.mark.slow
def test_gpt2_as_a_table_and_as_json(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    model = str(EXAMPLES / "gpt2.py")
    assert run(["profile", model, "--param", "layers=2", "--micro-batch", "4"]) == 0
    table = capsys.readouterr().out
    lines = table.splitlines()
    assert lines[0] == "gpt2 layers=2"
    assert max(map(len, lines)) <= WIDTH
    for words in ("2 × Block", "7,087,872 parameters each", "1,024 tokens", "adamw · 8 bytes"):
        assert words in table
    assert "Memory of one step · micro-batch 4 · fp32" in lines
    heading = lines.index("Costliest kernels of one step · micro-batch 4 · fp32")
    order = lines[heading + 1]
    assert order.startswith("by their share of the ")
    assert order.endswith(" ms predicted on one H100-80GB-SXM, without launches")
    kernels = lines[heading + 3 :]
    assert len([line for line in kernels if line.strip()]) == 10
    # The head: 2 · m · n · k operations with m = 4 sequences of 1,024 tokens.
    assert any("4096×50257×768" in line and "316 G" in line for line in kernels)
    shares = [float(line.split()[-1].rstrip("%")) for line in kernels if line.strip()]
    assert shares == sorted(shares, reverse=True)
    # AdamW has no FLOPs, and takes longer than most products.
    assert any("optimizer" in line for line in kernels[:5])

    for columns in (60, 80):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert run(["profile", model, "--param", "layers=2", "--micro-batch", "4"]) == 0
        narrow = capsys.readouterr().out
        assert max(map(cell_len, narrow.splitlines())) <= columns
        assert "4096×50257×768" in narrow, "columns leave, and what a product is stays"
    monkeypatch.delenv("COLUMNS")

    out_file = tmp_path / "gpt2.json"
    arguments = ["profile", model, "--param", "layers=2", "--out-file", str(out_file)]
    assert run(arguments) == 0
    written = Profile.model_validate_json(out_file.read_text())
    assert written.parameters == GPT2_PARAMETERS - 10 * 7_087_872
    assert capsys.readouterr() == ("", "")

    assert run(["profile", str(out_file), "--micro-batch", "4"]) == 0
    assert capsys.readouterr().out == table, "a written profile shows what the file shows"
    assert run(["profile", str(out_file), "--precision", "bf16"]) == 2
    assert "holds no trace for bf16; it holds fp32" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "options", "parameters", "flops"),
    [
        # 2 · 64 · 64 forward; the weight's gradient as much again; the input needs none.
        ("class", ["--input", "64"], 64 * 64 + 64, 2 * 2 * 64 * 64),
        ("hf", ["--param", "seq_len=32", "--param", "num_hidden_layers=1"], None, None),
    ],
)
def test_other_forms_of_a_model(
    model: str,
    options: list[str],
    parameters: int | None,
    flops: float | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if model == "class":
        file = tmp_path / "plain.py"
        file.write_text(
            "import torch\n"
            "class Net(torch.nn.Sequential):\n"
            "    def __init__(self):\n"
            "        super().__init__(torch.nn.Linear(64, 64))\n"
        )
        model = f"{file}:Net"
    else:
        monkeypatch.setenv("HF_HUB_OFFLINE", "1")
        model = f"hf:{EXAMPLES / 'hf_llama_config'}"
    assert run(["profile", model, *options, "--format", "json"]) == 0
    profile = Profile.model_validate(json.loads(capsys.readouterr().out))
    if parameters is None:
        assert profile.tokens_per_sample == 32
        assert profile.flops.per_sample > 6 * 32 * 10**6
    else:
        assert (profile.parameters, profile.flops.per_sample) == (parameters, flops)


@pytest.mark.slow
def test_a_file_that_wants_a_gpu_needs_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\n"
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'\n"
        "assert device == 'cuda'\n"
        "net = torch.nn.Linear(64, 64).cuda()\n"
        "scale = torch.ones(64, device='cuda').to('cuda')\n"
        "net = torch.compile(net)\n"
        "def build_model(): return net.to(device)\n"
        "def make_batch(batch_size=4): return (torch.randn(batch_size, 64).cuda(),)\n"
        "def compute_loss(model, batch):\n"
        "    with torch.autocast('cuda', dtype=torch.bfloat16):\n"
        "        return (model(batch[0]) * scale).float().mean()\n"
    )
    assert run(["profile", str(tmp_path / "model.py")]) == 0
    table = capsys.readouterr().out
    assert "bf16-amp, set by the file · torch.compile" in table
    assert "micro-batch 4 · bf16-amp" in table


def test_init_writes_a_file_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["init"]) == 0
    assert "gpuplan estimate model.py" in capsys.readouterr().out
    Path("model.py").write_text("mine")
    assert run(["init"]) == 2
    assert "model.py exists already" in capsys.readouterr().err
    assert Path("model.py").read_text() == "mine"
    assert run(["init", "--force"]) == 0
    assert "def build_model" in Path("model.py").read_text()


CLASS = """
import torch

class Part(torch.nn.Module):
    def forward(self, x):
        return x

class Net(torch.nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.part = Part()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
            torch.nn.Linear(8, classes),
        )

    def forward(self, x):
        return self.layers(self.part(x))
"""


@pytest.mark.slow
def test_what_init_writes_can_be_profiled(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example, around = tmp_path / "example.py", tmp_path / "gpuplan_model.py"
    assert run(["init", str(example)]) == 0
    (tmp_path / "net.py").write_text(CLASS)
    assert run(["init", "--from", str(tmp_path / "net.py")]) == 0
    assert "from net import Net\n" in around.read_text()
    capsys.readouterr()
    assert run(["profile", str(example), "--param", "layers=1", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["default_micro_batch"] == 32
    assert run(["profile", str(around), "--param", "classes=10", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == 3 * 8 * 9 + 8 + 8 * 10 + 10


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from", "net.py:Nett"], "Did you mean Net?"),
        (["--from", "empty.py"], "has no class with a forward()"),
        (["--from", "no.py"], "There is no file no.py"),
        (["--from", "whole.py"], "whole.py has build_model() and make_batch() already."),
        (["elsewhere/model.py", "--from", "net.py"], "not in the folder of net.py"),
        (["--from", "my-net.py"], "my-net.py cannot be imported by its name"),
        (["no-such-folder/model.py"], "Cannot write no-such-folder/model.py"),
    ],
)
def test_init_says_what_it_cannot_do(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    whole = f"{CLASS}\ndef build_model(): ...\ndef make_batch(batch_size): ...\n"
    files = {"net.py": CLASS, "my-net.py": CLASS, "empty.py": "x = 1\n", "whole.py": whole}
    for name, text in files.items():
        Path(name).write_text(text)
    before = sorted(tmp_path.iterdir())
    assert run(["init", *arguments]) in (1, 2)
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (8, "8 B"), (2048, "2.0 KiB"), (3 * 2**20, "3.0 MiB"), (1.5 * 2**30, "1.5 GiB")],
)
def test_sizes(size_bytes: float, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("flops", "text"),
    [(0, "0 "), (512, "512 "), (8.167e11, "817 G"), (3.516e14, "352 T"), (4.291e10, "42.9 G")],
)
def test_operations(flops: float, text: str) -> None:
    assert format_flops(flops) == text
