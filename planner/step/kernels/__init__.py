"""Device and host time of the kernels of a step."""
