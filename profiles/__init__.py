"""What the job asks and what machines give: the user's file, traces, memory, efficiency curves, run records."""
