"""A cluster on which people share GPUs: an environment's own objects on a running Kueue, and what tenants ask of it.

Nodes are played, and pods run for as many seconds as they say, or until they are deleted. Everything else is real: the
API server with the guards, its controllers, the scheduler and Kueue under its own configuration.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, Response, path_of
from tenancy.cluster.preflight import wait_for_guards
from tenancy.explain.usage import QueueUse, queue_use
from tenancy.explain.waiting import Explanation, explain
from tenancy.kube.requests import APPLY, MERGE, Impersonation, collection
from tenancy.lab import control_plane, processes
from tenancy.lab.layout import Lab
from tenancy.planning import Plan, make_plan
from tenancy.planning.common.pools import fake_nodes
from tenancy.planning.kubernetes.samples import sample
from tenancy.planning.queueing.kueue import configuration
from tenancy.planning.queueing.queue_names import API, queue_name
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import Loaded, load, on_lab
from tests.attacks.attack_lab import CONTROLLERS, served
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
GPU = "nvidia.com/gpu"
QUEUE = "kueue.x-k8s.io/queue-name"
LEAST_PODS = "kueue.x-k8s.io/job-min-parallelism"
PLATFORM = Impersonation("engineer@bank.example", ("system:masters",))
LEFT_OUT = frozenset({"NetworkPolicy"})
"""Kinds of a plan that nothing enforces here."""
ORDERED = ("Namespace", "PriorityClass", "Topology", "ResourceFlavor", "WorkloadPriorityClass", "Cohort")
"""Kinds that others depend on, in their order; the others go in any order."""

Object = dict[str, Any]


def condition(item: Mapping[str, Any] | None, kind: str) -> Mapping[str, Any]:
    """A condition of an object; empty if it has none of that kind."""
    conditions = ((item or {}).get("status") or {}).get("conditions") or ()
    return next((candidate for candidate in conditions if candidate["type"] == kind), {})


def holds(item: Mapping[str, Any] | None, kind: str) -> bool:
    return condition(item, kind).get("status") == "True"


class Scene:
    """One environment on one lab."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root, self.folder = root, folder
        self.lab = Lab.locate(root)
        self.loaded: Loaded
        self.plan: Plan
        self.read()
        self.api = Api(self.plan.context)

    def read(self) -> None:
        """The files as they are now."""
        self.loaded = on_lab(load(self.folder))
        self.plan = make_plan(self.loaded, self.loaded.day)

    # What the platform does

    def apply(self, *kinds: str) -> None:
        """Make what the files say; of these kinds alone, if some are named."""
        self.read()
        objects = [o for o in self.plan.objects() if o["kind"] not in LEFT_OUT and (not kinds or o["kind"] in kinds)]
        for kind in ORDERED:
            self._apply([o for o in objects if o["kind"] == kind])
        last = list(self.plan.platform.readiness_probe)
        self._apply([o for o in objects if o["kind"] not in ORDERED and o not in last])
        self._apply([o for o in objects if o in last])

    def _apply(self, items: Iterable[Object]) -> None:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(self.put, items))

    def put(self, item: Object) -> None:
        """Apply one object as the platform."""
        where = path_of(item) + "?fieldManager=test&force=true"
        answers: list[Response] = []

        def is_answered() -> bool:
            # A busy machine compiles the largest guards for longer than a request may take.
            answers.append(self.api.request("PATCH", where, item, content_type=APPLY))
            return True

        until(is_answered, f"an answer to {path_of(item)}")
        (answer,) = answers
        assert answer.ok, f"{path_of(item)}: {answer.status} {answer.message}"

    def settle(self) -> None:
        """Wait until guards judge, queues take work and namespaces take pods."""
        wait_for_guards(self.api, self.plan.platform.marker["data"]["digest"], PATIENCE)
        spaces = [space.name for tenant in self.plan.tenants for space in tenant.namespaces]
        until(lambda: all(holds(q, "Active") for q in self.items("ClusterQueue")), "every queue is open")
        until(lambda: all(holds(q, "Active") for q in self.items("LocalQueue")), "every namespace's queue is open")
        self.until_counted()
        accounts = [f"/api/v1/namespaces/{space}/serviceaccounts/default" for space in spaces]
        until(lambda: all(self.api.request("GET", path).ok for path in accounts), "every namespace takes pods")

    def until_counted(self) -> None:
        """Wait until every quota knows what is used of all that it limits."""

        def counted(quota: Object) -> bool:
            return {*quota["spec"]["hard"]} <= {*quota.get("status", {}).get("used", {})}

        until(lambda: all(map(counted, self.items("ResourceQuota", None, "v1"))), "quotas are counted")

    def edit(self, name: str, old: str, new: str) -> None:
        """Change a file of the environment, as an engineer does."""
        path = self.folder / name
        text = path.read_text("utf-8")
        assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in {name}"
        path.write_text(text.replace(old, new), "utf-8")

    @contextmanager
    def without_registries(self, tenant: str) -> Iterator[None]:
        """As if the tenant had lost every registry: all that runs in its first namespace breaks a rule."""
        where = f"/api/v1/namespaces/{self.space(tenant)}"
        before = self.api.request("GET", where).body["metadata"]["annotations"][vocabulary.ALLOWED_REGISTRIES]

        def say(registries: str) -> None:
            notes = {"metadata": {"annotations": {vocabulary.ALLOWED_REGISTRIES: registries}}}
            who = Impersonation("engineer@bank.example", (self.loaded.environment.platform.group, "system:masters"))
            answer = self.api.request("PATCH", where, notes, who, "application/merge-patch+json")
            assert answer.ok, answer.message

        def refused() -> bool:
            job = self.job(tenant, "of-a-lost-registry", 0)
            return "img-01" in self.ask(tenant, job, "?dryRun=All").message

        say("elsewhere.example/")
        try:
            until(refused, "the guards know")
            yield
        finally:
            say(before)
            until(lambda: not refused(), "the guards know")

    def kill_kueue(self) -> None:
        processes.stop(processes.running(self.lab, ("kueue",))["kueue"], at_once=True)

    def start_kueue(self) -> None:
        control_plane.up(root=self.root)

    # What tenants do

    def tenant(self, name: str) -> Tenant:
        return next(tenant for tenant in self.loaded.tenants if tenant.tenant == name)

    def space(self, tenant: str, part: str | None = None) -> str:
        tenant_plan = self.tenant(tenant)
        return tenant_plan.namespace_name(next(n for n in tenant_plan.namespaces if part in {None, n.name}))

    def developer(self, tenant: str) -> Impersonation:
        groups = [p.name for p in self.tenant(tenant).people if p.role is Role.DEVELOPER]
        return Impersonation(f"person@{tenant}.example", groups)

    def job(
        self,
        tenant: str,
        name: str,
        gpus: int,
        pods: int = 1,
        *,
        part: str | None = None,
        flavor: str = "a100",
        queue: str | None = None,
        priority: str | None = None,
        seconds: float = 3600,
        notes: Mapping[str, str] | None = None,
        pod_notes: Mapping[str, str] | None = None,
        cpu: str | None = None,
    ) -> Object:
        """A job of that many pods, each with that many GPUs; the product's own sample, grown."""
        owner = self.tenant(tenant)
        space = next(n for n in owner.namespaces if part in {None, n.name})
        job = copy.deepcopy(sample("job", self.loaded.environment, owner, space, {}))
        job["metadata"]["name"] = name
        job["metadata"]["annotations"] = dict(notes or {})
        job["metadata"]["labels"] = {QUEUE: queue} if queue else {}
        job["spec"] |= {"parallelism": pods, "completions": pods}
        template = job["spec"]["template"]
        template["metadata"]["annotations"] = {vocabulary.LAB_SECONDS: str(seconds), **(pod_notes or {})}
        for amounts in template["spec"]["containers"][0]["resources"].values():
            amounts |= {self.loaded.environment.resource_of(flavor): str(gpus)} if gpus else {}
            amounts |= {"cpu": cpu} if cpu else {}
        # Work that names no class has the lowest, whatever its tier.
        del template["spec"]["priorityClassName"]
        if priority:
            template["spec"]["priorityClassName"] = f"tenancy-tier-{priority}"
        return job

    def submit(self, tenant: str, name: str, gpus: int, pods: int = 1, **more: Any) -> str:
        """Have a developer of the tenant make a job; its namespace."""
        job = self.job(tenant, name, gpus, pods, **more)
        answer = self.ask(tenant, job)
        assert answer.ok, f"{name} of {tenant}: {answer.status} {answer.message}"
        return job["metadata"]["namespace"]

    def ask(self, tenant: str, item: Object, query: str = "") -> Response:
        """Answer of the API server to a developer of the tenant who creates the item."""
        where = collection(item["apiVersion"], item["kind"], item["metadata"]["namespace"])
        return self.api.request("POST", where + query, item, self.developer(tenant))

    def change(self, tenant: str, path: str, patch: Object) -> None:
        kind = "application/merge-patch+json"
        answer = self.api.request("PATCH", path, patch, self.developer(tenant), kind)
        assert answer.ok, f"{path}: {answer.status} {answer.message}"

    # What is seen

    def items(self, kind: str, namespace: str | None = None, version: str = API) -> list[Object]:
        return self.api.items(collection(version, kind, namespace))

    def workloads(self, namespace: str | None = None) -> dict[str, Object]:
        """Workloads by the name of what they belong to, the newest of each."""
        items = sorted(self.items("Workload", namespace), key=lambda w: w["metadata"]["creationTimestamp"])
        return {owner["name"]: w for w in items for owner in w["metadata"].get("ownerReferences") or ()}

    def workload(self, namespace: str, name: str) -> Object | None:
        return self.workloads(namespace).get(name)

    def runs(self, namespace: str, *names: str) -> bool:
        """Whether the queue let each of these start."""
        return not self.not_running(namespace, names)

    def not_running(self, namespace: str, names: Iterable[str]) -> list[str]:
        workloads = self.workloads(namespace)
        return [name for name in names if not holds(workloads.get(name), "Admitted")]

    def waits(self, namespace: str, *names: str) -> bool:
        """Whether Kueue looked at each of these and let none start."""
        workloads = self.workloads(namespace)
        return all(condition(workloads.get(name), "QuotaReserved").get("status") == "False" for name in names)

    def until_runs(self, namespace: str, *names: str) -> None:
        until(lambda: self.runs(namespace, *names), f"{', '.join(names)} of {namespace} run")

    def until_waits(self, namespace: str, *names: str) -> None:
        until(lambda: self.waits(namespace, *names), f"{', '.join(names)} of {namespace} wait")

    def evictions(self, namespace: str | None = None, reason: str = "Preempted") -> dict[str, int]:
        """Work by name -> how often it was evicted for that reason, ever."""
        counts: Counter[str] = Counter()
        for name, workload in self.workloads(namespace).items():
            for stat in ((workload.get("status") or {}).get("schedulingStats") or {}).get("evictions") or ():
                if stat["reason"] == reason:
                    counts[name] += stat["count"]
        return dict(counts)

    def holdings(self) -> list[QueueUse]:
        """Rows of `tenancy queues`."""
        return queue_use(self.api, self.loaded.environment)

    def gpus_in_use(self, tenant: str, pool: str | None = None, flavor: str = "a100") -> int:
        tenant_holdings = [h for h in self.holdings() if h.tenant == tenant and h.flavor == flavor]
        return sum(h.held for h in tenant_holdings if pool in {None, h.pool})

    def borrowed(self, tenant: str, flavor: str = "a100") -> int:
        return sum(h.borrowed for h in self.holdings() if h.tenant == tenant and h.flavor == flavor)

    def until_held(self, tenant: str, count: int, pool: str | None = None, flavor: str = "a100") -> None:
        until(
            lambda: self.gpus_in_use(tenant, pool, flavor) == count,
            f"{tenant} holds {count} {flavor} ({pool or 'any'})",
        )

    def until_borrowed(self, tenant: str, count: int, flavor: str = "a100") -> None:
        until(lambda: self.borrowed(tenant, flavor) == count, f"{tenant} borrows {count} {flavor}")

    def why(self, namespace: str, name: str, kind: str = "job") -> Explanation:
        """Explanation of `tenancy why`."""
        return explain(self.api, namespace, kind, name)

    def until_said(self, namespace: str, name: str, words: str, kind: str = "job") -> str:
        """Wait until `tenancy why` says these words; the whole sentence in which it did."""
        explanation = ""

        def heard() -> bool:
            nonlocal explanation
            explanation = self.why(namespace, name, kind).sentence
            return words in explanation

        until(heard, lambda: f"why {name}: {words!r}; it says {explanation!r}")
        return explanation

    def pods(self, namespace: str, phase: str = "Running") -> list[Object]:
        pods = self.items("Pod", namespace, "v1")
        return [p for p in pods if p["status"].get("phase") == phase and not p["metadata"].get("deletionTimestamp")]

    def queue(self, tenant: str, tier: str) -> Object:
        path = f"{collection(API, 'ClusterQueue')}/{queue_name(tenant, tier)}"
        return dict(self.api.request("GET", path).body)

    # Between two stories

    def clear(self, *tenants: str, seconds: float = PATIENCE) -> None:
        """Delete all work of these tenants, or of all, and wait until none of its GPUs is in use.

        What is left after that is an error, and is taken away by force: the next story is not played beside it.
        """
        cleared_tenants = [t for t in self.plan.tenants if not tenants or t.name in tenants]
        spaces = [space.name for tenant in cleared_tenants for space in tenant.namespaces]
        for space in spaces:
            end_work(self.api, space)
        workloads, pods = partial(self._left_workloads, spaces), partial(self._remaining, spaces, "Pod", "v1")
        try:
            until(lambda: not workloads(), lambda: f"no workload is left{_names_of(workloads())}", seconds=seconds)
            until(lambda: not pods(), lambda: f"no pod is left{_names_of(pods())}", seconds=seconds)
        except AssertionError:
            self._remove([*self._remaining(spaces, "Workload", API), *pods()])
            raise
        names = {tenant.name for tenant in cleared_tenants}
        until(lambda: not any(h.held for h in self.holdings() if h.tenant in names), "none of its GPUs is in use")

    def _remaining(self, spaces: Iterable[str], kind: str, version: str) -> list[Object]:
        items = [item for item in self.items(kind, None, version) if item["metadata"]["namespace"] in spaces]
        return [{"apiVersion": version, "kind": kind, **item} for item in items]

    def _left_workloads(self, spaces: Iterable[str]) -> list[Object]:
        """Workloads that should be gone. Those that Kueue has finished because their owner was deleted without them
        (`propagationPolicy: Orphan`) it keeps as long as other finished work; they are deleted here."""
        items = self._remaining(spaces, "Workload", API)
        finished = [i for i in items if holds(i, "Finished") and not i["metadata"].get("ownerReferences")]
        _delete(self.api, map(path_of, finished))
        return [item for item in items if item not in finished]

    def _remove(self, items: Iterable[Object]) -> None:
        for item in items:
            path = path_of(item)
            self.api.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
            self.api.request("DELETE", f"{path}?gracePeriodSeconds=0")


