"""NeuMF of DeepLearningExamples (PyTorch/Recommendation/NCF) on MovieLens-20M."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

USERS, ITEMS = 138493, 26744


def build_model(factors: int = 64, layers: tuple[int, ...] = (256, 256, 128, 64)) -> nn.Module:
    return NeuMF(factors, tuple(layers))


def make_batch(batch_size: int) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.randint(USERS, (batch_size,)),
        torch.randint(ITEMS, (batch_size,)),
        torch.rand(batch_size, 1),
    )


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    users, items, wanted = batch
    return F.binary_cross_entropy_with_logits(model(users, items).float(), wanted)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=0.0045, betas=(0.25, 0.5))


class NeuMF(nn.Module):
    def __init__(self, factors: int, layers: tuple[int, ...]):
        super().__init__()
        self.mf_user = nn.Embedding(USERS, factors)
        self.mf_item = nn.Embedding(ITEMS, factors)
        self.mlp_user = nn.Embedding(USERS, layers[0] // 2)
        self.mlp_item = nn.Embedding(ITEMS, layers[0] // 2)
        self.mlp = nn.ModuleList(
            nn.Linear(before, after) for before, after in zip(layers, layers[1:], strict=False)
        )
        self.final = nn.Linear(layers[-1] + factors, 1)

    def forward(self, users: Tensor, items: Tensor) -> Tensor:
        product = self.mf_user(users) * self.mf_item(items)
        x = torch.cat((self.mlp_user(users), self.mlp_item(items)), 1)
        for layer in self.mlp:
            x = F.dropout(F.relu(layer(x)), 0.5, self.training)
        return self.final(torch.cat((product, x), 1))
