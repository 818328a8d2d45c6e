"""HTML pages from the templates of this package: one file each, with all text escaped."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined


class Tile(NamedTuple):
    """A number of a page's summary, with its name and a remark."""

    name: str
    value: str
    remark: str = ""


@cache
def templates() -> Environment:
    """The templates of all pages. Values are escaped in all of them, and a missing value is an error."""
    environment = Environment(
        loader=PackageLoader("tenancy.output"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["pixels"] = lambda value: f"{value:.1f}"
    environment.filters["percent"] = lambda value: f"{value:.2f}%"
    return environment


def render(template: str, **values: Any) -> str:
    """The page of a template; raises jinja2.UndefinedError if the template needs a value that is not given."""
    return templates().get_template(template).render(values)
