"""What becomes of a launch beyond a limit of its project."""

from typing import Literal

OnExceed = Literal["warn", "fail"]
"""Only warned of, or refused."""
