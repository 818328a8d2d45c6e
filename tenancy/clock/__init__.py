"""Time in the queues: windows, further shares and budgets, decided by a pure function and applied by one process.

Nothing else imports this package; admission goes on without it, with the quotas and states that it wrote last.
"""
