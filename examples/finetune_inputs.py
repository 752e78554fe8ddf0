"""Writes what finetune.py is tried with: a tiny Llama with a tokenizer of bytes, and sums to learn.

    python examples/finetune_inputs.py tiny-llama

makes that folder, as Hugging Face has them, with train.jsonl and eval.jsonl in it. 90,560 weights.
"""

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = ["<pad>", "</s>"]


def main(folder: str = "tiny-llama") -> None:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {one: at for at, one in enumerate([*SPECIAL, *alphabet])}
    write_tokenizer(folder, vocab)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocab),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    write_sums(Path(folder))


def write_tokenizer(folder: str, vocab: dict[str, int]) -> None:
    """Write a tokenizer with a token for each byte."""
    bytes_alone = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    bytes_alone.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)  # pyright: ignore
    bytes_alone.decoder = decoders.ByteLevel()  # pyright: ignore
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytes_alone, pad_token=SPECIAL[0], eos_token=SPECIAL[1]
    )
    tokenizer.save_pretrained(folder)


def write_sums(folder: Path) -> None:
    """Write all sums of two numbers below 20, every eighth for the evaluation."""
    sums = [(one, other) for one in range(20) for other in range(20)]
    random.Random(0).shuffle(sums)
    for name, part in (("eval", sums[::8]), ("train", [s for i, s in enumerate(sums) if i % 8])):
        lines = [
            json.dumps({"prompt": f"{one} + {other} =", "answer": f" {one + other}"})
            for one, other in part
        ]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
