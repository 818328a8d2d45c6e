"""Checks of an environment and its tenants, each across its fields and files."""
