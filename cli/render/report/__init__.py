"""A budget report as a page, Markdown, a workbook, CSV, FOCUS rows, or text for a terminal.

`write` picks the format. `tables` says what a table is, `money_tables` and `run_tables` fill them
from the report, `words` writes the sentences, and `figures` turns each figure into text: what two
formats show of one report is the same.
"""
