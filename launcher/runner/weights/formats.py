"""What weights can be exported as: words that the command line checks before torch is loaded."""

from __future__ import annotations

from typing import Literal, get_args

WeightFormat = Literal["safetensors", "huggingface"]
WeightDtype = Literal["fp32", "bf16", "fp16"]
FORMATS: tuple[WeightFormat, ...] = get_args(WeightFormat)
DTYPES: tuple[WeightDtype, ...] = get_args(WeightDtype)
SAFETENSORS, HUGGING_FACE = FORMATS
