"""A project as its file states it."""
