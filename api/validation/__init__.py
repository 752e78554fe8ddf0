"""`gpuplan validate`: predict every run of a record file and compare with what it measured.

Records → what they leave open filled in → one Profile per model and params → predictions → errors.
A run that cannot be predicted is skipped with its reason; nothing else of the file suffers.
"""

from .runs import RecordedRuns, TimedRun, timed_runs, validate

__all__ = ["RecordedRuns", "TimedRun", "timed_runs", "validate"]
