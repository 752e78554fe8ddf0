"""Units, each defined once. Inside gpuplan every quantity is SI: bytes, seconds, flops, dollars."""

from typing import Final

MB: Final = 10**6
GB: Final = 10**9
TB: Final = 10**12
KIB: Final = 2**10
MIB: Final = 2**20
GIB: Final = 2**30
TERA: Final = 10**12
GIGABIT_BYTES: Final = 10**9 / 8
"""Bytes in one gigabit (decimal, as network vendors count)."""
SECONDS_PER_HOUR: Final = 3600
HOURS_PER_DAY: Final = 24
MONTHS_PER_YEAR: Final = 12
HOURS_PER_YEAR: Final = 8760
"""365 days: the year that sellers of terms count by (cloud.google.com/compute/vm-instance-pricing:
a month is 730 hours)."""
HOURS_PER_MONTH: Final = 730
"""8,760 hours of a year over 12 months, the convention of the clouds' own price pages."""
