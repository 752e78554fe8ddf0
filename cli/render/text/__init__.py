"""The parts of a rendered text: columns, tables, wording."""
