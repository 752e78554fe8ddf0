"""Where the open run records are."""

from __future__ import annotations

from pathlib import Path

PUBLISHED = Path(__file__).parents[2] / "tests" / "published"
FIRST_RECORDS = (PUBLISHED / "published_llm.jsonl", PUBLISHED / "published_single_gpu.jsonl")
LATER_RECORDS = (PUBLISHED / "more_llm.jsonl", PUBLISHED / "more_single_gpu.jsonl")
IMAGE_RECORDS = (PUBLISHED / "timm.jsonl", PUBLISHED / "diffusion.jsonl")
OPEN_RECORDS = FIRST_RECORDS + LATER_RECORDS + IMAGE_RECORDS
"""All records that are evaluated."""
FITTED_RECORDS = OPEN_RECORDS
"""What the constants are fitted to."""
DAY_BEFORE = PUBLISHED / "day_before.jsonl"
"""Predictions of all but the first by the code that had never seen them."""
