"""Shared parts of the tests of attacks: a deployed environment, and waiting for the API server to notice."""

from __future__ import annotations

import copy
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Generator, Iterable, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from tenancy.cluster import denial
from tenancy.cluster.api import Api, path_of
from tenancy.kube import deniers
from tenancy.kube.objects import Object
from tenancy.kube.requests import MERGE, collection
from tenancy.planning import Plan
from tenancy.planning.common.pools import fake_nodes
from tenancy.spec.loader import Loaded
from tenancy.verify.attacks import Attack, Scene, all_attacks, differences
from tenancy.verify.verification import find_scene, run
from tests.waiting import until_clear

ROOT = Path(__file__).parents[2]
CONTROLLERS = "kube-controller-manager"
BATCH = "  batch:\n    priority: 1000\n"


def local(folder: Path, *, kinds: Iterable[str] = ()) -> Path:
    """The files of `stacks/local` with what they give no occasion for: a longest run, the steps up from a namespace,
    and kinds of others' work."""
    shutil.copytree(ROOT / "stacks" / "local", folder)
    more = f"queues: {{kinds: [{', '.join(kinds)}]}}\n" if kinds else ""
    _edit(
        folder / "environment.yaml",
        (BATCH, f"{BATCH}    max-run-time: 3d\n"),
        ("cuda-sample:13.1", f"cuda-sample:13.1@sha256:{'0' * 64}"),
        (
            "    gpu-tier: reserved\n",
            "    gpu-tier: reserved\n    allow-image-tags: false\n    allow-writable-root-filesystem: false\n",
        ),
        ("platform:\n", "platform:\n  unmanaged-namespaces: [cert-manager]\n"),
        ("pools:\n", f"{more}sandbox: {{handler: kata-qemu, pool: metal}}\npools:\n{METAL}"),
    )
    tenants = folder / "tenants"
    _edit(tenants / "performance.yaml", ("tier: batch\n", f"tier: batch\ndedicated-hosts: true\n{GPU_USERS}"))
    _edit(tenants / "research.yaml", ("tier: research\n", "tier: research\nisolation: dedicated-nodes\n"))
    (tenants / "vault.yaml").write_text(VAULT, "utf-8")
    return folder


METAL = "  metal: {instance-type: m7i.metal-24xl, nodes: 1, tenants: [vault]}\n"
GPU_USERS = "gpu-users: [{user: ada@bank.example}]\n"
VAULT = """tenant: vault
team: key-custody
owner: {name: vault-leads, mail: vault@bank.example}
department: risk
cost-center: CC-7000
tier: batch
isolation: sandbox
people: [{group: vault-engineers, role: developer}]
"""


def _edit(file: Path, *changes: tuple[str, str]) -> None:
    text = file.read_text("utf-8")
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} in {file.name}"
        text = text.replace(old, new)
    file.write_text(text, "utf-8")


@dataclass(frozen=True)
class Cluster:
    """A deployed environment and what is asked of it."""

    api: Api
    plan: Plan
    scene: Scene
    attacks: tuple[Attack, ...]
    audit_log: Path
    authority: Path
    """Certificate that the API server's is signed by."""


@contextmanager
def entered(home: Path) -> Generator[None]:
    """Every lookup of a lab returns the one in `home`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPU_TENANCY_LAB", str(home))
        patch.setenv("KUBECONFIG", str(home / "kubeconfig"))
        yield


def ended(home: Path) -> None:
    """Nothing of the lab in `home` is left."""
    from tenancy.lab import control_plane

    with entered(home):
        control_plane.down(root=ROOT)


@contextmanager
def deployed(
    loaded: Loaded, plan: Plan, home: Path, crds: Iterable[Object] = (), more: Iterable[Object] = ()
) -> Generator[Cluster]:
    """The environment on a lab of its own in `home`, for as long as it takes."""
    try:
        with entered(home):
            yield deploy(loaded, plan, home, crds, more)
    finally:
        ended(home)


def deploy(loaded: Loaded, plan: Plan, home: Path, crds: Iterable[Object] = (), more: Iterable[Object] = ()) -> Cluster:
    """A lab in `home` with the environment, applied by the platform's own group; `more` goes with it."""
    from tenancy.lab import control_plane, processes

    chart = plan.platform.queue_chart
    with entered(home):
        lab = control_plane.up(
            root=ROOT,
            platform_group=loaded.environment.platform.group,
            nodes=fake_nodes(loaded.environment),
            queues=chart.values if chart else None,
        )
        if crds := list(crds):
            apply(crds)
            api = Api(plan.context)
            until_clear(lambda: [p for p in map(served, crds) if not api.request("GET", p).ok], "the kinds are served")
            # The controller of quotas asks every 30 s which kinds there are; a new one asks at once.
            processes.stop(processes.running(lab, (CONTROLLERS,))[CONTROLLERS])
            control_plane.up(root=ROOT)
        # The NVIDIA operator brings such a class; without one no guard is asked about it.
        nvidia = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "nvidia"}
        standard_objects = [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
            for name in sorted(plan.admission.unmanaged)
        ]
        apply([*plan.objects(), {**nvidia, "metadata": {"name": "nvidia"}}, *standard_objects, *more])
        api = Api(plan.context)
        scene = find_scene(api, loaded, plan)
        attacks = all_attacks(scene)
        wait_until_settled(api, plan, attacks)
        return Cluster(api, plan, scene, attacks, lab.folder / "audit.log", lab.pki / "ca.crt")


