"""examples/bert.py whose vocabulary head sees the masked positions of a sequence alone.

So BERT is pre-trained by NVIDIA's DeepLearningExamples: `BertPreTrainingHeads` selects them before
it scores the vocabulary (PyTorch/LanguageModeling/BERT/modeling.py, `sequence_output_is_dense`).
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpuplan.examples import bert


def build_model(
    layers: int = 24,
    hidden: int = 1024,
    heads: int = 16,
    ffn: int = 4096,
    vocab: int = 30522,
    seq_len: int = 128,
    attention: str = "fused",
) -> nn.Module:
    whole = bert.build_model(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        vocab=vocab,
        seq_len=seq_len,
        attention=attention,
    )
    assert isinstance(whole, bert.Bert)
    return MaskedBert(whole.embeddings, list(whole.blocks), whole.head)


def make_batch(
    batch_size: int, vocab: int = 30522, seq_len: int = 128, masked: int = 20
) -> tuple[Tensor, Tensor, Tensor]:
    """`masked`: positions of a sequence that are predicted, as rows of the flattened batch."""
    tokens = torch.randint(vocab, (batch_size, seq_len))
    rows = torch.randint(batch_size * seq_len, (batch_size * masked,))
    return tokens, rows, torch.randint(vocab, (batch_size * masked,))


def compute_loss(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    tokens, rows, targets = batch
    return F.cross_entropy(model(tokens, rows).float(), targets)


def TOKENS_PER_SAMPLE(seq_len: int = 128) -> int:
    return seq_len


class MaskedBert(nn.Module):
    """`bert.Bert` that hands its head the rows that are predicted."""

    def __init__(self, embeddings: nn.Module, blocks: list[nn.Module], head: nn.Module) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.blocks = nn.ModuleList(blocks)
        self.head = head

    def forward(self, tokens: Tensor, rows: Tensor) -> Tensor:
        x = self.embeddings(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x.flatten(0, 1).index_select(0, rows))
