"""A launch from request to closed account, gone on with wherever it was cut off."""
