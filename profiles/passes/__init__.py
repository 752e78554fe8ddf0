"""A traced step made into another: recomputed, with another loss, optimizer or residence."""
