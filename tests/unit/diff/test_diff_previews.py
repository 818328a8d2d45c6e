"""Output of `tenancy diff --preview` for previews of the engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenancy.cli import main
from tenancy.diff.alarms import ReviewReason, alarm
from tenancy.diff.changes import Change, ChangeTopic
from tenancy.diff.previews import UNKNOWN_PLACEHOLDER, changes, read
from tenancy.kube.objects import UNKNOWN
from tests.conftest import nonempty

LABELS = {"tenancy.gpu/tenant": "fraud"}


def step(operation: str, kind: str, before: Any = None, after: Any = None, name: str = "x", **more: Any) -> Any:
    urn = f"urn:pulumi:small--fraud::gpu-tenancy::{kind}::{name}"
    states = {"oldState": before, "newState": after}
    states_of_step = {key: {"type": kind, "inputs": inputs} for key, inputs in states.items() if inputs is not None}
    return {"op": operation, "urn": urn, **states_of_step, **more}


def manifest(name: str, spec: Any = None, namespace: str = "", **more: Any) -> dict[str, Any]:
    where = {"namespace": namespace} if namespace else {}
    return {"metadata": {"name": name, "labels": LABELS, **where}, **({"spec": spec} if spec else {}), **more}


def queue(guaranteed: str, borrows: str = "0") -> dict[str, Any]:
    gpu = {"name": "nvidia.com/gpu", "nominalQuota": guaranteed, "borrowingLimit": borrows}
    cpu = {"name": "cpu", "nominalQuota": guaranteed}
    return manifest("fraud--batch", {"resourceGroups": [{"flavors": [{"name": "train", "resources": [gpu, cpu]}]}]})


def policy(*egress: Any, name: str = "egress", deny: bool = False) -> dict[str, Any]:
    types = ["Ingress", "Egress"] if deny else ["Egress"]
    return manifest(name, {"podSelector": {}, "policyTypes": types, "egress": list(egress)}, "fraud--train")


def binding(role: str) -> dict[str, Any]:
    subjects = [{"kind": "Group", "name": "leads"}]
    return manifest("b", None, "fraud--train", subjects=subjects, roleRef={"kind": "ClusterRole", "name": role})


def space(**annotations: str) -> dict[str, Any]:
    return {"metadata": {"name": "fraud--train", "labels": LABELS, "annotations": annotations}}


def document(*actions: str) -> str:
    statement = {"Effect": "Allow", "Action": list(actions), "Resource": "arn:aws:s3:::models/fraud/*"}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def group(least: int, instance: str = "p4d.24xlarge") -> dict[str, Any]:
    return {"instanceTypes": [instance], "scalingConfig": {"minSize": least, "maxSize": 4}}


CIDR = {"to": [{"ipBlock": {"cidr": "203.0.113.0/24"}}], "ports": [{"port": 443, "protocol": "TCP"}]}
QUEUE, QUOTA = "kubernetes:kueue.x-k8s.io/v1beta2:ClusterQueue", "kubernetes:core/v1:ResourceQuota"
POLICY = "kubernetes:networking.k8s.io/v1:NetworkPolicy"
BINDING = "kubernetes:rbac.authorization.k8s.io/v1:RoleBinding"
SPACE, LOCAL = "kubernetes:core/v1:Namespace", "kubernetes:kueue.x-k8s.io/v1beta2:LocalQueue"
GROUP, ROLE = "aws:eks/nodeGroup:NodeGroup", "aws:iam/rolePolicy:RolePolicy"
BUCKET = "aws:s3/bucket:Bucket"

CNP, CCNP = (f"kubernetes:cilium.io/v2:Cilium{kind}Policy" for kind in ("Network", "ClusterwideNetwork"))
TO_443 = {"toPorts": [{"ports": [{"port": "443", "protocol": "TCP"}]}]}
A_HOST = 'FQDNs {"matchName": "a.example"}'
DENIES, TO_NODES = {"toCIDRSet": [{"cidr": "169.254.169.254/32"}]}, {"toEntities": ["remote-node"]}


def cilium(**spec: Any) -> dict[str, Any]:
    return {**manifest("open", {"endpointSelector": {}, **spec}, "fraud--train"), "kind": "CiliumNetworkPolicy"}


def fence(*denied: dict[str, Any]) -> dict[str, Any]:
    policy = manifest("tenancy--fraud", {"endpointSelector": {}, "egressDeny": list(denied)})
    return {**policy, "kind": "CiliumClusterwideNetworkPolicy"}


CASES: dict[str, tuple[Any, Change, ReviewReason | None]] = {
    "less is guaranteed": (
        step("update", QUEUE, queue("8"), queue("6")),
        Change(ChangeTopic.GPUS, "fraud", "guaranteed", 8, 6, "fraud--batch: nvidia.com/gpu in train"),
        ReviewReason.LOST_GUARANTEE,
    ),
    "more may be borrowed": (
        step("update", QUEUE, queue("8"), queue("8", "4")),
        Change(ChangeTopic.GPUS, "fraud", "may borrow", None, 4, "fraud--batch: nvidia.com/gpu in train"),
        None,
    ),
    "a queue goes": (
        step("delete", QUEUE, queue("8")),
        Change(ChangeTopic.WORK, "fraud", "share of GPUs", "there", None, "fraud--batch"),
        ReviewReason.DISRUPTION,
    ),
    "a queue leads elsewhere": (
        step(
            "replace",
            LOCAL,
            manifest("default", {"clusterQueue": "a"}, "fraud--train"),
            manifest("default", {"clusterQueue": "b"}, "fraud--train"),
            replaceReasons=["spec.clusterQueue"],
        ),
        Change(ChangeTopic.WORK, "fraud", "queue", "a", "b", "fraud--train/default"),
        ReviewReason.DISRUPTION,
    ),
    "a quota": (
        step("update", QUOTA, manifest("q", {"hard": {"pods": "5"}}, "n"), manifest("q", {"hard": {"pods": "9"}}, "n")),
        Change(ChangeTopic.QUOTA, "fraud", "pods", "5", "9", "n"),
        None,
    ),
    "a place opens": (
        step("update", POLICY, policy(), policy(CIDR)),
        Change(ChangeTopic.NETWORK, "fraud", "203.0.113.0/24, port 443/TCP", None, "connect", "pods of fraud--train"),
        ReviewReason.WIDER_ACCESS,
    ),
    "a place closes": (
        step("delete", POLICY, policy(CIDR)),
        Change(ChangeTopic.NETWORK, "fraud", "203.0.113.0/24, port 443/TCP", "connect", None, "pods of fraud--train"),
        None,
    ),
    "everything opens": (
        step("update", POLICY, policy(), policy({})),
        Change(ChangeTopic.NETWORK, "fraud", "everything, every port", None, "connect", "pods of fraud--train"),
        ReviewReason.WIDER_ACCESS,
    ),
    "the default-deny goes": (
        step("delete", POLICY, policy(name="default-deny", deny=True)),
        Change(
            ChangeTopic.NETWORK,
            "fraud",
            "everything that no other policy denies, because its default-deny policy is removed",
            None,
            "connect",
            "pods of fraud--train",
        ),
        ReviewReason.WIDER_ACCESS,
    ),
    "a host opens to Cilium": (
        step("update", CNP, cilium(egress=[]), cilium(egress=[{"toFQDNs": [{"matchName": "a.example"}], **TO_443}])),
        Change(ChangeTopic.NETWORK, "fraud", f'{A_HOST}, port 443/TCP', None, "connect", "pods of fraud--train"),
        ReviewReason.WIDER_ACCESS,
    ),
    "a host closes to Cilium": (
        step("delete", CNP, cilium(egress=[{"toFQDNs": [{"matchName": "a.example"}], **TO_443}])),
        Change(ChangeTopic.NETWORK, "fraud", f'{A_HOST}, port 443/TCP', "connect", None, "pods of fraud--train"),
        None,
    ),
    "what Cilium denied opens": (
        step("update", CCNP, fence(DENIES, TO_NODES), fence(DENIES)),
        Change(
            ChangeTopic.NETWORK,
            "fraud",
            "Entities remote-node, every port, which no policy denies any longer",
            None,
            "connect",
            "pods of every namespace",
        ),
        ReviewReason.WIDER_ACCESS,
    ),
    "a group may do more": (
        step("replace", BINDING, binding("tenancy-viewer"), binding("tenancy-owner")),
        Change(ChangeTopic.ACCESS, "fraud", "fraud--train", "viewer", "owner", "Group leads"),
        ReviewReason.WIDER_ACCESS,
    ),
    "a group may do less": (
        step("replace", BINDING, binding("tenancy-owner"), binding("tenancy-viewer")),
        Change(ChangeTopic.ACCESS, "fraud", "fraud--train", "owner", "viewer", "Group leads"),
        None,
    ),
    "a role on AWS writes": (
        step("update", ROLE, {"role": "r", "policy": document("s3:GetObject")},
             {"role": "r", "policy": document("s3:GetObject", "s3:PutObject")}),
        Change(ChangeTopic.ACCESS, "", "s3://models/fraud/", "read", "read, write", "role r"),
        ReviewReason.WIDER_ACCESS,
    ),
    "a role's policy is not known": (
        step("create", ROLE, None, {"role": "r", "policy": UNKNOWN_PLACEHOLDER}),
        Change(ChangeTopic.ACCESS, "", "what policy x says", None, UNKNOWN, "role r"),
        ReviewReason.WIDER_ACCESS,
    ),
    "a namespace goes": (
        step("delete", SPACE, space()),
        Change(ChangeTopic.WORK, "fraud", "namespace", "made here", None, "fraud--train"),
        ReviewReason.DISRUPTION,
    ),
    "an exception": (
        step("update", SPACE, space(), space(**{"tenancy.gpu/exceptions": "ns-03=2099-01-31"})),
        Change(ChangeTopic.EXCEPTION, "fraud", "by its annotation", None, "until 2099-01-31", "ns-03 in fraud--train"),
        ReviewReason.NEW_EXCEPTION,
    ),
    "fewer nodes": (
        step("update", GROUP, group(4), group(2), name="train"),
        Change(ChangeTopic.WORK, "", "nodes always on in pool", 4, 2, "train"),
        ReviewReason.DISRUPTION,
    ),
    "other nodes": (
        step("replace", GROUP, group(4), group(4, "p5.48xlarge"), name="train", replaceReasons=["instanceTypes"]),
        Change(ChangeTopic.WORK, "", "holds", "there", "replaced for instanceTypes", "NodeGroup train"),
        ReviewReason.DISRUPTION,
    ),
    "data goes": (
        step("delete", BUCKET, {"bucket": "models"}, name="models"),
        Change(ChangeTopic.WORK, "", "holds", "there", None, "Bucket models"),
        ReviewReason.DISRUPTION,
    ),
    "a tenant comes": (
        step("create", "gpu-tenancy:index:GpuTenant", None, {}, name="fraud"),
        Change(ChangeTopic.TENANT, "fraud", "is a tenant", None, "fraud"),
        None,
    ),
    "the stack runs": (
        step("create", "gpu-tenancy:index:GpuTenant", None, {}, name="fraud"),
        Change(ChangeTopic.STACK, "fraud", "small--fraud", None, "new", "tenant"),
        None,
    ),
}  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "preview.json"


def run(*words: object, stdin: str | None = None) -> Result:
    result = CliRunner().invoke(main, ["diff", *map(str, words)], input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is given"
    return result


def write(file: Path, *steps: Any, **more: Any) -> Path:
    file.write_text(json.dumps({"steps": list(steps), **more}), "utf-8")
    return file


@pytest.mark.parametrize("name", CASES)
def test_a_step_is_told_as_what_it_is_and_with_its_alarm(name: str, file: Path) -> None:
    preview_step, expected, why = CASES[name]
    all_changes = changes([read(str(write(file, preview_step)))])
    assert expected in all_changes
    assert alarm(expected) is why
    assert run("--preview", file).exit_code == (
        1 if any(c.topic is ChangeTopic.RULE and c.after for c in all_changes) else 0
    )


def test_a_rule_that_an_object_newly_breaks_is_told_with_its_fix(file: Path) -> None:
    level = "pod-security.kubernetes.io/enforce"
    sound = {"tenancy.gpu/tenant": "fraud", level: "restricted", f"{level}-version": "v1.36"}
    weak = {**sound, "pod-security.kubernetes.io/enforce": "privileged"}
    states = [{"metadata": {"name": "fraud--train", "labels": labels}} for labels in (sound, weak)]
    result = run("--preview", write(file, step("update", SPACE, *states)))
    assert result.exit_code == 1
    assert "! ns-03: is broken: Namespace fraud--train" in result.stdout
    again = run("--preview", write(file, step("update", SPACE, states[1], states[0])))
    assert again.exit_code == 0
    assert "ns-03: is no longer broken" in again.stdout


def test_a_rule_that_an_object_breaks_in_fewer_ways_is_not_newly_broken(file: Path) -> None:
    level, sound = "pod-security.kubernetes.io/enforce", {"tenancy.gpu/tenant": "fraud"}
    both, version, other_way = (
        {"metadata": {"name": "fraud--train", "labels": {**sound, **labels}}}
        for labels in ({level: "privileged"}, {level: "restricted"}, {level: "restricted", f"{level}-version": "v1.0"})
    )
    mended = run("--preview", write(file, step("update", SPACE, both, version)))
    assert "is broken" not in mended.stdout
    assert f"ns-03: is no longer broken: Namespace fraud--train: given {level}: privileged" in " ".join(
        mended.stdout.split()
    )
    assert mended.exit_code == 0
    for before, after in ((version, both), (version, other_way)):
        assert "! ns-03: is broken" in run("--preview", write(file, step("update", SPACE, before, after))).stdout


def test_a_default_deny_that_goes_with_its_namespace_opens_nothing(file: Path) -> None:
    steps = step("delete", POLICY, policy(name="default-deny", deny=True)), step("delete", SPACE, space())
    all_changes = changes([read(str(write(file, *steps)))])
    assert [c for c in all_changes if c.topic is ChangeTopic.NETWORK] == []
    assert any(c.topic is ChangeTopic.WORK for c in all_changes)


def test_a_cluster_policy_that_goes_with_its_tenant_opens_nothing(file: Path) -> None:
    goes, tenant = step("delete", CCNP, fence(DENIES)), step("delete", "gpu-tenancy:index:GpuTenant", {}, name="fraud")
    opened = [ReviewReason.WIDER_ACCESS]
    assert [alarm(c) for c in changes([read(str(write(file, goes)))]) if c.topic is ChangeTopic.NETWORK] == opened
    assert [c for c in changes([read(str(write(file, goes, tenant)))]) if c.topic is ChangeTopic.NETWORK] == []


def test_halves_of_a_replacement_count_once(file: Path) -> None:
    replacement = step("replace", GROUP, group(4), group(4), name="train")
    halves = [{**replacement, "op": op} for op in ("create-replacement", "delete-replaced")]
    assert changes([read(str(write(file, replacement, *halves)))]) == changes([read(str(write(file, replacement)))])


def test_what_stays_changes_nothing_and_runs_no_stack(file: Path) -> None:
    write(file, step("same", QUEUE, queue("8"), queue("8")))
    assert changes([read(str(file))]) == ()
    assert "Nothing changes for any tenant" in run("--preview", file).stdout
    assert run("--preview", file, "--format", "stacks").stdout == ""


def test_previews_of_several_stacks_are_one_comment_of_their_own(file: Path, tmp_path: Path) -> None:
    write(file, step("update", QUEUE, queue("8"), queue("6")))
    platform_preview = tmp_path / "platform.json"
    moved = {**step("update", GROUP, group(4), group(2), name="train"), "urn": "urn:pulumi:small.cluster::p::t::train"}
    write(platform_preview, moved)
    comment = run("--preview", file, "--preview", platform_preview, "--format", "markdown").stdout
    assert comment.startswith("<!-- gpu-tenancy diff: small, preview -->")
    assert "fraud: fraud--batch: nvidia.com/gpu in train: guaranteed 8 → 6" in comment
    stacks = run("--preview", file, "--preview", platform_preview, "--format", "stacks").stdout
    assert stacks == "tenants small small--fraud update\nlast small small.cluster update\n"


def test_a_preview_comes_through_the_standard_input(file: Path) -> None:
    preview = write(file, step("update", QUEUE, queue("8"), queue("6"))).read_text("utf-8")
    assert "guaranteed 8 → 6" in run("--preview", "-", stdin=preview).stdout


def holed(value: Any) -> Iterator[Any]:
    """The same with one part of it after the other not known."""
    yield UNKNOWN_PLACEHOLDER
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from ({**value, key: hole} for hole in holed(inner))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from ([*value[:index], hole, *value[index + 1 :]] for hole in holed(inner))


@pytest.mark.parametrize("name", CASES)
def test_a_value_that_is_not_known_yet_ends_nothing_and_breaks_no_rule(name: str, file: Path) -> None:
    preview_step = CASES[name][0]
    state = "newState" if "newState" in preview_step else "oldState"
    for inputs in nonempty(holed(preview_step[state]["inputs"])):
        if isinstance(inputs, dict):
            write(file, {**preview_step, state: {**preview_step[state], "inputs": inputs}})
            broken = [c.what for c in changes([read(str(file))]) if c.topic is ChangeTopic.RULE and c.after]
            assert [what for what in broken if UNKNOWN in what.partition(": given ")[2]] == []


FAILED = {"diagnostics": [{"severity": "error", "message": "error: no such environment\n"}]}


@pytest.mark.parametrize(
    ("text", "message_part"),
    [
        ("", "Expecting value"),
        ("[1]", "without steps"),
        ('{"steps": [{"urn": 3}]}', "without steps"),
        ('{"steps": []}', "0 stacks"),
        (json.dumps({"steps": [step("same", QUEUE)], **FAILED}), "a preview that failed: error: no such environment"),
        ("[" * 100_000, "given"),
        ("\x00\xff", "given"),
    ],
)
def test_what_is_no_preview_ends_with_2(text: str, message_part: str, file: Path) -> None:
    file.write_text(text, "utf-8")
    result = run("--preview", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message_part in result.stderr
    assert "rule: the preview of one stack, as JSON; change:" in result.stderr


@pytest.mark.parametrize("words", [("small",), ("--from", "HEAD"), ("a", "b")])
def test_a_preview_is_compared_with_nothing_else(words: tuple[str, ...], file: Path) -> None:
    result = run("--preview", write(file, step("same", QUEUE)), *words)
    assert result.exit_code == 2
    assert "one or the other" in result.stderr
