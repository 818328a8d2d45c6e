"""Spec files as plain values with their places, and the form of mistakes."""
