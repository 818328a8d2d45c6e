"""Facts of Kubernetes and Kueue that every other package reads the same way."""
