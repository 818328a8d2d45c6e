"""What a bundle says of an environment, each fact in a file of its own."""

from __future__ import annotations

import datetime as dt
import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from tenancy.catalog.files import read_file
from tenancy.catalog.versions import CHARTS, IMAGES
from tenancy.evidence.bundle import ENVELOPE, Unusable, as_json, digest
from tenancy.evidence.page import page
from tenancy.evidence.privacy import secrets_in, without_mail
from tenancy.planning import Plan
from tenancy.planning.access_review import all_grants
from tenancy.planning.render import file_texts
from tenancy.rules.catalogue import FACES, RULES
from tenancy.rules.controls import as_facts
from tenancy.validation import Loaded
from tenancy.validation.loader import ENVIRONMENT_FILE, SUFFIXES, TENANTS_FOLDER

PAGE = "page.html"
PACKAGES = ("pulumi", "pulumi-aws", "pulumi-kubernetes", "pulumi-policy", "pydantic", "kubernetes")
"""Packages that decide what is made, whose versions are recorded."""
LOCK_NAMES = ("requirements*.txt", "requirements/*.txt", "*.lock")
_RECORD, _UNIT = "\x1e", "\x1f"


@dataclass(frozen=True, slots=True)
class Attacks:
    """Results of `tenancy verify --format json`, one record for each attack."""

    results: Sequence[Mapping[str, Any]]
    audit_log: str
    """Whether the API server's audit log agrees: `agrees`, `contradicts` or `not compared`."""
    source: str
    """`cluster` if they were run for this bundle, otherwise the name and digest of the file they were read from."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Numbers of attacks: run, refused, with an admitted twin, gaps and skipped."""
        run = [one for one in self.results if not one.get("skipped")]
        return {
            "attacks": len(run),
            "refused": sum(bool(one["refused"]) for one in run),
            "twins admitted": sum(bool(one["twin_admitted"]) for one in run),
            "gaps": sum(not (one["refused"] and one["twin_admitted"]) for one in run),
            "skipped": len(self.results) - len(run),
        }


