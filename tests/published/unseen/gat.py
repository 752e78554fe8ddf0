"""Full-graph graph attention network as PyTorch Geometric 1.7 runs it (dglai/dgl-0.5-benchmark,
main_pyg_arxiv_gat.py): messages are gathered edge by edge, softmax and sum scattered to targets.

The graph (ogbn-arxiv, undirected, with self-loops) stays on the device, so that a batch is an empty
one of one sample.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    nodes: int = 169_343,
    edges: int = 2_484_941,
    features: int = 128,
    hidden: int = 16,
    heads: int = 4,
    classes: int = 40,
    train: int = 90_941,
) -> nn.Module:
    return GAT(nodes, edges, features, hidden, heads, classes, train)


def make_batch(batch_size: int) -> Tensor:
    return torch.zeros(batch_size, 1)


def compute_loss(model: "GAT", batch: Tensor) -> Tensor:
    return F.nll_loss(model()[model.train_nodes], model.labels[model.train_nodes])


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=3e-3, weight_decay=2.4e-5)


class Convolution(nn.Module):
    def __init__(self, inputs: int, outputs: int, heads: int, dropout: float, last: bool):
        super().__init__()
        self.heads, self.last = heads, last
        self.linear = nn.Linear(inputs, heads * outputs, bias=False)
        self.target = nn.Parameter(torch.randn(1, heads, outputs) * 0.1)
        self.source = nn.Parameter(torch.randn(1, heads, outputs) * 0.1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, source: Tensor, target: Tensor) -> Tensor:
        nodes = x.shape[0]
        x = self.linear(self.dropout(x))
        there = x.index_select(0, target).unflatten(1, (self.heads, -1))
        here = x.index_select(0, source).unflatten(1, (self.heads, -1))
        alpha = (there * self.target).sum(-1) + (here * self.source).sum(-1)
        alpha = F.leaky_relu(alpha, 0.2)
        index = target.unsqueeze(1).expand_as(alpha)
        largest = alpha.new_zeros(nodes, self.heads).scatter_reduce(0, index, alpha, "amax")
        alpha = (alpha - largest.index_select(0, target)).exp()
        total = alpha.new_zeros(nodes, self.heads).scatter_add(0, index, alpha)
        alpha = self.dropout(alpha / (total.index_select(0, target) + 1e-16))
        messages = (here * alpha.unsqueeze(2)).flatten(1)
        index = target.unsqueeze(1).expand_as(messages)
        x = messages.new_zeros(nodes, messages.shape[1]).scatter_add(0, index, messages)
        return x.unflatten(1, (self.heads, -1)).mean(dim=1) if self.last else F.elu(x)


class GAT(nn.Module):
    features: Tensor
    edges: Tensor
    labels: Tensor
    train_nodes: Tensor

    def __init__(
        self,
        nodes: int,
        edges: int,
        features: int,
        hidden: int,
        heads: int,
        classes: int,
        train: int,
    ):
        super().__init__()
        wide = hidden * heads
        self.layers = nn.ModuleList(
            [
                Convolution(features, hidden, heads, 0.0, last=False),
                Convolution(wide, hidden, heads, 0.18, last=False),
                Convolution(wide, classes, heads, 0.18, last=True),
            ]
        )
        for name, value in (
            ("features", torch.zeros(nodes, features)),
            ("edges", torch.zeros(2, edges, dtype=torch.long)),
            ("labels", torch.zeros(nodes, dtype=torch.long)),
            ("train_nodes", torch.zeros(train, dtype=torch.long)),
        ):
            self.register_buffer(name, value, persistent=False)

    def forward(self) -> Tensor:
        source, target = self.edges
        x = self.features
        for layer in self.layers:
            x = layer(x, source, target)
        return x.log_softmax(dim=-1)
