"""What kernels a GPU launches for the operations of a step, and what each has to do."""
