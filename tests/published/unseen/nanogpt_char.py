"""GPT of karpathy/nanoGPT (model.py, `bias=False`) with its config train_shakespeare_char.py.

6 layers of 384, 6 heads, 256 characters, dropout of 0.2, 65 characters: 10,745,088 parameters with
positions (nanoGPT prints 10.65 million, which leaves them out).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

VOCAB = 65
DROPOUT = 0.2


def build_model(
    layers: int = 6, heads: int = 6, hidden: int = 384, seq_len: int = 256
) -> nn.Module:
    return GPT(layers, heads, hidden, seq_len)


def make_batch(batch_size: int, seq_len: int = 256) -> tuple[Tensor, Tensor]:
    tokens = torch.randint(VOCAB, (batch_size, seq_len))
    return tokens, torch.randint(VOCAB, (batch_size, seq_len))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    logits = model(batch[0]).float()
    return F.cross_entropy(logits.view(-1, VOCAB), batch[1].view(-1))


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)


def TOKENS_PER_SAMPLE(seq_len: int = 256) -> int:
    return seq_len


class Attention(nn.Module):
    def __init__(self, heads: int, hidden: int):
        super().__init__()
        self.heads, self.hidden = heads, hidden
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, hidden = x.shape
        parts = [
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(x).split(self.hidden, dim=2)
        ]
        mixed = F.scaled_dot_product_attention(
            *parts, is_causal=True, dropout_p=DROPOUT if self.training else 0.0
        )
        return self.dropout(
            self.out(mixed.transpose(1, 2).contiguous().view(batch, length, hidden))
        )


class Block(nn.Module):
    def __init__(self, heads: int, hidden: int):
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden, bias=False)
        self.attention = Attention(heads, hidden)
        self.ffn_norm = nn.LayerNorm(hidden, bias=False)
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return x + self.dropout(self.down(F.gelu(self.up(self.ffn_norm(x)))))


class GPT(nn.Module):
    def __init__(self, layers: int, heads: int, hidden: int, seq_len: int):
        super().__init__()
        self.words = nn.Embedding(VOCAB, hidden)
        self.positions = nn.Embedding(seq_len, hidden)
        self.blocks = nn.ModuleList(Block(heads, hidden) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden, bias=False)
        self.head = nn.Linear(hidden, VOCAB, bias=False)
        self.head.weight = self.words.weight

    def forward(self, tokens: Tensor) -> Tensor:
        at = torch.arange(tokens.shape[1], device=tokens.device)
        x = F.dropout(self.words(tokens) + self.positions(at), DROPOUT, self.training)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))
