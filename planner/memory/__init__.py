"""Memory of one rank: activations, sharded state, stages, the framework's own."""
