"""Shared parts of the plan: names, labels, nodes of pools, priorities, device classes, charts."""
