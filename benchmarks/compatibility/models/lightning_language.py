# pyright: reportMissingImports=false
"""Lightning's own demonstration of a language model, trained from the contract's functions."""

import torch
import torch.nn.functional as F
from lightning.pytorch.demos import Transformer

WORDS, TOKENS = 33278, 35


def build_model(layers: int = 6):
    return Transformer(vocab_size=WORDS, nlayers=layers)


def make_batch(batch_size=20):
    words = torch.randint(WORDS, (batch_size, TOKENS))
    return words, words


def compute_loss(model, batch):
    words, targets = batch
    return F.nll_loss(model(words, targets), targets.view(-1))
