"""BERT with its masked-language-model head; BERT-large by default, 335,174,458 parameters.

Source: Devlin et al. 2018 (arXiv:1810.04805); layer shapes as in the released uncased models and
the `BertForMaskedLM` of transformers (BERT-base: 109,514,298). `head="span"` swaps the
vocabulary-wide head for the two-output SQuAD one. `attention="eager"` writes out softmax(QK^T).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def build_model(
    layers: int = 24,
    hidden: int = 1024,
    heads: int = 16,
    ffn: int = 4096,
    vocab: int = 30522,
    seq_len: int = 512,
    attention: str = "fused",
    head: str = "mlm",
    dropout: float = 0.1,
) -> nn.Module:
    if attention not in ("fused", "eager"):
        raise ValueError(f"attention is {attention!r}; allowed: fused, eager")
    if head not in ("mlm", "span"):
        raise ValueError(f"head is {head!r}; allowed: mlm, span")
    embeddings = Embeddings(hidden, vocab, max(seq_len, 512), dropout)
    blocks = [Block(hidden, heads, ffn, attention == "fused", dropout) for _ in range(layers)]
    if head == "span":
        return Bert(embeddings, blocks, nn.Linear(hidden, 2))
    return Bert(embeddings, blocks, MaskedLMHead(hidden, embeddings.words))


def make_batch(
    batch_size: int, vocab: int = 30522, seq_len: int = 512, head: str = "mlm"
) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(vocab, (batch_size, seq_len))
    if head == "span":
        return tokens, torch.randint(seq_len, (batch_size, 2))
    return tokens, torch.randint(vocab, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Return the cross-entropy over the vocabulary, or over the positions of a span's two ends."""
    tokens, targets = batch
    logits = model(tokens).float()
    if targets.shape[1] != tokens.shape[1]:
        logits = logits.transpose(1, 2)
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def TOKENS_PER_SAMPLE(seq_len: int = 512) -> int:
    return seq_len


class Bert(nn.Module):
    def __init__(self, embeddings: "Embeddings", blocks: list["Block"], head: nn.Module):
        super().__init__()
        self.embeddings = embeddings
        self.blocks = nn.ModuleList(blocks)
        self.head = head

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embeddings(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Embeddings(nn.Module):
    def __init__(self, hidden: int, vocab: int, max_length: int, dropout: float):
        super().__init__()
        self.words = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(max_length, hidden)
        self.segments = nn.Embedding(2, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(dropout)
        nn.init.normal_(self.words.weight, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        segments = torch.zeros_like(tokens)
        x = self.words(tokens) + self.segments(segments) + self.positions(positions)
        return self.dropout(self.norm(x))


class Block(nn.Module):
    """One encoder layer; the norms come after the residual sums, as in the original."""

    def __init__(self, hidden: int, heads: int, ffn: int, fused: bool, dropout: float):
        super().__init__()
        self.attention = SelfAttention(hidden, heads, fused, dropout)
        self.attention_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.up = nn.Linear(hidden, ffn)
        self.down = nn.Linear(ffn, hidden)
        self.ffn_norm = nn.LayerNorm(hidden, eps=1e-12)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        x = self.attention_norm(x + self.dropout(self.attention(x)))
        return self.ffn_norm(x + self.dropout(self.down(F.gelu(self.up(x)))))


class SelfAttention(nn.Module):
    def __init__(self, hidden: int, heads: int, fused: bool, dropout: float):
        super().__init__()
        self.heads = heads
        self.fused = fused
        self.dropout = dropout
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.out = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (
            project(x).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for project in (self.query, self.key, self.value)
        )
        dropout = self.dropout if self.training else 0.0
        if self.fused:
            mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout)
        else:
            scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5
            mixed = F.dropout(scores.softmax(dim=-1), dropout) @ value
        return self.out(mixed.transpose(1, 2).flatten(2))


class MaskedLMHead(nn.Module):
    """Scores over the vocabulary; the matrix is the word embedding's."""

    def __init__(self, hidden: int, words: nn.Embedding):
        super().__init__()
        self.transform = nn.Linear(hidden, hidden)
        self.norm = nn.LayerNorm(hidden, eps=1e-12)
        self.decoder = nn.Linear(hidden, words.num_embeddings)
        self.decoder.weight = words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.norm(F.gelu(self.transform(x))))
