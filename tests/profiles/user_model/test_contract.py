"""How a user's file becomes a Workload by the contract, and what is said of one that breaks it."""

import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch
from user_files import PLAIN, batch_of, load, one_step

from gpuplan.catalog.errors import GpuplanError, UsageError, UserFileError

pytestmark = pytest.mark.usefixtures("clean_imports")


def test_a_file_that_follows_the_contract(tmp_path: Path) -> None:
    workload = load(tmp_path, PLAIN, params={"width": 16, "rate": 0.5})
    model = workload.build_model()
    assert [tuple(one.shape) for one in model.parameters()] == [(4, 16), (4,)]
    assert batch_of(workload, 5)[0].shape == (5, 16)
    assert workload.build_optimizer(model.parameters()).defaults["lr"] == 0.5
    assert (workload.name, workload.tokens_per_sample) == ("user_model", 7)
    assert workload.default_micro_batch == 32
    assert one_step(workload) > 0


def test_what_may_be_left_out(tmp_path: Path) -> None:
    workload = load(
        tmp_path,
        """
        import torch

        class Net(torch.nn.Linear):
            def forward(self, inputs):
                return super().forward(inputs).mean()

        def build_model(**params):
            return Net(params["width"], 1)

        def make_batch(batch_size, **params):
            return {"inputs": torch.zeros(batch_size, params["width"])}

        def TOKENS_PER_SAMPLE(width):
            return 2 * width
        """,
        params={"width": 6, "unused": 1},
    )
    optimizer = workload.build_optimizer(workload.build_model().parameters())
    assert isinstance(optimizer, torch.optim.AdamW)
    assert optimizer.defaults["lr"] == 1e-4
    assert workload.tokens_per_sample == 12
    assert workload.default_micro_batch is None
    one_step(workload)


def test_output_loss_is_the_default_loss(tmp_path: Path) -> None:
    workload = load(
        tmp_path,
        """
        import torch

        class Net(torch.nn.Linear):
            def forward(self, inputs):
                return {"loss": super().forward(inputs).sum(), "logits": None}

        def build_model():
            return Net(3, 1)

        def make_batch(batch_size):
            return (torch.ones(batch_size, 3),)
        """,
    )
    one_step(workload)


MINIMAL = """
import torch
def build_model(): return torch.nn.Linear(3, 2)
def make_batch(batch_size): return (torch.ones(batch_size, 3),)
def compute_loss(model, batch): return model(*batch).sum()
"""


@pytest.mark.parametrize(
    ("old", "new", "message", "fix"),
    [
        (
            "compute_loss(model, batch)",
            "compute_loss(batch)",
            "compute_loss\\(\\) takes 1 argument, and is called with 2",
            "write def compute_loss(model, batch)",
        ),
        (
            "def build_model()",
            "async def build_model()",
            "build_model\\(\\) is asynchronous",
            "without async",
        ),
    ],
)
def test_a_function_that_cannot_be_called_as_it_is_is_refused(
    tmp_path: Path, old: str, new: str, message: str, fix: str
) -> None:
    with pytest.raises(UserFileError, match=message) as raised:
        load(tmp_path, MINIMAL.replace(old, new))
    assert fix in (raised.value.fix or "")


def test_a_loss_may_take_whatever_it_is_given(tmp_path: Path) -> None:
    text = MINIMAL.replace("compute_loss(model, batch)", "compute_loss(*given)")
    one_step(load(tmp_path, text.replace("model(*batch)", "given[0](*given[1])")))


def test_a_batch_may_be_a_list_as_loaders_make_it(tmp_path: Path) -> None:
    workload = load(
        tmp_path,
        """
        import torch

        def build_model():
            return torch.nn.Linear(3, 2)

        def make_batch(batch_size):
            data = torch.utils.data.TensorDataset(torch.ones(8, 3), torch.zeros(8).long())
            return next(iter(torch.utils.data.DataLoader(data, batch_size)))

        def compute_loss(model, batch):
            inputs, classes = batch
            return torch.nn.functional.cross_entropy(model(inputs), classes)
        """,
    )
    assert isinstance(workload.make_batch(2), tuple)
    one_step(workload)


