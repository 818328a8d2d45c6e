"""The pages: they make no request, contain everything, show a tenant only its own, and say what they do not know."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tenancy.report import inputs
from tenancy.report.facts import facts
from tenancy.report.inputs import ChargebackSummary, UnreadableInput, UsageTimeline
from tenancy.report.page import Pages
from tenancy.rules.catalogue import RULES
from tenancy.simulation.results import Results
from tenancy.spec.loader import Loaded, load
from tests.browser import CHROMIUM, POLICY, opened
from tests.conftest import SpecFolder, every, nonempty
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[3]
BANK = ROOT / "stacks/bank"
HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&"


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return load(BANK)


@pytest.fixture(scope="module")
def plain(bank: Loaded) -> Pages:
    return Pages(bank)


@pytest.fixture(scope="module")
def pages_with_results(bank: Loaded, tmp_path_factory: pytest.TempPathFactory) -> Pages:
    """With a simulation and a chargeback of every tenant."""
    folder = tmp_path_factory.mktemp("told")
    names = [tenant.tenant for tenant in bank.tenants]
    course, summary = read(folder, simulated(names), charged_back(names))
    return Pages(bank, course, summary)


def read(folder: Path, run: Any, bill: Any) -> tuple[UsageTimeline, ChargebackSummary]:
    for name, value in (("run.json", run), ("bill.json", bill)):
        (folder / name).write_text(json.dumps(value), "utf-8")
    return inputs.read_simulation(folder / "run.json", "bank"), inputs.read_chargeback(folder / "bill.json", "bank")


def simulated(names: list[str], **more: Any) -> dict[str, Any]:
    use = {name: [float(number % 7)] * 96 for number, name in enumerate(names, 1)}
    run = {"hours": 24, "jobs": 100, "capacity": 660.0, "fairness": [0.5] * 96, "use": use, "borrowing": use}
    return {"environment": "bank", "before": run, **more}


def charged_back(names: list[str], **more: Any) -> dict[str, Any]:
    day = {"start": "2026-10-01T00:00:00Z", "end": "2026-11-01T00:00:00Z", "period": "2026-10"}
    paid = [(name, 1000.0 * number) for number, name in enumerate([*names, "(no data)"], 1)]
    lines = [{**day, "tenant": n, "category": "held", "dollars": str(d), "gpu_hours": "10"} for n, d in paid]
    budgets = [
        {"period": "2026-10", "tenant": n, "budget": 5000, "dollars": str(d), "forecast": str(2 * d)}
        | {"reached_percent": 50, "expected_percent": 100}
        for n, d in paid[:-1]
    ]
    use = [
        {"tenant": n, "gpu_hours_held": 100.0, "gpu_hours_idle": 20.0, "gpu_hours_used": used, "idle_dollars": "7"}
        for (n, _), used in zip(paid[:-1], [None, *[50.0] * len(paid)], strict=False)
    ]
    return {
        "environment": "bank",
        **{key: day[key] for key in ("start", "end")},
        "bill": str(sum(d for _, d in paid)),
        "tenants": [{"tenant": n, "dollars": str(d)} for n, d in paid],
        "lines": lines,
        "budgets": budgets,
        "use": use,
        "named": [{"rule": "bill-04", "given": "no data for an hour", "effect": "it is in no line"}],
        **more,
    }


class Text(HTMLParser):
    """Text that a reader sees or points at, and whether the tags match."""

    VOID = frozenset({"meta", "br", "input", "line", "img"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.rows = 0
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.rows += tag == "tr"
        self.words += [value for name, value in attrs if value and name in {"title", "aria-label"}]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.words += [value for name, value in attrs if value and name in {"title", "aria-label"}]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def every_page(pages: Pages) -> list[str]:
    return [pages.environment(), *(pages.tenant(tenant.tenant) for tenant in pages.loaded.tenants)]


def test_a_page_makes_no_request_and_runs_nothing(plain: Pages, pages_with_results: Pages) -> None:
    for page in (*every_page(plain), *every_page(pages_with_results)):
        parsed = Text(page)
        assert parsed.open == [], "every tag is closed"
        assert not parsed.tags & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
        assert POLICY in page
        assert "src" not in parsed.attributes
        assert not {name for name in parsed.attributes if name.startswith("on")}
        assert set(re.findall(r'href="(.)', page)) == {"#"}, "links lead to parts of the page alone"
        assert not re.search(r"https?://|@import|url\(", page)


def test_a_page_is_light_or_dark_as_the_reader_is_and_can_be_printed(plain: Pages) -> None:
    page = plain.environment()
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page


def test_the_same_files_in_any_order_make_the_same_page(bank: Loaded, pages_with_results: Pages) -> None:
    turned = replace(bank, tenants=bank.tenants[::-1])
    again = Pages(turned, pages_with_results.timeline, pages_with_results.chargeback_summary)
    assert again.environment() == pages_with_results.environment()
    assert again.tenant("fraud") == pages_with_results.tenant("fraud")


def test_the_matrix_has_a_cell_with_rule_and_proof_for_every_pair_and_plane(plain: Pages) -> None:
    names = [tenant.tenant for tenant in plain.loaded.tenants]
    cells = re.findall(r'title="([^"]+?) → ([^"]+?): [^"]+; rules ([^;"]+); ([^"]+)"', plain.environment())
    assert len(cells) == len(names) * (len(names) - 1) * len(plain.planes)
    assert {(row, column) for row, column, _, _ in cells} == {(a, b) for a in names for b in names if a != b}
    assert {rule for *_, rules, _ in cells for rule in rules.split(", ")} <= set(RULES)


def test_the_environments_page_names_every_tenant_and_pool(plain: Pages, bank: Loaded) -> None:
    page_text = Text(plain.environment()).text
    assert every(tenant.tenant in page_text for tenant in bank.tenants)
    assert every(pool in page_text for pool in bank.environment.pools)


@pytest.mark.parametrize("which", ["plain", "pages_with_results"])
def test_a_tenants_page_names_no_other_tenant(which: str, bank: Loaded, request: pytest.FixtureRequest) -> None:
    pages: Pages = request.getfixturevalue(which)
    for tenant in nonempty(bank.tenants):
        page_text = Text(pages.tenant(tenant.tenant)).text
        others = [candidate for candidate in bank.tenants if candidate is not tenant]
        # `quant-research` is a tenant and `research` a department: names are whole words, dashes included.
        tenant_words = {*re.findall(r"[\w.-]+", tenant.model_dump_json())}
        foreign_words = {
            word
            for foreign_tenant in others
            for word in (
                foreign_tenant.tenant,
                foreign_tenant.title,
                foreign_tenant.cost_center,
                foreign_tenant.owner.mail,
            )
            if word
        }
        leaked = {
            word
            for word in foreign_words - tenant_words
            if re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", page_text)
        }
        assert leaked == set(), f"on the page of {tenant.tenant}"


def test_a_tenants_page_has_the_tenants_own_money_alone(pages_with_results: Pages) -> None:
    paid = pages_with_results.chargeback_summary.paid if pages_with_results.chargeback_summary else {}
    page_text = Text(pages_with_results.tenant("fraud")).text
    assert f"${paid['fraud']:,.0f}" in page_text
    assert f"${paid['nlp']:,.0f}" not in page_text
    assert "no data for an hour" not in page_text, "what the whole bill lacks is the platform's to say"


def test_what_is_not_known_is_left_out_with_a_sentence(plain: Pages) -> None:
    for page in nonempty(every_page(plain)):
        page_text = Text(page).text
        assert "GPUs in use over time are not shown: no result was given." in page_text
        assert "Actual costs are not shown: no result was given." in page_text


def test_what_is_given_takes_the_place_of_the_sentence(pages_with_results: Pages) -> None:
    page = pages_with_results.environment()
    assert "not shown" not in Text(page).text
    assert page.count("<svg") == 3, "in use, borrowed, how evenly"
    assert "Nothing was measured of aml" in Text(page).text
    assert "no data for an hour" in Text(page).text


def test_a_guarantee_costs_its_part_of_the_nodes(spec: SpecFolder) -> None:
    spec.add("environment.yaml", "prices: {l4: 0.80, a100-40gb: 2.50}\n")
    member = facts(spec.load()).member("fraud")
    amounts = {(place.pool, place.flavor): place.monthly for place in member.places}
    assert amounts["train", "a100"] == 16 * 2_500_000 * 730
    assert amounts["serve", "a100-1g.5gb"] == 14 * 2_500_000 * 730 // 7, "seven slices fill a board, and pay for it"


def test_a_pool_without_a_price_is_named_and_in_no_number(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    sentence = "Pool train has no known price: its cost is not included."
    assert sentence not in Text(Pages(loaded).environment()).text
    # This pool's price is unknown, as that of a spot pool without a discount.
    monkeypatch.setattr(
        "tenancy.planning.aws.prices.node_price", lambda _, name, *__: None if name == "train" else 1_000_000
    )
    pages = Pages(loaded)
    assert pages.facts.member("fraud").unpriced == ("train",)
    assert sentence in Text(pages.environment()).text
    assert sentence in Text(pages.tenant("fraud")).text


@pytest.mark.parametrize("field", ["title", "purpose"])
def test_what_people_write_is_text_and_no_markup(spec: SpecFolder, field: str) -> None:
    old = {"title": "title: Fraud Detection", "purpose": "purpose: nightly retraining"}[field]
    spec.edit("tenants/fraud.yaml", old, f"{field}: {json.dumps(HOSTILE)}")
    pages = Pages(spec.load())
    for page in (pages.environment(), pages.tenant("fraud")):
        parsed = Text(page)
        assert not parsed.tags & {"script", "img"}
        assert field == "purpose" or HOSTILE in parsed.text


def test_names_in_a_result_are_text_and_no_markup(bank: Loaded, tmp_path: Path) -> None:
    course, summary = read(tmp_path, simulated([HOSTILE, "fraud"]), charged_back([HOSTILE, "fraud"]))
    parsed = Text(Pages(bank, course, summary).environment())
    assert not parsed.tags & {"script", "img"}
    assert HOSTILE in parsed.text


def test_one_tenant_has_no_other_to_be_kept_apart_from(loaded: Loaded) -> None:
    pages = Pages(replace(loaded, tenants=loaded.tenants[:1]))
    assert "The environment has one tenant only." in pages.environment()
    assert "The environment has one tenant only." in pages.tenant("fraud")


def test_of_many_tenants_only_pairs_with_something_to_say_are_listed(
    plain: Pages, bank: Loaded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tenancy.report.isolation.MAX_TENANTS", len(bank.tenants) - 1)
    page = plain.environment()
    assert "198 of 210 pairs are closed or shared" in Text(page).text
    assert 'class="mx"' not in page


# What is given


@pytest.mark.parametrize(
    ("kind", "text", "message"),
    [
        ("simulation", None, "a file that can be read"),
        ("simulation", "{", "which is not JSON"),
        ("simulation", "[]", "output of tenancy simulate ENV --format json"),
        ("simulation", '{"environment": "other"}', "of environment 'other'"),
        ("simulation", '{"environment": "bank", "before": {"hours": 0}}', "a result of tenancy simulate"),
        ("simulation", json.dumps(simulated([])), "a result of tenancy simulate"),
        ("chargeback", '{"environment": "bank"}', "a result of tenancy chargeback"),
        ("chargeback", json.dumps(charged_back(["fraud"], bill="NaN")), "a result of tenancy chargeback"),
        ("chargeback", json.dumps(charged_back(["fraud"], lines=[1])), "a result of tenancy chargeback"),
    ],
)
def test_a_file_that_is_something_else_is_named(tmp_path: Path, kind: str, text: str | None, message: str) -> None:
    path = tmp_path / "given.json"
    if text is not None:
        path.write_text(text, "utf-8")
    with pytest.raises(UnreadableInput, match=re.escape(message)) as error:
        getattr(inputs, f"read_{kind}")(path, "bank")
    assert str(path) in str(error.value)


def test_a_chargeback_of_several_periods_has_a_course(tmp_path: Path) -> None:
    days = [
        {"start": f"2026-10-0{n}T00:00:00Z", "end": f"2026-10-0{n + 1}T00:00:00Z", "period": f"2026-10-0{n}"}
        | {"tenant": "fraud", "category": category, "dollars": "1", "gpu_hours": hours}
        for n, category, hours in ((1, "held", "48"), (2, "held", "24"), (2, "borrowed", "12"), (2, "idle", "99"))
    ]
    path = tmp_path / "bill.json"
    path.write_text(json.dumps(charged_back(["fraud"], lines=days)), "utf-8")
    course = inputs.read_chargeback(path, "bank").timeline
    assert course is not None
    assert (course.hours, dict(course.in_use), dict(course.borrowed)) == (48, {"fraud": [2, 1.5]}, {"fraud": [0, 0.5]})


def test_a_chargeback_of_one_period_has_none(tmp_path: Path) -> None:
    path = tmp_path / "bill.json"
    path.write_text(json.dumps(charged_back(["fraud"])), "utf-8")
    assert inputs.read_chargeback(path, "bank").timeline is None


def test_a_simulation_has_what_a_page_reads_of_it() -> None:
    assert set(simulated(["fraud"])["before"]) <= {field.name for field in dataclasses.fields(Results)}


# In a browser


@pytest.mark.exhaustive(
    reason="opens every page in a browser; that a page makes no request is read from its source in `make test`"
)
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
class TestInABrowser:
    @pytest.mark.parametrize("width", [1280, 500])
    def test_it_asks_for_nothing_complains_of_nothing_and_fits(
        self, pages_with_results: Pages, tmp_path: Path, width: int
    ) -> None:
        for number, page in enumerate((pages_with_results.environment(), pages_with_results.tenant("fraud"))):
            (tmp_path / str(number)).mkdir()
            opened_page = opened(page, tmp_path / str(number), width)
            assert (opened_page["asked"], opened_page["console"]) == ([], [])
            assert opened_page["wide"] <= opened_page["seen"], "nothing is cut off to the right"
            assert opened_page["planes"] == 1, "one plane at a time"

    def test_a_page_that_asks_and_complains_is_caught(self, plain: Pages, tmp_path: Path) -> None:
        bad = '<img src="http://127.0.0.1:9/x.png"><script>console.error("no")</script><header>'
        opened_page = opened(plain.environment().replace("<header>", bad), tmp_path, 1280)
        assert opened_page["asked"] == ["http://127.0.0.1:9/x.png"]
        assert any("no" in line for line in opened_page["console"])

    def test_paper_has_every_plane(self, plain: Pages, tmp_path: Path) -> None:
        assert CHROMIUM is not None
        path = tmp_path / "page.html"
        path.write_text(plain.environment(), "utf-8")
        argv = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        argv += ["--host-resolver-rules=MAP * ~NOTFOUND", f"--print-to-pdf={tmp_path / 'page.pdf'}", path.as_uri()]
        subprocess.run(argv, capture_output=True, timeout=PATIENCE, check=True)
        count = len(re.findall(rb"/Type\s*/Page\b", (tmp_path / "page.pdf").read_bytes()))
        assert count > len(plain.planes), "a plane is a sheet or part of one, and tables come beside"
