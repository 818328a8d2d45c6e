"""Simulation: a day of work on a real Kueue under an environment's real quotas, in minutes.

Kueue decides; everything else is a model. Jobs are Workload objects without pods, and the clock is event-driven:
the next submission or end happens when Kueue has decided everything about the previous one.
"""
