"""Effects of a change of the spec files on tenants: what each gains or loses.

Each step is a module: `sources` reads files from git, `changes` compares, `alarms` marks changes that need a review,
`outputs` writes. Docs: `docs/diff.md`.
"""
