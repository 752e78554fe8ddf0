"""Memory and step time of a model, measured on this machine."""
