"""State kept in host memory: its copies, and what the host must hold."""
