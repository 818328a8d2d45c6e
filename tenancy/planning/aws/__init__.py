"""What AWS is asked for: the cluster, nodes, identities, data, policies, prices."""
