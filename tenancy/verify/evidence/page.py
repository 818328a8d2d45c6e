"""The auditor's page, from the facts as they are in the bundle."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from tenancy.output.html import Tile, render

_COUNT_NAMES = ("attacks", "refused", "twins admitted", "gaps", "skipped")


def page(facts: Mapping[str, Any]) -> str:
    """The page as HTML; `facts` are the contents of the bundle's JSON files by name, without the suffix."""
    about, attacks = facts["about"], facts["attacks"]
    results = attacks["results"] if attacks else []
    groups = [_group(rule, rule_results) for rule, rule_results in _grouped_by(results, "rule")]
    counts = about["attacks"] or {}

    tiles = [
        Tile("tenants", str(len(about["tenants"]))),
        Tile("rules", str(len(facts["rules"]))),
        _tile("attacks refused", counts, "refused", total_name="attacks"),
        _tile("twins admitted", counts, "twins admitted", total_name="attacks"),
        _tile("gaps", counts, "gaps"),
        _tile("attacks skipped", counts, "skipped"),
        Tile("exceptions", str(len(facts["waivers"]))),
    ]
    attacked = {group["rule"]: group["counts"] for group in groups}
    return render(
        "evidence.html.j2",
        title=f"Evidence: {about['environment']}",
        about={**about, "made": _time(about["made"])},
        tiles=tiles,
        counted=_COUNT_NAMES,
        groups=groups,
        total=sum((group["counts"] for group in groups), Counter()),
        gaps=[
            {**result, "told": _responses(result)} for result in results if not result.get("skipped") and _gap(result)
        ],
        skipped=[result for result in results if result.get("skipped")],
        rules=[
            {**rule, "counts": attacked.get(rule["id"])} for rule in sorted(facts["rules"], key=lambda rule: rule["id"])
        ],
        titles={rule["id"]: rule["title"] for rule in facts["rules"]},
        attacks=attacks,
        approvals=[{**result, "time": _time(result["time"])} for result in facts["approvals"] or ()],
        facts=facts,
    )


def _tile(title: str, counts: Mapping[str, int], name: str, total_name: str = "") -> Tile:
    if not counts:
        return Tile(title, "–", "not run")
    return Tile(title, f"{counts[name]:,}", f"of {counts[total_name]:,}" if total_name else "")


def _group(rule: str, results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The attacks on one rule: their counts, by the control that must refuse them too."""
    results_run = [result for result in results if not result.get("skipped")]
    controls = [
        (control, _counts(control_results)) for control, control_results in _grouped_by(results, "expected_denier")
    ]
    return {
        "rule": rule,
        "counts": _counts(results),
        "controls": controls,
        "results": [{**result, "gap": _gap(result)} for result in results_run],
    }


def _counts(results: Iterable[Mapping[str, Any]]) -> Counter[str]:
    counts: Counter[str] = Counter(dict.fromkeys(_COUNT_NAMES, 0))
    for result in results:
        if result.get("skipped"):
            counts["skipped"] += 1
            continue
        counts["attacks"] += 1
        counts["refused"] += bool(result["refused"])
        counts["twins admitted"] += bool(result["twin_admitted"])
        counts["gaps"] += _gap(result)
    return counts


def _gap(result: Mapping[str, Any]) -> bool:
    return not (result["refused"] and result["twin_admitted"])


def _responses(result: Mapping[str, Any]) -> str:
    """Answers of the API server to the attack and to its twin, and contradictions of its audit log."""
    return "; ".join(result[name] for name in ("problem", "message", "twin_message") if result.get(name))


def _grouped_by(results: Iterable[Mapping[str, Any]], field: str) -> Iterable[tuple[str, Sequence[Mapping[str, Any]]]]:
    ordered = sorted(results, key=lambda result: str(result[field]))
    return [(name, list(group)) for name, group in groupby(ordered, key=lambda result: str(result[field]))]


def _time(text: str) -> str:
    """An ISO 8601 time with an offset, as UTC to the minute."""
    return f"{dt.datetime.fromisoformat(text).astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"
