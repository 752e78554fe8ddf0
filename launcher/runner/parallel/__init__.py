"""The model over its ranks: data, tensor and pipeline parallelism, and its first weights."""
