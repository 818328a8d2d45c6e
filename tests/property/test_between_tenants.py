"""The linear checks across tenants against the obvious slow ones."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.catalog.days import today
from tenancy.spec.checks.crossfile import check_between_tenants, check_with_environment
from tenancy.spec.fields.data import Access
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant
from tests.conftest import examples

PREFIXES = st.lists(st.sampled_from(["a", "b", "ab"]), min_size=1, max_size=3).map(lambda parts: "/".join(parts) + "/")
GRANTS = st.lists(
    st.fixed_dictionaries(
        {"bucket": st.sampled_from(["x", "y"]), "prefix": PREFIXES, "access": st.sampled_from(list(Access))}
    ),
    max_size=3,
)


def _tenant(index: int, **fields: Any) -> Tenant:
    name = f"t{index}"
    owner = {"name": name, "mail": f"{name}@bank.example"}
    base = {"tenant": name, "team": name, "owner": owner, "department": "risk", "cost-center": "C", "tier": "gold"}
    return Tenant.model_validate({**base, **fields})


@settings(max_examples=examples(300))
@given(st.lists(GRANTS, max_size=5))
def test_prefixes_overlap_exactly_when_some_pair_does(grants: list[list[dict[str, Any]]]) -> None:
    tenants = [_tenant(i, storage=tenant_grants) for i, tenant_grants in enumerate(grants)]
    overlaps = any(
        first_grant.overlaps(second_grant) and not (first_grant.access is second_grant.access is Access.READ_ONLY)
        for first_tenant, second_tenant in combinations(tenants, 2)
        for first_grant in first_tenant.storage
        for second_grant in second_tenant.storage
    )
    assert bool(list(check_between_tenants(tenants))) == overlaps


def _environment(pools: dict[str, tuple[int, tuple[str, ...]]]) -> Environment:
    return Environment.model_validate(
        {
            "environment": "e",
            "organisation": {"name": "o", "departments": {"risk": {}}},
            "platform": {"group": "p"},
            "cluster": {"name": "c", "context": "c"},
            "images": {"registries": ["r/"], "sample": "r/s:1"},
            "tiers": {"gold": {"priority": 1}},
            "flavors": {"t4": {"gpu": "t4"}},
            "pools": {
                name: {"instance-type": "g4dn.12xlarge", "nodes": nodes}
                | ({"tenants": list(tenants)} if tenants else {})
                for name, (nodes, tenants) in pools.items()
            },
        }
    )


def _can_be_kept(pools: dict[str, tuple[int, tuple[str, ...]]], claims: dict[str, int]) -> bool:
    """By subsets of tenants: what they claim fits into all pools that any of them may use."""
    for size in range(1, len(claims) + 1):
        for subset in combinations(claims, size):
            usable = [nodes for nodes, tenants in pools.values() if not tenants or set(tenants) & set(subset)]
            if sum(claims[t] for t in subset) > 4 * sum(usable):
                return False
    return True


@settings(max_examples=examples(300))
@given(
    pools=st.dictionaries(
        st.sampled_from(["p", "q", "r"]),
        st.tuples(st.integers(0, 3), st.sets(st.sampled_from(["t0", "t1", "t2"])).map(lambda s: tuple(sorted(s)))),
        min_size=1,
    ),
    counts=st.tuples(*[st.integers(0, 12)] * 3),
)
def test_guarantees_are_refused_exactly_when_they_cannot_all_be_kept(
    pools: dict[str, tuple[int, tuple[str, ...]]], counts: tuple[int, int, int]
) -> None:
    tenants = [_tenant(i, gpus={"t4": {"guaranteed": n}} if n else {}) for i, n in enumerate(counts)]
    refused = [
        m for _, m in check_with_environment(_environment(pools), tenants, today()) if m.id in {"pool-01", "pool-03"}
    ]
    claims = {t.tenant: n for t, n in zip(tenants, counts, strict=True) if n}
    assert (not refused) == _can_be_kept(pools, claims)
