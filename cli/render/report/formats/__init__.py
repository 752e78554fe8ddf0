"""A budget report as a file: page, Markdown, workbook, CSV, FOCUS, requests and statements."""
