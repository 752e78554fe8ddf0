"""How long a run really takes: checkpoints, failures, interruptions, restarts."""