@pytest.mark.parametrize(
    ("params", "message", "fix"),
    [
        ({"widht": 1}, "takes the param 'widht'. Did you mean width?", "classes, rate, width"),
        ({"batch_size": 1}, "'batch_size'", "--micro-batch"),
    ],
)
def test_a_param_that_nobody_takes(
    tmp_path: Path, params: dict[str, Any], message: str, fix: str
) -> None:
    with pytest.raises(UsageError) as raised:
        load(tmp_path, PLAIN, params=params)
    assert message in raised.value.message
    assert fix in (raised.value.fix or "")


def test_a_param_without_a_default_must_be_given(tmp_path: Path) -> None:
    text = PLAIN.replace("def build_model(width=8,", "def build_model(width,")
    with pytest.raises(UsageError, match="build_model\\(\\) needs width") as raised:
        load(tmp_path, text).build_model()
    assert "--param width=" in (raised.value.fix or "")


RETURNS = [
    ("build_model", "None", "build_model() returned None"),
    ("build_model", "nn.Linear", "returned the class Linear"),
    ("build_model", "nn.ReLU()", "nothing to train: it has no parameters"),
    ("build_model", "nn.Linear(8, 4).requires_grad_(False)", "all 2 parameters are frozen"),
    ("make_batch", "{1, 2}", "returned a set of 2, not a tuple, a list, a dict or a tensor"),
    ("make_batch", "[]", "returned an empty list"),
    ("make_batch", "()", "returned an empty tuple"),
    ("compute_loss", "model(batch[0])", "tensor of shape (3, 4); a loss has one element"),
    ("compute_loss", "1.5", "returned a float"),
    ("compute_loss", "torch.tensor(1.5)", "depends on no trainable parameter"),
    ("build_optimizer", "None", "build_optimizer() returned None"),
    ("build_optimizer", "[]", "build_optimizer() returned an empty list"),
    (
        "build_optimizer",
        "[torch.optim.SGD(parameters), 3]",
        "returned a list of 2 with an int in it, not a torch.optim.Optimizer",
    ),
    (
        "build_optimizer",
        "[torch.optim.SGD(p, lr=0.1) for p in [list(parameters)] * 2]",
        "Two of the 2 optimizers of build_optimizer() train the same parameter, of the shape",
    ),
    (
        "build_optimizer",
        "torch.optim.SGD(parameters.head.parameters())",
        "asks its argument for 'head': it is given the parameters of the model",
    ),
]


@pytest.mark.parametrize(("function", "value", "message"), RETURNS)
def test_what_a_function_returned_is_named(
    tmp_path: Path, function: str, value: str, message: str
) -> None:
    text = dedent(PLAIN)
    start = text.index(f"def {function}(")
    line = text.index("\n", start) + 1
    with pytest.raises(UserFileError) as raised:
        one_step(load(tmp_path, f"{text[:line]}    return {value}\n{text[line:]}"))
    assert message in raised.value.message
    assert raised.value.fix


ONE_TENSOR = """
    import torch

    def build_model():
        return torch.nn.Linear(8, 4)

    def make_batch(batch_size=2):
        return {batch}

    def compute_loss(model, batch):
        return model({argument}).square().mean()
"""


@pytest.mark.parametrize(
    ("batch", "argument"),
    [
        ("torch.randn(batch_size, 8)", "batch"),
        ("(torch.randn(batch_size, 8),)", "*batch"),
    ],
)
def test_one_tensor_is_a_batch_and_the_loss_takes_it_as_it_was_given(
    tmp_path: Path, batch: str, argument: str
) -> None:
    text = ONE_TENSOR.format(batch=batch, argument=argument)
    workload = load(tmp_path, text)
    made = batch_of(workload, 3)
    assert isinstance(made, tuple) and len(made) == 1, "to the planner and the runner it is a tuple"
    one_step(workload)


def test_a_data_set_of_bare_tensors_too_where_no_batch_was_made_before(tmp_path: Path) -> None:
    text = ONE_TENSOR.format(batch="torch.randn(batch_size, 8)", argument="batch")
    workload = load(tmp_path, text)
    model, from_data_set = workload.build_model(), (torch.ones(2, 8),)
    before = torch.random.get_rng_state()
    assert workload.compute_loss(model, from_data_set).ndim == 0
    assert torch.equal(torch.random.get_rng_state(), before), "looking draws no random numbers"


