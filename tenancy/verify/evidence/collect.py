"""Facts of an environment in a bundle, each in a file of its own."""

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
from tenancy.planning import Plan
from tenancy.planning.access_review import all_grants
from tenancy.planning.render import file_texts
from tenancy.rules.catalogue import RULES
from tenancy.rules.controls import as_facts
from tenancy.rules.faces import faces_of, names_of
from tenancy.spec.loader import ENVIRONMENT_FILE, SUFFIXES, TENANTS_FOLDER, Loaded
from tenancy.verify.evidence.bundle import ENVELOPE, Unusable, as_json, digest
from tenancy.verify.evidence.page import page
from tenancy.verify.evidence.privacy import secrets_in, without_mail

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
        results_run = [result for result in self.results if not result.get("skipped")]
        return {
            "attacks": len(results_run),
            "refused": sum(bool(result["refused"]) for result in results_run),
            "twins admitted": sum(bool(result["twin_admitted"]) for result in results_run),
            "gaps": sum(not (result["refused"] and result["twin_admitted"]) for result in results_run),
            "skipped": len(self.results) - len(results_run),
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
class Measurements:
    """Measurements from outside of the files of the environment."""

    time: dt.datetime
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
        for result in results:
            if not {"id", "rule", "refused", "twin_admitted", "denier", "expected_denier"} <= result.keys():
                raise ValueError("a record without the fields of a result")
    except OSError as error:
        raise Unusable(
            f"given --attack-results {path} ({error.strerror}); rule: {rule}; change: name such a file"
        ) from None
    except (ValueError, AttributeError, RecursionError) as error:
        raise Unusable(f"given --attack-results {path} ({error}); rule: {rule}; change: name such a file") from None
    log = "contradicts" if any(result.get("problem") for result in results) else "not compared"
    return Attacks(results, log, f"{path.name}, sha256 {digest(content)}")


def read_judge(path: Path) -> Iterable[Judge]:
    """The tools of a SARIF file, one for each run. Raises Unusable."""
    rule = "a SARIF 2.1.0 file of a tool"
    try:
        content = read_file(path)
        runs = json.loads(content)["runs"]
        return [_read_run(run, path.name, digest(content)) for run in runs]
    except OSError as error:
        raise Unusable(f"given --sarif {path} ({error.strerror}); rule: {rule}; change: name such a file") from None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise Unusable(f"given --sarif {path}; rule: {rule}; change: write the tool's result as SARIF") from None


def _read_run(run: Mapping[str, Any], file: str, sha256: str) -> Judge:
    driver = run["tool"]["driver"]
    findings_by_level: Counter[str] = Counter()
    findings_by_waiver: Counter[tuple[str, str]] = Counter()
    for result in run.get("results") or ():
        # SARIF 2.1.0, 3.27.23 and 3.35.3: suppressed if every suppression is accepted, which it is without a status.
        suppressions = result.get("suppressions") or ()
        if suppressions and all(suppression.get("status", "accepted") == "accepted" for suppression in suppressions):
            findings_by_waiver[
                (str(result.get("ruleId")), str(suppressions[0].get("justification", "no reason given")))
            ] += 1
        else:
            # A result without a level is a warning: SARIF 2.1.0, 3.27.10.
            findings_by_level[str(result.get("level", "warning"))] += 1
    checks = run.get("properties", {}).get("checks")
    return Judge(
        str(driver["name"]),
        str(driver.get("semanticVersion") or driver.get("version") or "unknown"),
        dict(sorted(findings_by_level.items())),
        checks if isinstance(checks, int) else None,
        [
            {"check": check, "reason": reason, "findings": count}
            for (check, reason), count in sorted(findings_by_waiver.items())
        ],
        file,
        sha256,
    )


def files(loaded: Loaded, plan: Plan, measurements: Measurements) -> dict[str, bytes]:
    """Name and content of every file of the bundle, without mail addresses. Raises Unusable if a fact has a secret."""
    raw_facts = _facts(loaded, plan, measurements)
    for name, value in raw_facts.items():
        for kind in secrets_in(as_json(value).decode()):
            change = "remove it from its source, and renew it"
            raise Unusable(f"given {kind} in {name}.json; rule: a bundle has no secret; change: {change}")
    facts = without_mail(raw_facts)
    bundle_files = {f"{name}.json": as_json(value) for name, value in facts.items()}
    bundle_files[PAGE] = page(facts).encode()
    return bundle_files


def summary(loaded: Loaded, measurements: Measurements) -> Mapping[str, Any]:
    """The predicate of the statement."""
    return {
        "environment": loaded.environment.environment,
        "made": measurements.time.isoformat(),
        "gpu-tenancy": version("gpu-tenancy"),
        "attacks": measurements.attacks.counts if measurements.attacks else None,
    }


def _facts(loaded: Loaded, plan: Plan, measurements: Measurements) -> dict[str, Any]:
    return {
        "about": {
            **summary(loaded, measurements),
            "tenants": [tenant.tenant for tenant in loaded.tenants],
            "statement": measurements.statement_file,
        },
        "spec": {name: digest(read_file(path)) for name, path in _spec_files(loaded.folder).items()},
        "renders": {name: digest(text.encode()) for name, text in file_texts(plan).items()},
        "locks": _locks(loaded.folder),
        "versions": _versions(loaded),
        "rules": [_rule(rule_id) for rule_id in RULES],
        "controls": as_facts(),
        "attacks": asdict(measurements.attacks) if measurements.attacks else None,
        "judges": [asdict(judge) for judge in measurements.judges],
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
    lock_paths = {path for pattern in LOCK_NAMES for path in top.glob(pattern) if path.is_file()}
    return {path.relative_to(top).as_posix(): digest(read_file(path)) for path in sorted(lock_paths)}


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
        "enforced": names_of(faces_of(rule)),
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
    commits = []
    for record in log.split(_RECORD)[1:]:
        head, _, names = record.partition("\n")
        commit, author, committer, day, signature, subject, reviewers = head.split(_UNIT)
        commits.append(
            {
                "commit": commit,
                "author": author,
                "committer": committer,
                "time": day,
                "signature": signature,
                "subject": subject,
                "reviewed by": [reviewer.strip() for reviewer in reviewers.split(",") if reviewer.strip()],
                "files": names.split(),
            }
        )
    return commits


def _git(folder: Path, *command: str) -> str | None:
    try:
        process = subprocess.run(
            ["git", "-C", str(folder), *command], capture_output=True, text=True, errors="replace", check=False
        )
    except OSError:
        return None
    return process.stdout if process.returncode == 0 else None
