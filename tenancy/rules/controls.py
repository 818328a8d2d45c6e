"""Controls of others' frameworks and the rules that hold them: controls.yaml as objects, and both directions of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tenancy.rules.catalogue import RULES
from tenancy.rules.faces import faces_of
from tenancy.rules.model import Face

FILE = Path(__file__).parent / "controls.yaml"

_PROOFS: Mapping[Face, str] = {
    Face.ATTACK: "tenancy verify ENV",
    Face.PREVIEW: "tenancy check PATH",
    Face.SPEC: "tenancy validate ENV",
    Face.AWS: "tenancy render ENV",
    Face.API_SERVER: "tenancy claims ENV",
}
"""The command that shows a rule, by face; the first one counts."""
_ELSEWHERE = "tenancy up ENV"
"""Shows a rule without a face: it is checked before a cluster is changed."""


@dataclass(frozen=True, slots=True)
class FrameworkControl:
    """One control. What is empty does not apply; at least one of the last five fields is not empty."""

    framework: str
    id: str
    asks: str
    """The demand, in our words."""
    level: str
    """MUST or SHOULD where the framework distinguishes them, else empty."""
    rules: Sequence[str]
    """Ids of the rules that hold it."""
    shown: str
    """A command or the path of a test that shows it apart from rules."""
    hardware: str
    """The proof, or the rest of it, on a cluster with real nodes."""
    missing: str
    """The part that is not there yet, and why."""
    others: str
    """The party whose control it is, if it is not a tenancy layer's."""

    @property
    def proofs(self) -> Sequence[str]:
        """Commands and tests that show it without hardware, each once."""
        proofs = [_proof(rule) for rule in self.rules]
        return tuple(dict.fromkeys([*proofs, self.shown] if self.shown else proofs))

    @property
    def status(self) -> str:
        """`proven`, `partly proven`, `needs hardware`, `not there yet` or `not ours`."""
        if self.proofs:
            return "partly proven" if self.missing or self.hardware else "proven"
        return "not there yet" if self.missing else "needs hardware" if self.hardware else "not ours"


@dataclass(frozen=True, slots=True)
class ControlFramework:
    """A list of controls, with the source of their ids and the day on which they were compared."""

    id: str
    title: str
    source: str
    date: str
    controls: Sequence[FrameworkControl]


@cache
def frameworks() -> tuple[ControlFramework, ...]:
    """Every framework. Raises ValueError for a pattern without a rule, and for a control that says nothing."""
    return tuple(_framework(row) for row in _content()["frameworks"])


@cache
def without_control() -> frozenset[str]:
    """Rules that no control of the frameworks asks for: those on prices and bills."""
    return frozenset(rule for pattern in _content()["without-control"] for rule in _matching(pattern))


def controls_of(rule: str) -> Iterator[FrameworkControl]:
    """The controls that a rule holds, in the order of the frameworks."""
    return (control for framework in frameworks() for control in framework.controls if rule in control.rules)


@cache
def _content() -> Mapping[str, Any]:
    return yaml.load(FILE.read_text("utf-8"), getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _framework(row: Mapping[str, Any]) -> ControlFramework:
    controls = tuple(_control(row["id"], control) for control in row["controls"])
    return ControlFramework(row["id"], row["title"], row["source"], str(row["date"]), controls)


def _control(framework: str, row: Mapping[str, Any]) -> FrameworkControl:
    rules = [rule for pattern in row.get("rules", ()) for rule in _matching(pattern)]
    texts = {name: row.get(name, "") for name in ("level", "shown", "hardware", "missing", "others")}
    control = FrameworkControl(framework, row["id"], row["asks"], rules=tuple(dict.fromkeys(rules)), **texts)
    if unknown := set(row) - set(FrameworkControl.__dataclass_fields__):
        raise ValueError(f"{framework} {control.id}: unknown fields {sorted(unknown)}")
    if not (control.rules or any(texts[name] for name in ("shown", "hardware", "missing", "others"))):
        raise ValueError(f"{framework} {control.id}: neither a rule nor a reason")
    return control


def _matching(pattern: str) -> list[str]:
    matches = [rule for rule in RULES if fnmatchcase(rule, pattern)]
    if not matches:
        raise ValueError(f"{pattern}: no such rule")
    return matches


def _proof(rule: str) -> str:
    faces = faces_of(RULES[rule])
    return next((command for face, command in _PROOFS.items() if face in faces), _ELSEWHERE)


def as_facts() -> list[dict[str, Any]]:
    """Every control as plain data, for JSON: framework, id, demand, status, rules and proofs."""
    return [
        {
            "framework": framework.title,
            "id": control.id,
            "asks": control.asks,
            "status": control.status,
            "rules": list(control.rules),
            "proofs": list(control.proofs),
            "hardware": control.hardware,
            "missing": control.missing,
            "others": control.others,
        }
        for framework in frameworks()
        for control in framework.controls
    ]


def page() -> str:
    """docs/controls.md, in Markdown."""
    lines = [
        "# Control map",
        "",
        "Which rule holds which control of other frameworks. Written by `tenancy rules --controls` from",
        "`tenancy/rules/controls.yaml`; `tenancy rules --oscal` writes the same map as an OSCAL component definition.",
        "",
        "The demands are in our words, and the framework's own text counts. Which rule holds a control is our reading",
        "of both; no body has certified it. *Proven* means that the named command or test shows it without hardware,",
        "and *partly proven* that a part needs a real cluster or is missing. *Not ours* names the owner.",
        "",
        "| framework | proven | partly proven | needs hardware | not there yet | not ours |",
        "|---|---|---|---|---|---|",
    ]
    for framework in frameworks():
        counts = [sum(control.status == status for control in framework.controls) for status in _STATUSES]
        lines.append(f"| [{framework.title}](#{framework.id}) | {' | '.join(map(str, counts))} |")
    for framework in frameworks():
        lines += [
            "",
            f"## {framework.title} {{#{framework.id}}}",
            "",
            f"Ids: {framework.source}; {framework.date}.",
            "",
        ]
        lines += ["| control | asks | status | rules | shown by | open, or whose it is |", "|---|---|---|---|---|---|"]
        lines += [_line(control) for control in framework.controls]
    lines += ["", "## Rules", "", "| rule | controls |", "|---|---|"]
    for rule in RULES:
        control_names = [f"{control.framework} {control.id}" for control in controls_of(rule)]
        cell = ", ".join(control_names) or "none: no framework here asks for correct prices and bills"
        lines.append(f"| [{rule}](rules.md#{rule}) | {cell} |")
    return "\n".join(lines) + "\n"


_STATUSES = ("proven", "partly proven", "needs hardware", "not there yet", "not ours")


def _line(control: FrameworkControl) -> str:
    level = f" ({control.level})" if control.level else ""
    rules = ", ".join(f"[{rule}](rules.md#{rule})" for rule in control.rules) or "–"
    proofs = ", ".join(f"`{proof}`" for proof in control.proofs) or "–"
    gaps = "; ".join(
        text
        for text in (
            control.hardware and f"on a cluster: {control.hardware}",
            control.missing and f"missing: {control.missing}",
            control.others,
        )
        if text
    )
    return f"| {control.id}{level} | {control.asks} | {control.status} | {rules} | {proofs} | {gaps or '–'} |"
