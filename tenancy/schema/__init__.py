"""Models of the files that people write: fields, units, defaults, and how the YAML is read and written."""
