"""Time in the queues: windows, further shares and budgets, decided by a pure function and applied by one process.

Admission goes on without it, with the quotas and states that it wrote last. Besides commands only the simulation uses
it, for the same decision.
"""
