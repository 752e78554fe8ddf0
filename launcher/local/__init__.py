"""Runs on this machine: the folder they write, how they ended, what they took."""
