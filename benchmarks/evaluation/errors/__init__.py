"""Errors: where they lie, what they grow with, and what is known of their causes."""
