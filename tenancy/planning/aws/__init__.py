"""AWS resources of the plan: cluster, nodes, identities, data, policies, prices."""
