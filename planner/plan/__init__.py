"""What is asked and how a job may run: question, layout, plan, ids, whether it can be run."""
