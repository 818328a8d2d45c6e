"""The clock in the cluster: what its Deployment is given, which of two copies works, and what its probes answer."""

from __future__ import annotations

import base64
import datetime as dt
import json
import shutil
import urllib.request
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from cryptography import x509
from cryptography.x509.oid import NameOID

from tenancy.catalog import vocabulary
from tenancy.catalog.exporters import CLOCK_LAST_ROUND
from tenancy.clock.controller import ClockRefused
from tenancy.clock.health import LATE_SECONDS, Health
from tenancy.clock.lease import SECONDS, STOPPED_SECONDS, Lease, release, take
from tenancy.clock.shutdown import end_reservations
from tenancy.cluster.api import Response
from tenancy.kube.objects import Object
from tenancy.lab import clock as lab_clock
from tenancy.lab import pki
from tenancy.lab.layout import Lab
from tenancy.planning import make_plan
from tenancy.planning.queueing import clock_deployment
from tenancy.spec.loader import Loaded, load, on_lab
from tenancy.spec.reading.problems import SpecError
from tests.conftest import SpecFolder, every
from tests.mounted_volume import clock_objects, clock_volume
from tests.spec_cases import ENV

ROOT = Path(__file__).parents[4]
IMAGE = f"registry.bank.example/platform/tenancy@sha256:{'0' * 64}"
ON = f"queues: {{clock: true, clock-image: '{IMAGE}'}}\n"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/tenancy-system/leases"
NOW = dt.datetime(2026, 11, 23, 12, tzinfo=dt.UTC)


@pytest.fixture
def loaded(spec: SpecFolder) -> Loaded:
    spec.add(ENV, ON + "metrics: {collector: existing}\n")
    return spec.load()


def test_it_is_made_where_the_environment_names_an_image_and_not_on_the_lab(loaded: Loaded) -> None:
    own_kinds = {"ConfigMap", "Deployment", "PodDisruptionBudget", "Service", "NetworkPolicy", "ServiceMonitor"}
    assert {kind for kind, _ in clock_objects(loaded)} >= own_kinds
    assert {kind for kind, _ in clock_objects(on_lab(loaded))}.isdisjoint(own_kinds)


def test_an_image_is_named_by_digest_and_only_with_a_clock(spec: SpecFolder) -> None:
    spec.add(ENV, ON.replace("clock: true, ", ""))
    with pytest.raises(SpecError, match="the image runs the clock"):
        spec.load()
    spec.edit(ENV, ON.replace("clock: true, ", ""), ON.replace("@sha256", ":1#"))
    with pytest.raises(SpecError, match="an image by digest"):
        spec.load()


