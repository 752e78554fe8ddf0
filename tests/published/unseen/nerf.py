"""NeRF as yenchenlin/nerf-pytorch trains it: a coarse and a fine net, 1,024 rays a step.

Program: run_nerf.py, run_nerf_helpers.py: 8 layers of 256 with a skip, encodings of 10 and 4
frequencies, view directions, 64 points of a ray and then 64 + `fine`; 595,844 parameters a net.
Where the fine points lie follows from the coarse net; here they are spread by its weights alike.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(points: int = 64, fine: int = 128) -> nn.Module:
    return Pair(points, fine)


def make_batch(batch_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """A sample is a ray."""
    rays = torch.randn(2, batch_size, 3)
    return rays[0], F.normalize(rays[1], dim=-1), torch.rand(batch_size, 3)


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    fine, coarse = model(batch[0], batch[1])
    return (fine - batch[2]).pow(2).mean() + (coarse - batch[2]).pow(2).mean()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=5e-4)


def encoded(x: Tensor, frequencies: int) -> Tensor:
    parts = [x]
    for i in range(frequencies):
        parts += [torch.sin(x * 2.0**i), torch.cos(x * 2.0**i)]
    return torch.cat(parts, -1)


class NeRF(nn.Module):
    def __init__(self):
        super().__init__()
        lines = [nn.Linear(63, 256)]
        lines += [nn.Linear(256 + 63 if i == 4 else 256, 256) for i in range(7)]
        self.lines = nn.ModuleList(lines)
        self.feature, self.alpha = nn.Linear(256, 256), nn.Linear(256, 1)
        self.view, self.colour = nn.Linear(256 + 27, 128), nn.Linear(128, 3)

    def forward(self, x: Tensor) -> Tensor:
        places, views = torch.split(x, [63, 27], dim=-1)
        h = places
        for i, line in enumerate(self.lines):
            h = F.relu(line(h))
            if i == 4:
                h = torch.cat((places, h), -1)
        alpha = self.alpha(h)
        h = F.relu(self.view(torch.cat((self.feature(h), views), -1)))
        return torch.cat((self.colour(h), alpha), -1)


class Pair(nn.Module):
    def __init__(self, points: int, fine: int):
        super().__init__()
        self.coarse, self.fine = NeRF(), NeRF()
        self.points, self.more = points, fine

    def forward(self, starts: Tensor, views: Tensor) -> tuple[Tensor, Tensor]:
        depths = torch.linspace(2, 6, self.points, device=starts.device).expand(len(starts), -1)
        depths = depths + torch.rand_like(depths) * 0.06
        coarse, weights = self.drawn(self.coarse, starts, views, depths)
        with torch.no_grad():
            sums = torch.cumsum(weights / (weights.sum(-1, keepdim=True) + 1e-5), -1)
            wanted = torch.rand(len(starts), self.more, device=starts.device)
            at = torch.searchsorted(sums.contiguous(), wanted).clamp(max=self.points - 1)
            new = torch.gather(depths, 1, at)
            depths = torch.sort(torch.cat((depths, new), -1), -1)[0]
        return self.drawn(self.fine, starts, views, depths)[0], coarse

    def drawn(self, net: NeRF, starts: Tensor, views: Tensor, depths: Tensor):
        places = starts[:, None] + views[:, None] * depths[..., None]
        seen = encoded(views[:, None].expand_as(places).reshape(-1, 3), 4)
        made = net(torch.cat((encoded(places.reshape(-1, 3), 10), seen), -1))
        made = made.view(*places.shape[:2], 4)
        gaps = F.pad(depths[:, 1:] - depths[:, :-1], (0, 1), value=1e10)
        alpha = 1 - torch.exp(-F.relu(made[..., 3]) * gaps)
        left = torch.cumprod(F.pad(1 - alpha + 1e-10, (1, 0), value=1.0), -1)[:, :-1]
        weights = alpha * left
        return (weights[..., None] * made[..., :3].sigmoid()).sum(-2), weights
