"""What several parts of the plan share: names, labels, nodes of pools, priorities, device classes, charts."""
