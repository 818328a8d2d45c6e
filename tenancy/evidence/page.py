"""The auditor's page, from the facts as they are in the bundle."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from tenancy.output.html import Tile, render

_COUNTED = ("attacks", "refused", "twins admitted", "gaps", "skipped")


def page(facts: Mapping[str, Any]) -> str:
    """The page as HTML; `facts` are the contents of the bundle's JSON files by name, without the suffix."""
    about, attacks = facts["about"], facts["attacks"]
    results = attacks["results"] if attacks else []
    groups = [_group(rule, some) for rule, some in _by(results, "rule")]
    counts = about["attacks"] or {}

    tiles = [
        Tile("tenants", str(len(about["tenants"]))),
        Tile("rules", str(len(facts["rules"]))),
        _tile("attacks refused", counts, "refused", of="attacks"),
        _tile("twins admitted", counts, "twins admitted", of="attacks"),
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
        counted=_COUNTED,
        groups=groups,
        total=sum((group["counts"] for group in groups), Counter()),
        gaps=[{**one, "told": _told(one)} for one in results if not one.get("skipped") and _gap(one)],
        skipped=[one for one in results if one.get("skipped")],
        rules=[
            {**rule, "counts": attacked.get(rule["id"])} for rule in sorted(facts["rules"], key=lambda rule: rule["id"])
        ],
        titles={rule["id"]: rule["title"] for rule in facts["rules"]},
        attacks=attacks,
        approvals=[{**one, "time": _time(one["time"])} for one in facts["approvals"] or ()],
        facts=facts,
    )


def _tile(title: str, counts: Mapping[str, int], name: str, of: str = "") -> Tile:
    if not counts:
        return Tile(title, "–", "not run")
    return Tile(title, f"{counts[name]:,}", f"of {counts[of]:,}" if of else "")


def _group(rule: str, results: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The attacks on one rule: their counts, by the control that must refuse them too."""
    run = [one for one in results if not one.get("skipped")]
    controls = [(control, _counts(some)) for control, some in _by(results, "expected_denier")]
    return {
        "rule": rule,
        "counts": _counts(results),
        "controls": controls,
        "results": [{**one, "gap": _gap(one)} for one in run],
    }


def _counts(results: Iterable[Mapping[str, Any]]) -> Counter[str]:
    found: Counter[str] = Counter(dict.fromkeys(_COUNTED, 0))
    for one in results:
        if one.get("skipped"):
            found["skipped"] += 1
            continue
        found["attacks"] += 1
        found["refused"] += bool(one["refused"])
        found["twins admitted"] += bool(one["twin_admitted"])
        found["gaps"] += _gap(one)
    return found


def _gap(result: Mapping[str, Any]) -> bool:
    return not (result["refused"] and result["twin_admitted"])


def _told(result: Mapping[str, Any]) -> str:
    """What the API server said to the attack and to its twin, and where its audit log contradicts."""
    return "; ".join(result[name] for name in ("problem", "message", "twin_message") if result.get(name))


def _by(results: Iterable[Mapping[str, Any]], field: str) -> Iterable[tuple[str, Sequence[Mapping[str, Any]]]]:
    ordered = sorted(results, key=lambda one: str(one[field]))
    return [(name, list(some)) for name, some in groupby(ordered, key=lambda one: str(one[field]))]


def _time(text: str) -> str:
    """An ISO 8601 time with an offset, as UTC to the minute."""
    return f"{dt.datetime.fromisoformat(text).astimezone(dt.UTC):%Y-%m-%d %H:%M} UTC"
