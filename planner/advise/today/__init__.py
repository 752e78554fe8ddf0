"""Today's setting: read, completed, and with its model as it could be."""
