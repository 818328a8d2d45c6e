"""What a change of the spec files means to tenants: who gains or loses what.

Each step is a module: `sources` takes files out of git, `changes` compares, `alarms` says what a policy stops at,
`outputs` writes. Docs: `docs/diff.md`.
"""
