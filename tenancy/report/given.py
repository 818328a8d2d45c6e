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


class Unreadable(ValueError):
    """A file does not have the expected content; the text has what was given, the rule and what to change."""


@dataclass(frozen=True, slots=True)
class Course:
    """GPUs over time, in intervals of equal length."""

    hours: float
    held: Mapping[str, Sequence[float]]
    """Tenant -> average GPUs in each interval."""
    borrowed: Mapping[str, Sequence[float]]
    fairness: Sequence[float | None] = ()
    """Jain's index of borrowed GPUs; empty: not known."""
    capacity: float | None = None
    source: str = ""


class Budgeted(NamedTuple):
    """A tenant's month against its budget; dollars."""

    period: str
    budget: float
    so_far: float
    forecast: float
    reached: int
    expected: int


class Used(NamedTuple):
    """Used compared with held capacity, in hours of whole GPUs. None: use was not measured."""

    held: float
    idle: float
    used: float | None
    efficiency: float | None
    idle_dollars: float


@dataclass(frozen=True, slots=True)
class Charged:
    """Result of a chargeback."""

    start: str
    end: str
    bill: float
    paid: Mapping[str, float]
    """Tenant or named line -> dollars."""
    parts: Mapping[str, Mapping[str, float]]
    """Tenant -> category -> dollars."""
    budgets: Mapping[str, Sequence[Budgeted]]
    used: Mapping[str, Used]
    named: Sequence[str]
    """Missing data."""
    course: Course | None


def simulation(path: Path, environment: str) -> Course:
    """Read `tenancy simulate --format json`: the run after the change, or the only run."""
    found = _object(path, "tenancy simulate ENV --format json", environment)
    try:
        run = found.get("after") or found["before"]
        course = Course(
            hours=float(run["hours"]),
            held=_series(run["use"]),
            borrowed=_series(run["borrowing"]),
            fairness=[None if value is None else float(value) for value in run["fairness"]],
            capacity=float(run["capacity"]),
            source=f"{int(run['jobs']):,} jobs over {float(run['hours']):g} simulated hours",
        )
        if not (course.held and course.hours > 0 and len({len(values) for values in course.held.values()}) == 1):
            raise ValueError
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _not(path, "a result of tenancy simulate --format json") from None
    return course


def chargeback(path: Path, environment: str) -> Charged:
    """Read `tenancy chargeback --format json`."""
    found = _object(path, "tenancy chargeback ENV --format json", environment)
    try:
        return Charged(
            start=str(found["start"]),
            end=str(found["end"]),
            bill=_finite(found["bill"]),
            paid={str(each["tenant"]): _finite(each["dollars"]) for each in found["tenants"]},
            parts=_parts(found["lines"]),
            budgets=_budgets(found["budgets"]),
            used=_used(found["use"]),
            named=[f"{each['given']}: {each['effect']} (rule {each['rule']})" for each in found["named"]],
            course=_course(found["lines"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _not(path, "a result of tenancy chargeback --format json") from None


def _object(path: Path, how: str, environment: str) -> dict[str, Any]:
    try:
        found = json.loads(read_text_file(path))
    except OSError as error:
        raise Unreadable(
            f"given {path}; rule: a file that can be read ({error.strerror}); change: another path"
        ) from None
    except (ValueError, RecursionError):
        raise Unreadable(f"given {path}, which is not JSON; rule: the output of {how}; change: run it again") from None
    if not isinstance(found, dict) or "environment" not in found:
        raise _not(path, f"the output of {how}")
    if found["environment"] != environment:
        given = f"{path} of environment {str(found['environment'])[:60]!r}"
        raise Unreadable(f"given {given}; rule: a result for {environment}; change: run the command for {environment}")
    return found


def _not(path: Path, rule: str) -> Unreadable:
    return Unreadable(f"given {path}, with a missing field or number; rule: {rule}; change: run the command again")


def _finite(text: Any) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError
    return value


def _series(found: Mapping[str, Sequence[Any]]) -> dict[str, list[float]]:
    return {str(name): [_finite(value) for value in values] for name, values in found.items()}


def _parts(lines: Sequence[Mapping[str, str]]) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for line in lines:
        of = found.setdefault(line["tenant"], {})
        of[line["category"]] = of.get(line["category"], 0.0) + _finite(line["dollars"])
    return found


def _budgets(found: Sequence[Mapping[str, Any]]) -> dict[str, list[Budgeted]]:
    made: dict[str, list[Budgeted]] = {}
    for each in found:
        amounts = (_finite(each[key]) for key in ("budget", "dollars", "forecast"))
        marks = int(each["reached_percent"]), int(each["expected_percent"])
        made.setdefault(each["tenant"], []).append(Budgeted(str(each["period"]), *amounts, *marks))
    return made


def _used(found: Sequence[Mapping[str, Any]]) -> dict[str, Used]:
    made: dict[str, Used] = {}
    for each in found:
        name, known = each["tenant"], each["gpu_hours_used"] is not None
        before = made.get(name, Used(0.0, 0.0, None, None, 0.0))
        held, idle = before.held + _finite(each["gpu_hours_held"]), before.idle + _finite(each["gpu_hours_idle"])
        used = (before.used or 0.0) + _finite(each["gpu_hours_used"]) if known else before.used
        efficiency = 100 * used / held if used is not None and held else None
        made[name] = Used(held, idle, used, efficiency, before.idle_dollars + _finite(each["idle_dollars"]))
    return made


def _course(lines: Sequence[Mapping[str, str]]) -> Course | None:
    """Average GPUs held in each period; None for fewer than two periods."""
    periods = sorted({(line["start"], line["end"], line["period"]) for line in lines})
    if len(periods) < 2:
        return None
    hours = [
        (dt.datetime.fromisoformat(end) - dt.datetime.fromisoformat(start)).total_seconds() / 3600
        for start, end, _ in periods
    ]
    at = {name: number for number, (_, _, name) in enumerate(periods)}
    both: list[dict[str, list[float]]] = [{}, {}]
    for line in lines:
        if line["category"] in {"held", "borrowed"} and line["gpu_hours"] and not line["tenant"].startswith("("):
            number = at[line["period"]]
            for which, wanted in enumerate((True, line["category"] == "borrowed")):
                if wanted:
                    values = both[which].setdefault(line["tenant"], [0.0] * len(periods))
                    values[number] += _finite(line["gpu_hours"]) / hours[number]
    return Course(
        sum(hours), both[0], both[1], source=f"{len(periods)} periods of a chargeback; hours from {periods[0][0]}"
    )
