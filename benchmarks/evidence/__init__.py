"""What `gpu_evidence.py` is made of: the cases, the training step, the meters, the processes."""
