"""What a software stack does: versions, fusion, bytes per parameter, engines' own memory."""
