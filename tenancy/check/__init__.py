"""Plain manifests judged by the rules that the spec files, the guards and the policy pack share.

Each step is a module: `reader` takes files apart, `adopt` says what is whose, `judge` asks the rules, `outputs` writes.
Docs: `docs/check.md`.
"""
