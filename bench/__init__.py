"""Benchmarks, written into docs/benchmarks.md by `python -m bench`. Never part of a test."""
