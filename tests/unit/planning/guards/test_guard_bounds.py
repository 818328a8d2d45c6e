"""No guard walks over a list or map that its asker made as long as they liked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tenancy.catalog import sizes
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.planning.guards import guard_objects
from tenancy.planning.guards.admission_policy import Guard
from tenancy.planning.guards.bounds import LISTS_OF_PLATFORM, too_many, with_bounds
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import load
from tests.claims import by_claim

ROOT = Path(__file__).parents[4]
WALK = re.compile(r"\.(?:all|exists|exists_one|filter|map)\(\w+,")
BOUND = re.compile(rf"\[size\(.+\) <= (\d+) \? \"\" : \"{re.escape(too_many(0)).replace('0', '[0-9]+')}\"\]$")
CONSTANT = re.compile(r"(?:\[(?:[\"'][^\"']*[\"'],? ?)*\]|\{(?:[\"'][^\"']*[\"']: [\"'][^\"']*[\"'],? ?)*\})$")
OF_PLATFORM = re.compile(rf"(?:request\.userInfo\.groups|\.split\(','\)|variables\.(?:{'|'.join(LISTS_OF_PLATFORM)}))$")


def expressions(environment: Environment) -> Iterator[tuple[str, str]]:
    for item in guard_objects(environment):
        if item["kind"] == "ValidatingAdmissionPolicy":
            spec = item["spec"]
            for part in (*spec["matchConditions"], *spec.get("variables", ()), *spec["validations"]):
                yield item["metadata"]["name"], part["expression"]


@pytest.fixture(scope="module", params=["plugin", "claims", "kinds"])
def environment(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    if request.param == "claims":
        return by_claim(tmp_path_factory.mktemp("claims") / "small").load().environment
    environment = load(ROOT / "stacks" / "local").environment
    if request.param == "plugin":
        return environment
    queues = environment.queues.model_copy(update={"kinds": tuple(FRAMEWORKS)})
    return environment.model_copy(update={"queues": queues})


def unbounded(text: str) -> Iterator[str]:
    """Walks over lists without a bound before them."""
    for walk in WALK.finditer(text):
        if not _is_bounded(text[: walk.start()]):
            yield text[: walk.end()][-160:]


def _is_bounded(before: str) -> bool:
    if any(sort.search(before) for sort in (BOUND, CONSTANT, OF_PLATFORM)):
        return True
    if before.endswith("]"):
        # A list that is written out has as many entries as that; one after a name is an index.
        # An optional index is `?[`, without a space between, as is a choice's `? [`.
        return not re.search(r"[\w?)\]]$", before[: _opening(before, "[]")])
    if not before.endswith(")"):
        return False
    begin = _opening(before)
    # What a walk leaves of something is no longer than that was.
    if re.search(r"\.(?:filter|map)$", before[:begin]):
        return True
    return not re.search(r"\w$", before[:begin]) and _is_bounded(before[begin + 1 : -1])


def _opening(before: str, pair: str = "()") -> int:
    """Position of the parenthesis that the last character closes; none stands in the guards' own texts."""
    depth, (opens, closes) = 0, pair
    for at in range(len(before) - 1, -1, -1):
        depth += {closes: 1, opens: -1}.get(before[at], 0)
        if depth == 0:
            return at
    raise AssertionError(before)


def test_no_guard_walks_over_anything_without_a_bound(environment: Environment) -> None:
    assert {(name, walk) for name, text in expressions(environment) for walk in unbounded(text)} == set()


def test_there_are_walks_to_bound(environment: Environment) -> None:
    assert sum(len(WALK.findall(text)) for _, text in expressions(environment)) > 100


def test_every_bound_is_one_of_two(environment: Environment) -> None:
    bounds = {
        int(bound) for _, text in expressions(environment) for bound in re.findall(r"\) <= (\d+) \? \"\" :", text)
    }
    assert bounds == {sizes.WALKED, sizes.WALKED_OF_PLATFORM}


@pytest.mark.parametrize(
    ("expression", "bounded_expression"),
    [
        ("a.b.all(k, k != '')", "{0}.all(k, k != '')"),
        ("!a.exists(k, ['x)'].exists(p, k == p))", "!{0}.exists(k, ['x)'].exists(p, k == p))"),
        ("(has(a.b) ? a.b : []).filter(k, true)", "{0}.filter(k, true)"),
        ("size(a.filter(k, k != 'b').map(k, k))", "size({0}.filter(k, k != 'b').map(k, k))"),
        ("variables.allowedQueues.all(q, q == '')", "variables.allowedQueues.all(q, q == '')"),
        ("dyn(a).?b.orValue([]).all(k, true)", "{0}.all(k, true)"),
    ],
)
def test_a_bound_stands_before_the_walk_and_changes_nothing_else(expression: str, bounded_expression: str) -> None:
    (bounded,) = with_bounds(Guard("g", [], {"r": expression}, {}, {}), 5).rules.values()
    part = re.match(r"[!]?(?:size\()?(.*?)\.(?:all|exists|filter)\([kq]", expression)
    assert part
    what = part[1]
    within = f'{{"": {what}}}[size({what}) <= 5 ? "" : "{too_many(5)}"]'
    assert bounded == bounded_expression.replace("{0}", within)


def test_of_a_walk_within_what_another_walks_over_both_are_bounded() -> None:
    (bounded,) = with_bounds(
        Guard("g", [], {"r": "(a.map(x, x.y) + b).all(k, k.c.all(z, z))"}, {}, {}), 5
    ).rules.values()
    assert list(unbounded(bounded)) == []
    assert bounded.count("size(a)") == 2, "the sum is named twice"
    assert bounded.count("size(k.c)") == 1


def test_a_spec_of_the_largest_size_leaves_room_in_etcd_for_controllers() -> None:
    """JSON writes a byte as six at the most, and binary storage as one."""
    largest = 6 * (sizes.SPEC + sizes.METADATA)
    assert sizes.ETCD_REQUEST - largest >= 384 * sizes.KIB
