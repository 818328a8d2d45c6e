"""Readers of files that others write, with the errors by which each may refuse one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tenancy.chargeback import bill
from tenancy.chargeback.periods import PeriodLength, periods, zone_of
from tenancy.cluster.api import Api, ApiUnreachable
from tenancy.diff import previews
from tenancy.rules.catalogue import Violation
from tenancy.simulation import trace_files
from tenancy.spec.loader import Loaded
from tenancy.spec.reading.problems import SpecError
from tenancy.verify.evidence import bundle, collect

CORPUS = Path(__file__).parent / "corpus"
"""Files that once ended a reader with another error than its own: a folder for each kind."""

Reader = tuple[Callable[[Path], Any], tuple[type[Exception], ...]]


def readers(loaded: Loaded) -> dict[str, Reader]:
    def changes(path: Path) -> Any:
        return previews.changes([previews.read(str(path))])

    start, end = (int(dt.datetime(2026, month, 1, tzinfo=dt.UTC).timestamp()) for month in (10, 11))
    month = periods(start, end, PeriodLength.MONTH, zone_of("UTC"))
    return {
        "preview": (changes, (previews.NotAPreview,)),
        "kubeconfig": (lambda path: Api(None, str(path)), (ApiUnreachable,)),
        "sarif": (collect.read_judge, (bundle.Unusable,)),
        "attacks": (lambda path: collect.read_attacks(path).counts, (bundle.Unusable,)),
        "trace": (lambda path: trace_files.read(path, loaded), (SpecError, Violation)),
        "bill": (lambda path: bill.read_bill([path], month, "small"), (Violation,)),
    }
