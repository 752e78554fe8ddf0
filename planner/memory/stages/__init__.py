"""Memory of a rank of a split model: what its pipeline stages hold, and where they peak."""
