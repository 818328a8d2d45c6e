"""Results of other commands, read from their JSON: a simulation, or a chargeback."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tenancy.catalog.files import read_text_file


class UnreadableInput(ValueError):
    """A file does not have the expected content; the text has what was given, the rule and what to change."""


@dataclass(frozen=True, slots=True)
class UsageTimeline:
    """GPUs over time, in intervals of equal length."""

    hours: float
    in_use: Mapping[str, Sequence[float]]
    """Tenant -> average GPUs in each interval."""
    borrowed: Mapping[str, Sequence[float]]
    fairness: Sequence[float | None] = ()
    """Jain's index of borrowed GPUs; empty: not known."""
    capacity: float | None = None
    source: str = ""


class BudgetMonth(NamedTuple):
    """A tenant's month against its budget; dollars."""

    period: str
    budget: float
    so_far: float
    forecast: float
    reached: int
    expected: int


class TenantUseSummary(NamedTuple):
    """Used compared with held capacity, in hours of whole GPUs. None: use was not measured."""

    allocated_hours: float
    idle: float
    used_hours: float | None
    efficiency: float | None
    idle_dollars: float


@dataclass(frozen=True, slots=True)
class ChargebackSummary:
    """Result of a chargeback."""

    start: str
    end: str
    bill: float
    paid: Mapping[str, float]
    """Tenant or named line -> dollars."""
    parts: Mapping[str, Mapping[str, float]]
    """Tenant -> category -> dollars."""
    budgets: Mapping[str, Sequence[BudgetMonth]]
    use_by_tenant: Mapping[str, TenantUseSummary]
    data_findings: Sequence[str]
    """Missing data."""
    timeline: UsageTimeline | None


def read_simulation(path: Path, environment: str) -> UsageTimeline:
    """Read `tenancy simulate --format json`: the run after the change, or the only run."""
    document = _document(path, "tenancy simulate ENV --format json", environment)
    try:
        run = document.get("after") or document["before"]
        timeline = UsageTimeline(
            hours=float(run["hours"]),
            in_use=_series(run["use"]),
            borrowed=_series(run["borrowing"]),
            fairness=[None if value is None else float(value) for value in run["fairness"]],
            capacity=float(run["capacity"]),
            source=f"{int(run['jobs']):,} jobs over {float(run['hours']):g} simulated hours",
        )
        if not (
            timeline.in_use and timeline.hours > 0 and len({len(values) for values in timeline.in_use.values()}) == 1
        ):
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _invalid(path, "a result of tenancy simulate --format json") from None
    return timeline


def read_chargeback(path: Path, environment: str) -> ChargebackSummary:
    """Read `tenancy chargeback --format json`."""
    document = _document(path, "tenancy chargeback ENV --format json", environment)
    try:
        return ChargebackSummary(
            start=str(document["start"]),
            end=str(document["end"]),
            bill=_finite(document["bill"]),
            paid={str(entry["tenant"]): _finite(entry["dollars"]) for entry in document["tenants"]},
            parts=_parts(document["lines"]),
            budgets=_budgets(document["budgets"]),
            use_by_tenant=_use_by_tenant(document["use"]),
            data_findings=[
                f"{entry['given']}: {entry['effect']} (rule {entry['rule']})" for entry in document["named"]
            ],
            timeline=_timeline(document["lines"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _invalid(path, "a result of tenancy chargeback --format json") from None


def _document(path: Path, command: str, environment: str) -> dict[str, Any]:
    try:
        document = json.loads(read_text_file(path))
    except OSError as error:
        raise UnreadableInput(
            f"given {path}; rule: a file that can be read ({error.strerror}); change: another path"
        ) from None
    except (ValueError, RecursionError):
        raise UnreadableInput(
            f"given {path}, which is not JSON; rule: the output of {command}; change: run it again"
        ) from None
    if not isinstance(document, dict) or "environment" not in document:
        raise _invalid(path, f"the output of {command}")
    if document["environment"] != environment:
        input_text = f"{path} of environment {str(document['environment'])[:60]!r}"
        raise UnreadableInput(
            f"given {input_text}; rule: a result for {environment}; change: run the command for {environment}"
        )
    return document


def _invalid(path: Path, rule: str) -> UnreadableInput:
    return UnreadableInput(f"given {path}, with a missing field or number; rule: {rule}; change: run the command again")


def _finite(text: Any) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _series(series: Mapping[str, Sequence[Any]]) -> dict[str, list[float]]:
    return {str(name): [_finite(value) for value in values] for name, values in series.items()}


def _parts(lines: Sequence[Mapping[str, str]]) -> dict[str, dict[str, float]]:
    parts: dict[str, dict[str, float]] = {}
    for line in lines:
        tenant_parts = parts.setdefault(line["tenant"], {})
        tenant_parts[line["category"]] = tenant_parts.get(line["category"], 0.0) + _finite(line["dollars"])
    return parts


def _budgets(entries: Sequence[Mapping[str, Any]]) -> dict[str, list[BudgetMonth]]:
    months_by_tenant: dict[str, list[BudgetMonth]] = {}
    for entry in entries:
        amounts = (_finite(entry[key]) for key in ("budget", "dollars", "forecast"))
        thresholds = int(entry["reached_percent"]), int(entry["expected_percent"])
        months_by_tenant.setdefault(entry["tenant"], []).append(
            BudgetMonth(str(entry["period"]), *amounts, *thresholds)
        )
    return months_by_tenant


def _use_by_tenant(entries: Sequence[Mapping[str, Any]]) -> dict[str, TenantUseSummary]:
    use_by_tenant: dict[str, TenantUseSummary] = {}
    for entry in entries:
        name, is_measured = entry["tenant"], entry["gpu_hours_used"] is not None
        previous = use_by_tenant.get(name, TenantUseSummary(0.0, 0.0, None, None, 0.0))
        allocated, idle = (
            previous.allocated_hours + _finite(entry["gpu_hours_held"]),
            previous.idle + _finite(entry["gpu_hours_idle"]),
        )
        used = (previous.used_hours or 0.0) + _finite(entry["gpu_hours_used"]) if is_measured else previous.used_hours
        efficiency = 100 * used / allocated if used is not None and allocated else None
        use_by_tenant[name] = TenantUseSummary(
            allocated, idle, used, efficiency, previous.idle_dollars + _finite(entry["idle_dollars"])
        )
    return use_by_tenant


def _timeline(lines: Sequence[Mapping[str, str]]) -> UsageTimeline | None:
    """Average GPUs held in each period; None for fewer than two periods."""
    periods = sorted({(line["start"], line["end"], line["period"]) for line in lines})
    if len(periods) < 2:
        return None
    hours = [
        (dt.datetime.fromisoformat(end) - dt.datetime.fromisoformat(start)).total_seconds() / 3600
        for start, end, _ in periods
    ]
    index_by_period = {name: number for number, (_, _, name) in enumerate(periods)}
    in_use_and_borrowed: list[dict[str, list[float]]] = [{}, {}]
    for line in lines:
        if line["category"] in {"held", "borrowed"} and line["gpu_hours"] and not line["tenant"].startswith("("):
            number = index_by_period[line["period"]]
            for series_index, is_counted in enumerate((True, line["category"] == "borrowed")):
                if is_counted:
                    values = in_use_and_borrowed[series_index].setdefault(line["tenant"], [0.0] * len(periods))
                    values[number] += _finite(line["gpu_hours"]) / hours[number]
    return UsageTimeline(
        sum(hours),
        in_use_and_borrowed[0],
        in_use_and_borrowed[1],
        source=f"{len(periods)} periods of a chargeback; hours from {periods[0][0]}",
    )
