"""The report of a project: its rows, how they are made, and its words."""
