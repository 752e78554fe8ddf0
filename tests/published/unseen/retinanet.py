"""RetinaNet as MMDetection 2 trains it: ResNet, FPN of five levels, two heads of four convolutions.

Program: open-mmlab/mmdetection, configs/_base_/models/retinanet_r50_fpn.py: the stem and the first
stage are frozen, batch norms run on stored statistics but are trained, 9 anchors x 80 classes,
focal loss (mmcv's kernel: the scores and the losses are all it keeps) and L1. Which anchors match
objects is given with the batch; the program computes it from boxes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


def build_model(depth: int = 50, groups: int = 1, width: int = 64) -> nn.Module:
    return RetinaNet(depth, groups, width)


def make_batch(batch_size: int, height: int = 800, length: int = 1344) -> tuple[Tensor, ...]:
    anchors, rows, columns = 0, height // 8, length // 8
    for _ in range(5):
        anchors += 9 * rows * columns
        rows, columns = (rows + 1) // 2, (columns + 1) // 2
    images = torch.randn(batch_size, 3, height, length)
    return images, torch.randint(81, (batch_size, anchors)), torch.randn(batch_size, anchors, 4)


def compute_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    images, labels, boxes = batch
    start, total = 0, images.new_zeros(())
    for scores, moves in model(images):
        scores = scores.permute(0, 2, 3, 1).reshape(-1, 80)
        moves = moves.permute(0, 2, 3, 1).reshape(len(images), -1, 4)
        end = start + moves.shape[1]
        total = total + Focal.apply(scores.float(), labels[:, start:end].flatten()).sum()
        total = total + (moves.float() - boxes[:, start:end]).abs().sum()
        start = end
    return total


def build_optimizer(parameters) -> torch.optim.Optimizer:
    trained = [one for one in parameters if one.requires_grad]
    return torch.optim.SGD(trained, lr=0.01, momentum=0.9, weight_decay=1e-4)


class Focal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scores: Tensor, labels: Tensor) -> Tensor:
        ctx.save_for_backward(scores, labels)
        wanted = F.one_hot(labels, 81)[:, :80].to(scores.dtype)
        return F.binary_cross_entropy_with_logits(scores, wanted, reduction="none")

    @staticmethod
    def backward(ctx, *grad_outputs: Tensor):
        scores, labels = ctx.saved_tensors
        return grad_outputs[0] * scores.sigmoid(), None


class Norm(nn.BatchNorm2d):
    def forward(self, input: Tensor) -> Tensor:
        return F.batch_norm(
            input, self.running_mean, self.running_var, self.weight, self.bias, False
        )


class Residual(nn.Module):
    def __init__(self, inputs: int, planes: int, stride: int, groups: int, width: int, deep: bool):
        super().__init__()
        self.deep = deep
        out = 4 * planes if deep else planes
        inner = planes * width * groups // 64 if deep else planes
        if deep:
            self.conv1 = nn.Conv2d(inputs, inner, 1, bias=False)
            self.conv2 = nn.Conv2d(inner, inner, 3, stride, 1, groups=groups, bias=False)
            self.conv3 = nn.Conv2d(inner, out, 1, bias=False)
            self.norm3 = Norm(out)
        else:
            self.conv1 = nn.Conv2d(inputs, inner, 3, stride, 1, bias=False)
            self.conv2 = nn.Conv2d(inner, out, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = Norm(inner), Norm(inner if deep else out)
        self.skip = None
        if stride > 1 or inputs != out:
            self.skip = nn.Sequential(nn.Conv2d(inputs, out, 1, stride, bias=False), Norm(out))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(self.conv1(x)), inplace=True)
        h = self.norm2(self.conv2(h))
        if self.deep:
            h = self.norm3(self.conv3(F.relu(h, inplace=True)))
        return F.relu(h + (x if self.skip is None else self.skip(x)), inplace=True)


class RetinaNet(nn.Module):
    def __init__(self, depth: int, groups: int, width: int):
        super().__init__()
        deep = depth > 18
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), Norm(64), nn.ReLU(True), nn.MaxPool2d(3, 2, 1)
        ).requires_grad_(False)
        self.stages, inputs, widths = nn.ModuleList(), 64, []
        for level, count in enumerate(BLOCKS[depth]):
            planes, blocks = 64 * 2**level, []
            for index in range(count):
                stride = 2 if index == 0 and level else 1
                blocks.append(Residual(inputs, planes, stride, groups, width, deep))
                inputs = 4 * planes if deep else planes
            self.stages.append(nn.Sequential(*blocks))
            widths.append(inputs)
        self.stages[0].requires_grad_(False)
        self.lateral = nn.ModuleList(nn.Conv2d(one, 256, 1) for one in widths[1:])
        self.smooth = nn.ModuleList(nn.Conv2d(256, 256, 3, padding=1) for _ in range(3))
        self.p6 = nn.Conv2d(widths[3], 256, 3, 2, 1)
        self.p7 = nn.Conv2d(256, 256, 3, 2, 1)
        self.scores = nn.Sequential(*tower(), nn.Conv2d(256, 720, 3, padding=1))
        self.moves = nn.Sequential(*tower(), nn.Conv2d(256, 36, 3, padding=1))

    def forward(self, x: Tensor) -> list[tuple[Tensor, Tensor]]:
        x, seen = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            seen.append(x)
        levels = [lateral(one) for lateral, one in zip(self.lateral, seen[1:], strict=True)]
        for index in (1, 0):
            size = levels[index].shape[2:]
            levels[index] = levels[index] + F.interpolate(levels[index + 1], size=size)
        levels = [smooth(one) for smooth, one in zip(self.smooth, levels, strict=True)]
        levels.append(self.p6(seen[3]))
        levels.append(self.p7(levels[-1]))
        return [(self.scores(one), self.moves(one)) for one in levels]


def tower() -> list[nn.Module]:
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(True)]
    return layers
