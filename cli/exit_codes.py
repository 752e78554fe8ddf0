"""The exit codes that no error carries itself (the others: `catalog/errors.py`)."""

EXIT_INTERRUPTED = 130
