"""What a note says to do, done literally, ends the note, and everything that was planned before is still planned."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from tenancy.planning import make_plan
from tenancy.spec.checks import notes, without_effect
from tenancy.spec.loader import Loaded, on_lab, spec_notes
from tenancy.spec.reading.problems import Problem
from tests.aws_cases import ON_AWS
from tests.conftest import SpecFolder

ENV, FRAUD, RESEARCH = "environment.yaml", "tenants/fraud.yaml", "tenants/research.yaml"
Edit = tuple[str, str, str]
"""A file, a text in it, and the text that replaces it."""
OFF = ON_AWS.replace("enabled: true", "enabled: false")
EXISTING = ON_AWS.replace("  cni: vpc-cni\n", "  cni: cilium\n  mode: existing\n")
CNI = "  cni: vpc-cni\n"
TO_AWS: Edit = (ENV, CNI, ON_AWS)
CILIUM: Edit = (ENV, CNI, "  cni: cilium\n")
ENABLED: Edit = (ENV, "enabled: false", "enabled: true")
SHARE = "a100: {guaranteed: 16, sharing: lend-and-borrow, lending-limit: 8, borrowing-limit: 16}"
CHEAP = "  cheap: {instance-type: p4d.24xlarge, nodes: {min: 0, max: 2}, tiers: [batch], purchase: spot}\n"
FIRM: Edit = (ENV, "    interruptible: true\n", "    interruptible: true\n    allow-borrowing: false\n")
CALM = "  calm: {priority: 5, allow-borrowing: false, interruptible: true}\n"
NIGHTLY = "namespaces: [main, {name: nightly, tier: calm}]\n"


class Case(NamedTuple):
    """`edits` make files with a note on `field`, of which `given_text` is a part; each way does what its text says.

    A way without edits reads the same files without the lab.
    """

    edits: tuple[Edit, ...]
    field: str
    given_text: str
    ways: tuple[tuple[str, tuple[Edit, ...]], ...]
    in_lab: bool = False


def in_lab(field: str, given: str, *edits: Edit) -> Case:
    return Case(edits, field, given, (("run it without --lab", ()),), in_lab=True)


def added(line: str) -> Edit:
    """A line of the environment's file."""
    return ENV, "buckets:", f"{line}\nbuckets:"


