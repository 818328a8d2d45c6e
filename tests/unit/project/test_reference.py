"""Generated reference pages: the committed ones are what the generator writes, and it leaves nothing out."""

from __future__ import annotations

import click
import pytest
import yaml

from scripts import api_page, reference
from tenancy.cli import COMMANDS

COMMANDS_PAGE = (reference.DOCS / "commands.md").read_text("utf-8")
API = api_page.page()
OVERVIEW, _, REFERENCE = COMMANDS_PAGE.partition(reference.MARKER)


def test_the_page_of_the_commands_is_the_generated_one() -> None:
    assert reference.commands_page(COMMANDS_PAGE) == COMMANDS_PAGE, "run `make docs`, or python -m scripts.reference"


def test_the_page_of_the_api_is_the_generated_one() -> None:
    api_page = (reference.DOCS / "api.md").read_text("utf-8")
    assert api_page == API, "run `make docs`, or python -m scripts.reference"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_and_the_reference_have_every_command(name: str) -> None:
    assert name in {"rules", "schema", "claims", "report"} or f"`tenancy {name}" in OVERVIEW
    assert f"\n### {name}\n" in REFERENCE


def test_a_page_without_the_marker_is_refused() -> None:
    with pytest.raises(ValueError, match="without a marker"):
        reference.commands_page("# Commands\n")


def test_an_option_has_a_row_with_its_values_its_default_and_its_range() -> None:
    kind = click.IntRange(min=1, max=9)
    option = click.Option(["--rows"], type=kind, default=3, show_default=True, help="Number of rows.")
    form = click.Option(["--format", "form"], type=click.Choice(["text", "json"]), help="Format. Default: text.")
    out = click.Option(["--out"], metavar="FILE", required=True, help="File to write.")
    row = reference._row
    assert row(option) == "| `--rows INTEGER RANGE` | 3 | Number of rows. 1 to 9. |"
    assert row(form) == r"| `--format text\|json` | text | Format. |"
    assert row(out) == "| `--out FILE` | required | File to write. |"
    assert row(click.Option(["--lab"], is_flag=True, help="Use the lab.")) == "| `--lab` | off | Use the lab. |"


@pytest.mark.parametrize(("name", "value"), [*api_page.exports()])
def test_each_exported_class_and_function_is_on_the_api_page_with_its_docstring(name: str, value: object) -> None:
    section = API.partition(f"\n## tenancy.{name}\n")[2].partition("\n## ")[0]
    [first, *_] = (value.__doc__ or "").strip().split("\n\n")
    assert " ".join(first.split()) in section
    assert ":::" not in section


def test_the_api_page_has_signature_arguments_errors_fields_and_values() -> None:
    assert "\nGpuTenant(\n    name: str,\n    environment: EnvironmentInput | None = None,\n" in API
    assert "\n- `name`: Logical name, unique in the stack; without `tenant`, the tenant's name too.\n" in API
    assert "\nRaises:\n\n- `SpecError`: with every problem of the environment and its tenants.\n" in API
    assert "\n| `kubernetes` | `str` | `'1.36'` | Minor version of Kubernetes" in API
    assert "\n| `suspend` | its pods are deleted" in API
    assert "\n| `namespaces` | `pulumi.Output[dict[str, str]]` | Name on the cluster by name in the tenant" in API
    assert "load(name: str | os.PathLike[str], root: Path | None = None, day: dt.date | None = None) -> Loaded" in API
    assert "## tenancy.__version__" not in API, "a constant needs no section"


def test_each_page_is_in_one_section_of_the_site() -> None:
    sections = yaml.safe_load((reference.DOCS.parent / "mkdocs.yml").read_text("utf-8"))["nav"]
    titles = [title for section in sections for title in section]
    assert titles == ["Start", "Tutorials", "How-to", "Reference", "Concepts", "Operations", "Evidence", "Decisions"]
    section_pages = [
        page for section in sections for pages in section.values() for entry in pages for page in entry.values()
    ]
    assert sorted(section_pages) == sorted(
        str(path.relative_to(reference.DOCS)) for path in reference.DOCS.rglob("*.md")
    )
