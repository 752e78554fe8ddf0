"""What devices and links achieve: efficiency curves and where they come from."""
