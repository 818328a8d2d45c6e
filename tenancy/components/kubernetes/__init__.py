"""Components of Kubernetes' objects."""
