"""A lab of the tests' own: what runs in it, who is who, and what happens when parts of it die."""

from __future__ import annotations

import base64
import datetime
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import stat
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tenancy.lab import control_plane, ports, processes
from tenancy.lab.api import LabApi
from tenancy.lab.components import COMPONENTS
from tenancy.lab.layout import Lab, LabError, environ
from tenancy.lab.nodes import apply_nodes
from tests.conftest import every
from tests.waiting import PATIENCE, until

PODS = "/api/v1/namespaces/default/pods"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
CREATE = "application/json"


@pytest.fixture(scope="module", autouse=True)
def _no_other_lab() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        yield


def project(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = project(tmp_path_factory.mktemp("lab"))
    try:
        control_plane.up(root=folder, platform_group="gpu-platform")
        yield folder
    finally:
        control_plane.down(root=folder)


@pytest.fixture(scope="module")
def lab(root: Path) -> Lab:
    return Lab.locate(root)


@pytest.fixture
def engineer(lab: Lab, root: Path) -> Iterator[LabApi]:
    """The API server as the platform engineer sees it."""
    control_plane.up(root=root)
    with LabApi(lab, ports.remembered(lab)["kube-apiserver"], identity="platform") as api:
        yield api


def pids(lab: Lab) -> dict[str, int]:
    return {name: running_processes[0].pid for name, running_processes in processes.running(lab, COMPONENTS).items()}


def gpu_node(name: str, gpus: int = 8) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"pool": "a100"}},
        "spec": {"taints": [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]},
        "status": {"allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}},
    }


def pod(name: str) -> dict[str, Any]:
    limits = {"nvidia.com/gpu": "1"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "main", "image": "fake", "resources": {"limits": limits}}]},
    }


def audited(lab: Lab) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (lab.folder / "audit.log").read_text().splitlines()]


def test_every_component_answers(root: Path) -> None:
    control_plane.up(root=root)
    assert {row.component for row in control_plane.status(root=root) if row.answering} == set(COMPONENTS)


def test_an_up_on_a_healthy_lab_touches_no_process(root: Path, lab: Lab) -> None:
    control_plane.up(root=root)
    before = pids(lab)
    control_plane.up(root=root)
    assert pids(lab) == before


def test_the_platform_engineer_has_the_rights_of_the_group_and_is_no_master(engineer: LabApi) -> None:
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    user = engineer.request("POST", path, review, CREATE)["status"]["userInfo"]
    assert user["username"] == "platform-engineer"
    assert set(user["groups"]) == {"gpu-platform", "system:authenticated"}
    assert engineer.get("/api/v1/namespaces/kube-system/secrets")["kind"] == "SecretList"


def test_only_the_bootstrap_identity_is_a_master(lab: Lab) -> None:
    users = {event["user"]["username"] for event in audited(lab) if "system:masters" in event["user"].get("groups", [])}
    assert users <= {"gpu-tenancy-lab:admin", "system:apiserver"}, (
        "a guard that exempts masters would let through what the scheduler or a controller does"
    )


def test_the_pod_of_a_job_is_created_by_the_job_controller(lab: Lab, engineer: LabApi) -> None:
    apply_nodes([gpu_node("gpu-0")], lab)
    spec = {"template": {"spec": pod("x")["spec"] | {"restartPolicy": "Never"}}}
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "train"}, "spec": spec}
    engineer.request("POST", JOBS, job, CREATE)
    until(lambda: engineer.get(f"{JOBS}/train")["status"].get("succeeded"), "the job has succeeded")
    creators = {
        event["user"]["username"]
        for event in audited(lab)
        if event["verb"] == "create"
        and event["objectRef"].get("resource") == "pods"
        # The API server names these pods, so the request does not.
        and "name" not in event["objectRef"]
    }
    assert creators == {"system:serviceaccount:kube-system:job-controller"}


def test_a_service_account_can_get_a_token(engineer: LabApi) -> None:
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"audiences": None}}
    path = "/api/v1/namespaces/default/serviceaccounts/default/token"
    token = engineer.request("POST", path, request, CREATE)["status"]["token"]
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
    answer = engineer.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review, CREATE)
    assert answer["status"]["user"]["username"] == "system:serviceaccount:default:default"


