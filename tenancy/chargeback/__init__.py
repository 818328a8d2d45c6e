"""Who pays what: the bill of every pool, shared out by what was held, to the last millionth of a dollar.

Each step is a module: `tables` reads what was seen, `claims` says whose it was, `sweep` what of each node was held
when, `allocate` shares out, `outputs` writes. Docs: `docs/chargeback.md`.
"""
