"""A machine without a GPU that answers as one with a GPU, and runs what a GPU would run."""
