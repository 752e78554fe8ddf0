"""The processes of a run: rank and mesh, what they agree on, how they end."""
