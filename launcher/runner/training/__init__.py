"""What a step is made of: gradients, precision, learning rates, what trains."""