CASES = {
    "a tenant to come": Case(
        ((ENV, "nodes: 4}", "nodes: 4, tenants: [fraud, research, scoring]}"),),
        "pools.train.tenants[2]",
        "no file yet",
        (("write it with `tenancy new scoring small`", (("tenants/scoring.yaml", "", ""),)),),
    ),
    "a namespace where nothing starts": Case(
        ((ENV, "tiers:\n  production", f"tiers:\n{CALM}  production"), (RESEARCH, "people:", f"{NIGHTLY}people:")),
        "pools",
        "nothing can run there",
        (
            (
                "add a CPU-only pool that admits it",
                ((ENV, "  serve:\n", "  cpu: {instance-type: m7i.4xlarge, nodes: 1}\n  serve:\n"),),
            ),
            ("give it GPUs to hold", ((RESEARCH, "tier: calm}", "tier: calm, gpus: {a100: 4}}"),)),
            ("or borrow", ((ENV, "priority: 5, allow-borrowing: false", "priority: 5"),)),
        ),
    ),
    "spot of an account": Case(
        (TO_AWS, (ENV, "  serve:\n", f"{CHEAP}  serve:\n")), "pools.cheap.purchase", "spot for cheap", ()
    ),
    "more devices than pods": Case(
        ((ENV, "time-slicing: 4", "time-slicing: 25"),),
        "pools.notebooks",
        "of cpu",
        (
            ("offer fewer devices", ((ENV, "time-slicing: 25", "time-slicing: 24"),)),
            (
                "lower the tier's default-request.cpu",
                ((ENV, "    container:\n", "    container:\n      default-request: {cpu: 400m}\n"),),
            ),
        ),
    ),
    "a Kubernetes of which nothing is known": Case(
        ((ENV, 'kubernetes: "1.36"', 'kubernetes: "1.37"'),),
        "cluster.kubernetes",
        "of which nothing is known here",
        (('write "1.36"', ((ENV, '"1.37"', '"1.36"'),)),),
    ),
    "Cilium on a Kubernetes of which nothing is known": Case(
        ((ENV, 'kubernetes: "1.36"\n  cni: vpc-cni', 'kubernetes: "1.38"\n  cni: cilium'),),
        "cluster.kubernetes",
        "Kubernetes 1.38 with Cilium, of which nothing is known here",
        (('write "1.36" if the cluster has that', ((ENV, '"1.38"', '"1.36"'),)),),
    ),
    "a spread that is not written": Case(
        ((ENV, 'kubernetes: "1.36"', 'kubernetes: "1.35"'),),
        "tiers.production.topology-spread",
        "topology-spread: preferred",
        (
            ("use Kubernetes 1.36 or newer", ((ENV, '"1.35"', '"1.36"'),)),
            (
                "or set topology-spread: none for these tiers",
                (
                    (ENV, "    priority: 1000\n", "    priority: 1000\n    topology-spread: none\n"),
                    (ENV, "    priority: 100\n", "    priority: 100\n    topology-spread: none\n"),
                ),
            ),
        ),
    ),
    "a strict department": Case(
        (),
        "organisation.departments.risk",
        "sharing in the file of fraud",
        tuple(
            (f"set it to {text}", ((ENV, "Risk and Compliance}", f"Risk and Compliance, sharing: {sharing}}}"),))
            for text, sharing in (("lend", "lend"), ("lend or lend-and-borrow", "lend-and-borrow"))
        ),
    ),
    "buckets without a way to S3": Case(
        (TO_AWS,),
        "aws.network.aws-service-cidrs",
        "grants of buckets",
        (
            (
                "write the ranges of S3's prefix list",
                ((ENV, "  service-quotas: {}\n", "  network: {aws-service-cidrs: [3.5.136.0/22]}\n"),),
            ),
        ),
    ),
    "AWS in the lab": in_lab("aws.enabled", "enabled: true", TO_AWS),
    "a service in the lab": in_lab("services.gpu-operator", "install", added("services: {gpu-operator: install}")),
    "Cilium in the lab": in_lab("cluster.cni", "cilium", CILIUM),
    "encryption in the lab": in_lab(
        "cluster.encryption", "wireguard", (ENV, CNI, "  cni: cilium\n  encryption: wireguard\n")
    ),
    "a collector in the lab": in_lab("metrics.collector", "existing", added("metrics: {collector: existing}")),
    "names in the lab": in_lab(
        "egress[1].dns",
        "api.vendor.example",
        CILIUM,
        (FRAUD, "port: 8443}\n", "port: 8443}\n  - {dns: api.vendor.example, port: 443}\n"),
    ),
    "a budget in the lab": in_lab("budget", "no alert is sent", TO_AWS),
    "waves in one stack": Case(
        (added("rollout: {depends-on: [dev], canary: [fraud]}"),),
        "rollout.canary",
        "stacks: one",
        (
            ("drop canary", ((ENV, ", canary: [fraud]", ""),)),
            ("or set stacks: per-tenant", (added("stacks: per-tenant"),)),
        ),
    ),
    "an issuer that no role trusts": Case(
        (
            (
                ENV,
                CNI,
                f"{EXISTING}  oidc-issuer: oidc.eks.eu-central-1.amazonaws.com/id/ABCDEF0123456789\n",
            ),
        ),
        "aws.oidc-issuer",
        "trust no issuer",
        (
            (
                "drop it",
                ((ENV, "  oidc-issuer: oidc.eks.eu-central-1.amazonaws.com/id/ABCDEF0123456789\n", ""),),
            ),
        ),
    ),
    "a service that no pool needs": Case(
        (added("services: {efa-device-plugin: install}"),),
        "services.efa-device-plugin",
        "no pool has efa",
        (("drop it", ((ENV, "services: {efa-device-plugin: install}\n", ""),)),),
    ),
    "a region without AWS": Case(
        ((ENV, CNI, OFF),),
        "aws.region",
        "aws.enabled: false",
        (
            ("set aws.enabled: true", (ENABLED,)),
            ("with cluster.mode: existing", (ENABLED, (ENV, CNI, "  cni: vpc-cni\n  mode: existing\n"))),
        ),
    ),
    "quotas of an account without AWS": Case(
        ((ENV, CNI, OFF),),
        "aws.service-quotas",
        "aws.enabled: false",
        (("drop service-quotas", ((ENV, "  service-quotas: {}\n", ""),)), ("or set aws.enabled: true", (ENABLED,))),
    ),
    "a network without AWS": Case(
        ((ENV, CNI, f"{OFF}  network: {{cidr: 10.64.0.0/16}}\n"),),
        "aws.network.cidr",
        "aws.enabled: false",
        (("drop cidr", ((ENV, "  network: {cidr: 10.64.0.0/16}\n", ""),)), ("or set aws.enabled: true", (ENABLED,))),
    ),
    "buckets without AWS": Case(
        ((ENV, CNI, OFF),), "buckets", "aws.enabled: false", (("set aws.enabled: true", (ENABLED,)),)
    ),
    "a pipeline without AWS": Case(
        ((ENV, CNI, OFF), (FRAUD, "egress:", "ci: {github: bank/fraud-models, branch: main}\negress:")),
        "ci",
        "no role",
        (("set aws.enabled: true", (ENABLED,)),),
    ),
    "a network of an existing cluster": Case(
        ((ENV, CNI, f"{EXISTING}  network: {{cidr: 10.64.0.0/16}}\n"),),
        "aws.network.cidr",
        "cluster.mode: existing",
        (("drop cidr", ((ENV, "  network: {cidr: 10.64.0.0/16}\n", ""),)),),
    ),
    "an image of an existing cluster": Case(
        ((ENV, CNI, f"{EXISTING}  ami-release: v20260724\n"),),
        "aws.ami-release",
        "cluster.mode: existing",
        (("drop ami-release", ((ENV, "  ami-release: v20260724\n", ""),)),),
    ),
    "waves of nodes of an existing cluster": Case(
        ((ENV, CNI, EXISTING), (ENV, "nodes: 4}", "nodes: 4, upgrade: {max-unavailable: 2}}")),
        "pools.train.upgrade",
        "cluster.mode: existing",
        (("drop upgrade", ((ENV, ", upgrade: {max-unavailable: 2}", ""),)),),
    ),
    "encryption of an existing cluster": Case(
        ((ENV, CNI, EXISTING.replace("  mode: existing\n", "  mode: existing\n  encryption: wireguard\n")),),
        "cluster.encryption",
        "cluster.mode: existing",
        (("drop it, once `cilium encrypt status` says that it is on", ((ENV, "  encryption: wireguard\n", ""),)),),
    ),
    "a budget of which no alert is sent": Case(
        (),
        "budget",
        "no alert is sent",
        (
            ("name a metrics.collector", (added("metrics: {collector: existing}"),)),
            ("or use AWS", (TO_AWS,)),
        ),
    ),
    "nothing to lend": Case(
        ((FRAUD, SHARE, "a100: {guaranteed: 0, sharing: lend-and-borrow}"),),
        "gpus.a100.sharing",
        "nothing is lent or borrowed",
        (
            ("drop sharing", ((FRAUD, ", sharing: lend-and-borrow}", "}"),)),
            (
                "or write a borrowing-limit above 0",
                ((FRAUD, "lend-and-borrow}", "lend-and-borrow, borrowing-limit: 8}"),),
            ),
        ),
    ),
    "nothing to lend, and no loans wanted": Case(
        ((FRAUD, SHARE, "a100: {guaranteed: 0, sharing: lend}"),),
        "gpus.a100.sharing",
        "nothing is lent or borrowed",
        (("drop sharing and its limits", ((FRAUD, ", sharing: lend}", "}"),)),),
    ),
    "a limit of 0": Case(
        ((FRAUD, SHARE, "a100: {guaranteed: 16, sharing: lend, lending-limit: 0}"),),
        "gpus.a100.sharing",
        "nothing is lent or borrowed",
        (
            ("drop sharing and its limits", ((FRAUD, ", sharing: lend, lending-limit: 0}", "}"),)),
            ("or write a lending-limit above 0", ((FRAUD, "lending-limit: 0", "lending-limit: 4"),)),
        ),
    ),
    "loans of a tier that takes none": Case(
        (FIRM, (FRAUD, SHARE, "a100: {guaranteed: 16}"),
         (RESEARCH, "a100: {guaranteed: 8}", "a100: {guaranteed: 8, sharing: lend-and-borrow, lending-limit: 0}")),
        "gpus.a100.sharing",
        "nothing is lent or borrowed",
        (
            (
                "or write a lending-limit above 0",
                ((RESEARCH, "lend-and-borrow, lending-limit: 0", "lend, lending-limit: 4"),),
            ),
            ("drop sharing and its limits", ((RESEARCH, ", sharing: lend-and-borrow, lending-limit: 0}", "}"),)),
        ),
    ),
    "borrowing of a tier that does not": Case(
        (FIRM, (FRAUD, SHARE, "a100: {guaranteed: 16}"),
         (RESEARCH, "a100: {guaranteed: 8}", "a100: {guaranteed: 8, sharing: lend-and-borrow}")),
        "gpus.a100.sharing",
        "which does not borrow",
        (("write sharing: lend", ((RESEARCH, "sharing: lend-and-borrow", "sharing: lend"),)),),
    ),
}  # fmt: skip
NEW_TENANT = """\
tenant: scoring
team: scoring
owner: {name: scoring-leads, mail: scoring@bank.example}
department: research
cost-center: CC-9001
tier: batch
people:
  - {group: scorers, role: developer}
gpus:
  a100: {guaranteed: 0}
"""