def _names_of(items: Iterable[Object]) -> str:
    """Objects with what keeps them, and what is true of them."""
    keys = ("name", "namespace", "creationTimestamp", "deletionTimestamp", "finalizers", "ownerReferences")
    facts = []
    for item in items:
        fact = {key: item["metadata"][key] for key in keys if key in item["metadata"]}
        conditions = (item.get("status") or {}).get("conditions") or ()
        facts.append(fact | {"conditions": [c["type"] for c in conditions if c["status"] == "True"]})
    return "".join(f"\n  {json.dumps(fact)}" for fact in facts)


def kueue_values(loaded: Loaded, **more: Any) -> dict[str, Any]:
    """Values of Kueue's chart for the environment, with settings of the test on top."""
    kueue_config = configuration(loaded.environment)
    for name, value in more.items():
        kueue_config[name] = {**kueue_config[name], **value}
    return {"managerConfig": {"controllerManagerConfigYaml": json.dumps(kueue_config)}}


def end_work(api: Api, space: str) -> None:
    """Take away all work of a namespace, piece by piece: a hundred in one request can take longer than it may."""
    for version, kind in (("batch/v1", "Job"), ("apps/v1", "Deployment"), ("apps/v1", "StatefulSet"), ("v1", "Pod")):
        where = collection(version, kind, space)
        query = "?propagationPolicy=Background&gracePeriodSeconds=0"
        _delete(api, [f"{where}/{item['metadata']['name']}{query}" for item in api.items(where)])


