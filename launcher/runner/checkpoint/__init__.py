"""Checkpoints: how they are written, what a folder of them holds, how they are read back."""
