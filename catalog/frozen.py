"""The base of what is stored or printed: a frozen pydantic model."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated

from pydantic import BaseModel, ConfigDict, PlainSerializer

Usd = Annotated[Decimal, PlainSerializer(float, return_type=float, when_used="json")]
"""Dollars, exact where they are added up; a plain number in JSON, as every other quantity."""


class FrozenModel(BaseModel):
    """A frozen value; keys that a later version added are ignored when read back."""

    model_config = ConfigDict(frozen=True, extra="ignore")
