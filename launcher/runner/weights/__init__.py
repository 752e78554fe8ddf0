"""Pretrained weights: read from safetensors files into a model, and written from checkpoints."""
