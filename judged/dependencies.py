"""Direct dependencies with version and reason: `python -m judged.dependencies` writes docs/dependencies.md.

The reasons are the comments of pyproject.toml, the versions those of requirements/lock.txt and newest.txt.
"""

from __future__ import annotations

import datetime as dt
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from judged import ages
from judged.homes import ROOT
from judged.licences import plain

PAGE = ROOT / "docs" / "dependencies.md"
BUILD, PRODUCT = "build", "product"
PURPOSES: Mapping[str, str] = {
    PRODUCT: "Installed with the product",
    "lab": "Extra `lab`",
    "evidence": "Extra `evidence`",
    "cost": "Extra `cost`",
    "dev": "For tests and development alone",
    BUILD: "For building the wheel",
}

_LINE = re.compile(r'"(?P<need>[^"]+)"\s*[\],]*\s*(?:#\s*(?P<reason>.+))?$')
_PIN = re.compile(r"^(?P<name>[\w.-]+)(?:\[[\w,-]+\])?==(?P<version>[^\s;\\]+)", re.M)
_CALENDAR = re.compile(r"^(?P<year>20\d\d)\.(?P<month>1[0-2]|0?[1-9])(?:\.(?P<day>3[01]|[12]\d|0?[1-9]))?(?:\.|$)")
_EPOCH = re.compile(r"^(?P<seconds>1\d{9})!")


class NoReason(Exception):
    """A dependency without a reason."""


@dataclass(frozen=True, slots=True)
class Dependency:
    """`purpose` is a key of `PURPOSES`; `needs` the requirement as pyproject.toml has it."""

    name: str
    purpose: str
    needs: str
    reason: str


def direct(text: str) -> Sequence[Dependency]:
    """Dependencies of a pyproject.toml in its order. Raises NoReason with the names of those without a comment."""
    read = tomllib.loads(text)
    project = read["project"]
    requirements_by_purpose = {
        BUILD: read["build-system"]["requires"],
        PRODUCT: project["dependencies"],
        **project.get("optional-dependencies", {}),
    }
    reasons = {
        match["need"]: (match["reason"] or "").strip()
        for line in text.splitlines()
        if (match := _requirement_match(line))
    }
    dependencies = [
        Dependency(plain(re.split(r"[^\w.-]", need)[0]), purpose, need, reasons.get(need, ""))
        for purpose, needs in requirements_by_purpose.items()
        for need in needs
    ]
    if without_reason := [dependency.name for dependency in dependencies if not dependency.reason]:
        raise NoReason(
            f"given pyproject.toml: {', '.join(without_reason)} without a reason; rule: each direct dependency "
            "has one, as a "
            "comment on its line; change: write what it is used for, or remove it"
        )
    return dependencies


def _requirement_match(line: str) -> re.Match[str] | None:
    return _LINE.search(line)


def versions(lock: str) -> Mapping[str, str]:
    """Version of each package of a lock file, by its name."""
    return {plain(match["name"]): match["version"] for match in _PIN.finditer(lock)}


def release_date(name: str, version: str) -> str:
    """Day of the release as the package index told it; or that in the version, if it is a date; or else empty."""
    if recorded_date := ages.release_date(name, version):
        return recorded_date
    if match := _EPOCH.match(version):
        return dt.datetime.fromtimestamp(int(match["seconds"]), dt.UTC).date().isoformat()
    if match := _CALENDAR.match(version):
        # A third number may be a count of releases in the month.
        return f"{match['year']}-{int(match['month']):02}"
    return ""


def page() -> str:
    """The page in Markdown."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    locked, newest = (
        versions((ROOT / "requirements" / name).read_text("utf-8")) for name in ("lock.txt", "newest.txt")
    )
    dependencies = direct((ROOT / "pyproject.toml").read_text("utf-8"))
    yield "# Dependencies\n"
    yield "Written by `python -m judged.dependencies` (part of `make docs`) from the comments of `pyproject.toml` and"
    yield "the lock files. *Locked* is the version that the tests run with, in `requirements/lock.txt`; *newest* is the"
    yield "newest allowed version at the time of `make lock`, in `requirements/newest.txt` (`make test-newest`).\n"
    yield "*Released* is the day on which the locked version was uploaded, as the package index told it on"
    yield (
        f"{ages.recorded_dates()[0]} (`judged/released.yaml`, which `make lock` writes): lock files have no "
        "dates. The judges"
    )
    yield "of `make judged` are not dependencies of the product: their versions are on [their page](judged.md).\n"
    yield f"The lock file has {len(locked)} packages, the direct ones below and what they need; `make sbom` lists those"
    yield "that users install, with their licences."
    for purpose, title in PURPOSES.items():
        yield f"\n## {title}\n"
        yield "| package | allowed | locked | newest | released | reason |"
        yield "|---|---|---|---|---|---|"
        for dependency in dependencies:
            if dependency.purpose == purpose:
                allowed = re.sub(r"^[\w.-]+(\[[^]]*\])?", "", dependency.needs)
                version = locked[dependency.name]
                cells = (
                    dependency.name,
                    f"`{allowed}`",
                    version,
                    newest.get(dependency.name, "–"),
                    release_date(dependency.name, version) or "–",
                    dependency.reason,
                )
                yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
