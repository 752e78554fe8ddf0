"""From a plan to a job: the store of plans and records, and later the launch itself."""
