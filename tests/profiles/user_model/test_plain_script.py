"""A training script that names no model for gpuplan is told so, and is not run."""

import ast
from pathlib import Path

import pytest

from gpuplan.catalog.errors import UserFileError
from gpuplan.profiles.user_model.contract import load_workload
from gpuplan.profiles.user_model.plain_script import names_no_model, pretrained_name
from gpuplan.profiles.user_model.spec import parse_model_spec

NET = """
import torch

class Net(torch.nn.Module):
    def forward(self, x): return x

"""
LOOP = """
net = Net()
for step in range(10**9):
    net(torch.randn(2, 2)).mean().backward()
"""
TRAINER = """
from no_such_package import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, Trainer

tokenizer = AutoTokenizer.from_pretrained("some/tokenizer")
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-0.6B")
trainer = Trainer(model=model, train_dataset=load_dataset("imdb"))
trainer.train()
"""
UNDER_MAIN = 'put what trains under `if __name__ == "__main__":`'


def refused(path: Path, text: str) -> UserFileError:
    path.write_text(text)
    with pytest.raises(UserFileError) as error:
        load_workload(parse_model_spec(str(path)))
    return error.value


def test_a_loop_at_the_top_is_not_run_and_is_told_where_it_belongs(tmp_path: Path) -> None:
    """It trained on tensors of two devices, which was all that was said."""
    error = refused(tmp_path / "loop.py", NET + LOOP)
    assert "has the class Net, but no build_model()" in error.message
    assert UNDER_MAIN in (error.fix or "") and "return Net()" in (error.fix or "")


def test_a_class_alone_is_told_nothing_of_training(tmp_path: Path) -> None:
    held = LOOP.replace("\n", "\n    ").replace("\n    net =", "\ndef main():\n    net =", 1)
    for text in (NET, NET + held):
        assert "__main__" not in (refused(tmp_path / "net.py", text).fix or "")


def test_a_script_of_a_trainer_is_told_of_its_models_config(tmp_path: Path) -> None:
    error = refused(tmp_path / "tune.py", TRAINER)
    assert "has no build_model()" in error.message and "no_such_package" not in error.message
    assert "`gpuplan estimate hf:Qwen/Qwen3-0.6B`" in (error.fix or "")
    assert UNDER_MAIN in (error.fix or "")


@pytest.mark.parametrize(
    ("text", "without"),
    [
        (NET, True),
        ("import no_such_package\n", False),
        ("from parts import *\n" + NET, False),
        ("from parts import Base\nclass Net(Base):\n    pass\n", False),
        ("import lightning\n" + NET, False),
        ("from parts import net as build_model\n" + NET, False),
        ("deepview_model_provider = 3\n" + NET, False),
    ],
)
def test_only_what_can_have_no_form_is_not_run(text: str, without: bool) -> None:
    assert names_no_model(text, ast.parse(text)) is without


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("AutoModel.from_pretrained(args.model)", None),
        ("name = 'gpt2'\nAutoModel.from_pretrained(name)", "gpt2"),
        ("def main():\n    name = 'gpt2'\n    AutoModel.from_pretrained(name)", "gpt2"),
        ("name = 'gpt2'\nname = 'gpt2-xl'\nAutoModel.from_pretrained(name)", None),
        ("name = args.model\nAutoModel.from_pretrained(name)", None),
    ],
)
def test_a_name_that_is_not_written_down_is_not_guessed(text: str, name: str | None) -> None:
    assert pretrained_name(ast.parse(text)) == name


def test_a_trainer_in_a_function_is_told_of_its_models_config(tmp_path: Path) -> None:
    """It was to have its data's package installed, which brings no build_model() either."""
    held = TRAINER.replace("\ntok", "\ndef main():\n    tok").replace("\nmodel", "\n    model")
    held = held.replace("\ntrainer", "\n    trainer")
    error = refused(tmp_path / "tune.py", held)
    assert "has no build_model()" in error.message and "no_such_package" not in error.message
    assert "`gpuplan estimate hf:Qwen/Qwen3-0.6B`" in (error.fix or "")
    assert UNDER_MAIN not in (error.fix or "")


def test_a_model_that_is_a_variable_is_told_where_it_is_made(tmp_path: Path) -> None:
    text = "import torch\nnet = torch.nn.Linear(2, 2)\nnet = net.train()\n"
    text += "torch.optim.SGD(net.parameters())\nnet(torch.ones(2)).mean().backward()\n"
    fix = refused(tmp_path / "loop.py", text).fix or ""
    assert "build_model(), which returns what line 2 calls net, and make_batch(" in fix
