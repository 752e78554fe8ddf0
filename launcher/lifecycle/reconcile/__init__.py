"""Machines that are there beside those that the store knows: found, told whose, torn down."""
