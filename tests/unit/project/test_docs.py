"""The hand-written pages: how long they are, the README's program, and facts that have one place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.reference import MARKER
from tenancy import planning
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import load
from tests.conftest import every
from tests.registered import Registered, run

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text("utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

GENERATED = frozenset(
    f"{name}.md" for name in "api claims controls dependencies exhaustive judged rules side-by-side spec".split()
)
MAX_WORDS = 45_000
"""Words of all hand-written pages together: those with a letter or digit, so no bars of tables. It only falls."""
MAX_README_LINES = 120
MAX_README_LINKS = 15
_BENCHMARK = re.compile(r"<!-- bench:(\w+):begin -->.*?<!-- bench:\1:end -->", re.DOTALL)
_LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)")


def hand_written(page: Path) -> str:
    """The text of a page without what a command writes into it."""
    if page.name in GENERATED:
        return ""
    return _BENCHMARK.sub("", page.read_text("utf-8").partition(MARKER)[0])


def code_blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def test_the_hand_written_pages_are_not_longer_than_a_reader_reads() -> None:
    words = {page: len(re.findall(r"\S*[A-Za-z0-9]\S*", hand_written(page))) for page in PAGES}
    assert len(words) > 30
    assert sum(words.values()) <= MAX_WORDS, sorted((count, page.name) for page, count in words.items())


def test_the_readme_fits_on_two_screens() -> None:
    assert len(README.splitlines()) <= MAX_README_LINES
    assert len(_LINK.findall(README)) <= MAX_README_LINKS


def test_the_readmes_program_makes_the_objects_that_the_readme_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = code_blocks(README, "python")
    registered = Registered()
    monkeypatch.chdir(ROOT)

    def readme() -> None:
        exec(compile(program, "README.md", "exec"), {})

    run(readme, registered, project="readme", preview=True)
    tenants = [urn for urn in registered.kubernetes() if ":GpuTenant" in registered.path(urn)]
    kinds = {registered.requests[urn].type.rpartition(":")[2].removesuffix("Patch") for urn in tenants}
    assert kinds == kinds_of_the_readme()


def kinds_of_the_readme() -> set[str]:
    """Kinds in the table of what the tenant's file becomes."""
    table = README.partition("| it becomes |")[2].partition("\n\n")[0]
    return {kind for row in table.splitlines()[2:] for kind in row.split("|")[1].strip().split(", ")}


def test_the_readmes_tenant_becomes_the_kinds_of_its_table() -> None:
    local = load(ROOT / "stacks" / "local")
    text = next(block for block in code_blocks(README, "yaml") if block.startswith("tenant:"))
    tenant = Tenant.model_validate(yaml.safe_load(text))
    others = [neighbour for neighbour in local.tenants if neighbour.tenant != tenant.tenant]
    planned = planning.plan(local.environment, [tenant, *others])
    objects: list[dict[str, Any]] = [
        item for plan in planned.tenants if plan.name == tenant.tenant for item in plan.objects()
    ]
    assert {item["kind"] for item in objects} == kinds_of_the_readme()
    assert f"{tenant.tenant}--main" in README


def test_the_number_of_attacks_stands_where_a_test_compares_it_with_the_command() -> None:
    summary = r"^(\d+) attacks: \1 refused by the expected control"
    (total,) = re.findall(summary, (ROOT / "docs" / "quickstart.md").read_text("utf-8"), re.MULTILINE)
    number = re.compile(rf"\b(?:{total}|{int(total):,})\b")
    assert [page.name for page in PAGES if number.search(hand_written(page))] == ["quickstart.md"]


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.+?)\s*$", page.read_text("utf-8"), re.MULTILINE)
    plain = [re.sub(r"\[([^]]+)\]\([^)]*\)", r"\1", heading).replace("`", "") for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_link_to_a_page_or_a_heading_has_a_target(page: Path) -> None:
    broken = []
    for path, anchor in _LINK.findall(hand_written(page)):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            broken.append(path)
        elif anchor and target.suffix == ".md" and anchor not in anchors(target):
            broken.append(f"{path}#{anchor}")
    assert broken == []


def test_links_are_looked_for() -> None:
    links = [link for page in PAGES for link in _LINK.findall(hand_written(page))]
    assert len(links) > 100
    assert every(path or anchor for path, anchor in links)


def test_the_glossary_explains_words_that_stand_on_other_pages() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text("utf-8")
    rows = re.findall(r"^\| (?!term \||word \||---)(.+?) \|", glossary, re.MULTILINE)
    terms = [term.rstrip("s") for row in rows for term in row.split(", ")]
    others = "\n".join(page.read_text("utf-8") for page in PAGES if page.name != "glossary.md").lower()
    assert len(terms) > 50
    assert [term for term in terms if term.lower() not in others] == []


CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
_FILE = re.compile(r"`((?:tenancy|tests|docs|judged)/[\w./-]*?)(?:::(test_\w+))?`")


def recipes() -> dict[str, str]:
    """Text of each recipe, by its title."""
    text = CONTRIBUTING.partition("## Ten recipes")[2].partition("\n## ")[0]
    return dict(re.findall(r"^### \d+\. (.+?)\n(.*?)(?=^### |\Z)", text, re.MULTILINE | re.DOTALL))


def test_there_are_ten_recipes_with_files_and_a_test() -> None:
    assert len(recipes()) == 10
    for title, text in recipes().items():
        (*files, (_, test)) = _FILE.findall(text)
        assert files, title
        assert test, title


def test_the_files_and_tests_that_contributing_names_exist() -> None:
    paths_and_tests = _FILE.findall(CONTRIBUTING)
    assert len(paths_and_tests) > 50
    assert [path for path, _ in paths_and_tests if not (ROOT / path).exists()] == []
    assert [
        test for path, test in paths_and_tests if test and f"def {test}(" not in (ROOT / path).read_text("utf-8")
    ] == []


@pytest.mark.parametrize("record", sorted((ROOT / "docs" / "adr").glob("0*.md")), ids=lambda path: path.stem)
def test_a_decision_has_its_reason_and_its_consequence_in_two_hundred_words(record: Path) -> None:
    text = record.read_text("utf-8")
    assert re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) == ["Decision", "Reason", "Consequence"]
    assert len(text.split()) <= 200
    assert f"]({record.name})" in (record.parent / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", sorted(GENERATED))
def test_a_generated_page_says_at_its_top_what_writes_it(name: str) -> None:
    top = " ".join((ROOT / "docs" / name).read_text("utf-8")[:500].split())
    assert re.search(r"(?:[Mm]ade|[Ww]ritten|[Gg]enerated) by|^# [^`]*`make judged` runs", top)
