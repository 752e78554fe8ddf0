"""What is asked and what is answered: question, layout, plan, ids, whether a plan can be run."""
