#!/usr/bin/env python
"""unheld.py ENV REPORT: say in REPORT which pools of an environment have a capacity block that no night holds.

Ends with exit code 1 if there are such pools: the role of holds, TENANCY_HOLD_ROLE, is not set.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tenancy.spec.loader import load


def unheld(folder: Path) -> list[str]:
    """Pools with a capacity block, where the forge has no role that holds and opens their queues."""
    if os.environ.get("TENANCY_HOLD_ROLE"):
        return []
    pools = load(folder).environment.pools
    return [name for name, pool in pools.items() if pool.purchase.capacity_block is not None]


def main(environment: str, report: str) -> int:
    pools = unheld(Path("stacks") / environment)
    if not pools:
        return 0
    text = (
        f"capacity-block in {', '.join(pools)}, and no TENANCY_HOLD_ROLE: the job `hold` does not run, so the queues "
        "and sizes of these pools do not change on the day. Set the role (docs/pull-requests.md), or run "
        f"`tenancy up {environment}` on the days on which the blocks begin and end."
    )
    print(f"{environment}: {text}")
    with Path(report).open("a", encoding="utf-8") as file:
        file.write(f"\n{text}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
