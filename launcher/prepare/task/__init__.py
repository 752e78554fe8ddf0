"""What a launch writes for the nodes: task, scripts, job, orders."""
