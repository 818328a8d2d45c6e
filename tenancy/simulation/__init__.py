"""What if: a day of work on the real Kueue under an environment's real quotas, in minutes.

Kueue decides; everything else is a model. Jobs are Workload objects without pods, and the clock is made of events: the
next submission or end comes when Kueue has nothing left to decide about the last one.
"""
