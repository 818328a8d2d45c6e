"""Owners of namespaces over time: from the tenants' files, a table of namespaces, and labels of pods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

import polars as pl

from tenancy.chargeback.periods import union
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

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


def is_not_tenant(owner: str) -> bool:
    """Whether a payer is not a tenant."""
    return owner.startswith("(")


def known_tenants(tenants: Sequence[Tenant], *tables: pl.DataFrame | None) -> frozenset[str]:
    """Tenants that can be charged: those of the files and of the tables of observed usage. Names in tags and lines do
    not count, because they are written by hand."""
    observed_tenants = [table["tenant"].cast(pl.String).unique() for table in tables if table is not None]
    return frozenset({tenant.tenant for tenant in tenants}.union(*observed_tenants) - {""})


def claims(
    environment: Environment,
    tenants: Sequence[Tenant],
    allocations: pl.DataFrame,
    namespaces: pl.DataFrame | None,
    report_range: Span,
) -> Claims:
    """All claims to a namespace. A table of namespaces replaces the files, which have only today's state."""
    claims_by_namespace: Claims = {}
    if namespaces is None:
        for tenant in tenants:
            for part in tenant.namespaces:
                claims_by_namespace.setdefault(tenant.namespace_name(part), {})[tenant.tenant] = [report_range]
    else:
        for namespace, owner, start, end in namespaces.select("namespace", "tenant", "start", "end").iter_rows():
            claims_by_namespace.setdefault(namespace, {}).setdefault(owner, []).append((start, end))
    for namespace in environment.system_namespaces:
        claims_by_namespace.setdefault(namespace, {})[PLATFORM] = [report_range]
    labelled = (
        allocations.lazy()
        .filter(pl.col("tenant").cast(pl.String) != "")
        .select(pl.col("namespace", "tenant").cast(pl.String), "start", "end")
    )
    pairs = labelled.group_by("namespace", "tenant").agg(pl.col("start").min(), pl.col("end").max()).collect()
    odd = {
        namespace
        for namespace, owner, start, end in pairs.iter_rows()
        if not _covered(claims_by_namespace.get(namespace, {}).get(owner, []), start, end)
    }
    spans = labelled.filter(pl.col("namespace").is_in(list(odd))).unique().collect()
    for namespace, owner, start, end in spans.iter_rows():
        claims_by_namespace.setdefault(namespace, {}).setdefault(owner, []).append((start, end))
    return {
        name: {owner: union(owner_spans) for owner, owner_spans in spans_by_owner.items()}
        for name, spans_by_owner in claims_by_namespace.items()
    }


def owners(allocations: pl.DataFrame, claims_by_namespace: Claims, report_range: Span) -> pl.DataFrame:
    """The rows with their `owner`, split where it changes."""
    namespaces = allocations["namespace"].cast(pl.String).unique().sort().to_list()
    owner_by_namespace = {
        name: owner for name in namespaces if (owner := _single_owner(claims_by_namespace.get(name, {}), report_range))
    }
    rows = allocations.with_columns(pl.col("namespace").cast(pl.String))
    rows_of_single_owners = rows.filter(pl.col("namespace").is_in(list(owner_by_namespace))).with_columns(
        owner=pl.col("namespace").replace_strict(owner_by_namespace, return_dtype=pl.String)
    )
    shared_namespaces = [name for name in namespaces if name not in owner_by_namespace]
    if not shared_namespaces:
        return rows_of_single_owners
    parts = [
        (name, owner, start, end)
        for name in shared_namespaces
        for owner, start, end in timeline(claims_by_namespace.get(name, {}), report_range)
    ]
    owner_intervals = pl.DataFrame(
        parts, {"namespace": pl.String, "owner": pl.String, "from": pl.Int64, "to": pl.Int64}, orient="row"
    )
    split_rows = (
        rows.join(owner_intervals, on="namespace")
        .with_columns(pl.max_horizontal("start", "from").alias("start"), pl.min_horizontal("end", "to").alias("end"))
        .filter(pl.col("start") < pl.col("end"))
        .select(rows_of_single_owners.columns)
    )
    return pl.concat([rows_of_single_owners, split_rows])


def timeline(spans_by_owner: Mapping[str, Sequence[Span]], report_range: Span) -> list[tuple[str, int, int]]:
    """The owner of a namespace in each interval of the range."""
    borders = sorted(
        {
            *report_range,
            *(
                min(max(mark, report_range[0]), report_range[1])
                for owner_spans in spans_by_owner.values()
                for span in owner_spans
                for mark in span
            ),
        }
    )
    intervals = []
    for start, end in pairwise(borders):
        owner_names = [
            name for name, owner_spans in spans_by_owner.items() if any(a <= start and end <= b for a, b in owner_spans)
        ]
        owner = disputed(owner_names) if len(owner_names) > 1 else owner_names[0] if owner_names else NO_TENANT
        if intervals and intervals[-1][0] == owner:
            intervals[-1] = (owner, intervals[-1][1], end)
        else:
            intervals.append((owner, start, end))
    return intervals


def _single_owner(spans_by_owner: Mapping[str, Sequence[Span]], report_range: Span) -> str:
    if not spans_by_owner:
        return NO_TENANT
    (owner, owner_spans), *other_claims = spans_by_owner.items()
    return owner if not other_claims and _covered(owner_spans, *report_range) else ""


def _covered(spans: Sequence[Span], start: int, end: int) -> bool:
    return any(a <= start and end <= b for a, b in spans)
