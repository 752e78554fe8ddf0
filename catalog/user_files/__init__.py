"""Files that people write: a tree that remembers its lines, its values, their own offers."""
