"""Names of the small environment's files, a case of what breaks a rule there, and a rule switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tenancy.spec.checks import crossfile
from tenancy.spec.fields import base

ENV, FRAUD, RESEARCH = "environment.yaml", "tenants/fraud.yaml", "tenants/research.yaml"


class Case(NamedTuple):
    """`old` in a file becomes `bad`, which breaks `rule` at `field` of the file `where`; `good` does not."""

    about: str
    rule: str
    file: str
    field: str
    old: str
    bad: str
    good: str
    where: str = ""
    """Absent: the same file."""
    shared: bool = False
    """With one role for all parts of the same grants."""
    clock: bool = False
    """Whether the environment has a clock."""

    def write(self, spec: Any, text: str) -> None:
        """Put `text` into the file instead of `old`."""
        if self.clock:
            spec.add(ENV, "queues: {clock: true}\n")
        spec.edit(self.file, self.old, text)


def _without(rule: str, find_mistakes: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    def filtered(*args: Any, **options: Any) -> Iterator[Any]:
        mistakes = find_mistakes(*args, **options)
        return (item for item in mistakes if (item[1] if isinstance(item, tuple) else item).id != rule)

    return filtered


def silence(rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No check reports any more that the rule is broken."""
    init = base.Spec.model_post_init

    def lenient(self: base.Spec, context: Any) -> None:
        try:
            init(self, context)
        except base.Mistakes as error:
            if further_mistakes := [m for m in error.mistakes if m.id != rule]:
                raise base.Mistakes(*further_mistakes) from None

    monkeypatch.setattr(base.Spec, "model_post_init", lenient)
    for name in ("check_with_environment", "check_between_tenants", "dated_mistakes"):
        monkeypatch.setattr(crossfile, name, _without(rule, getattr(crossfile, name)))
