"""Specification files: their fields, how they are read, and the checks across fields and files.

The checks of an environment are part of its model, whichever module of this package comes first.
"""

from tenancy.spec.checks import environment_checks as _checks  # noqa: F401 - adds the checks to the model
