"""Pod Security, three times: the API server's own admission of a pod, the guard on a Job of it, and what a check finds.

All three answer alike for every pod, at every level and in every version: else the queue holds GPUs for pods that are
refused, or work is refused whose pods would run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.check.judge import judge
from tenancy.check.reader import FilePosition, Manifests
from tenancy.kube.pod_templates import templates_of
from tenancy.lab import control_plane, ports
from tenancy.lab.api import ApiError, LabApi
from tenancy.planning.guards import guard_objects
from tenancy.planning.guards.pod_security import RULE
from tenancy.rules.pod_security import LATEST, PodSecurityLevel, breaches, level_of, minor_of
from tenancy.spec.fields.environment import Environment
from tests.waiting import until

Object = dict[str, Any]
Change = Callable[[Object], None]
CREATE = "application/json"
GUARD = "tenancy-templates"
VERSIONS = ("v1.30", "v1.31", "v1.33", "v1.34", "v1.35", "v1.36", "latest")
NO_ROOT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
FILTERED = {"type": "RuntimeDefault"}


def pod() -> Object:
    spec = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": FILTERED},
        "containers": [{"name": "main", "image": "x.example/x:1", "securityContext": NO_ROOT}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": copy.deepcopy(spec)}


def on_pod(**fields: Any) -> Change:
    return lambda item: item["spec"].update(copy.deepcopy(fields))


def on_container(**fields: Any) -> Change:
    return lambda item: item["spec"]["containers"][0].update(copy.deepcopy(fields))


def context(**fields: Any) -> Change:
    """Fields of the pod's security context; None takes one away."""
    return lambda item: _merge(item["spec"]["securityContext"], fields)


def own_context(**fields: Any) -> Change:
    """Fields of the container's security context."""
    return lambda item: _merge(item["spec"]["containers"][0]["securityContext"], fields)


def _merge(into: Object, fields: Object) -> None:
    for key, value in fields.items():
        if value is None:
            into.pop(key, None)
        else:
            into[key] = copy.deepcopy(value)


def first(**fields: Any) -> Change:
    """An init container that differs in its security context."""

    def change(item: Object) -> None:
        container = {"name": "first", "image": "x.example/x:1", "securityContext": {**copy.deepcopy(NO_ROOT)}}
        _merge(container["securityContext"], fields)
        item["spec"]["initContainers"] = [container]

    return change


def volume(**source: Any) -> Change:
    return on_pod(volumes=[{"name": "data", **source}])


def note(key: str, value: str) -> Change:
    return lambda item: item["metadata"].update(annotations={key: value})


def of_windows(**fields: Any) -> Change:
    """A pod of Windows, which may not have what Linux has."""

    def change(item: Object) -> None:
        item["spec"].update(os={"name": "windows"}, securityContext={"runAsNonRoot": True})
        item["spec"]["containers"][0]["securityContext"] = {}
        item["spec"].update(copy.deepcopy(fields))

    return change


def both(*changes: Change) -> Change:
    def change(item: Object) -> None:
        for change_item in changes:
            change_item(item)

    return change


APPARMOR = "container.apparmor.security.beta.kubernetes.io/main"
HTTP = {"port": 80, "path": "/"}
ELSEWHERE = {**HTTP, "host": "192.0.2.1"}
PRIVILEGED = own_context(privileged=True, allowPrivilegeEscalation=None)

