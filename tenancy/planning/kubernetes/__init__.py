"""A tenant's namespaces and what isolates them, and what is cluster-wide on the API server."""
