"""How a model is split over ranks: linears, sequence, stages, sharded parameters."""
