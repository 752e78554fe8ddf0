"""Fine-tuning of a Hugging Face model of text on lines of JSON: {"prompt": …, "answer": …}.

`finetune_inputs.py` writes a tiny model and such lines to try it with; for a model of your own give
`--param base=FOLDER`. The loss is that of the answers alone. Needs transformers.
"""

import json
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

BASE = "tiny-llama"
IGNORED = -100
"""A label that no loss counts."""


def build_model(base: str = BASE) -> nn.Module:
    """Return the model without its weights: each process of a run reads its part of them."""
    return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(base, use_cache=False))


def pretrained_weights(base: str = BASE) -> Path:
    return Path(base).absolute()


def make_batch(batch_size: int = 4, base: str = BASE, length: int = 24) -> dict[str, Tensor]:
    vocab = AutoConfig.from_pretrained(base).vocab_size
    tokens = torch.randint(vocab, (batch_size, length))
    return {"input_ids": tokens, "attention_mask": torch.ones_like(tokens), "labels": tokens}


def loss_weight(batch: dict[str, Tensor]) -> Tensor:
    """Return how many tokens the loss is a mean of: answers are of unequal lengths."""
    return (batch["labels"][:, 1:] != IGNORED).sum()


def build_optimizer(parameters) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=3e-3)


def build_dataset(base: str = BASE, length: int = 24) -> "Answers":
    return Answers(Path(base) / "train.jsonl", base, length)


def build_eval_dataset(base: str = BASE, length: int = 24) -> "Answers":
    return Answers(Path(base) / "eval.jsonl", base, length)


class Answers(Dataset):
    """Prompts with their answers, each cut or padded to one length."""

    def __init__(self, path: Path, base: str, length: int):
        self.lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        self.tokenizer = AutoTokenizer.from_pretrained(base)
        self.length = length

    def __len__(self) -> int:
        return len(self.lines)

    def __getitem__(self, place: int) -> dict[str, Tensor]:
        line = self.lines[place]
        prompt = self.tokenizer(line["prompt"])["input_ids"]
        answer = [*self.tokenizer(line["answer"])["input_ids"], self.tokenizer.eos_token_id]
        used = min(self.length, len(prompt) + len(answer))
        padding = self.length - used
        tokens = [*prompt, *answer][:used] + [self.tokenizer.pad_token_id] * padding
        labels = ([IGNORED] * len(prompt) + answer)[:used] + [IGNORED] * padding
        return {
            "input_ids": torch.tensor(tokens),
            "attention_mask": torch.tensor([1] * used + [0] * padding),
            "labels": torch.tensor(labels),
        }
