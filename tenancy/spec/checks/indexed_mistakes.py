"""Findings of a check across files, with the tenant in whose file each is."""

from __future__ import annotations

from tenancy.spec.reading.mistakes import Mistake

IndexedMistake = tuple[int, Mistake]
"""Index of the tenant, or ENVIRONMENT, and the mistake in its file."""
ENVIRONMENT_INDEX = -1