def _delete(api: Api, paths: Iterable[str]) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda path: api.request("DELETE", path), paths))


def strip(api: Api) -> None:
    """Take an environment off the cluster: people's work, then the queues, then all else."""
    environment_selector = f"?labelSelector={vocabulary.ENVIRONMENT}"
    spaces = [n["metadata"]["name"] for n in api.items(f"/api/v1/namespaces{environment_selector},{vocabulary.TENANT}")]
    for space in spaces:
        end_work(api, space)
    _delete(api, [f"/api/v1/namespaces/{space}" for space in spaces])
    until(
        lambda: not api.items(f"/api/v1/namespaces{environment_selector},{vocabulary.TENANT}"),
        "no namespace of a tenant is left",
    )
    guards = ("ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy")
    kinds = [(API, "ClusterQueue"), (API, "Cohort"), (API, "ResourceFlavor"), (API, "Topology")]
    kinds += [(API, "WorkloadPriorityClass"), ("scheduling.k8s.io/v1", "PriorityClass")]
    kinds += [("admissionregistration.k8s.io/v1", kind) for kind in guards]
    for version, kind in kinds:
        items = api.items(collection(version, kind) + environment_selector)
        _delete(api, [path_of({"apiVersion": version, "kind": kind, **item}) for item in items])
    until(
        lambda: not any(api.items(collection(API, kind) + environment_selector) for _, kind in kinds[:4]),
        "no queue is left",
    )


