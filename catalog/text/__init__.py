"""Quantities and money as text, each with its unit, with the digits that are known."""
