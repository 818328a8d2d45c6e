"""Pages come from templates that escape every value; text tables show every character of every cell."""

from __future__ import annotations

import ast
import datetime as dt
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace

import jinja2
import pytest

from tenancy.catalog.text import pluralize
from tenancy.output import charts, html
from tenancy.output.tables import NARROWEST, WIDTH, Table, as_text
from tests.conftest import every

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "tenancy"
TEMPLATES = PACKAGE / "output/templates"
HOSTILE = "<img src=x onerror=alert(1)>\"'&</style><script>"

TAG = re.compile(
    r"</?(?:a|b|body|br|circle|code|div|figure|footer|h[1-6]|head|header|html|i|img|input|label|li|line|link|meta|nav|p|"
    r"path|rect|script|section|small|span|strong|style|svg|t(?:able|body|d|ext(?=\s)|foot|h|head|itle|r)|ul)(?:\s[^<>]*)?/?>"
)
"""A tag of HTML or SVG; `<details>` in a comment on a pull request is Markdown."""


# Templates


def test_every_template_escapes_values_and_refuses_missing_ones() -> None:
    environment = html.templates()
    assert environment.autoescape is True, "for every template, whatever its name"
    assert environment.undefined is jinja2.StrictUndefined
    names = environment.list_templates()
    assert {name for name in names if name.endswith(".html.j2")} == {path.name for path in TEMPLATES.glob("*.j2")}
    for name in names:
        environment.get_template(name)


def test_no_template_turns_escaping_off() -> None:
    texts = {path.name: path.read_text("utf-8") for path in TEMPLATES.glob("*.j2")}
    assert texts
    assert [name for name, text in texts.items() if re.search(r"\|\s*safe\b|autoescape|Markup", text)] == []


def test_a_value_is_text_in_an_element_an_attribute_and_a_chart() -> None:
    text = html.templates().from_string(
        '{% import "charts.html.j2" as charts %}{% import "parts.html.j2" as parts %}'
        "{{ charts.legend({name: name}) }}{{ parts.tiles([tile]) }}{{ charts.chart(chart) }}"
    )
    label = SimpleNamespace(shape="label", x=1, y=1, text=HOSTILE, anchor="start", style=HOSTILE)
    area = SimpleNamespace(shape="path", filled=True, data="M0,0", colour=HOSTILE, title=HOSTILE)
    chart = SimpleNamespace(width=1, height=1, title=HOSTILE, shapes=[label, area])
    page = text.render(name=HOSTILE, tile=html.Tile(HOSTILE, HOSTILE, HOSTILE), chart=chart)
    parsed = _Tags(page)
    assert parsed.tags <= {"div", "span", "i", "b", "small", "svg", "text", "path", "title"}
    assert not any(name.startswith("on") for name in parsed.attributes), "no value ends its attribute"
    assert parsed.texts.count(HOSTILE) == 6


class _Tags(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_template_syntax_in_a_value_is_text() -> None:
    page = html.render("mail.html.j2", title="{{ 7 * 7 }}", lead="{% raw %}", tables=[], missing=[HOSTILE])
    assert "<h1>{{ 7 * 7 }}</h1>\n<p>{% raw %}</p>" in page
    assert "<img" not in page


def test_a_missing_value_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        html.render("mail.html.j2", title="", lead="", tables=[])


# Modules


def _modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))


def _tags(tree: ast.AST) -> list[str]:
    """Tags in the strings of a module, but for its docstrings."""
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
        if isinstance(node, ast.JoinedStr)
        else node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.JoinedStr | ast.Constant) and id(node) not in prose
    ]
    return [match[0] for text in texts if isinstance(text, str) for match in TAG.finditer(text)]


def test_only_templates_write_tags() -> None:
    assert {file: tags for file, tree in _modules() if (tags := _tags(tree))} == {}


@pytest.mark.parametrize("text", ['f"<b>{name}</b>"', 'f"<td class={kind}>"', '"<p>" + name', '"<svg {}>".format(x)'])
def test_a_tag_in_a_module_would_be_found(text: str) -> None:
    assert _tags(ast.parse(f"page = {text}"))


def test_no_module_escapes_by_hand() -> None:
    names = [
        (file, alias.name)
        for file, tree in _modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
        if {alias.name.partition(".")[0], getattr(node, "module", None)} & {"html", "markupsafe"}
    ]
    assert names == []


