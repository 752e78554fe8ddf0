"""What of this machine works for gpuplan."""
