"""Whatever is done to manifests, they are judged or told of by their place: no damage ends a run."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml
from check_cases import CASES as CHECK_CASES
from pack_cases import CASES as PACK_CASES

from tenancy.check import outputs
from tenancy.check.judge import judge
from tenancy.check.reader import read, read_text

Object = dict[str, Any]
FOREIGN = Path(__file__).parents[1] / "foreign"
RUNS, SEEDS = 60, max(10, int(os.environ.get("FUZZ_RUNS", "0")) // 60)
_VALUES: tuple[Any, ...] = (
    *(None, True, 0, -1, 1e308, float("inf"), float("nan"), 10**40),
    *("", "x", "*", "1e400", "a" * 300, "a=b,ns-03=9999-99-99"),
    *([], {}, [[]], [None], ["x"], [-1], [{}], {"x": None}, {"x": []}, [{"x": 1}], {"key": {}, "operator": []}),
)


@pytest.fixture(scope="module")
def worlds() -> list[list[Object]]:
    """Objects that rules have something to say of together: all that a case has, and folders of others."""
    cases = [[*case.broken] for case in (*PACK_CASES, *CHECK_CASES) if ":" not in case.broken[-1]["kind"]]
    files: dict[str, list[Object]] = {}
    for item, place in read([str(FOREIGN)]).objects:
        files.setdefault(place.file, []).append(dict(item))
    return [*cases, *files.values()]


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from _places(item, (*path, key))


def _damaged(objects: list[Object], random: Random) -> list[Object]:
    objects = copy.deepcopy(objects)
    for _ in range(random.choice([1, 1, 2, 4])):
        item = random.choice(objects)
        path = random.choice([*_places(item)])
        place: Any = item
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = copy.deepcopy(random.choice(_VALUES))
    return objects


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_damage_ends_a_run_and_what_is_not_judged_has_its_place(worlds: list[list[Object]], seed: int) -> None:
    random = Random(seed)
    judged = unread = 0
    for _ in range(RUNS):
        objects = random.choice(worlds) + random.choice(worlds)
        text = yaml.safe_dump_all(_damaged(objects, random))
        verdict = judge(read_text("x.yaml", text))
        for form in (outputs.text(verdict), outputs.junit(verdict), outputs.sarif(verdict, "0")):
            form.encode()
        assert outputs.as_json(verdict)
        assert [
            unjudged
            for unjudged in verdict.unread
            if not (unjudged.given and unjudged.place.file == "x.yaml" and unjudged.place.line)
        ] == []
        judged += len(verdict.objects)
        unread += len(verdict.unread)
    assert judged > RUNS
    assert unread > 0
