"""Tracing in a child process, one model or many, and the cache of Profiles."""
