"""What `gpuplan offers` and `gpuplan gpus` answer."""
