"""Owners of namespaces over time: from the tenants' files, a table of namespaces, and labels of pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import polars as pl

from tenancy.chargeback.periods import union
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant

PLATFORM = "(platform)"
NO_TENANT = "(no tenant)"
NO_DATA = "(no data)"
UNKNOWN = "(unknown device)"
"""Payers that are not tenants: a tenant's name has no bracket."""

Span = tuple[int, int]
Claims = dict[str, dict[str, list[Span]]]
"""Namespace -> tenant -> when."""


def disputed(tenants: Sequence[str]) -> str:
    """Name of the payer where several tenants claim a namespace."""
    return f"(disputed: {', '.join(sorted(tenants))})"


def named(owner: str) -> bool:
    """Whether a payer is not a tenant."""
    return owner.startswith("(")


def known(tenants: Sequence[Tenant], *tables: pl.DataFrame | None) -> frozenset[str]:
    """Tenants that can be charged: those of the files and of the tables of observed usage. Names in tags and lines do
    not count, because they are written by hand."""
    seen = [table["tenant"].cast(pl.String).unique() for table in tables if table is not None]
    return frozenset({tenant.tenant for tenant in tenants}.union(*seen) - {""})


def claims(
    environment: Environment,
    tenants: Sequence[Tenant],
    allocations: pl.DataFrame,
    namespaces: pl.DataFrame | None,
    whole: Span,
) -> Claims:
    """All claims to a namespace. A table of namespaces replaces the files, which have only today's state."""
    found: Claims = {}
    if namespaces is None:
        for tenant in tenants:
            for part in tenant.namespaces:
                found.setdefault(tenant.namespace_name(part), {})[tenant.tenant] = [whole]
    else:
        for namespace, owner, start, end in namespaces.select("namespace", "tenant", "start", "end").iter_rows():
            found.setdefault(namespace, {}).setdefault(owner, []).append((start, end))
    for namespace in environment.system_namespaces:
        found.setdefault(namespace, {})[PLATFORM] = [whole]
    labelled = (
        allocations.lazy()
        .filter(pl.col("tenant").cast(pl.String) != "")
        .select(pl.col("namespace", "tenant").cast(pl.String), "start", "end")
    )
    pairs = labelled.group_by("namespace", "tenant").agg(pl.col("start").min(), pl.col("end").max()).collect()
    odd = {
        namespace
        for namespace, owner, start, end in pairs.iter_rows()
        if not _covered(found.get(namespace, {}).get(owner, []), start, end)
    }
    spans = labelled.filter(pl.col("namespace").is_in(list(odd))).unique().collect()
    for namespace, owner, start, end in spans.iter_rows():
        found.setdefault(namespace, {}).setdefault(owner, []).append((start, end))
    return {name: {who: union(when) for who, when in of.items()} for name, of in found.items()}


def owners(allocations: pl.DataFrame, found: Claims, whole: Span) -> pl.DataFrame:
    """The rows with their `owner`, split where it changes."""
    seen = allocations["namespace"].cast(pl.String).unique().sort().to_list()
    settled = {name: owner for name in seen if (owner := _settled(found.get(name, {}), whole))}
    rows = allocations.with_columns(pl.col("namespace").cast(pl.String))
    first = rows.filter(pl.col("namespace").is_in(list(settled))).with_columns(
        owner=pl.col("namespace").replace_strict(settled, return_dtype=pl.String)
    )
    rest = [name for name in seen if name not in settled]
    if not rest:
        return first
    parts = [(name, owner, start, end) for name in rest for owner, start, end in timeline(found.get(name, {}), whole)]
    told = pl.DataFrame(
        parts, {"namespace": pl.String, "owner": pl.String, "from": pl.Int64, "to": pl.Int64}, orient="row"
    )
    cut = (
        rows.join(told, on="namespace")
        .with_columns(pl.max_horizontal("start", "from").alias("start"), pl.min_horizontal("end", "to").alias("end"))
        .filter(pl.col("start") < pl.col("end"))
        .select(first.columns)
    )
    return pl.concat([first, cut])


def timeline(claimed: Mapping[str, Sequence[Span]], whole: Span) -> list[tuple[str, int, int]]:
    """The owner of a namespace in each interval of the range."""
    marks = sorted({*whole, *(min(max(mark, whole[0]), whole[1]) for of in claimed.values() for s in of for mark in s)})
    found = []
    for start, end in pairwise(marks):
        who = [name for name, of in claimed.items() if any(a <= start and end <= b for a, b in of)]
        owner = disputed(who) if len(who) > 1 else who[0] if who else NO_TENANT
        if found and found[-1][0] == owner:
            found[-1] = (owner, found[-1][1], end)
        else:
            found.append((owner, start, end))
    return found


def _settled(claimed: Mapping[str, Sequence[Span]], whole: Span) -> str:
    if not claimed:
        return NO_TENANT
    (owner, when), *others = claimed.items()
    return owner if not others and _covered(when, *whole) else ""


def _covered(spans: Sequence[Span], start: int, end: int) -> bool:
    return any(a <= start and end <= b for a, b in spans)
