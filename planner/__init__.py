"""Pure arithmetic: kernel time, collectives, memory per rank, step time, search, cost."""
