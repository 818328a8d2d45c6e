"""Checks plain manifests by the rules that the spec files, the guards and the policy pack share.

Each step is a module: `reader` reads files, `adopt` finds the tenant of each object, `judge` applies the rules,
`outputs` writes results.
Docs: `docs/check.md`.
"""