def test_a_gpu_pod_gets_its_toleration_and_runs_on_a_fake_node(lab: Lab, engineer: LabApi) -> None:
    apply_nodes([gpu_node("gpu-0")], lab)
    engineer.request("POST", PODS, pod("serve"), CREATE)
    until(lambda: engineer.get(f"{PODS}/serve")["status"]["phase"] == "Running", "the pod runs")
    live_pod = engineer.get(f"{PODS}/serve")
    assert "nvidia.com/gpu" in [toleration.get("key") for toleration in live_pod["spec"]["tolerations"]]
    engineer.request("DELETE", f"{PODS}/serve")
    until(lambda: not engineer.get(PODS, fieldSelector="metadata.name=serve")["items"], "the pod is gone")


def test_fake_nodes_become_exactly_what_is_asked_for(lab: Lab, engineer: LabApi) -> None:
    apply_nodes([gpu_node(f"gpu-{number}") for number in range(3)], lab)
    fewer = [gpu_node("gpu-0"), gpu_node("gpu-1", gpus=4)]
    assert apply_nodes(fewer, lab) == {"written": 1, "removed": 1, "kept": 1}
    nodes = {node["metadata"]["name"]: node for node in engineer.get("/api/v1/nodes")["items"]}
    assert {name: node["status"]["allocatable"]["nvidia.com/gpu"] for name, node in nodes.items()} == {
        "gpu-0": "8",
        "gpu-1": "4",
    }


def test_a_resource_that_a_node_loses_is_gone_from_it(lab: Lab, engineer: LabApi) -> None:
    whole_node, sliced = gpu_node("gpu-0"), gpu_node("gpu-0")
    del sliced["status"]["allocatable"]["nvidia.com/gpu"]
    sliced["status"]["allocatable"]["nvidia.com/mig-1g.5gb"] = "56"
    apply_nodes([whole_node], lab)
    apply_nodes([sliced], lab)
    status = engineer.get("/api/v1/nodes/gpu-0")["status"]
    assert "nvidia.com/gpu" not in status["allocatable"]
    assert status["capacity"]["nvidia.com/mig-1g.5gb"] == "56"


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_killed_component_is_noticed_and_started_again_with_its_state(
    name: str, root: Path, lab: Lab, engineer: LabApi
) -> None:
    mark = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": f"before-{name}"}}
    engineer.request("POST", "/api/v1/namespaces/default/configmaps", mark, CREATE)
    before = pids(lab)
    os.kill(before[name], signal.SIGKILL)
    until(lambda: name not in pids(lab), f"{name} has ended")
    assert [row.component for row in control_plane.status(root=root) if not row.alive] == [name]
    control_plane.up(root=root)
    assert every(row.answering for row in control_plane.status(root=root))
    after = pids(lab)
    assert {component for component in COMPONENTS if after[component] != before[component]} == {name}
    with LabApi(lab, ports.remembered(lab)["kube-apiserver"], identity="platform") as again:
        assert again.get(f"/api/v1/namespaces/default/configmaps/before-{name}")


@pytest.mark.exhaustive(
    reason="waits until a component has been silent for long; a killed one is replaced in `make test`"
)
def test_a_component_that_hangs_is_replaced(root: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_plane, "PATIENCE_SECONDS", 1)
    control_plane.up(root=root)
    before = pids(lab)
    os.kill(before["kwok"], signal.SIGSTOP)
    control_plane.up(root=root)
    assert pids(lab)["kwok"] != before["kwok"]


@pytest.mark.exhaustive(reason="restarts the API server at another port; a lab's start is in `make test`")
def test_a_port_that_another_process_took_is_given_up(root: Path, lab: Lab) -> None:
    control_plane.up(root=root)
    port = ports.remembered(lab)["kube-apiserver"]
    processes.stop(processes.running(lab, ("kube-apiserver",))["kube-apiserver"])
    with socket.socket() as thief:
        thief.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        thief.bind(("127.0.0.1", port))
        thief.listen()
        control_plane.up(root=root)
    assert ports.remembered(lab)["kube-apiserver"] != port
    assert every(row.answering for row in control_plane.status(root=root))


def test_the_engineers_certificate_is_renewed_before_it_runs_out(root: Path, lab: Lab) -> None:
    control_plane.up(root=root)
    before = (lab.pki / "platform.crt").read_text()
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=1)
    lab.remember(platform={"group": "gpu-platform", "expires": soon.isoformat()})
    control_plane.up(root=root)
    assert (lab.pki / "platform.crt").read_text() != before


