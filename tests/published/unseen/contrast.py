"""ResNet-50 in self-supervised pre-training on ImageNet: MoCo, Barlow Twins or SwAV by `method`.

`moco` (facebookresearch/moco): a query net, a key net without gradients that is its moving average
(which is not made here), a queue of 65,536 keys, 27,966,656 parameters trained with the head of two
layers (`mlp`, v2). `barlow` (facebookresearch/barlowtwins): both views one after the other, a
projector of three layers of 8,192, their correlations: 174,535,744 parameters in all. `swav`
(facebookresearch/swav): two crops of 224 and six of 96 pixels, a head of 2,048 and 128, 3,000
prototypes, `queue` embeddings kept for the assignments (Sinkhorn in three rounds): 28,354,752.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCKS = (3, 4, 6, 3)


def build_model(method: str = "moco", mlp: bool = True, queue: int = 0) -> nn.Module:
    return {"moco": MoCo, "barlow": Barlow, "swav": SwAV}[method](mlp, queue)


def make_batch(batch_size: int, method: str = "moco") -> tuple[Tensor, ...]:
    views = torch.randn(2, batch_size, 3, 224, 224)
    return (views, torch.randn(6, batch_size, 3, 96, 96)) if method == "swav" else (views,)


def compute_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    return model(*batch)


def build_optimizer(parameters) -> torch.optim.Optimizer:
    trained = [one for one in parameters if one.requires_grad]
    return torch.optim.SGD(trained, lr=0.03, momentum=0.9, weight_decay=1e-4)


class Block(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int):
        super().__init__()
        outputs = 4 * width
        self.conv1 = nn.Conv2d(inputs, width, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.conv3 = nn.Conv2d(width, outputs, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.norm3 = nn.BatchNorm2d(outputs)
        self.short = None
        if stride > 1 or inputs != outputs:
            short = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
            self.short = nn.Sequential(short, nn.BatchNorm2d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        made = F.relu(self.norm1(self.conv1(x)), inplace=True)
        made = F.relu(self.norm2(self.conv2(made)), inplace=True)
        made = self.norm3(self.conv3(made))
        return F.relu(made + (x if self.short is None else self.short(x)), inplace=True)


def trunk() -> nn.Sequential:
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    parts: list[nn.Module] = [*stem, nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for i, count in enumerate(BLOCKS):
        width = 64 << i
        for j in range(count):
            parts.append(Block(inputs, width, 2 if i and not j else 1))
            inputs = 4 * width
    return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten())


class MoCo(nn.Module):
    def __init__(self, mlp: bool, queue: int):
        super().__init__()
        self.query, self.key = self.net(mlp), self.net(mlp).requires_grad_(False)
        self.register_buffer("queue", torch.randn(128, 65536))

    def net(self, mlp: bool) -> nn.Sequential:
        head = [nn.Linear(2048, 2048), nn.ReLU()] if mlp else []
        return nn.Sequential(trunk(), *head, nn.Linear(2048, 128))

    def forward(self, views: Tensor) -> Tensor:
        query = F.normalize(self.query(views[0]), dim=1)
        with torch.no_grad():
            key = F.normalize(self.key(views[1]), dim=1)
        same = torch.einsum("nc,nc->n", query, key)[:, None]
        other = torch.einsum("nc,ck->nk", query, self.get_buffer("queue").clone().detach())
        scores = torch.cat((same, other), 1) / 0.2
        return F.cross_entropy(scores, scores.new_zeros(len(scores), dtype=torch.long))


class Barlow(nn.Module):
    def __init__(self, mlp: bool, queue: int):
        super().__init__()
        self.trunk = trunk()
        parts: list[nn.Module] = []
        for inputs in (2048, 8192):
            line = nn.Linear(inputs, 8192, bias=False)
            parts += [line, nn.BatchNorm1d(8192), nn.ReLU(inplace=True)]
        self.projector = nn.Sequential(*parts, nn.Linear(8192, 8192, bias=False))
        self.norm = nn.BatchNorm1d(8192, affine=False)

    def forward(self, views: Tensor) -> Tensor:
        one, two = (self.projector(self.trunk(view)) for view in views)
        shares = (self.norm(one).t() @ self.norm(two)) / len(one)
        on = torch.diagonal(shares).add_(-1).pow_(2).sum()
        size = len(shares)
        off = shares.flatten()[:-1].view(size - 1, size + 1)[:, 1:].flatten().pow_(2).sum()
        return on + 0.0051 * off


class SwAV(nn.Module):
    def __init__(self, mlp: bool, queue: int):
        super().__init__()
        self.trunk = trunk()
        hidden = nn.Linear(2048, 2048)
        self.head = nn.Sequential(
            hidden, nn.BatchNorm1d(2048), nn.ReLU(inplace=True), nn.Linear(2048, 128)
        )
        self.prototypes = nn.Linear(128, 3000, bias=False)
        self.kept = queue

    def forward(self, large: Tensor, small: Tensor) -> Tensor:
        count = large.shape[1]
        seen = torch.cat((self.trunk(large.flatten(0, 1)), self.trunk(small.flatten(0, 1))))
        found = F.normalize(self.head(seen), dim=1)
        scores = self.prototypes(found)
        total = scores.new_zeros(())
        for crop in range(2):
            with torch.no_grad():
                mine = scores[crop * count : (crop + 1) * count].detach()
                if self.kept:
                    queue = torch.zeros(self.kept, 128, dtype=found.dtype, device=found.device)
                    mine = torch.cat((queue @ self.prototypes.weight.t().to(found.dtype), mine))
                wanted = assigned(mine.float())[-count:]
            for other in range(8):
                if other != crop:
                    part = scores[other * count : (other + 1) * count] / 0.1
                    total = total - (wanted * F.log_softmax(part.float(), 1)).sum(1).mean()
        return total / 14


def assigned(scores: Tensor) -> Tensor:
    shares = torch.exp(scores / 0.05).t()
    shares = shares / shares.sum()
    for _ in range(3):
        shares = shares / shares.sum(1, keepdim=True) / shares.shape[0]
        shares = shares / shares.sum(0, keepdim=True) / shares.shape[1]
    return (shares * shares.shape[1]).t()
