"""The pack's configuration: a preset, levels of single rules, exceptions, and the owners of namespaces.

{"isolation": {"preset": "regulated", "exceptions": "exceptions.yaml", "quota-01": "advisory"}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

from tenancy.catalog.files import SETTINGS, read_text_file
from tenancy.check.judge import JUDGED
from tenancy.kube.objects import UNKNOWN
from tenancy.rules.catalogue import Violation
from tenancy.rules.exceptions import FIELDS, FindingWaiver, waivers
from tenancy.rules.findings import Finding
from tenancy.rules.levels import PolicyPreset, RuleLevel, level_of

_TEXT: Mapping[str, Any] = {"type": "string", "minLength": 1}
PARAMETERS: Mapping[str, Mapping[str, Any]] = {
    "preset": {"enum": [preset.value for preset in PolicyPreset]},
    "exceptions": {
        "oneOf": [
            _TEXT,
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": dict.fromkeys(FIELDS, _TEXT),
                    "required": list(FIELDS),
                    "additionalProperties": False,
                },
            },
        ]
    },
    "charts": _TEXT,
    "tenantLabel": _TEXT,
    "platform": {"type": "array", "items": _TEXT},
}
SCHEMA: Mapping[str, dict[str, Any]] = {
    **{name: dict(parameter) for name, parameter in PARAMETERS.items()},
    **{rule: {"enum": [level.value for level in RuleLevel]} for rule in sorted(JUDGED)},
}
"""JSON schema of each property; the engine refuses an invalid configuration before it checks resources."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The pack's configuration, read from its policy config."""

    preset: PolicyPreset
    levels: Mapping[str, RuleLevel]
    waivers: tuple[FindingWaiver, ...]
    charts: str | None
    """Folder of relative paths of local charts. Default: the folder in which the engine was started."""
    label: str | None
    platform: tuple[str, ...]

    def level_of(self, finding: Finding) -> RuleLevel:
        """Level of a finding. A finding on an unknown value only advises, except in the preset regulated."""
        level = self.levels.get(finding.rule)
        if level is None:
            return level_of(finding, self.preset)
        soft = level is RuleLevel.MANDATORY and UNKNOWN in finding.given and self.preset is not PolicyPreset.REGULATED
        return RuleLevel.ADVISORY if soft else level


def settings(*configurations: Mapping[str, Any] | None) -> Settings:
    """The merged configurations; later ones take precedence. Raises ValueError for an invalid one."""
    combined_values = {key: value for config in configurations for key, value in (config or {}).items()}
    return _read(json.dumps(combined_values, sort_keys=True))


@lru_cache(maxsize=8)  # called once for each resource
def _read(text: str) -> Settings:
    values = json.loads(text)
    for name in values:
        if name not in SCHEMA:
            names = f"{', '.join(PARAMETERS)}, or an id of `tenancy rules` that a preview shows"
            raise ValueError(f"given {name!r}; rule: a parameter or a rule of the pack; change: use {names}")
    levels = {}
    for rule, level in values.items():
        if rule not in PARAMETERS:
            levels[rule] = _one_of(rule, level, RuleLevel)
    return Settings(
        _one_of("preset", values.get("preset", PolicyPreset.RESTRICTED), PolicyPreset),
        levels,
        _waivers(values.get("exceptions", [])),
        str(_home() / values["charts"]) if "charts" in values else None,
        values.get("tenantLabel"),
        tuple(values.get("platform", ())),
    )


def _home() -> Path:
    """Folder of relative paths of exceptions and charts: the engine starts a pack in the pack's folder."""
    return Path.cwd()


def _one_of(name: str, value: Any, kind: Any) -> Any:
    if value not in [*kind]:
        raise ValueError(f"given {name}: {value!r}; rule: a {kind.__name__.lower()}; change: use {', '.join(kind)}")
    return kind(value)


def _waivers(exceptions: str | Sequence[Any]) -> tuple[FindingWaiver, ...]:
    source, document = "exceptions", exceptions
    if isinstance(exceptions, str):
        path = _home() / exceptions
        source = str(path)
        try:
            document = yaml.safe_load(read_text_file(path, SETTINGS))
        except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
            reason = getattr(error, "strerror", None) or " ".join(str(error).split())
            raise ValueError(
                f"given exceptions {path}: {reason}; rule: a YAML file with a list; change: name one, from / or from "
                "the pack's folder"
            ) from None
    try:
        return waivers([] if document is None else document, JUDGED)
    except Violation as violation:
        raise Violation("exc-01", f"{source}: {violation.given}", violation.change) from None