def make(spec: SpecFolder, edits: tuple[Edit, ...]) -> Loaded:
    for file, old, new in edits:
        if old:
            spec.edit(file, old, new)
        else:
            spec.write(file, NEW_TENANT)
    return spec.load()


def notes_of(case: Case, loaded: Loaded) -> list[Problem]:
    """The notes of a case on these files."""
    return [note for note in spec_notes(loaded) if note.field == case.field and case.given_text in note.given]


def names(loaded: Loaded) -> set[tuple[str, str, str]]:
    plan = make_plan(loaded, loaded.day)
    return {(item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]) for item in plan.objects()}


WAYS = [
    pytest.param(about, number, id=f"{about}: {case.ways[number][0] if case.ways else 'it stays'}")
    for about, case in CASES.items()
    for number in range(max(len(case.ways), 1))
]


@pytest.mark.parametrize(("about", "number"), WAYS)
def test_what_a_note_says_to_do_ends_it(spec: SpecFolder, about: str, number: int) -> None:
    case = CASES[about]
    before = make(spec, case.edits)
    read = on_lab(before) if case.in_lab else before
    (note,) = notes_of(case, read)
    if not case.ways:
        assert "this note stays" in note.change
        return
    text, edits = case.ways[number]
    assert text in note.change
    after = make(spec, edits)
    assert notes_of(case, after) == []
    assert names(before) <= names(after), "what was made is still made"