def test_its_pods_are_as_pod_security_restricted_asks(loaded: Loaded) -> None:
    pod = clock_objects(loaded)["Deployment", vocabulary.CLOCK]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    locked = container["securityContext"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert (locked["runAsNonRoot"], locked["allowPrivilegeEscalation"]) == (True, False)
    assert (locked["capabilities"], locked["readOnlyRootFilesystem"]) == ({"drop": ["ALL"]}, True)
    assert container["resources"].keys() == {"requests", "limits"}
    assert pod["serviceAccountName"] == vocabulary.CLOCK


def test_files_of_many_tenants_are_in_as_many_config_maps_as_they_need(
    spec: SpecFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec.add(ENV, ON)
    loaded = spec.load()
    config_map = clock_objects(loaded)["ConfigMap", clock_deployment.FILES]
    assert len([kind for kind, _ in clock_objects(loaded) if kind == "ConfigMap"]) == 1
    max_bytes = max(len(key) + len(text) for key, text in config_map["data"].items()) + 400
    monkeypatch.setattr(clock_deployment, "MAX_BYTES", max_bytes)
    objects = clock_objects(loaded)
    parts = [item["data"] for (kind, _), item in objects.items() if kind == "ConfigMap"]
    assert len(parts) > 1
    assert every(sum(len(key) + len(text) for key, text in part.items()) <= max_bytes for part in parts)
    assert {key: text for part in parts for key, text in part.items()} == config_map["data"]
    mounted = load(clock_volume(objects, tmp_path / "mounted").path)
    assert mounted.tenants == loaded.tenants


@pytest.mark.parametrize("stack", ["", "local", "bank", "regulated"])
def test_its_files_make_the_same_plan(stack: str, spec: SpecFolder, tmp_path: Path) -> None:
    folder = tmp_path / "given" / stack
    if stack:
        shutil.copytree(ROOT / "stacks" / stack, folder)
    else:
        folder = spec.load().folder
    path = folder / ENV
    text = path.read_text("utf-8")
    path.write_text(text.replace("queues: {", ON[:-2] + ", ") if "queues: {" in text else text + ON, "utf-8")
    loaded = load(folder)
    objects = clock_objects(loaded)
    files = clock_volume(objects, tmp_path / "mounted").path
    mounted = load(files)
    assert mounted.environment == loaded.environment
    plans = [make_plan(read_files, read_files.day) for read_files in (loaded, mounted)]
    assert list(plans[0].objects()) == list(plans[1].objects())
    kubeconfig = yaml.safe_load((files / "kubeconfig").read_text("utf-8"))
    assert kubeconfig["current-context"] == loaded.environment.cluster.context


def test_ranges_of_a_list_beside_the_files_are_in_the_mounted_ones(spec: SpecFolder, tmp_path: Path) -> None:
    """The list itself is in no ConfigMap."""
    prefix = {"ip_prefix": "3.5.134.0/23", "region": "eu-central-1", "service": "S3"}
    spec.write("ip-ranges.json", json.dumps({"prefixes": [prefix]}))
    network = "{aws-ip-ranges-file: ip-ranges.json, aws-service-cidrs: [52.219.0.0/16]}"
    spec.add(ENV, ON + f"aws: {{region: eu-central-1, account: '111122223333', network: {network}}}\n")
    loaded = spec.load()
    mounted = load(clock_volume(clock_objects(loaded), tmp_path / "mounted").path)
    ranges = mounted.environment.aws.network.aws_service_cidrs
    assert set(ranges) == {"3.5.134.0/23", "52.219.0.0/16"} == set(loaded.environment.aws.network.aws_service_cidrs)
    assert mounted.tenants == loaded.tenants


class Server:
    """The Lease of an API server whose time a test sets."""

    def __init__(self) -> None:
        self.lease: Object | None = None
        self.now = NOW
        self.refuses = 0

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Response:
        assert path.startswith(LEASE)
        headers = {"Date": format_datetime(self.now, usegmt=True)}
        if self.refuses:
            return Response(self.refuses, {"message": "no"}, headers)
        if method == "GET":
            return Response(200, self.lease, headers) if self.lease else Response(404, {}, headers)
        if method == "DELETE":
            self.lease = None
            return Response(200, {})
        version = self.lease["metadata"]["resourceVersion"] if self.lease else None
        if body["metadata"].get("resourceVersion") != version:
            return Response(409, {})
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(int(version or 0) + 1)}}
        return Response(200, self.lease)


def test_one_copy_works_and_another_takes_over_when_it_is_silent() -> None:
    server: Any = Server()
    first_copy, second_copy = Lease(server, "one"), Lease(server, "two")
    assert (first_copy.hold(), second_copy.hold(), first_copy.hold()) == (True, False, True)
    server.now += dt.timedelta(seconds=SECONDS)
    assert not second_copy.hold()
    server.now += dt.timedelta(seconds=1)
    assert (second_copy.hold(), first_copy.hold()) == (True, False)


