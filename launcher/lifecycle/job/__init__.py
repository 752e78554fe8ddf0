"""What a job that has ended leaves: its log, its guard's report, its results, and how it ended."""
