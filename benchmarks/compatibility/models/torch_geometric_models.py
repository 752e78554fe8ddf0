# pyright: reportMissingImports=false
"""Graph networks of PyTorch Geometric, by name: a graph of 16 neighbours a node.

`batch_size` nodes with their edges. Layers that add loops to the nodes first look for those that
are there, by value; `add_self_loops=False` leaves the edges as they are.
"""

import torch
import torch.nn.functional as F
from torch_geometric import nn

FEATURES, CLASSES, NEIGHBOURS = 128, 40, 16


def build_model(name="GraphSAGE"):
    return Network(*MODELS[name])


def make_batch(batch_size=1024):
    nodes = torch.randn(batch_size, FEATURES)
    edges = torch.randint(batch_size, (2, NEIGHBOURS * batch_size))
    return nodes, edges, torch.randint(CLASSES, (batch_size,))


def compute_loss(model, batch):
    nodes, edges, labels = batch
    return F.cross_entropy(model(nodes, edges), labels)


class Network(torch.nn.Module):
    def __init__(self, cls, options):
        super().__init__()
        self.net = getattr(nn, cls)(FEATURES, 256, 3, CLASSES, **options)

    def forward(self, nodes, edges):
        return self.net(nodes, edges)


MODELS = {
    "GraphSAGE": ("GraphSAGE", {}),
    "GIN": ("GIN", {}),
    "EdgeCNN": ("EdgeCNN", {}),
    "GCN": ("GCN", {}),
    "GCN_without_self_loops": ("GCN", {"add_self_loops": False}),
    "GAT": ("GAT", {}),
    "GAT_without_self_loops": ("GAT", {"add_self_loops": False, "heads": 4}),
    "GATv2_without_self_loops": ("GAT", {"add_self_loops": False, "heads": 4, "v2": True}),
}
