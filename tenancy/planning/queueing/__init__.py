"""Kueue: shares, its objects and its configuration, and what the pools can hold."""
