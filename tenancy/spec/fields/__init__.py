"""Models of the files that people write: fields, units, defaults."""
