"""Model files in plain torch that follow the gpuplan contract; run records name them."""
