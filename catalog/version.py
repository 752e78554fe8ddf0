"""The version of gpuplan, below everything that prints or keeps it."""

VERSION = "0.1.0"
"""As in pyproject.toml; a test holds them together."""
