"""What a built model is made of: repeated blocks, shared and frozen weights, a tensor plan."""
