"""What every question starts from: a model file, its Profile, and one step of it."""
