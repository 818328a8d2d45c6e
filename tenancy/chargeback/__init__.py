"""Cost allocation: the bill of every pool is allocated by the devices held, to the last millionth of a dollar.

Each step is a module: `tables` reads the observed usage, `claims` finds its owners, `sweep` computes how much of each
node was held when, `allocate` allocates the costs, `outputs` writes. Docs: `docs/chargeback.md`.
"""
