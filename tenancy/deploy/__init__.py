"""Driving the Pulumi engine: preview with the policy pack, then update; and mending what a crash left."""