def test_a_page_needs_no_template_engine_until_it_is_written() -> None:
    code = (
        "import sys; from tenancy.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    for words in (["--help"], ["report", "--help"], ["report", "capacity", "local", "--format", "json"]):
        argv = [sys.executable, "-c", code, *words]
        process = subprocess.run(argv, check=True, capture_output=True, text=True, cwd=ROOT)
        assert {"jinja2", "markupsafe", "rich"}.isdisjoint(process.stderr.split()), words


def test_the_wheel_has_the_templates() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["packages"] == ["tenancy"], "every file of the package, whatever its name"
    assert not wheel.keys() - {"packages", "force-include"}
    ignored = (ROOT / ".gitignore").read_text("utf-8").split()
    assert [name for name in ("style.css", "page.html.j2") if any(map(Path(name).match, ignored))] == []


# Tables


def _lines(*rows: tuple[object, ...], header: tuple[str, ...] = ("name", "what")) -> list[str]:
    return as_text(Table("t", header, rows)).splitlines()


@pytest.mark.parametrize("text", ["[red]x[/red]", "[/]", ":warning:", "\\[x]", "a" * 90, "名前"])
def test_a_cell_is_shown_as_it_is(text: str) -> None:
    for row in ((text, "x"), ("x", text)):
        assert text in _lines(row)[2]


def test_a_cell_moves_no_cursor_and_makes_no_line() -> None:
    text = "a\x1b[2Jb\u202ec"
    escaped = "a\\x1b[2Jb\\u202ec"
    assert as_text(Table(text, ("name",), [(text,)], [text])).splitlines() == [
        f"{escaped}:",
        "name",
        escaped,
        f"- {escaped}",
    ]


def test_a_word_that_is_wider_than_its_column_is_folded_and_not_cut() -> None:
    path = "/".join(["folder"] * 20)
    _, *rows = _lines(("n" * 150, f"see {path} there"))[1:]
    assert rows[0] == f"{'n' * 150}  see"
    assert {row[:152] for row in rows[1:]} == {" " * 152}
    assert "".join(row[152:] for row in rows[1:]).startswith(path)
    assert max(map(len, rows)) == 152 + NARROWEST


def test_a_path_to_copy_is_not_folded() -> None:
    path = "/".join(["folder"] * 20)
    assert as_text(Table("", ("tool", "path"), [("kueue", path)]), fold=False).splitlines()[1] == f"kueue  {path}"


def test_the_last_column_keeps_a_minimum_width() -> None:
    rows = _lines(("n" * WIDTH, "word " * 10))[2:]
    assert max(len(row) for row in rows) <= WIDTH + 2 + NARROWEST
    assert every(row[: WIDTH + 2].strip() in {"", "n" * WIDTH} for row in rows)


def test_output_that_is_no_terminal_has_no_colour_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table("t", ("name", "n"), [("a", 1)], ["remark " * 30])
    plain = as_text(table)
    for name, value in {"FORCE_COLOR": "1", "COLUMNS": "40", "TTY_COMPATIBLE": "1", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    assert as_text(table) == plain
    assert plain.isascii()
    assert "\x1b" not in plain


def test_a_terminal_has_a_bold_header_and_its_own_width(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"COLUMNS": "40", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    text = as_text(Table("t", ("name", "what"), [("a", "word " * 20)]), terminal=True)
    assert text.startswith("\x1b[1mt:\x1b[0m")
    assert max(len(re.sub(r"\x1b\[\d+m", "", line)) for line in text.splitlines()) <= 40


def test_numbers_that_are_texts_are_aligned_like_numbers() -> None:
    table = Table("t", ("name", "dollars"), [("a", "7.00"), ("b", "1,000.00")], numbers=frozenset({1}))
    assert as_text(table).splitlines()[1:] == ["name   dollars", "a         7.00", "b     1,000.00"]


def test_a_table_without_columns_has_its_remarks() -> None:
    assert as_text(Table("Notes", (), (), ["one", "two"])) == "Notes:\n- one\n- two"


# Time axes


def _on_axis(chart: charts.Chart) -> list[str]:
    return [shape.text for shape in chart.shapes if isinstance(shape, charts.Label) and shape.anchor == "middle"]


@pytest.mark.parametrize(
    ("hours", "labels"),
    [
        (168, ["Mon 23 Nov", "Tue 24 Nov", "Wed 25 Nov", "Thu 26 Nov", "Fri 27 Nov", "Sat 28 Nov", "Sun 29 Nov"]),
        (24, ["Mon 23 Nov", "03:00", "06:00", "09:00", "12:00", "15:00", "18:00", "21:00"]),
        (48, ["Mon 23 Nov", "06:00", "12:00", "18:00", "Tue 24 Nov", "06:00", "12:00", "18:00"]),
    ],
)
def test_a_chart_that_begins_on_a_day_names_its_days(hours: int, labels: list[str]) -> None:
    begin = dt.datetime(2026, 11, 23, tzinfo=dt.UTC)
    chart = charts.stacked({"fraud": [1.0]}, {"fraud": "#000"}, 8, hours, None, "title", begin)
    assert [
        shape.text for shape in chart.shapes if isinstance(shape, charts.Label) and shape.anchor == "middle"
    ] == labels
    without = charts.stacked({"fraud": [1.0]}, {"fraud": "#000"}, 8, hours, None, "title")
    hourly = [shape.text for shape in without.shapes if isinstance(shape, charts.Label) and shape.anchor == "middle"]
    assert hourly[0] == "0 h"
    assert hourly[-1] == f"{hours} h"


@pytest.mark.parametrize(("count", "expected"), [(0, "0 tenants"), (1, "1 tenant"), (2, "2 tenants")])
def test_a_number_has_its_noun_in_the_right_form(count: int, expected: str) -> None:
    assert pluralize(count, "tenant") == expected
