"""Adoption, export and removal of a tenant on a cluster that exists."""
