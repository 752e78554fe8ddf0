"""The `gpuplan` command: options in, rendered answers out."""
