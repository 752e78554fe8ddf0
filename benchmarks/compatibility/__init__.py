"""Which models of popular libraries trace: what is tried, and the page of what came out."""