MAKERS = ("Mistake", "_idle", "_on_aws", "_unbuilt", "_unalerted")
"""Functions that make a note, in the modules that find them."""


def places(module: ModuleType) -> Iterator[tuple[str, int]]:
    """Places where a module makes notes: each call of a maker outside of the makers themselves."""
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name not in MAKERS:
            for call in ast.walk(function):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id in MAKERS:
                    yield module.__name__, call.lineno


def test_the_notes_of_every_place_are_followed(spec: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    callers: dict[int, tuple[str, int]] = {}
    mistakes: list[Any] = []
    for module in (notes, without_effect):
        for name in MAKERS:
            maker = getattr(module, name, None)
            if maker is None:
                continue

            def recording(*arguments: Any, maker: Any = maker, **options: Any) -> Any:
                caller = sys._getframe(1)
                mistake = maker(*arguments, **options)
                mistakes.append(mistake)
                callers[id(mistake)] = (caller.f_globals["__name__"], caller.f_lineno)
                return mistake

            monkeypatch.setattr(module, name, recording)
    files = {name: (spec.path / name).read_text("utf-8") for name in (ENV, FRAUD, RESEARCH)}
    followed = set()
    for case in CASES.values():
        for name, text in files.items():
            spec.write(name, text)
        before = make(spec, case.edits)
        mistakes.clear()
        callers.clear()
        (note,) = notes_of(case, on_lab(before) if case.in_lab else before)
        followed |= {
            callers[id(mistake)] for mistake in mistakes if (mistake.given, mistake.change) == (note.given, note.change)
        }
    assert {*places(notes), *places(without_effect)} - followed == set()
