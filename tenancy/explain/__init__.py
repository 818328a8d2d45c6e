"""Answers about work on a cluster: why it waits, whether it fits, and what its queue uses."""
