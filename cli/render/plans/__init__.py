"""Plans: the answers of `estimate`, `plans`, `show`, `fits` and `advise`."""