def served(crd: Object) -> str:
    """Path under which objects of a kind are listed, once the kind is served."""
    return collection(f"{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}", crd["spec"]["names"]["kind"])


def apply(items: Iterable[Object]) -> None:
    from tenancy.lab.layout import environ

    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)})
    command = ["kubectl", "apply", "--server-side", "-f", "-"]
    subprocess.run(command, input=text, env=environ(ROOT), text=True, capture_output=True, check=True)


def wait_until_settled(api: Api, plan: Plan, attacks: tuple[Attack, ...]) -> None:
    """Guards in force, and in every namespace what the controllers put there."""
    probes = list({attack.expected_denier: attack for attack in attacks if not attack.skipped}.values())
    until_clear(lambda: [r.as_dict() for r in run(api, probes, twins=False) if not r.refused], "every guard refuses")
    names = [namespace.name for tenant in plan.tenants for namespace in tenant.namespaces]
    paths = [
        f"/api/v1/namespaces/{name}/{what}"
        for name in names
        for what in ("serviceaccounts/default", "configmaps/kube-root-ca.crt")
    ]
    until_clear(lambda: [path for path in paths if not api.request("GET", path).ok], "controllers have been everywhere")
    counted = [path_of(o) for tenant in plan.tenants for o in tenant.objects() if o["kind"] == "ResourceQuota"]
    until_clear(
        lambda: [path for path in counted if not _is_counted(api.request("GET", path).body)], "quotas are counted"
    )


def _is_counted(quota: Object) -> bool:
    """The controller counts no objects of a kind that it does not know yet, and no test makes one."""
    return {*quota["spec"]["hard"]} <= {*quota.get("status", {}).get("used", {})}


def turned(cluster: Cluster, attacks: Sequence[Attack] | None = None) -> set[str]:
    """Attacks that get through, or that another control refuses: of all attacks when none are given."""
    sent_attacks = cluster.attacks if attacks is None else attacks
    return {result.attack.id for result in run(cluster.api, sent_attacks, twins=False) if result.gap}


def gaps(cluster: Cluster, attacks: Sequence[Attack]) -> list[dict[str, Any]]:
    """Those of the attacks, each with a twin that differs in one field, that are not refused as they should be."""
    wrong = {a.id: d for a in attacks if len(d := differences(a.request.as_data(), a.twin.as_data())) != 1}
    assert wrong == {}, "a twin differs in one field"
    results = run(cluster.api, attacks, denial.AuditLog(cluster.audit_log))
    return [result.as_dict() for result in results if result.gap]


def claimed(cluster: Cluster, *rules: str) -> set[str]:
    """Attacks that the rules are to refuse."""
    return {attack.id for attack in cluster.attacks if attack.rule in rules and not attack.skipped}


