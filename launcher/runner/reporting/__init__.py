"""What a run says and leaves: metrics, the run record, failures."""
