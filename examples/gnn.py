"""GraphSAGE node classifier in plain torch, 206,895 parameters by default.

Source: Hamilton et al. 2017 (arXiv:1706.02216) with the settings of the Open Graph Benchmark's
ogbn-products example: 100 features, 3 layers of 256, 47 classes. One sample is one seed node with
its sampled neighbourhood, 15 x 10 x 5: as every graph then has equally many nodes and edges, no
shape depends on the data.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NEIGHBOURHOOD = 1 + 15 + 15 * 10 + 15 * 10 * 5


def build_model(
    layers: int = 3, features: int = 100, hidden: int = 256, classes: int = 47
) -> nn.Module:
    return GraphSAGE([features, *[hidden] * (layers - 1), classes])


def make_batch(
    batch_size: int,
    features: int = 100,
    classes: int = 47,
    nodes: int = NEIGHBOURHOOD,
    edges: int = NEIGHBOURHOOD - 1,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return node features, edges as (2, edges) sources and targets, and labels of the seeds."""
    seen = torch.randn(batch_size * nodes, features)
    links = torch.randint(batch_size * nodes, (2, batch_size * edges))
    return seen, links, torch.randint(classes, (batch_size,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Return the cross-entropy of the seeds, which are the first nodes."""
    features, edges, labels = batch
    return F.cross_entropy(model(features, edges)[: len(labels)], labels)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=3e-3)


class GraphSAGE(nn.Module):
    def __init__(self, sizes: list[int]):
        super().__init__()
        self.layers = nn.ModuleList(
            MeanConvolution(inputs, outputs)
            for inputs, outputs in zip(sizes, sizes[1:], strict=False)
        )

    def forward(self, features: Tensor, edges: Tensor) -> Tensor:
        x = features
        for layer in self.layers[:-1]:
            x = F.dropout(F.relu(layer(x, edges)), 0.5, self.training)
        return self.layers[-1](x, edges)


class MeanConvolution(nn.Module):
    """A node's own features and the mean of its neighbours', each through a matrix."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.neighbours = nn.Linear(inputs, outputs)
        self.own = nn.Linear(inputs, outputs, bias=False)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        source, target = edges
        total = torch.zeros_like(x).index_add(0, target, x[source])
        degree = x.new_zeros(len(x)).index_add(0, target, x.new_ones(len(target)))
        mean = total / degree.clamp(min=1).unsqueeze(1)
        return self.neighbours(mean) + self.own(x)
