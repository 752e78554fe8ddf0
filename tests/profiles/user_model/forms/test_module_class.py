"""How files of other forms become a Workload: DeepView's, Lightning modules, plain classes."""

from pathlib import Path
from textwrap import dedent

import pytest
import torch
from user_files import PLAIN, batch_of, load, one_step

from gpuplan.catalog.errors import UsageError, UserFileError

pytestmark = pytest.mark.usefixtures("clean_imports")

DEEPVIEW = """
    import torch

    def {prefix}_model_provider():
        return torch.nn.Linear(8, 4)

    def {prefix}_input_provider(batch_size=16):
        return torch.randn(batch_size, 8), torch.randint(4, (batch_size,))

    def {prefix}_iteration_provider(model):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.5)
        def iteration(inputs, labels):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            print(loss.item())
        return iteration
"""
LIGHTNING = """
    import torch

    class LightningModule(torch.nn.Module):
        def log(self, *arguments, **named):
            raise RuntimeError("there is no Trainer")

        def optimizers(self):
            raise RuntimeError("there is no Trainer")

    LightningModule.__module__ = "lightning"

    class Classifier(LightningModule):
        def __init__(self, width=8, batch_size=24):
            super().__init__()
            self.layer = torch.nn.Linear(width, 4)
            self.width = width

        def training_step(self, batch, batch_idx):
            loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])
            self.log("loss", loss)
            return {"loss": loss}

        def configure_optimizers(self):
            optimizer = torch.optim.SGD(self.parameters(), lr=0.1)
            return [optimizer], [{"scheduler": None}]

        def train_dataloader(self):
            data = torch.utils.data.TensorDataset(torch.randn(5, self.width), torch.zeros(5).long())
            return torch.utils.data.DataLoader(data, batch_size=24)
"""


@pytest.mark.parametrize("prefix", ["deepview", "skyline"])
def test_deepview_entry_points(tmp_path: Path, prefix: str) -> None:
    workload = load(tmp_path, DEEPVIEW.format(prefix=prefix))
    model = workload.build_model()
    before = [one.detach().clone() for one in model.parameters()]
    optimizer = workload.build_optimizer(model.parameters())
    loss = workload.compute_loss(model, workload.make_batch(4))
    assert all(one.grad is None for one in model.parameters()), "backward is the caller's"
    assert all(map(torch.equal, before, model.parameters())), "the step is the caller's"
    assert (type(optimizer), optimizer.defaults["lr"]) == (torch.optim.AdamW, 0.5)
    assert loss.shape == ()
    assert workload.default_micro_batch == 16
    one_step(workload)


def test_deepview_optimizer_follows_parameters_that_were_replaced(tmp_path: Path) -> None:
    workload = load(tmp_path, DEEPVIEW.format(prefix="deepview"))
    workload.build_model()
    other = torch.nn.Parameter(torch.zeros(2))
    optimizer = workload.build_optimizer([other])
    assert optimizer.param_groups[0]["params"] == [other]
    assert (type(optimizer), optimizer.defaults["lr"]) == (torch.optim.AdamW, 0.5)


def test_deepview_iteration_without_backward(tmp_path: Path) -> None:
    text = DEEPVIEW.format(prefix="deepview").replace("loss.backward()", "pass")
    with pytest.raises(UserFileError, match="never called backward"):
        one_step(load(tmp_path, text))


def test_deepview_provider_that_is_missing(tmp_path: Path) -> None:
    text = DEEPVIEW.format(prefix="deepview").replace("deepview_input_provider", "inputs")
    with pytest.raises(UserFileError, match="no deepview_input_provider"):
        load(tmp_path, text)


def test_a_lightning_module_without_a_trainer(tmp_path: Path) -> None:
    workload = load(tmp_path, LIGHTNING, params={"width": 6})
    assert workload.loader == "train_dataloader()"
    model = workload.build_model()
    assert [len(one) for one in workload.make_batch(7)] == [7, 7]
    assert isinstance(workload.build_optimizer(model.parameters()), torch.optim.SGD)
    assert workload.default_micro_batch == 24
    one_step(workload)


@pytest.mark.parametrize(
    ("loader", "size"),
    [
        ("data, batch_size=64", 64),
        ("data, batch_sampler=torch.utils.data.BatchSampler(range(5), 3, False)", 3),
        ("data, batch_size=None", None),
    ],
)
def test_the_micro_batch_of_a_loader_is_its_batch_size(
    tmp_path: Path, loader: str, size: int | None
) -> None:
    workload = load(tmp_path, LIGHTNING.replace("data, batch_size=24", loader))
    workload.build_model()
    assert workload.loader_batch_size() is None, "no batch was read yet"
    if size is not None:
        workload.make_batch(2)
    assert workload.loader_batch_size() == size


