"""One training step as kernels and storages, traced without a GPU."""
