"""A device and the links of its cluster: peaks, collectives, host links."""