@dataclass(frozen=True, slots=True)
class Judge:
    """One independent tool and what it found, from its SARIF file."""

    name: str
    version: str
    levels: Mapping[str, int]
    """Number of findings by level of SARIF: error, warning, note. Suppressed findings are not in it."""
    checks: int | None
    """Number of checks that it made; None where the file does not say."""
    waived: Sequence[Mapping[str, Any]]
    """Suppressed findings: check, reason as the file gives it, and their number."""
    file: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured outside of the files of the environment."""

    made: dt.datetime
    """Time of the bundle, UTC."""
    attacks: Attacks | None = None
    judges: Sequence[Judge] = field(default_factory=tuple)
    statement_file: str = ENVELOPE
    """Name of the file with the signed statement, from which a reader of the page knows how to verify it."""


def read_attacks(path: Path) -> Attacks:
    """Recorded results of `tenancy verify --format json`. Raises Unusable."""
    rule = "the output of `tenancy verify ENV --format json`"
    try:
        content = read_file(path)
        results = json.loads(content)
        if not (isinstance(results, list) and results):
            raise ValueError("no list of results")
        for one in results:
            if not {"id", "rule", "refused", "twin_admitted", "denier", "expected_denier"} <= one.keys():
                raise ValueError("a record without the fields of a result")
    except OSError as error:
        raise Unusable(f"given --attacks {path} ({error.strerror}); rule: {rule}; change: name such a file") from None
    except (ValueError, AttributeError, RecursionError) as error:
        raise Unusable(f"given --attacks {path} ({error}); rule: {rule}; change: name such a file") from None
    log = "contradicts" if any(one.get("problem") for one in results) else "not compared"
    return Attacks(results, log, f"{path.name}, sha256 {digest(content)}")


def read_judge(path: Path) -> Iterable[Judge]:
    """The tools of a SARIF file, one for each run. Raises Unusable."""
    rule = "a SARIF 2.1.0 file of a tool"
    try:
        content = read_file(path)
        runs = json.loads(content)["runs"]
        return [_judge(run, path.name, digest(content)) for run in runs]
    except OSError as error:
        raise Unusable(f"given --judge {path} ({error.strerror}); rule: {rule}; change: name such a file") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unusable(f"given --judge {path}; rule: {rule}; change: write the tool's result as SARIF") from None


def _judge(run: Mapping[str, Any], file: str, sha256: str) -> Judge:
    driver = run["tool"]["driver"]
    open_ones: Counter[str] = Counter()
    waived: Counter[tuple[str, str]] = Counter()
    for one in run.get("results") or ():
        # SARIF 2.1.0, 3.27.23 and 3.35.3: suppressed if every suppression is accepted, which it is without a status.
        told = one.get("suppressions") or ()
        if told and all(each.get("status", "accepted") == "accepted" for each in told):
            waived[(str(one.get("ruleId")), str(told[0].get("justification", "no reason given")))] += 1
        else:
            # A result without a level is a warning: SARIF 2.1.0, 3.27.10.
            open_ones[str(one.get("level", "warning"))] += 1
    checks = run.get("properties", {}).get("checks")
    return Judge(
        str(driver["name"]),
        str(driver.get("semanticVersion") or driver.get("version") or "unknown"),
        dict(sorted(open_ones.items())),
        checks if isinstance(checks, int) else None,
        [{"check": check, "reason": reason, "findings": count} for (check, reason), count in sorted(waived.items())],
        file,
        sha256,
    )


def files(loaded: Loaded, plan: Plan, measured: Measured) -> dict[str, bytes]:
    """Name and content of every file of the bundle, without mail addresses. Raises Unusable if a fact has a secret."""
    given = _facts(loaded, plan, measured)
    for name, value in given.items():
        for kind in secrets_in(as_json(value).decode()):
            change = "remove it from its source, and renew it"
            raise Unusable(f"given {kind} in {name}.json; rule: a bundle has no secret; change: {change}")
    facts = without_mail(given)
    made = {f"{name}.json": as_json(value) for name, value in facts.items()}
    made[PAGE] = page(facts).encode()
    return made


def summary(loaded: Loaded, measured: Measured) -> Mapping[str, Any]:
    """The predicate of the statement."""
    return {
        "environment": loaded.environment.environment,
        "made": measured.made.isoformat(),
        "gpu-tenancy": version("gpu-tenancy"),
        "attacks": measured.attacks.counts if measured.attacks else None,
    }


def _facts(loaded: Loaded, plan: Plan, measured: Measured) -> dict[str, Any]:
    return {
        "about": {
            **summary(loaded, measured),
            "tenants": [tenant.tenant for tenant in loaded.tenants],
            "statement": measured.statement_file,
        },
        "spec": {name: digest(read_file(path)) for name, path in _spec_files(loaded.folder).items()},
        "renders": {name: digest(text.encode()) for name, text in file_texts(plan).items()},
        "locks": _locks(loaded.folder),
        "versions": _versions(loaded),
        "rules": [_rule(rule_id) for rule_id in RULES],
        "controls": as_facts(),
        "attacks": asdict(measured.attacks) if measured.attacks else None,
        "judges": [asdict(judge) for judge in measured.judges],
        "waivers": [
            {"tenant": tenant.tenant, **waiver.model_dump(mode="json")}
            for tenant in loaded.tenants
            for waiver in tenant.exceptions
        ],
        "access": [
            {
                "tenant": entry.tenant,
                "kind": entry.kind,
                "who": entry.subject,
                "may": entry.role,
                "where": list(entry.applies_to),
            }
            for entry in all_grants(loaded.environment, loaded.tenants, plan)
        ],
        "approvals": approvals(loaded.folder),
    }


def _spec_files(folder: Path) -> Mapping[str, Path]:
    tenants = sorted(path for path in (folder / TENANTS_FOLDER).glob("*") if path.suffix in SUFFIXES)
    return {
        path.relative_to(folder).as_posix(): path for path in (folder / ENVIRONMENT_FILE, *tenants) if path.is_file()
    }


def _locks(folder: Path) -> Mapping[str, str]:
    """Digests of lock files between the environment's folder and the root of its repository, by path from there."""
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None:
        return {}
    top = Path(root.strip())
    found = {path for pattern in LOCK_NAMES for path in top.glob(pattern) if path.is_file()}
    return {path.relative_to(top).as_posix(): digest(read_file(path)) for path in sorted(found)}


def _versions(loaded: Loaded) -> Mapping[str, Any]:
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = None
    return {
        "gpu-tenancy": version("gpu-tenancy"),
        "kubernetes": loaded.environment.cluster.kubernetes,
        "packages": packages,
        "charts": {name: pin.version for name, pin in CHARTS.items()},
        "images": dict(IMAGES),
    }


def _rule(rule_id: str) -> Mapping[str, Any]:
    rule = RULES[rule_id]
    return {
        "id": rule.id,
        "title": rule.title,
        "why": rule.why,
        "severity": str(rule.severity),
        "enforced": [name for face, name in FACES.items() if face in rule.faces],
        "waivable": rule.waivable,
    }


# Who approved


def approvals(folder: Path) -> list[Mapping[str, Any]] | None:
    """The commits that changed the environment's files, the last first; None without git.

    `signature` is git's letter: G good, B bad, U good with unknown validity, N none, E cannot be checked.
    """
    fields = ("%H", "%an", "%cn", "%cI", "%G?", "%s", "%(trailers:key=Reviewed-by,valueonly,separator=%x2C)")
    log = _git(folder, "log", f"--format={_RECORD}{_UNIT.join(fields)}", "--name-only", "--", ".")
    if log is None:
        return None
    found = []
    for record in log.split(_RECORD)[1:]:
        head, _, names = record.partition("\n")
        commit, author, committer, day, signature, subject, reviewers = head.split(_UNIT)
        found.append(
            {
                "commit": commit,
                "author": author,
                "committer": committer,
                "time": day,
                "signature": signature,
                "subject": subject,
                "reviewed by": [one.strip() for one in reviewers.split(",") if one.strip()],
                "files": names.split(),
            }
        )
    return found


def _git(folder: Path, *command: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *command], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None
