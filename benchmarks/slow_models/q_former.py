"""A Q-Former between a frozen image encoder and text (BLIP-2, Li et al. 2023, first stage).

Encoder: the shape of CLIP's ViT-L/14 at 224 pixels; Q-Former: BERT-base with 32 queries and cross
attention in every other layer. The loss is the contrastive one of the first stage, with the loss of
image-grounded text beside it.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Attention(nn.Module):
    def __init__(self, hidden: int, heads: int, source: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(source or hidden, hidden)
        self.value = nn.Linear(source or hidden, hidden)
        self.output = nn.Linear(hidden, hidden)
        self.dropout = nn.Dropout(0.1)

    def forward(
        self, x: Tensor, source: Tensor | None = None, mask: Tensor | None = None
    ) -> Tensor:
        source = x if source is None else source
        q, k, v = (
            self.split(self.query(x)),
            self.split(self.key(source)),
            self.split(self.value(source)),
        )
        scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5
        if mask is not None:
            scores = scores + mask
        weights = self.dropout(scores.softmax(-1))
        return self.output((weights @ v).transpose(1, 2).flatten(2))

    def split(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class FeedForward(nn.Sequential):
    def __init__(self, hidden: int) -> None:
        super().__init__(
            nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Linear(4 * hidden, hidden), nn.Dropout(0.1)
        )


class ImageBlock(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention = nn.LayerNorm(hidden), Attention(hidden, heads)
        self.norm2, self.mlp = nn.LayerNorm(hidden), FeedForward(hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ImageEncoder(nn.Module):
    def __init__(self, hidden: int = 1024, layers: int = 24, heads: int = 16) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, hidden, 14, 14)
        self.position = nn.Parameter(torch.zeros(1, 256, hidden))
        self.blocks = nn.ModuleList(ImageBlock(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.position
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class QBlock(nn.Module):
    def __init__(self, hidden: int, heads: int, image: int | None) -> None:
        super().__init__()
        self.attention, self.norm1 = Attention(hidden, heads), nn.LayerNorm(hidden)
        self.cross = None
        if image:
            self.cross, self.norm2 = Attention(hidden, heads, image), nn.LayerNorm(hidden)
        self.query_mlp, self.norm3 = FeedForward(hidden), nn.LayerNorm(hidden)
        self.text_mlp, self.norm4 = FeedForward(hidden), nn.LayerNorm(hidden)

    def forward(self, x: Tensor, queries: int, image: Tensor | None, mask: Tensor | None) -> Tensor:
        x = self.norm1(x + self.attention(x, mask=mask))
        q, text = x[:, :queries], x[:, queries:]
        if queries:
            if self.cross is not None:
                q = self.norm2(q + self.cross(q, image))
            q = self.norm3(q + self.query_mlp(q))
        if text.shape[1]:
            text = self.norm4(text + self.text_mlp(text))
        return torch.cat((q, text), dim=1)


class QFormer(nn.Module):
    def __init__(self, vocab: int, hidden: int, layers: int, heads: int, queries: int) -> None:
        super().__init__()
        self.encoder = ImageEncoder().requires_grad_(False)
        self.queries = nn.Parameter(torch.zeros(1, queries, hidden))
        self.words = nn.Embedding(vocab, hidden)
        self.position = nn.Embedding(512, hidden)
        self.norm = nn.LayerNorm(hidden)
        self.layers = nn.ModuleList(
            QBlock(hidden, heads, 1024 if index % 2 == 0 else None) for index in range(layers)
        )
        self.image_head, self.text_head = nn.Linear(hidden, 256), nn.Linear(hidden, 256)
        self.temperature = nn.Parameter(torch.tensor(0.07))
        self.decode = nn.Linear(hidden, vocab)

    def run(
        self, queries: Tensor | None, text: Tensor | None, image: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        parts = [] if queries is None else [queries]
        if text is not None:
            places = torch.arange(text.shape[1], device=text.device)
            parts.append(self.words(text) + self.position(places))
        x = self.norm(torch.cat(parts, dim=1))
        for layer in self.layers:
            x = layer(x, 0 if queries is None else queries.shape[1], image, mask)
        return x

    def forward(self, images: Tensor, text: Tensor) -> Tensor:
        with torch.no_grad():
            image = self.encoder(images)
        queries = self.queries.expand(len(images), -1, -1)
        seen = self.run(queries, None, image, None)
        read = self.run(None, text, None, None)
        one = F.normalize(self.image_head(seen), dim=-1)
        other = F.normalize(self.text_head(read[:, 0]), dim=-1)
        scores = torch.einsum("iqd,jd->ijq", one, other).amax(-1) / self.temperature
        labels = torch.arange(len(images), device=scores.device)
        contrast = (F.cross_entropy(scores, labels) + F.cross_entropy(scores.T, labels)) / 2
        count, length = queries.shape[1], text.shape[1]
        mask = torch.zeros(count + length, count + length, device=scores.device)
        mask[:count, count:] = float("-inf")
        mask[count:, count:] = torch.full_like(mask[count:, count:], float("-inf")).triu(1)
        both = self.run(queries, text, image, mask)
        logits = self.decode(both[:, count:-1])
        return contrast + F.cross_entropy(logits.flatten(0, 1), text[:, 1:].flatten())


def build_model(
    vocab: int = 30522, hidden: int = 768, layers: int = 12, heads: int = 12, queries: int = 32
) -> nn.Module:
    return QFormer(vocab, hidden, layers, heads, queries)


def make_batch(
    batch_size: int = 64, text_len: int = 32, vocab: int = 30522
) -> tuple[Tensor, Tensor]:
    return torch.randn(batch_size, 3, 224, 224), torch.randint(vocab, (batch_size, text_len))
