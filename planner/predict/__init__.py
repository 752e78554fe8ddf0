"""A setup on a cluster to its step time and peak memory, with intervals."""
