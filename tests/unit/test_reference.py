"""Generated reference pages: the committed ones are what the generator writes, and it leaves nothing out."""

from __future__ import annotations

from types import SimpleNamespace

import click
import pytest
import yaml

from scripts import reference
from tenancy.cli import COMMANDS

WRITTEN = (reference.DOCS / "commands.md").read_text("utf-8")
OVERVIEW, _, REFERENCE = WRITTEN.partition(reference.MARKER)


def test_the_page_of_the_commands_is_the_generated_one() -> None:
    assert reference.commands_page(WRITTEN) == WRITTEN, "run `make docs`, or python -m scripts.reference"


def test_the_page_of_the_api_is_the_generated_one() -> None:
    written = (reference.DOCS / "api.md").read_text("utf-8")
    assert written == reference.api_page(), "run `make docs`, or python -m scripts.reference"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_and_the_reference_have_every_command(name: str) -> None:
    assert name in {"rules", "schema", "claims", "report"} or f"`tenancy {name}" in OVERVIEW
    assert f"\n### {name}\n" in REFERENCE


def test_a_page_without_the_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="without a marker"):
        reference.commands_page("# Commands\n")


def test_an_option_has_a_row_with_its_values_its_default_and_its_range() -> None:
    kind = click.IntRange(min=1, max=9)
    given = click.Option(["--rows"], type=kind, default=3, show_default=True, help="Number of rows.")
    form = click.Option(["--format", "form"], type=click.Choice(["text", "json"]), help="Format. Default: text.")
    out = click.Option(["--out"], metavar="FILE", required=True, help="File to write.")
    row = reference._row
    assert row(given) == "| `--rows INTEGER RANGE` | 3 | Number of rows. 1 to 9. |"
    assert row(form) == r"| `--format text\|json` | text | Format. |"
    assert row(out) == "| `--out FILE` | required | File to write. |"
    assert row(click.Option(["--lab"], is_flag=True, help="Use the lab.")) == "| `--lab` | off | Use the lab. |"


def test_each_exported_class_and_function_is_on_the_api_page(monkeypatch: pytest.MonkeyPatch) -> None:
    from tenancy.validation import SpecError, load

    names = {"SpecError": SpecError, "load": load, "__version__": "0.1.0"}
    package = SimpleNamespace(__name__="tenancy", __all__=[*names], **names)
    monkeypatch.setattr(reference, "tenancy", package)
    page = reference.api_page()
    assert f"## tenancy.load\n\n::: {load.__module__}.load" in page
    assert f"## tenancy.SpecError\n\n::: {SpecError.__module__}.SpecError" in page
    assert "__version__" not in page, "a constant is in no need of a section"


def test_each_page_is_in_one_section_of_the_site() -> None:
    sections = yaml.safe_load((reference.DOCS.parent / "mkdocs.yml").read_text("utf-8"))["nav"]
    titles = [title for section in sections for title in section]
    assert titles == ["Start", "Tutorials", "How-to", "Reference", "Concepts", "Operations", "Evidence"]
    listed = [page for section in sections for pages in section.values() for each in pages for page in each.values()]
    assert sorted(listed) == sorted(path.name for path in reference.DOCS.glob("*.md"))
