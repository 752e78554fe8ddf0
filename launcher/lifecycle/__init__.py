"""A launch from request to final cost; any later command continues one that was interrupted."""
