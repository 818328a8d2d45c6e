"""The auditor's page: what held each attack, counts that add up, links that lead somewhere, no empty table."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.browser import CHROMIUM, POLICY, opened
from tests.conftest import every
from tests.evidence_maker import REFUSED, Maker

GUARD = "ValidatingAdmissionPolicy/tenancy-pods:"
ATTACKS = [
    {**REFUSED, "expected_denier": f"{GUARD}gpu-02", "denier": f"{GUARD}gpu-02"},
    {**REFUSED, "id": "gpu-02-sidecar", "expected_denier": f"{GUARD}gpu-02", "denier": f"{GUARD}gpu-02"},
    {
        **REFUSED,
        "id": "rbac-read",
        "attack": "read a secret",
        "rule": "rbac",
        "expected_denier": "RBAC",
        "denier": "RBAC",
    },
    {
        **REFUSED,
        "id": "gpu-03-through",
        "attack": "name a device",
        "rule": "gpu-03",
        "expected_denier": f"{GUARD}gpu-03",
        "denier": "none",
        "status": 201,
        "refused": False,
    },
    {
        **REFUSED,
        "id": "net-02-twin",
        "attack": "allow all egress",
        "rule": "net-02",
        "twin_admitted": False,
        "twin_message": "the quota is used up",
    },
    {**REFUSED, "id": "gpu-10", "rule": "gpu-10", "expected_denier": "", "skipped": "no namespace has such GPUs"},
]
"""Three attacks that two controls held, one that no control refused, a twin that was not admitted, one skipped."""


class Read(HTMLParser):
    """Anchors, links, and tables as rows of texts, of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.sections: dict[str, list[list[list[str]]]] = {}
        self._section, self._in_cell = "", False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = dict(attrs)
        if name := attributes.get("id"):
            self.ids.append(name)
        if tag == "h2":
            self._section = str(attributes["id"])
            self.sections[self._section] = []
        if tag == "a" and (href := attributes.get("href")):
            self.links.append(href)
        if tag == "table":
            self.sections[self._section].append([])
        if tag == "tr":
            self.sections[self._section][-1].append([])
        if tag in ("td", "th"):
            self.sections[self._section][-1][-1].append("")
            self._in_cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.sections[self._section][-1][-1][-1] += data.strip("\n")


def read(maker: Maker) -> Read:
    return Read((maker.folder / "bundle" / "page.html").read_text("utf-8"))


@pytest.fixture
def maker(tmp_path: Path, spec: Any) -> Maker:
    maker = Maker(tmp_path, spec.path)
    maker.attacks.write_text(json.dumps(ATTACKS), "utf-8")
    return maker


def test_the_control_that_held_each_attack_is_named_beside_it(maker: Maker) -> None:
    maker.make()
    rows = [row for table in read(maker).sections["attacks"][1:] for row in table[1:]]
    assert {(row[0], row[2]) for row in rows} == {
        ("gpu-02-pod", f"{GUARD}gpu-02"),
        ("gpu-02-sidecar", f"{GUARD}gpu-02"),
        ("rbac-read", "RBAC"),
        ("gpu-03-through", "no control"),
        ("net-02-twin", "ValidatingAdmissionPolicy"),
    }


def test_the_counts_of_the_controls_add_up_to_those_of_the_bundle(maker: Maker) -> None:
    maker.make()
    head, *rows, total = read(maker).sections["attacks"][0]
    names = head[2:]
    assert names == ["attacks", "refused", "twins admitted", "gaps", "skipped"]
    for column, name in enumerate(names, 2):
        assert sum(int(row[column]) for row in rows) == int(total[column]) == maker.read("about.json")["attacks"][name]
    assert [row[:2] for row in rows][:3] == [
        ["gpu-02", f"{GUARD}gpu-02"],
        ["gpu-03", f"{GUARD}gpu-03"],
        ["gpu-10", "– (not run)"],
    ]


def test_each_gap_is_listed_with_what_refused_it_and_what_was_said(maker: Maker) -> None:
    maker.make()
    ((_, *gaps),) = read(maker).sections["gaps"]
    assert [[re.sub(r"\s+", "", cell) for cell in row] for row in gaps] == [
        ["gpu-03-throughnameadevice", "gpu-03", f"expected:{GUARD}gpu-03refusedby:nocontrol,status201", "admitted", ""],
        [
            "net-02-twinallowallegress",
            "net-02",
            "expected:ValidatingAdmissionPolicyrefusedby:ValidatingAdmissionPolicy,status422",
            "notadmitted",
            "thequotaisusedup",
        ],
    ]
    maker.attacks.write_text(json.dumps([REFUSED]), "utf-8")
    maker.make("whole")
    page_text = (maker.folder / "whole" / "page.html").read_text("utf-8")
    assert Read(page_text).sections["gaps"] == []
    assert "None: the named control refused each attack" in page_text


def test_each_skipped_attack_has_its_reason(maker: Maker) -> None:
    maker.make()
    ((_, *rows),) = read(maker).sections["skipped"]
    assert [(row[0], row[3]) for row in rows] == [("gpu-10", "no namespace has such GPUs")]


def test_a_rule_says_how_many_of_its_attacks_were_refused_or_that_it_was_not_attacked(maker: Maker) -> None:
    maker.make()
    ((_, *rows),) = read(maker).sections["rules"]
    coverage = {row[0]: row[5] for row in rows}
    assert list(coverage) == sorted(rule["id"] for rule in maker.read("rules.json"))
    assert [coverage[rule] for rule in ("gpu-02", "gpu-03", "gpu-10", "name-01")] == [
        "2 of 2",
        "0 of 1",
        "skipped",
        "not attacked",
    ]


def test_every_link_leads_to_a_place_of_the_page(maker: Maker) -> None:
    maker.make()
    page = read(maker)
    assert len(page.links) > 100
    assert [link for link in page.links if link.removeprefix("#") not in page.ids] == []
    assert len(page.ids) == len(set(page.ids))


@pytest.mark.parametrize("attacks", [ATTACKS, [REFUSED]], ids=["with gaps and skipped ones", "all refused"])
def test_no_table_of_the_page_is_empty(maker: Maker, attacks: list[Any]) -> None:
    maker.attacks.write_text(json.dumps(attacks), "utf-8")
    maker.make()
    tables = [table for tables in read(maker).sections.values() for table in tables]
    assert every(len(table) > 1 for table in tables)


def test_every_time_of_the_page_is_utc_to_the_minute(maker: Maker) -> None:
    maker.make()
    page = (maker.folder / "bundle" / "page.html").read_text("utf-8")
    assert "Made 2026-09-21 14:13 UTC" in page
    assert re.findall(r"\d\d:\d\d:\d\d", page) == []


def test_the_browser_is_told_to_load_nothing(maker: Maker) -> None:
    maker.make()
    assert POLICY in (maker.folder / "bundle" / "page.html").read_text("utf-8")


@pytest.mark.exhaustive(
    reason="opens the page in a browser; its links and counts are read from its source in `make test`"
)
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
@pytest.mark.parametrize("width", [1200, 500])
def test_in_a_browser_the_page_asks_for_nothing_and_fits(maker: Maker, width: int) -> None:
    maker.make()
    page = (maker.folder / "bundle" / "page.html").read_text("utf-8")
    measures = opened(page, maker.folder, width)
    assert (measures["asked"], measures["console"]) == ([], [])
    assert measures["wide"] <= measures["seen"], "nothing is cut off to the right"
