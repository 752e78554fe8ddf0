"""From a plan to a job: its preparation, launch, guard, runner and store."""
