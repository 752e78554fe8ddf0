"""From candidates to the answer: ranked, recommended, written as plans, or why there is none."""
