"""Turn typed answers into tables, markdown, CSV and JSON."""
