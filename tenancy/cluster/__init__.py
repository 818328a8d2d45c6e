"""A cluster as it is: asking it, comparing it with a plan, adopting, removing, waiting."""