def test_one_tensor_without_a_loss_of_its_own_is_the_only_argument(tmp_path: Path) -> None:
    text = """
        import torch

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(8, 4)

            def forward(self, inputs):
                return self.layer(inputs).mean()

        build_model = Net

        def make_batch(batch_size):
            return torch.randn(batch_size, 8)
    """
    one_step(load(tmp_path, text))


LAYERED = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.head(x).mean()

def build_model(layers=2):
    return Net(layers)

def make_batch(batch_size):
    return (torch.zeros(batch_size, 8),)
"""


def test_a_negative_number_of_layers_is_refused(tmp_path: Path) -> None:
    one_step(load(tmp_path, LAYERED, params={"layers": 1}))
    with pytest.raises(UserFileError, match=r"With layers=-1 build_model\(\).*blocks is empty"):
        one_step(load(tmp_path, LAYERED, params={"layers": -1}))


def test_an_output_that_is_no_loss_shows_the_function_to_add(tmp_path: Path) -> None:
    text = (
        dedent(PLAIN)
        .split("def compute_loss")[0]
        .replace(", torch.randint(classes, (batch_size,))", ",")
    )
    with pytest.raises(UserFileError, match="tensor of shape \\(3, 4\\)") as raised:
        one_step(load(tmp_path, text))
    assert "def compute_loss(model, batch):" in (raised.value.fix or "")


@pytest.mark.parametrize("value", ["0", "-3", "'many'", "True", "float('nan')"])
def test_tokens_per_sample_must_be_a_number_above_zero(tmp_path: Path, value: str) -> None:
    with pytest.raises(UserFileError, match="TOKENS_PER_SAMPLE"):
        load(tmp_path, PLAIN.replace("SAMPLE = 7", f"SAMPLE = {value}"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import torch\nx = 1\n", "has no build_model()"),
        ("import torch\ndef build_model(): ...\n", "has no make_batch()"),
        ("build_model = 3\nmake_batch = 4\n", "gives an int as build_model()"),
        ("def build_model(): ...\ndef make_batch(): ...\n", "make_batch() takes no argument"),
    ],
)
def test_a_function_that_is_missing(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserFileError) as raised:
        load(tmp_path, text)
    assert message in raised.value.message


def test_modules_beside_the_file_are_the_users(tmp_path: Path) -> None:
    for name in ("catalog", "profiles"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("OWNER = 'the user'\nWIDTH = 5\n")
    (tmp_path / "planner.py").write_text("from catalog import WIDTH\n")
    text = """
        import torch
        import catalog, profiles, planner
        assert catalog.OWNER == profiles.OWNER == "the user"

        def build_model():
            return torch.nn.Linear(planner.WIDTH, 1)

        def make_batch(batch_size):
            return (torch.zeros(batch_size, 5),)

        def compute_loss(model, batch):
            return model(*batch).sum()
    """
    assert sum(one.numel() for one in load(tmp_path, text).build_model().parameters()) == 6


def test_a_file_in_a_package_may_import_its_neighbours(tmp_path: Path) -> None:
    package = tmp_path / "research" / "nets"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "sizes.py").write_text("WIDTH = 9\n")
    text = dedent(PLAIN).replace(
        "from torch import nn", "from torch import nn\nfrom .sizes import WIDTH"
    )
    workload = load(package, text.replace("width=8", "width=WIDTH"))
    assert batch_of(workload, 2)[0].shape == (2, 9)


def test_a_file_named_like_a_known_module_replaces_nothing(tmp_path: Path) -> None:
    before = sys.modules["random"]
    one_step(load(tmp_path, PLAIN, name="random.py"))
    assert sys.modules["random"] is before


def test_what_the_file_raises_passes_through(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        load(tmp_path, "x = 1 / 0\n")


def test_every_error_says_how_to_fix_it(tmp_path: Path) -> None:
    with pytest.raises(GpuplanError) as raised:
        load(tmp_path, "import torch\n")
    assert "To fix: " in str(raised.value)
