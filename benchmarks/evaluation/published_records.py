"""Where the open run records are."""

from __future__ import annotations

from pathlib import Path

PUBLISHED = Path(__file__).parents[2] / "tests" / "published"
OPEN_RECORDS = (
    PUBLISHED / "published_llm.jsonl",
    PUBLISHED / "published_single_gpu.jsonl",
    PUBLISHED / "more_llm.jsonl",
    PUBLISHED / "more_single_gpu.jsonl",
)
"""All records that constants are fitted to, and that are evaluated."""
DAY_BEFORE = PUBLISHED / "day_before.jsonl"
"""Predictions of the last two files by the code that had never seen them."""
