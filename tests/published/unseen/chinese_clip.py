"""Chinese-CLIP (OFA-Sys/Chinese-CLIP): CLIP's image encoder and BERT for captions of 52 tokens.

ViT-B/16 and RoBERTa-wwm-ext-base by default, 188,262,913 parameters. `vision="resnet"` has CLIP's
ResNet-50 with a three-layer BERT. Attention is written out (`attention="eager"`) or one kernel, as
the flash-attn package's is. A rank scores its images against captions of all ranks, of which the
file knows its own alone.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    vision: str = "vit",
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    patch: int = 16,
    image: int = 224,
    embedded: int = 512,
    text_layers: int = 12,
    text_hidden: int = 768,
    text_heads: int = 12,
    attention: str = "eager",
) -> nn.Module:
    fused = attention == "fused"
    if vision == "resnet":
        images: nn.Module = ResNet(embedded, image)
    else:
        images = ViT(layers, hidden, heads, patch, image, embedded, fused)
    return CLIP(images, Bert(text_layers, text_hidden, text_heads, embedded, fused))


def make_batch(batch_size: int, image: int = 224, words: int = 52) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, image, image), torch.randint(21128, (batch_size, words))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    images, captions, scale = model(*batch)
    scores = scale * images @ captions.t()
    wanted = torch.arange(len(scores), device=scores.device)
    return (F.cross_entropy(scores, wanted) + F.cross_entropy(scores.t(), wanted)) / 2


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=5e-5, weight_decay=0.001)


class WideNorm(nn.LayerNorm):
    """CLIP's: in fp32, and back to what it was given."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.float()).to(input.dtype)


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, fused: bool, dropout: float = 0.0):
        super().__init__()
        self.heads, self.fused, self.dropout = heads, fused, dropout
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4).unbind(0)
        )
        dropout = self.dropout if self.training else 0.0
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        else:
            scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
            mixed = F.dropout(scores.softmax(-1), dropout) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))


class ViTBlock(nn.Module):
    def __init__(self, hidden: int, heads: int, fused: bool):
        super().__init__()
        self.norm1, self.norm2 = WideNorm(hidden), WideNorm(hidden)
        self.attention = Attention(hidden, heads, fused)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        inner = self.up(self.norm2(x))
        return x + self.down(inner * torch.sigmoid(1.702 * inner))


class ViT(nn.Module):
    def __init__(
        self,
        layers: int,
        hidden: int,
        heads: int,
        patch: int,
        image: int,
        embedded: int,
        fused: bool,
    ):
        super().__init__()
        self.embed = nn.Conv2d(3, hidden, patch, patch, bias=False)
        self.first = nn.Parameter(torch.zeros(hidden))
        self.positions = nn.Parameter(torch.zeros((image // patch) ** 2 + 1, hidden))
        self.norm1, self.norm2 = WideNorm(hidden), WideNorm(hidden)
        self.blocks = nn.ModuleList(ViTBlock(hidden, heads, fused) for _ in range(layers))
        self.out = nn.Parameter(torch.zeros(hidden, embedded))

    def forward(self, images: Tensor) -> Tensor:
        x = self.embed(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.first.to(x.dtype).expand(len(x), 1, -1), x), 1)
        x = self.norm1(x + self.positions.to(x.dtype))
        for block in self.blocks:
            x = block(x)
        return self.norm2(x[:, 0]) @ self.out


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, planes: int, stride: int):
        super().__init__()
        outputs = 4 * planes
        self.body = nn.Sequential(
            nn.Conv2d(inputs, planes, 1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(inplace=True),
            nn.Conv2d(planes, planes, 3, padding=1, bias=False),
            nn.BatchNorm2d(planes),
            nn.ReLU(inplace=True),
            nn.AvgPool2d(stride) if stride > 1 else nn.Identity(),
            nn.Conv2d(planes, outputs, 1, bias=False),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = None
        if stride > 1 or inputs != outputs:
            self.shortcut = nn.Sequential(
                nn.AvgPool2d(stride),
                nn.Conv2d(inputs, outputs, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )

    def forward(self, x: Tensor) -> Tensor:
        kept = x if self.shortcut is None else self.shortcut(x)
        return F.relu(self.body(x) + kept)


class ResNet(nn.Module):
    """CLIP's ResNet-50: three convolutions before, averages for strides, attention for pooling."""

    def __init__(self, embedded: int, image: int):
        super().__init__()
        layers: list[nn.Module] = []
        for inputs, outputs, stride in ((3, 32, 2), (32, 32, 1), (32, 64, 1)):
            layers += [
                nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
            ]
        layers.append(nn.AvgPool2d(2))
        inputs = 64
        for planes, count in ((64, 3), (128, 4), (256, 6), (512, 3)):
            for index in range(count):
                stride = 2 if index == 0 and planes > 64 else 1
                layers.append(Bottleneck(inputs, planes, stride))
                inputs = 4 * planes
        self.layers = nn.Sequential(*layers)
        self.positions = nn.Parameter(torch.zeros((image // 32) ** 2 + 1, inputs))
        self.query, self.key = nn.Linear(inputs, inputs), nn.Linear(inputs, inputs)
        self.value, self.out = nn.Linear(inputs, inputs), nn.Linear(inputs, embedded)

    def forward(self, images: Tensor) -> Tensor:
        x = self.layers(images).flatten(2).transpose(1, 2)
        x = torch.cat((x.mean(1, keepdim=True), x), 1) + self.positions
        query, key, value = (
            layer(x).unflatten(2, (32, -1)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))[:, 0]


class BertBlock(nn.Module):
    def __init__(self, hidden: int, heads: int, fused: bool):
        super().__init__()
        self.attention = Attention(hidden, heads, fused, 0.1)
        self.norm1 = nn.LayerNorm(hidden, eps=1e-12)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
        self.norm2 = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(self.dropout(self.attention(x)) + x)
        return self.norm2(self.dropout(self.down(F.gelu(self.up(x)))) + x)


class Bert(nn.Module):
    def __init__(self, layers: int, hidden: int, heads: int, embedded: int, fused: bool):
        super().__init__()
        self.words = nn.Embedding(21128, hidden, padding_idx=0)
        self.places, self.kinds = nn.Embedding(512, hidden), nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(0.1)
        self.blocks = nn.ModuleList(BertBlock(hidden, heads, fused) for _ in range(layers))
        self.out = nn.Parameter(torch.zeros(hidden, embedded))

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.words(tokens) + self.kinds(torch.zeros_like(tokens)) + self.places(places)
        x = self.dropout(self.norm(x))
        for block in self.blocks:
            x = block(x)
        return x[:, 0] @ self.out


class CLIP(nn.Module):
    def __init__(self, images: nn.Module, captions: nn.Module):
        super().__init__()
        self.images, self.captions = images, captions
        self.scale = nn.Parameter(torch.tensor(2.6593))

    def forward(self, images: Tensor, captions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        images, captions = self.images(images), self.captions(captions)
        images = images / images.norm(dim=-1, keepdim=True)
        return images, captions / captions.norm(dim=-1, keepdim=True), self.scale.exp()
