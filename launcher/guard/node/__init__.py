"""What the guard sees of its node and does to it: devices, notices, the network, processes."""
