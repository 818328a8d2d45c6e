"""The garbage collector of a program that registers many resources."""

from __future__ import annotations

import gc

SELDOM_THRESHOLDS = (100_000, 50, 1000)


def collect_seldom() -> None:
    """Let the collector run seldom.

    It would walk all resources again and again: half of the time at a thousand of them.
    """
    if gc.get_threshold()[0] < SELDOM_THRESHOLDS[0]:
        gc.collect()
        gc.freeze()
        gc.set_threshold(*SELDOM_THRESHOLDS)
