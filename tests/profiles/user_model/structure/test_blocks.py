"""Repeated blocks are found by structure."""

from torch import nn

from gpuplan.profiles.trace.summary import linears_of
from gpuplan.profiles.user_model.structure.blocks import find_blocks


def block(width: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width))


def found(model: nn.Module) -> dict[str, int]:
    return {run.name: len(run.modules) for run in find_blocks(model)}


class Model(nn.Module):
    def __init__(self, **children: nn.Module) -> None:
        super().__init__()
        for name, child in children.items():
            self.add_module(name, child)


def test_layers_of_a_list_are_one_run() -> None:
    layers = nn.ModuleList(block(4) for _ in range(3))
    (run,) = find_blocks(Model(embedding=nn.Embedding(3, 4), layers=layers))
    assert run.name == "layers"
    assert run.paths == ("layers.0", "layers.1", "layers.2")
    assert run.first is layers[0]


def test_a_different_first_block_is_left_out() -> None:
    stage = nn.Sequential(nn.Sequential(block(4), nn.Linear(4, 4)), block(4), block(4))
    assert found(Model(stage=stage)) == {"stage": 2}


def test_two_kinds_of_layers_are_two_runs() -> None:
    layers = nn.ModuleList([block(4), block(4), block(8), block(8), block(8)])
    assert found(Model(layers=layers)) == {"layers[0…1]": 2, "layers[2…4]": 3}


def test_frozen_and_trained_layers_are_not_equal() -> None:
    layers = nn.ModuleList(block(4) for _ in range(4))
    layers[:2].requires_grad_(False)
    assert sorted(found(Model(layers=layers)).values()) == [2, 2]


def test_lists_of_plain_layers_are_no_blocks() -> None:
    model = Model(mlp=nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)))
    assert found(model) == {}


def test_towers_are_searched_inside() -> None:
    tower = Model(layers=nn.ModuleList(block(4) for _ in range(2)))
    twin = Model(layers=nn.ModuleList(block(4) for _ in range(2)))
    assert found(Model(text=tower, image=twin)) == {"text.layers": 2, "image.layers": 2}


def test_linears_have_their_names_and_sizes() -> None:
    (linear,) = linears_of(nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 6, bias=False)))
    assert (linear.name, linear.in_features, linear.out_features, linear.parameters) == (
        "1",
        4,
        6,
        24,
    )
