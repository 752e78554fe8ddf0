"""Numbers read off a traced step: the allocator's peak, the costliest kernels."""
