"""The API server of an environment without a cluster: what it would answer to a request, from the rendered objects.

Each step of admission is a module: `access` and `policies` judge a request, `defaults` completes its object, and
`server` asks them in the API server's order.
Docs: `docs/check.md`.
"""