BAD: dict[str, Change] = {
    "host-network": on_pod(hostNetwork=True),
    "host-pid": on_pod(hostPID=True),
    "host-ipc": on_pod(hostIPC=True),
    "host-port": on_container(ports=[{"containerPort": 8080, "hostPort": 8080}]),
    "host-path": volume(hostPath={"path": "/"}),
    "nfs": volume(nfs={"server": "h", "path": "/"}),
    "iscsi": volume(iscsi={"targetPortal": "h", "iqn": "iqn.2001-04.com.example:a", "lun": 0}),
    "privileged": PRIVILEGED,
    "privileged-init": first(privileged=True, allowPrivilegeEscalation=None),
    "capability": own_context(capabilities={"drop": ["ALL"], "add": ["SYS_PTRACE"]}),
    "capability-of-baseline": own_context(capabilities={"drop": ["ALL"], "add": ["CHOWN"]}),
    "keeps-capabilities": own_context(capabilities=None),
    "drops-some": own_context(capabilities={"drop": ["NET_RAW"]}),
    "escalation": own_context(allowPrivilegeEscalation=True),
    "escalation-unsaid": own_context(allowPrivilegeEscalation=None),
    "escalation-init": first(allowPrivilegeEscalation=None),
    "root": own_context(runAsUser=0),
    "root-pod": context(runAsUser=0),
    "may-be-root": context(runAsNonRoot=None),
    "may-be-root-pod": both(context(runAsNonRoot=False), own_context(runAsNonRoot=True)),
    "may-be-root-container": own_context(runAsNonRoot=False),
    "seccomp": context(seccompProfile={"type": "Unconfined"}),
    "seccomp-unsaid": context(seccompProfile=None),
    "seccomp-container": own_context(seccompProfile={"type": "Unconfined"}),
    "seccomp-pod": both(context(seccompProfile={"type": "Unconfined"}), own_context(seccompProfile=FILTERED)),
    "sysctl": context(sysctls=[{"name": "kernel.msgmax", "value": "1"}]),
    "app-armor": context(appArmorProfile={"type": "Unconfined"}),
    "app-armor-container": own_context(appArmorProfile={"type": "Unconfined"}),
    "app-armor-note": note(APPARMOR, "unconfined"),
    "se-linux": context(seLinuxOptions={"type": "spc_t"}),
    "se-linux-user": own_context(seLinuxOptions={"user": "system_u"}),
    "se-linux-role": own_context(seLinuxOptions={"role": "system_r"}),
    "probe": on_container(livenessProbe={"httpGet": ELSEWHERE}),
    "probe-tcp": on_container(readinessProbe={"tcpSocket": {"port": 80, "host": "192.0.2.1"}}),
    "probe-start": on_container(startupProbe={"httpGet": ELSEWHERE}),
    "hook": on_container(lifecycle={"preStop": {"httpGet": ELSEWHERE}}),
    "hook-start": on_container(lifecycle={"postStart": {"tcpSocket": {"port": 80, "host": "192.0.2.1"}}}),
    "proc": both(on_pod(hostUsers=False), own_context(procMount="Unmasked")),
    "of-windows-on-host": of_windows(
        hostNetwork=True, securityContext={"runAsNonRoot": True, "windowsOptions": {"hostProcess": True}}
    ),
    "of-windows-may-be-root": of_windows(securityContext={}),
}
"""Pods that the newest restricted level refuses."""
GOOD: dict[str, Change] = {
    "plain": both(),
    "bind": own_context(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
    "user": own_context(runAsUser=10001),
    "non-root-by-container": both(context(runAsNonRoot=None), own_context(runAsNonRoot=True)),
    "seccomp-by-container": both(context(seccompProfile=None), own_context(seccompProfile=FILTERED)),
    "seccomp-of-node": context(seccompProfile={"type": "Localhost", "localhostProfile": "a.json"}),
    "app-armor": context(appArmorProfile={"type": "RuntimeDefault"}),
    "app-armor-note": note(APPARMOR, "runtime/default"),
    "se-linux": context(seLinuxOptions={"type": "container_t", "level": "s0"}),
    "se-linux-engine": context(seLinuxOptions={"type": "container_engine_t"}),
    "sysctl": context(sysctls=[{"name": "kernel.shm_rmid_forced", "value": "1"}]),
    "sysctl-of-1.32": context(sysctls=[{"name": "net.ipv4.tcp_rmem", "value": "4096 131072 6291456"}]),
    "init": first(),
    "probe": on_container(livenessProbe={"httpGet": HTTP}),
    "port": on_container(ports=[{"containerPort": 8080}]),
    "claim": volume(persistentVolumeClaim={"claimName": "c"}),
    "config-map": volume(configMap={"name": "c"}),
    "image-volume": volume(image={"reference": "x.example/x:1"}),
    "source-unsaid": volume(),
    "root-of-a-user-namespace": both(on_pod(hostUsers=False), context(runAsNonRoot=None, runAsUser=0)),
    "of-windows": of_windows(),
}
"""Pods that it admits."""
CASES = {
    **{f"bad-{name}": change for name, change in BAD.items()},
    **{f"good-{name}": change for name, change in GOOD.items()},
}


def made_of(name: str) -> Object:
    item = pod()
    CASES[name](item)
    return item


def job_of(item: Object) -> Object:
    template = {"metadata": {k: v for k, v in item["metadata"].items() if k != "name"}, "spec": item["spec"]}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": template}}


def namespace(level: str, version: str) -> Object:
    labels = {vocabulary.PSA_ENFORCE: level, vocabulary.PSA_VERSION: version, vocabulary.TENANT: "acme"}
    name = f"{level}-{version.replace('.', '-')}"
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


SPACES = [namespace(level, version) for level in ("baseline", "restricted") for version in VERSIONS]
SPACES.append(namespace("privileged", "latest"))
EACH_SPACE = [
    pytest.param(
        space,
        id=space["metadata"]["name"],
        marks=()
        if space["metadata"]["labels"][vocabulary.PSA_VERSION] in {VERSIONS[0], VERSIONS[-1]}
        else pytest.mark.exhaustive(reason="the versions between; `make test` asks the oldest and the newest"),
    )
    for space in SPACES
]
UNLABELLED = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "unlabelled"}}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, environment: Environment) -> Iterator[LabApi]:
    """A lab with one guard, of which only this rule is left, and a namespace for each level and version."""
    root = tmp_path_factory.mktemp("secured")
    (root / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        lab = control_plane.up(root=root)
        try:
            with LabApi(lab, ports.remembered(lab)["kube-apiserver"]) as api:
                for item in _one_rule(environment):
                    plural = "validatingadmissionpolicies" + "bindings" * item["kind"].endswith("Binding")
                    plural = plural.replace("policiesbindings", "policybindings")
                    api.request("POST", f"/apis/admissionregistration.k8s.io/v1/{plural}", item, CREATE)
                for space in (*SPACES, UNLABELLED):
                    api.request("POST", "/api/v1/namespaces", space, CREATE)
                until(
                    lambda: all(_account(api, space["metadata"]["name"]) for space in (*SPACES, UNLABELLED)),
                    "every namespace takes pods",
                )
                refused = job_of(made_of("bad-host-network"))
                until(lambda: answer(api, "restricted-latest", refused) != "admitted", "the guard refuses")
                yield api
        finally:
            control_plane.down(root=root)


def _one_rule(environment: Environment) -> list[Object]:
    guard_items = [copy.deepcopy(item) for item in guard_objects(environment) if item["metadata"]["name"] == GUARD]
    for item in guard_items:
        rules = item["spec"].get("validations", [])
        item["spec"] |= (
            {"validations": [validation for validation in rules if validation["message"].startswith(RULE)]}
            if rules
            else {}
        )
    return guard_items


def _account(api: LabApi, space: str) -> bool:
    return bool(api.get(f"/api/v1/namespaces/{space}/serviceaccounts").get("items"))


def answer(api: LabApi, space: str, item: Object) -> str:
    """The denier of an object in a dry run, with its message."""
    group, plural = ("/api/v1", "pods") if item["kind"] == "Pod" else ("/apis/batch/v1", "jobs")
    try:
        api.request("POST", f"{group}/namespaces/{space}/{plural}?dryRun=All&fieldValidation=Strict", item, CREATE)
    except ApiError as error:
        return str(error)
    return "admitted"


def refused(text: str, by: str) -> bool:
    assert text == "admitted" or by in text, f"only {by} is asked here: {text}"
    return text != "admitted"


BY_SERVER, BY_GUARD = "violates PodSecurity", f"ValidatingAdmissionPolicy '{GUARD}'"


@pytest.mark.parametrize("space", EACH_SPACE)
def test_the_guard_refuses_a_job_exactly_where_pod_security_refuses_its_pod(server: LabApi, space: Object) -> None:
    name = space["metadata"]["name"]
    by_server = {case: refused(answer(server, name, made_of(case)), BY_SERVER) for case in CASES}
    by_guard = {case: refused(answer(server, name, job_of(made_of(case))), BY_GUARD) for case in CASES}
    assert {case for case in CASES if by_server[case] != by_guard[case]} == set()
    if space["metadata"]["labels"][vocabulary.PSA_ENFORCE] == "restricted":
        assert sum(by_server.values()) >= len(BAD) - 5, "a server that refuses nothing proves nothing"


@pytest.mark.parametrize("space", EACH_SPACE)
def test_a_check_finds_exactly_what_pod_security_refuses(server: LabApi, space: Object) -> None:
    name, level, minor = space["metadata"]["name"], level_of(space), minor_of(space)
    different = set()
    for case in CASES:
        item = made_of(case)
        expected = refused(answer(server, name, item), BY_SERVER)
        for judged_item in (item, job_of(item)):
            (template,) = templates_of(judged_item)
            is_breach = bool(list(breaches(template, level, minor)))
            has_finding = is_breach
            if level is not PodSecurityLevel.PRIVILEGED:
                placed = {**judged_item, "metadata": {**judged_item["metadata"], "namespace": name}}
                objects = [(item_of_check, FilePosition("x.yaml", 1)) for item_of_check in (space, placed)]
                rules = {judged_finding.finding.rule for judged_finding in judge(Manifests(objects)).findings}
                has_finding = bool(rules & {"pod-02", RULE})
            if not expected == is_breach == has_finding:
                different.add(f"{case} {judged_item['kind']}")
    assert different == set()


def test_the_newest_level_refuses_every_bad_pod_and_no_good_one(server: LabApi) -> None:
    refused_cases = {case for case in CASES if refused(answer(server, "restricted-latest", made_of(case)), BY_SERVER)}
    assert refused_cases == {f"bad-{name}" for name in BAD}


def test_a_refusal_names_the_fields_to_change_and_no_others(server: LabApi) -> None:
    item = made_of("bad-escalation")
    CASES["bad-host-network"](item)
    message = answer(server, "restricted-latest", job_of(item))
    assert f"{RULE}: " in message
    assert (
        "hostNetwork is absent or false; securityContext.allowPrivilegeEscalation of a container is false." in message
    )
    assert "seccompProfile" not in message


def test_a_namespace_that_says_no_level_is_judged_by_the_strictest(server: LabApi) -> None:
    """The server's own default admits everything there; a damaged namespace of a tenant admits no work."""
    assert answer(server, "unlabelled", made_of("bad-root")) == "admitted"
    assert refused(answer(server, "unlabelled", job_of(made_of("bad-root"))), BY_GUARD)
    assert answer(server, "unlabelled", job_of(made_of("good-plain"))) == "admitted"
    assert (level_of(UNLABELLED), minor_of(UNLABELLED)) == (PodSecurityLevel.RESTRICTED, LATEST)
