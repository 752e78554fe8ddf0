"""Exit codes that no error class defines (the others: `catalog/errors.py`)."""

EXIT_INTERRUPTED = 130
