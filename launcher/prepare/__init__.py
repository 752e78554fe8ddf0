"""A plan and a project to the exact task, its worst case and its refusals. Nothing is rented."""
