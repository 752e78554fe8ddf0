"""The parts of a rendered text: columns, tables, quantities, money, wording."""
