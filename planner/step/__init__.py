"""Time of one step: kernels, collectives and their overlap."""
