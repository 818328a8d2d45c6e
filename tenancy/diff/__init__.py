"""What a change of the spec files means to tenants: who gains or loses what.

Each step is a module: `sources` reads files from git, `changes` compares, `alarms` marks changes that need a review,
`outputs` writes. Docs: `docs/diff.md`.
"""
