"""What stands on the cluster: asking it, comparing it with a plan, attacking it."""