def test_a_batch_of_two_wants_two_inputs(tmp_path: Path) -> None:
    text = LIGHTNING.replace(
        "loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])",
        "inputs, targets = batch; loss = torch.nn.functional.cross_entropy(self.layer(inputs),"
        " targets)",
    )
    alone = load(tmp_path, text, inputs=["8"])
    with pytest.raises(
        UserFileError, match=r"takes its batch apart(.|\n)*--input 8:float32 --input"
    ):
        alone.compute_loss(alone.build_model(), alone.make_batch(3))
    one_step(load(tmp_path, text, inputs=["8", ":int64"]))


def test_a_loaders_list_of_one_tensor_reaches_training_step_as_a_list(tmp_path: Path) -> None:
    text = LIGHTNING.replace(", torch.zeros(5).long())", ")").replace(
        "loss = torch.nn.functional.cross_entropy(self.layer(batch[0]), batch[1])",
        "(inputs,) = batch; loss = self.layer(inputs).square().mean()",
    )
    one_step(load(tmp_path, text))


def test_manual_optimization_of_a_lightning_module(tmp_path: Path) -> None:
    manual = """loss = self.layer(batch[0]).square().mean()
            self.optimizers().zero_grad()
            self.manual_backward(loss)
            self.optimizers().step()
            raise AssertionError("what follows the backward call is not reached")"""
    text = LIGHTNING.replace(LIGHTNING.split("batch_idx):\n            ")[1].split("\n")[0], manual)
    one_step(load(tmp_path, text))


def test_two_lightning_modules_are_told_apart_by_name(tmp_path: Path) -> None:
    text = LIGHTNING + "\n    class Other(Classifier):\n        pass\n"
    with pytest.raises(UserFileError, match="2 LightningModules: Classifier, Other"):
        load(tmp_path, text)
    workload = load(tmp_path, text, class_name="Other")
    assert type(workload.build_model()).__name__ == "Other"


CLASSES = """
    import torch

    class Net(torch.nn.Module):
        def __init__(self, width=8, classes=3):
            super().__init__()
            self.layer = torch.nn.Linear(width, classes)

        def forward(self, x):
            return self.layer(x)

    class Sequences(Net):
        def forward(self, x):
            return self.layer(x)[:, None], None

    class Words(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Embedding(2, 5)

        def forward(self, ids):
            return self.table(ids).mean(1)
"""


def test_a_class_with_an_input_shape(tmp_path: Path) -> None:
    workload = load(tmp_path, CLASSES, class_name="Net", inputs=["8"], params={"classes": 10})
    assert workload.name == "Net"
    assert batch_of(workload, 2)[0].shape == (2, 8)
    loss = workload.compute_loss(workload.build_model(), workload.make_batch(64))
    assert float(loss.detach()) == pytest.approx(2.3, abs=0.8), (
        "cross-entropy of 10 classes is about ln 10"
    )
    one_step(workload)


def test_the_mean_is_the_loss_of_a_class_without_classes(tmp_path: Path) -> None:
    workload = load(tmp_path, CLASSES, class_name="Sequences", inputs=["8"])
    torch.manual_seed(0)
    model, batch = workload.build_model(), batch_of(workload, 2)
    loss, output = workload.compute_loss(model, batch), model(*batch)[0]
    assert loss.item() == pytest.approx(output.mean().item())


def test_integer_inputs_of_a_class(tmp_path: Path) -> None:
    workload = load(tmp_path, CLASSES, class_name="Words", inputs=["12:int64"])
    assert batch_of(workload, 2)[0].dtype == torch.int64
    one_step(workload)


@pytest.mark.parametrize(
    ("class_name", "inputs", "message"),
    [("Net", [], "does not say what its inputs look like"), ("Nett", ["8"], "Did you mean Net")],
)
def test_a_class_that_cannot_be_fed(
    tmp_path: Path, class_name: str, inputs: list[str], message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        load(tmp_path, CLASSES, class_name=class_name, inputs=inputs)
    assert message in raised.value.message


def test_an_input_shape_takes_the_place_of_the_files_own_batches(tmp_path: Path) -> None:
    text = (
        PLAIN + "\n    class Net(nn.Linear):\n        def __init__(self): super().__init__(5, 3)\n"
    )
    by_shape = load(tmp_path, text, class_name="Net", inputs=["5"])
    assert len(batch_of(by_shape, 2)) == 1
    one_step(by_shape)
    own = load(tmp_path, text, class_name="Net", params={"width": 5, "classes": 3})
    assert len(batch_of(own, 2)) == 2
    one_step(own)
    with pytest.raises(UsageError, match="--input does not apply"):
        load(tmp_path, text, inputs=["5"])


def test_a_class_without_a_contract_gets_lines_that_work(tmp_path: Path) -> None:
    with pytest.raises(UserFileError, match="has the class Words") as raised:
        load(tmp_path, CLASSES.replace("Embedding(2", "Embedding(1000"))
    fix = raised.value.fix or ""
    assert "gpuplan init --from user_model.py" in fix
    lines = dedent(fix[fix.index("    def build_model") :])
    text = dedent(CLASSES.replace("Embedding(2, 5", "Embedding(1000, 10"))
    one_step(load(tmp_path, f"{text}\n{lines}", name="pasted.py"))
