"""What the job asks and what machines give: files, traces, memory, efficiency curves, records."""