def test_only_the_owner_can_read_a_key(lab: Lab) -> None:
    holders = [*lab.pki.iterdir(), lab.kubeconfig, lab.admin_kubeconfig]
    assert {path.name for path in holders if stat.S_IMODE(path.stat().st_mode) != 0o600} == set()


def test_nothing_listens_beyond_the_loopback_address(lab: Lab) -> None:
    opened = [file for pid in pids(lab).values() for file in Path(f"/proc/{pid}/fd").iterdir()]
    own_sockets = {str(file.readlink()) for file in opened if file.is_symlink()}
    sockets = [
        line.split()
        for table in (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        if table.exists()
        for line in table.read_text().splitlines()[1:]
    ]
    # Address, state (0A is LISTEN) and inode: proc_net_tcp(5).
    listening = [fields[1] for fields in sockets if fields[3] == "0A" and f"socket:[{fields[9]}]" in own_sockets]
    assert listening
    assert [address for address in listening if not address.startswith("0100007F:")] == []


def test_etcd_refuses_the_identity_of_a_cluster_user(lab: Lab) -> None:
    port, key = ports.remembered(lab)["etcd"], base64.b64encode(b"/registry/namespaces/default").decode()

    def answer_count(name: str) -> int:
        """Number of values that the identity reads, by etcd's JSON gateway."""
        context = ssl.create_default_context(cafile=str(lab.pki / "etcd-ca.crt"))
        context.load_cert_chain(lab.pki / f"{name}.crt", lab.pki / f"{name}.key")
        with closing(http.client.HTTPSConnection("127.0.0.1", port, timeout=PATIENCE, context=context)) as store:
            store.request("POST", "/v3/kv/range", json.dumps({"key": key}))
            answer = store.getresponse()
            assert answer.status == 200
            return len(json.loads(answer.read()).get("kvs", ()))

    assert answer_count("kube-apiserver-etcd") == 1
    # The handshake of TLS 1.3 ends before the server has looked at the certificate: the first read is told.
    with pytest.raises((ssl.SSLError, ConnectionError)):
        answer_count("platform")  # to read the store is to read every tenant's secrets


@pytest.mark.parametrize("shell", ["sh", "bash", *(["zsh"] if shutil.which("zsh") else [])])
def test_the_shell_file_can_be_sourced_twice_from_any_folder(lab: Lab, shell: str, tmp_path: Path) -> None:
    script = f'. "{lab.folder}/env"; once=$PATH; . "{lab.folder}/env"; [ "$once" = "$PATH" ] && env'
    process = subprocess.run([shell, "-uc", script], capture_output=True, text=True, cwd=tmp_path, check=True)
    variables = dict(line.split("=", 1) for line in process.stdout.splitlines() if "=" in line)
    expected = environ(lab.root, base={"PATH": os.environ["PATH"]})
    assert {name: variables[name] for name in expected if name != "PATH"} == {
        name: value for name, value in expected.items() if name != "PATH"
    }
    assert variables["PATH"].startswith(expected["PATH"].split(os.pathsep)[0])


@pytest.mark.exhaustive(reason="two labs at a time; one is in `make test`")
def test_two_labs_stand_side_by_side_and_one_goes_without_the_other(root: Path, lab: Lab, tmp_path: Path) -> None:
    control_plane.up(root=root)
    other_root = project(tmp_path / "other")
    second_lab = control_plane.up(root=other_root)
    try:
        lab_ports, second_lab_ports = ports.remembered(lab), ports.remembered(second_lab)
        assert not set(lab_ports.values()) & set(second_lab_ports.values())
        assert every(row.answering for row in control_plane.status(root=other_root))
    finally:
        control_plane.down(root=other_root)
    assert pids(second_lab) == {}
    assert [entry.name for entry in second_lab.folder.iterdir()] == ["lock"]
    assert every(row.answering for row in control_plane.status(root=root))


def test_a_folder_that_holds_other_things_is_never_taken_for_a_lab(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    precious = tmp_path / "home" / "precious.txt"
    precious.parent.mkdir()
    precious.write_text("mine")
    monkeypatch.setenv("GPU_TENANCY_LAB", str(precious.parent))
    for action in (control_plane.up, control_plane.down):
        with pytest.raises(LabError, match="contains other files than a lab"):
            action(root=project(tmp_path / "project"))
    assert precious.read_text() == "mine"