class Mutant:
    """A cluster with some rules of the guards switched off at a time."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._off: Set[str] = frozenset()

    def without(self, rules: Set[str]) -> list[Attack]:
        """Switch the rules off and all others on, and wait until the API server has noticed.

        What the policies with those rules are to refuse comes back: no refusal by another policy can change with them.
        """
        changed_rules, self._off = self._off ^ rules, frozenset(rules)
        touched: list[str] = []
        probes = {(a.rule, a.expected_denier): a for a in self._cluster.attacks if not a.skipped}
        changed_probes = [probe for (rule, _), probe in probes.items() if rule in changed_rules]
        for policy in self._cluster.plan.platform.guards:
            if policy["kind"] != "ValidatingAdmissionPolicy":
                continue
            guard_name = policy["metadata"]["name"]
            validations = copy.deepcopy(policy["spec"]["validations"])
            ids = [validation["message"].partition(":")[0] for validation in validations]
            # Only what an attack asks: the API server reads policies one by one, and no answer would tell when it has
            # noticed another change, or the end of it.
            probed_ids = {id for id in ids if (id, deniers.guard(guard_name, id)) in probes}
            if rules & probed_ids:
                touched.append(deniers.guard(guard_name, ""))
            if not changed_rules & probed_ids:
                continue
            for id, validation in zip(ids, validations, strict=True):
                if id in rules & probed_ids:
                    # Not removed: a policy needs one validation at least.
                    validation["expression"] = "true"
            answer = self._cluster.api.request(
                "PATCH", path_of(policy), {"spec": {"validations": validations}}, content_type=MERGE
            )
            assert answer.ok, answer.message

        def unnoticed() -> list[Any]:
            results = run(self._cluster.api, changed_probes, twins=False)
            return [result.as_dict() for result in results if result.refused == (result.attack.rule in rules)]

        until_clear(unnoticed, f"off are {sorted(rules)} and nothing else")
        return [a for a in self._cluster.attacks if a.expected_denier.startswith(tuple(touched))]


def refused_by(cluster: Cluster, rule: str, attacks: Sequence[Attack]) -> None:
    """Each is refused by that rule, and by nothing where it is off."""
    assert gaps(cluster, attacks) == []
    alone = replace(cluster, attacks=tuple(attacks))
    without = Mutant(alone).without
    try:
        assert turned(alone, without({rule})) == {attack.id for attack in attacks}
    finally:
        without(frozenset())


@contextmanager
def without_controllers(cluster: Cluster) -> Generator[None]:
    """They stand still. Of every guard that changes they check the types anew, which takes as long as all the attacks
    on it, and no attack waits for them."""
    from tenancy.lab import processes
    from tenancy.lab.layout import Lab

    controllers = processes.running(Lab(ROOT, cluster.audit_log.parent), (CONTROLLERS,))[CONTROLLERS]
    for process in controllers:
        os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in controllers:
            os.kill(process.pid, signal.SIGCONT)


def halves(rules: Iterable[str]) -> dict[str, frozenset[str]]:
    """Sets of rules so that of any two rules each is off in one set in which the other is not.

    An attack is refused if any rule refuses it. So what every set shows, that exactly the attacks on its rules get
    through, holds for every rule alone, at the price of twice the logarithm of their number.
    """
    ordered = sorted(rules)
    rules_by_half = {}
    for bit in range((len(ordered) - 1).bit_length()):
        for value in (0, 1):
            off = frozenset(rule for number, rule in enumerate(ordered) if number >> bit & 1 == value)
            rules_by_half[f"bit {bit} is {value}"] = off
    return rules_by_half


def half_cases(rules: Iterable[str]) -> list[Any]:
    """`halves` as parameters. In the first two each rule is off once and on once; the others tell rules apart."""
    return [
        pytest.param(
            off,
            id=name,
            marks=()
            if name.startswith("bit 0 ")
            else pytest.mark.exhaustive(
                reason=(
                    "further sets of rules that are off together, which tell rules "
                    "apart; `make test` has each rule off once and on once"
                )
            ),
        )
        for name, off in halves(rules).items()
    ]


@contextmanager
def removed(cluster: Cluster, kind: str, rule: str) -> Generator[None]:
    """Every namespace without its objects of a kind, for as long as it takes."""
    isolation_objects = [
        wall
        for tenant in cluster.plan.tenants
        for namespace in tenant.namespaces
        for wall in namespace.isolation
        if wall["kind"] == kind
    ]
    try:
        for wall in isolation_objects:
            assert cluster.api.request("DELETE", path_of(wall)).ok
        yield
    finally:
        for wall in isolation_objects:
            path = path_of(wall).rpartition("/")[0]
            assert cluster.api.request("POST", path, wall).ok
        settle(cluster, rule, refused=True)


def settle(cluster: Cluster, rule: str, refused: bool) -> None:
    probes = [attack for attack in cluster.attacks if attack.rule == rule and not attack.skipped]

    def unnoticed() -> list[Any]:
        results = run(cluster.api, probes, twins=False)
        return [result.as_dict() for result in results if result.refused is not refused]

    until_clear(unnoticed, f"attacks on {rule} {'are refused' if refused else 'get through'}")
