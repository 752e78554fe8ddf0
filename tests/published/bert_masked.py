"""BERT as NVIDIA's DeepLearningExamples train it: padding is masked, and so is most of the head.

Beside examples/bert.py attention adds a mask of padding to all scores, whether or not there is any
(PyTorch/LanguageModeling/BERT/modeling.py, `BertSelfAttention.forward`), in the dtype of the
parameters. In pre-training the vocabulary is scored at the masked positions of a sequence alone
(`BertPreTrainingHeads`, `sequence_output_is_dense`); `head="span"` is SQuAD's, two scores a token.
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
    head: str = "mlm",
) -> nn.Module:
    whole = bert.build_model(
        layers=layers,
        hidden=hidden,
        heads=heads,
        ffn=ffn,
        vocab=vocab,
        seq_len=seq_len,
        attention="eager",
        head=head,
    )
    assert isinstance(whole, bert.Bert)
    return MaskedBert(whole.embeddings, list(whole.blocks), whole.head)


def make_batch(
    batch_size: int, vocab: int = 30522, seq_len: int = 128, masked: int = 20, head: str = "mlm"
) -> tuple[Tensor, ...]:
    """Tokens, which of them are no padding, and what is predicted of them.

    `masked`: positions of a sequence that are predicted in pre-training, as rows of the flattened
    batch; `head="span"` has the two ends of an answer instead.
    """
    tokens, kept = torch.randint(vocab, (batch_size, seq_len)), torch.ones(batch_size, seq_len)
    if head == "span":
        return tokens, kept, torch.randint(seq_len, (batch_size, 2))
    rows = torch.randint(batch_size * seq_len, (batch_size * masked,))
    return tokens, kept, torch.randint(vocab, (batch_size * masked,)), rows


def compute_loss(model: nn.Module, batch: tuple[Tensor, ...]) -> Tensor:
    tokens, kept, targets, *rows = batch
    logits = model(tokens, kept, *rows).float()
    if not rows:
        logits = logits.transpose(1, 2).flatten(0, 1)
    return F.cross_entropy(logits, targets.flatten())


def TOKENS_PER_SAMPLE(seq_len: int = 128) -> int:
    return seq_len


class MaskedBert(nn.Module):
    """`bert.Bert` that masks padding, and hands its head the rows that are predicted, or all."""

    def __init__(
        self, embeddings: bert.Embeddings, blocks: list[nn.Module], head: nn.Module
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.blocks = nn.ModuleList(blocks)
        self.head = head

    def forward(self, tokens: Tensor, kept: Tensor, rows: Tensor | None = None) -> Tensor:
        x = self.embeddings(tokens)
        mask = (1 - kept[:, None, None].to(self.embeddings.words.weight.dtype)) * -10000.0
        for block in self.blocks:
            assert isinstance(block, bert.Block)
            attended = masked_attention(block.attention, x, mask)
            x = block.attention_norm(x + block.dropout(attended))
            x = block.ffn_norm(x + block.dropout(block.down(F.gelu(block.up(x)))))
        return self.head(x if rows is None else x.flatten(0, 1).index_select(0, rows))


def masked_attention(layer: bert.SelfAttention, x: Tensor, mask: Tensor) -> Tensor:
    query, key, value = (
        project(x).unflatten(-1, (layer.heads, -1)).transpose(1, 2)
        for project in (layer.query, layer.key, layer.value)
    )
    scores = query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5 + mask
    shares = F.dropout(scores.softmax(dim=-1), layer.dropout, layer.training)
    return layer.out((shares @ value).transpose(1, 2).flatten(2))