def test_no_copy_works_while_its_queues_are_removed() -> None:
    server: Any = Server()
    first_copy, second_copy = Lease(server, "one"), Lease(server, "two")
    take(server)
    assert server.lease is None, "without a clock there is no Lease to take"
    assert first_copy.hold()
    take(server)
    server.now += dt.timedelta(seconds=STOPPED_SECONDS)
    assert (first_copy.hold(), second_copy.hold()) == (False, False)
    release(server)
    assert (second_copy.hold(), first_copy.hold()) == (True, False)
    release(server)
    assert second_copy.hold(), "a Lease that a copy holds is not released"
    take(server)
    server.now += dt.timedelta(seconds=STOPPED_SECONDS + 1)
    assert first_copy.hold(), "a removal that was ended does not stop the clock for ever"


def test_of_two_copies_that_take_a_lease_at_once_one_has_it() -> None:
    server: Any = Server()
    first_copy, second_copy = Lease(server, "one"), Lease(server, "two")
    inner = server.request

    def overtaken(method: str, path: str, body: Any = None, **more: Any) -> Response:
        if method == "POST":
            server.request = inner
            assert second_copy.hold()
        return inner(method, path, body, **more)

    server.request = overtaken
    assert not first_copy.hold()
    server.refuses = 403
    with pytest.raises(ClockRefused, match="403"):
        first_copy.hold()


def test_probes_and_metrics_say_what_the_process_does() -> None:
    now = 1000.0
    health = Health("small", lambda: now)
    with health.serve("127.0.0.1", 0) as server:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            assert CLOCK_LAST_ROUND + "{" not in answer.read().decode(), "a copy that waits has no last round"
        health.complete()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            assert f'{CLOCK_LAST_ROUND}{{environment="small"}} 1000.000\n' in answer.read().decode()
        server.shutdown()
    assert health.answer("/healthz")[0] == 200
    now += LATE_SECONDS + 1
    assert health.answer("/healthz")[0] == 503
    health.attempt()
    assert health.answer("/healthz")[0] == 200
    assert health.answer("/")[0] == 404


def test_the_labs_clock_is_the_account_of_the_deployment_and_in_no_other_group(loaded: Loaded, tmp_path: Path) -> None:
    lab = Lab(tmp_path, tmp_path / "lab")
    pki.ensure(lab)
    kubeconfig = yaml.safe_load(lab_clock.write_identity(lab, 6443).read_text("utf-8"))
    (user,) = kubeconfig["users"]
    subject = x509.load_pem_x509_certificate(base64.b64decode(user["user"]["client-certificate-data"])).subject
    names = {attribute.oid: [] for attribute in subject}
    for attribute in subject:
        names[attribute.oid].append(attribute.value)
    spec = clock_objects(loaded)["Deployment", "tenancy-clock"]
    account = f"{spec['metadata']['namespace']}:{spec['spec']['template']['spec']['serviceAccountName']}"
    assert names[NameOID.COMMON_NAME] == [f"system:serviceaccount:{account}"]
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{spec['metadata']['namespace']}"]
    assert names[NameOID.ORGANIZATION_NAME] == groups


def test_its_pods_have_ended_before_reservations_are_deleted() -> None:
    requests: list[str] = []

    class Cluster:
        def request(self, method: str, path: str, *_: Any, **__: Any) -> Response:
            kind, name = path.partition("?")[0].split("/")[-2:]
            requests.append(f"{method} {kind} {name}")
            return Response(200, {"metadata": {"resourceVersion": "1"}}, {"Date": format_datetime(NOW, usegmt=True)})

        def items(self, path: str) -> list[Object]:
            requests.append(f"LIST {path.partition('?')[0].rpartition('/')[2]}")
            return []

    api: Any = Cluster()
    end_reservations(api)
    assert requests == [
        "GET clusterqueues tenancy-reserve",
        "GET leases tenancy-clock",
        "PUT leases tenancy-clock",
        "DELETE deployments tenancy-clock",
        "LIST pods",
        "LIST workloads",
    ]