@contextmanager
def on_lab_of(root: Path, folder: Path) -> Iterator[Scene]:
    """The environment of a folder, which another program deploys, on the running lab of `root`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        patch.setenv("KUBECONFIG", str(Lab.locate(root).kubeconfig))
        yield Scene(root, folder)


@contextmanager
def on_stage(home: Path, folder: Path, crds: Iterable[Object] = (), **settings: Any) -> Iterator[Scene]:
    """The environment of a folder on the lab in `home`, which is started if it is not there, instead of the last one.

    `crds` are of operators, and there before Kueue is told of their kinds: it would wait for them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        loaded = on_lab(load(folder))
        group = loaded.environment.platform.group
        stage_lab = Lab.locate(home)
        if stage_lab.kueue.exists():
            patch.setenv("KUBECONFIG", str(stage_lab.kubeconfig))
            strip(Api(vocabulary.LAB_CONTEXT))
        if crds := list(crds):
            lab = control_plane.up(root=home, platform_group=group)
            patch.setenv("KUBECONFIG", str(lab.kubeconfig))
            api = Api(vocabulary.LAB_CONTEXT)
            for crd in crds:
                until(lambda crd=crd: _is_established(api, crd), f"{crd['metadata']['name']} is there")
            until(lambda: all(api.request("GET", served(crd)).ok for crd in crds), "the kinds are served")
            # The controller of quotas asks every 30 s which kinds there are; a new one asks at once.
            processes.stop(processes.running(stage_lab, (CONTROLLERS,))[CONTROLLERS])
        nodes, queues = fake_nodes(loaded.environment), kueue_values(loaded, **settings)
        lab = control_plane.up(root=home, platform_group=group, nodes=nodes, queues=queues)
        patch.setenv("KUBECONFIG", str(lab.kubeconfig))
        scene = Scene(home, folder)
        scene.apply()
        scene.settle()
        yield scene


def _is_established(api: Api, crd: Object) -> bool:
    answer = api.request("POST", collection(crd["apiVersion"], crd["kind"]), crd)
    assert answer.ok or answer.status == 409, answer.message
    return True
