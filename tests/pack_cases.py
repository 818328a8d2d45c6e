"""For every rule of the policy pack an object that breaks it, and its twin that differs in one field."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from typing import Any

from tenancy.catalog import sizes, vocabulary
from tenancy.components.kubernetes.manifest import resource_type
from tenancy.kube.objects import name_of
from tenancy.rules import aws
from tenancy.rules.nodes import MIG_CONFIG
from tenancy.rules.queues import GATES, PREEMPTION
from tenancy.rules.values import MOST_PUBLIC

Object = dict[str, Any]

RBAC = "rbac.authorization.k8s.io"
DEVICES = "resource.k8s.io"
GPUS = "requests.nvidia.com/gpu"
OPERATORS = vocabulary.OPERATOR_NAMESPACE
ADMISSION = "admissionregistration.k8s.io/v1"


@dataclass(frozen=True)
class Case:
    """`broken` and `mended` are the same objects but for one field; the last one is what the finding names."""

    rule: str
    broken: tuple[Object, ...]
    mended: tuple[Object, ...]
    finding: str

    @property
    def id(self) -> str:
        return f"{self.rule}-{self.finding.replace(' ', '-').replace('/', '-')}"


def manifest(
    api: str,
    kind: str,
    name: str,
    body: Object | None = None,
    tenant: str | None = "acme",
    namespace: str | None = None,
) -> Object:
    labels = {vocabulary.TENANT: tenant} if tenant else {}
    metadata: Object = {"name": name, "labels": labels}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **(body or {})}


@dataclass(frozen=True)
class Resource:
    """A case's object as a program sends it to the engine."""

    type: str
    name: str
    inputs: Object
    source: tuple[str, str, str] | None = None
    """The property that comes from another resource, and that one's type and name."""


def resource(item: Object) -> Resource:
    metadata = item["metadata"]
    name = metadata["name"] if isinstance(metadata, dict) else "unknown"
    if ":" not in item["kind"] and item["kind"] != "Release":
        return Resource(resource_type(item), name, item)
    sources = aws.SOURCES.get(item["kind"], ())
    envelope_keys = {"apiVersion", "kind", "metadata", *(known_key for _, _, known_key in sources)}
    inputs = {key: value for key, value in item.items() if key not in envelope_keys}
    if item["kind"] == "Release":
        where = metadata["namespace"] if isinstance(metadata, dict) else OPERATORS
        return Resource(resource_type(item), name, {**inputs, "name": name, "namespace": where})
    source_references = [
        (field, kind, item[known_key][0]["metadata"]["name"])
        for field, kind, known_key in sources
        if item.get(known_key)
    ]
    return Resource(item["kind"], name, inputs, next(iter(source_references), None))


def with_field(item: Object, path: tuple[Any, ...], value: Any) -> Object:
    """A copy that differs in one field; None leaves it out."""
    changed_item = copy.deepcopy(item)
    place = changed_item
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed_item


def namespace(name: str, tenant: str) -> Object:
    space = manifest("v1", "Namespace", name, tenant=tenant)
    levels = {vocabulary.PSA_ENFORCE: "restricted", vocabulary.PSA_VERSION: "v1.36"}
    space["metadata"]["labels"] |= {**dict.fromkeys(vocabulary.COST_LABELS, "x"), **levels}
    return space


def resolving(name: str, port: int = 53) -> Object:
    """The way to the cluster's DNS."""
    to = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]
    spec = {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{"to": to, "ports": [{"port": port}]}]}
    return manifest("networking.k8s.io/v1", "NetworkPolicy", "dns", {"spec": spec}, name, name)


_DEFAULTS = {"type": "Container", "defaultRequest": {"cpu": "1", "memory": "1Gi"}}


def isolation_resources(name: str, tenant: str) -> tuple[Object, ...]:
    deny = {"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}}
    return (
        manifest("v1", "ResourceQuota", "isolation", {"spec": {"hard": {"pods": "1", GPUS: "0"}}}, tenant, name),
        manifest("v1", "LimitRange", "isolation", {"spec": {"limits": [_DEFAULTS]}}, tenant, name),
        manifest("networking.k8s.io/v1", "NetworkPolicy", "isolation", deny, tenant, name),
        with_field(resolving(name), ("metadata", "labels", vocabulary.TENANT), tenant),
    )


def binding(name: str, where: str, tenant: str, role: str, group: str, kind: str = "Role") -> Object:
    body = {
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": group}],
    }
    return manifest(f"{RBAC}/v1", "RoleBinding", name, body, tenant, where)


def _case(rule: str, item: Object, path: tuple[Any, ...], mended: Any) -> Case:
    metadata = item["metadata"]
    where = f"{metadata['namespace']}/" if "namespace" in metadata else ""
    return Case(rule, (item,), (with_field(item, path, mended),), f"{item['kind']} {where}{metadata['name']}")


def _space(rule: str, name: str, path: tuple[Any, ...], broken: Any) -> Case:
    good = namespace(name, name)
    others = isolation_resources(name, name)
    return Case(rule, (*others, with_field(good, path, broken)), (*others, good), f"Namespace {name}")


def _protected_case(name: str) -> Case:
    """A namespace of an environment, as a preview shows it."""
    good = namespace(name, name)
    good["metadata"]["labels"][vocabulary.ENVIRONMENT] = "e"
    good[aws.PROTECTED] = True
    # What the platform made there is known by its label too.
    others = tuple(
        with_field(item, ("metadata", "labels", vocabulary.ENVIRONMENT), "e")
        for item in isolation_resources(name, name)
    )
    return Case("ns-07", (*others, {**good, aws.PROTECTED: False}), (*others, good), f"Namespace {name}")


CLOSED = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
SECURED = {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}}
"""Settings of a container and of a pod that Pod Security requires at its strictest."""


def container(**fields: Any) -> Object:
    return {"name": "main", "image": "x/y:1", "securityContext": CLOSED, **fields}


def _pod(rule: str, name: str, spec: Object, path: tuple[Any, ...], mended: Any) -> Case:
    full = {**SECURED, "containers": [container()], **spec}
    return _case(rule, manifest("v1", "Pod", name, {"spec": full}, namespace="acme--pods"), path, mended)


_TERM = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}
_PREFERRED = ("spec", "affinity", "podAntiAffinity", "preferredDuringSchedulingIgnoredDuringExecution")
_ELSEWHERE = ("podAffinityTerm", "namespaces")


def _preferring(terms: list[Object]) -> Object:
    preferred_terms = [{"weight": 1, "podAffinityTerm": term} for term in terms]
    return {"affinity": {"podAntiAffinity": {_PREFERRED[-1]: preferred_terms}}}


def _marked(name: str, **metadata: Any) -> Object:
    item = manifest("v1", "ConfigMap", name, {"data": {}}, namespace="acme--net")
    return {**item, "metadata": {**item["metadata"], **metadata}}


def _labelled(name: str, key: str) -> Object:
    return with_field(_marked(name), ("metadata", "labels", key), "1")


def _role(rule: str, name: str, group: str, resource: str, verb: str, path: tuple[Any, ...], mended: Any) -> Case:
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": [verb]}]
    return _case(rule, manifest(f"{RBAC}/v1", "ClusterRole", name, {"rules": rules}), path, mended)


def _bound(rule: str, name: str, resource: str, verb: str, path: tuple[Any, ...], mended: Any) -> Case:
    """A foreign role, which becomes dangerous when it is bound to a tenant."""
    rules = [{"apiGroups": [""], "resources": [resource], "verbs": [verb]}]
    role = manifest(f"{RBAC}/v1", "Role", "foreign", {"rules": rules}, None, name)
    others = (
        namespace(name, name),
        *isolation_resources(name, name),
        binding("bound", name, name, "foreign", f"{name}-people"),
    )
    return Case(rule, (*others, role), (*others, with_field(role, path, mended)), f"Role {name}/foreign")


def _policy(rule: str, name: str, spec: Object, path: tuple[Any, ...], mended: Any) -> Case:
    item = manifest("networking.k8s.io/v1", "NetworkPolicy", name, {"spec": spec}, namespace="acme--net")
    return _case(rule, item, path, mended)


CILIUM = "cilium.io/v2"
_SPACE = "k8s:io.kubernetes.pod.namespace"
_TENANTS_LABEL = f"k8s:io.cilium.k8s.namespace.labels.{vocabulary.TENANT}"


def cilium(name: str, where: str | None = "acme--net", **spec: Any) -> Object:
    """A policy of Cilium's: a tenant's in a namespace, or, without one, of no tenant and for all namespaces."""
    kind, tenant = ("CiliumNetworkPolicy", "acme") if where else ("CiliumClusterwideNetworkPolicy", None)
    return manifest(CILIUM, kind, name, {"spec": {"endpointSelector": {}, **spec}}, tenant, where)


def on_port(port: str, **peers: Any) -> Object:
    return {**peers, "toPorts": [{"ports": [{"port": port, "protocol": "TCP"}]}]}


def of_space(name: str, **labels: str) -> Object:
    return {"matchLabels": {_SPACE: name, **labels}}


def _cilium(rule: str, name: str, direction: str, broken: Object, path: tuple[Any, ...], mended: Any) -> Case:
    return _case(rule, cilium(name, **{direction: [broken]}), ("spec", direction, 0, *path), mended)


def _together(rule: str, item: Object, path: tuple[Any, ...], mended: Any, *others: Object) -> Case:
    """A case that is found only together with `others`."""
    return Case(rule, (*others, item), (*others, with_field(item, path, mended)), name_of(item))


def on_aws(kind: str, name: str, body: Object) -> Object:
    return {"kind": kind, "metadata": {"name": name}, **body}


def cluster(name: str, vpc: Object | None = None, access: Object | None = None, *, deletable: bool = False) -> Object:
    private = {"endpointPublicAccess": False} if vpc is None else vpc
    entries = {"authenticationMode": "API", "bootstrapClusterCreatorAdminPermissions": False}
    body = {"roleArn": "arn:aws:iam::111122223333:role/c", "vpcConfig": {"subnetIds": ["subnet-0a"], **private}}
    access_fields = {"accessConfig": entries if access is None else access, "deletionProtection": not deletable}
    return on_aws(aws.CLUSTER, name, {**body, **access_fields})


def _many_ranges(count: int) -> list[str]:
    return [f"198.51.{number}.0/24" for number in range(count)]


def group(name: str, **body: Any) -> Object:
    """A node group without GPUs, if nothing else is given."""
    base = {
        "clusterName": "c",
        "nodeRoleArn": "arn:aws:iam::111122223333:role/n",
        "subnetIds": ["subnet-0a"],
        "scalingConfig": {"desiredSize": 1, "minSize": 1, "maxSize": 1},
        "launchTemplate": {"id": "lt-0a", "version": "1"},
        "releaseVersion": "1.36.3-20260903",
    }
    return on_aws(aws.GROUP, name, {key: value for key, value in {**base, **body}.items() if value is not None})


def template(name: str, **body: Any) -> Object:
    base = {
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"encrypted": "true"}}],
    }
    return on_aws(aws.TEMPLATE, name, {**base, **body})


def efa_template(name: str, wall: str) -> Object:
    interface = {"deviceIndex": 0, "interfaceType": "interface", "securityGroups": ["sg-0c"]}
    efa = {"deviceIndex": 1, "interfaceType": "efa-only", "securityGroups": [wall]}
    return template(name, instanceType="p5.48xlarge", networkInterfaces=[interface, efa])


def node_class(name: str, **spec: Any) -> Object:
    base = {"amiSelectorTerms": [{"alias": "al2023@v20260903"}], "role": "n"}
    return manifest("karpenter.k8s.aws/v1", "EC2NodeClass", name, {"spec": {**base, **spec}}, None)


def efa_class(name: str, term: Object) -> Object:
    return node_class(
        name,
        networkInterfaces=[{"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"}],
        securityGroupSelectorTerms=[term],
    )


_ISSUER = "oidc.eks.eu-central-1.amazonaws.com/id/0A"
_SUBJECT = "system:serviceaccount:acme--main:workload"


def role(name: str, subject: str | None, principal: Any = None) -> Object:
    """A role that a token of the cluster's issuer assumes, or the given principal."""
    condition = {"StringLike": {f"{_ISSUER}:sub": subject}} if subject else {"StringLike": {f"{_ISSUER}:aud": "sts"}}
    statement = {
        "Effect": "Allow",
        "Principal": principal or {"Federated": f"arn:aws:iam::111122223333:oidc-provider/{_ISSUER}"},
        "Action": "sts:AssumeRoleWithWebIdentity",
        **({} if principal else {"Condition": condition}),
    }
    return on_aws(aws.ROLE, name, {"assumeRolePolicy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})})


def _trust(name: str, broken: Object, mended: Object) -> Case:
    return Case("id-05", (broken,), (mended,), f"{aws.ROLE} {name}")


def _tested(name: str, broken: Object, mended: Object, principal: Any = None) -> Case:
    """A trust whose condition alone differs."""
    whom = principal or {"Federated": f"arn:aws:iam::111122223333:oidc-provider/{_ISSUER}"}

    def trusting(condition: Object) -> Object:
        statement = {"Effect": "Allow", "Principal": whom, "Action": "sts:AssumeRole", "Condition": condition}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        return on_aws(aws.ROLE, name, {"assumeRolePolicy": document})

    return _trust(name, trusting(broken), trusting(mended))


def _with(name: str, key: str) -> Object:
    statement = {"Effect": "Allow", key: {"AWS": "111122223333"}, "Action": "sts:AssumeRole"}
    return on_aws(aws.ROLE, name, {"assumeRolePolicy": json.dumps({"Version": "2012-10-17", "Statement": [statement]})})


_SUB = f"{_ISSUER}:sub"
_OWN_ORGANIZATION = {"StringEquals": {"aws:PrincipalOrgID": "o-0a"}}


def _document(*actions: str, on: str = "arn:aws:s3:::data/acme/*", **more: Any) -> str:
    statement = {"Effect": "Allow", "Action": [*actions], "Resource": on, **more}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


_SSH = {"protocol": "tcp", "fromPort": 22, "toPort": 22}
_CLOSED = dict.fromkeys(("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets"), True)
_TAGS = {vocabulary.TENANT_TAG: "acme", **dict.fromkeys(vocabulary.COST_LABELS, "x")}
_TRUST = role("x", _SUBJECT)["assumeRolePolicy"]
_OWN_ROLE = on_aws(aws.ROLE, "owner", {"assumeRolePolicy": _TRUST, "tags": _TAGS})


def _permits(kind: str, name: str, broken: str, mended: str, **body: Any) -> Case:
    return _case("id-06", on_aws(kind, name, {"policy": broken, **body}), ("policy",), mended)


def _permitted(name: str, broken: str, mended: str) -> Case:
    """A policy of a role that a tag says is a tenant's."""
    item = on_aws(aws.ROLE_POLICY, name, {"policy": broken, aws.ROLES: [_OWN_ROLE]})
    fixed = with_field(item, ("policy",), mended)
    return Case("id-06", (_OWN_ROLE, item), (_OWN_ROLE, fixed), f"{aws.ROLE_POLICY} {name}")


_ROLE = "arn:aws:iam::111122223333:role/{}".format
_INSTANCE = "arn:aws:ec2:eu-central-1:111122223333:instance/{}".format


def _lets(name: str, broken: str, mended: str, **more: Any) -> Case:
    """A tenant's policy of one statement."""
    return _permits(aws.POLICY, name, _document(broken, **more), _document(mended, **more), tags=_TAGS)


def _reaches(name: str, action: str, broken: str, mended: str) -> Case:
    return _permits(aws.POLICY, name, _document(action, on=broken), _document(action, on=mended), tags=_TAGS)


def _passes(name: str, action: str, broken: str, mended: str) -> Case:
    """A policy of a tenant's on one role of the same program."""
    item = on_aws(aws.POLICY, name, {"policy": _document(action, on=_ROLE(broken)), "tags": _TAGS})
    fixed = with_field(item, ("policy",), _document(action, on=_ROLE(mended)))
    others = (
        on_aws(aws.ROLE, "own", {"assumeRolePolicy": _TRUST, "tags": _TAGS, "name": "acme-own"}),
        on_aws(aws.ROLE, "theirs", {"assumeRolePolicy": _TRUST, "tags": _RIVALS, "name": "rival-own"}),
        on_aws(aws.ROLE, "common", {"assumeRolePolicy": _TRUST, "name": "of-all"}),
    )
    return Case("id-06", (*others, item), (*others, fixed), f"{aws.POLICY} {name}")


def _principal_case(name: str, broken: Any, mended: Any, condition: Object | None = None) -> Case:
    """A tenant's role whose trust differs in who it names; its boundary says which account it is in."""

    def trusting(principal: Any) -> Object:
        statement = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
        statement |= {"Condition": condition} if condition else {}
        document = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        return on_aws(aws.ROLE, name, {"assumeRolePolicy": document, "tags": _TAGS, "permissionsBoundary": _BORDER})

    return _trust(name, trusting(broken), trusting(mended))


_RIVALS = {**_TAGS, vocabulary.TENANT_TAG: "rival"}
_BORDER = "arn:aws:iam::111122223333:policy/border"
_TENANTS_ROLE = on_aws(aws.ROLE, "jobs", {"assumeRolePolicy": _TRUST, "tags": _TAGS, "name": "acme-jobs"})
_ANY_DATA, _OWN_DATA = (
    on_aws(aws.POLICY, name, {"policy": _document("s3:GetObject", on=resource_arn), "name": name})
    for name, resource_arn in (("wide", "arn:aws:s3:::data/*"), ("narrow", "arn:aws:s3:::data/acme/*"))
)


def _attached(name: str, path: str, mended: str, **body: Any) -> Case:
    """An untagged policy, attached to a tenant's role; the engine tells where one end of it comes from."""
    item = on_aws(aws.ATTACHMENT, name, body)
    others = (_TENANTS_ROLE, _ANY_DATA, _OWN_DATA)
    fixed = with_field(item, (path,), mended)
    return Case("id-06", (*others, item), (*others, fixed), f"{aws.ATTACHMENT} {name}")


def bucket(name: str, **body: Any) -> Object:
    return on_aws(aws.BUCKET, name, body)


QUEUES = "kueue.x-k8s.io/v1beta2"
_LENT = {"name": "nvidia.com/gpu", "nominalQuota": "8", "lendingLimit": "4"}
_QUOTA_PATH = ("spec", "resourceGroups", 0, "flavors", 0, "resources", 0)


def _groups(resource: Object) -> list[Object]:
    return [{"coveredResources": [resource["name"]], "flavors": [{"name": "a100", "resources": [resource]}]}]


def cluster_queue(name: str, tenant: str | None = "acme", **spec: Any) -> Object:
    """A share that lends and gets it back."""
    base = {
        "cohortName": "bank",
        "namespaceSelector": {"matchLabels": {vocabulary.TENANT: tenant or "any"}},
        "preemption": {"reclaimWithinCohort": "Any"},
        "resourceGroups": _groups(_LENT),
    }
    return manifest(QUEUES, "ClusterQueue", name, {"spec": {**base, **spec}}, tenant)


def cohort(name: str, resource: Object) -> Object:
    return manifest(QUEUES, "Cohort", name, {"spec": {"parentName": "bank", "resourceGroups": _groups(resource)}})


def local_queue(name: str, where: str, tenant: str | None, leads_to: str) -> Object:
    return manifest(QUEUES, "LocalQueue", name, {"spec": {"clusterQueue": leads_to}}, tenant, where)


def kueue(name: str, **settings: Any) -> Object:
    """A Helm release of Kueue's chart that says this in its configuration."""
    text = _kueue_text(**settings)
    return {
        **release(name, {}),
        "chart": "oci://registry.k8s.io/kueue/charts/kueue",
        "values": {"managerConfig": {"controllerManagerConfigYaml": text}},
    }


def _kueue_text(**settings: Any) -> str:
    return json.dumps({"manageJobsWithoutQueueName": True, "featureGates": dict(GATES), **settings})


def kueue_map(where: str, **settings: Any) -> Object:
    """The config map that the chart makes of it, in some namespace."""
    data = {"data": {"controller_manager_config.yaml": _kueue_text(**settings)}}
    return manifest("v1", "ConfigMap", "kueue-manager-config", data, None, where)


GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
_POOL_TAINT = {"key": vocabulary.POOL, "value": "a", "effect": "NoSchedule"}


def node_pool(name: str, requirement: Object, taints: list[Object], labels: Object | None = None) -> Object:
    spec = {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": name},
        "requirements": [requirement],
        "taints": taints,
        "expireAfter": "Never",
    }
    body = {
        "spec": {
            "template": {"metadata": {"labels": labels or {}}, "spec": spec},
            "disruption": {"consolidationPolicy": "WhenEmpty"},
            "limits": {"cpu": "1000"},
        }
    }
    return manifest("karpenter.sh/v1", "NodePool", name, body, None)


def one_of(key: str, *values: str) -> Object:
    return {"key": key, "operator": "In", "values": list(values)}


P5 = one_of("node.kubernetes.io/instance-type", "p5.48xlarge")


def overlay(name: str, pool: str) -> Object:
    spec = {"requirements": [one_of("karpenter.sh/nodepool", pool)], "capacity": {"nvidia.com/mig-1g.10gb": "56"}}
    return manifest("karpenter.sh/v1alpha1", "NodeOverlay", name, {"spec": spec}, None)


def release(name: str, values: Object) -> Object:
    everywhere = {"tolerations": [{"operator": "Exists"}]}
    tolerant = {"daemonsets": everywhere, "node-feature-discovery": {"worker": everywhere}}
    body = {"chart": "gpu-operator", "values": {**tolerant, **values}}
    item = manifest("helm.sh/v3", "Release", name, body, None, OPERATORS)
    del item["metadata"]["labels"]
    return item


def _tolerant(*keys: str) -> list[Object]:
    return [{"key": key, "operator": "Exists", "effect": "NoSchedule"} for key in keys]


_BOTH = _tolerant("nvidia.com/gpu", vocabulary.POOL)
_GPU_ONLY = _tolerant("nvidia.com/gpu")


def _operated(name: str, daemonsets: list[Object], discovery: list[Object]) -> Object:
    worker = {"worker": {"tolerations": discovery}}
    return release(name, {"daemonsets": {"tolerations": daemonsets}, "node-feature-discovery": worker})


def sharing(**settings: bool) -> str:
    replicas = {"resources": [{"name": "nvidia.com/gpu", "replicas": 4}], **settings}
    return json.dumps({"version": "v1", "sharing": {"timeSlicing": replicas}})


_RENAMED_SHARING = sharing(renameByDefault=True, failRequestsGreaterThanOne=True)
_TWICE = sharing(renameByDefault=True)
_NAMELESS = sharing(failRequestsGreaterThanOne=True)
_VOLUME = [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "200Gi"}}]
_VOLUME_PATH = ("blockDeviceMappings", 0, "ebs", "encrypted")
_RESERVED = {"capacityReservationTarget": {"capacityReservationId": "cr-0a"}}
_WAITING = with_field(
    manifest("apps/v1", "Deployment", "waiting", {"spec": {"progressDeadlineSeconds": 600}}, None, "jobs"),
    ("metadata", "labels"),
    {"kueue.x-k8s.io/queue-name": "default"},
)
_WITHOUT_DEFAULT = {"type": "Container", "max": {"hugepages-2Mi": "1Gi"}}
_TAINTED = ("spec", "template", "spec", "taints")
_PACKS = ("spec", "disruption", "consolidationPolicy")
_AGES = ("spec", "template", "spec", "expireAfter")
_READER = release("reader", {"devicePlugin": {"config": {"name": "sharing"}}})
_BY_TEMPLATE = template("p5-by-template", instanceType="p5.48xlarge")
_ARN = "arn:aws:iam::111122223333:role/people"
_ENTRY = {"clusterName": "c", "principalArn": _ARN, "kubernetesGroups": ["owned-people"]}
_VIEW = {
    "clusterName": "c",
    "principalArn": _ARN,
    "policyArn": "arn:aws:eks::aws:cluster-access-policy/AmazonEKSViewPolicy",
    "accessScope": {"type": "cluster"},
}
_IN_NAMESPACE = {"type": "namespace", "namespaces": ["owned"]}
_CRON = {"jobTemplate": {"spec": {"template": {"spec": {"containers": [], "runtimeClassName": "nvidia"}}}}}
_UNLIMITED = {"name": "nvidia.com/gpu", "nominalQuota": "8"}
_MAP_TEXT = ("data", "controller_manager_config.yaml")
_SUBJECTS = ("subjects", 0, "name")
_LABELS = ("metadata", "labels")
_TWO_NAMESPACES = (
    *(item for name in ("left", "right") for item in (namespace(name, name), *isolation_resources(name, name))),
    binding("developer", "left", "left", "tenancy-developer", "both", "ClusterRole"),
)
_OWNED = (
    namespace("owned", "owned"),
    *isolation_resources("owned", "owned"),
    manifest(f"{RBAC}/v1", "Role", "r", {"rules": []}, "owned", "owned"),
    binding("b", "owned", "owned", "r", "owned-people"),
)
_OF_RIGHT = {
    "namespaceSelector": {"matchLabels": {vocabulary.SPACE_NAME: "right"}},
    "podSelector": {"matchLabels": {"app": "web"}},
}


def _every_login(group: str) -> Object:
    """A binding of cluster-admin."""
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"}
    subject = {"apiGroup": RBAC, "kind": "Group", "name": group}
    body = {"roleRef": reference, "subjects": [subject]}
    return manifest(f"{RBAC}/v1", "ClusterRoleBinding", "every-login", body, None)


def _walled(name: str) -> tuple[Object, ...]:
    return (*isolation_resources(name, name), namespace(name, name))


_WIDE = {
    "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "view"},
    "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": "owned-people"}],
}
_AGGREGATED = {"clusterRoleSelectors": [{"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}}]}
_VISIBLE = [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]
_DEVICE = {"deviceClassName": "a100", "adminAccess": True}
_CLAIM = {"devices": {"requests": [{"name": "gpus", "exactly": _DEVICE}]}}
_FLAT_CLAIM = {"devices": {"requests": [{"name": "gpus", **_DEVICE}]}}


def _guard(name: str) -> Object:
    return manifest(ADMISSION, "ValidatingAdmissionPolicy", name, {"spec": {"failurePolicy": "Fail"}}, None)


def _binding_of(name: str) -> Object:
    spec = {"policyName": name, "validationActions": ["Deny"]}
    return manifest(ADMISSION, "ValidatingAdmissionPolicyBinding", name, {"spec": spec}, None)


def _patient(name: str) -> Object:
    """A binding that says that it is meant to only warn."""
    return with_field(_binding_of(name), ("metadata", "annotations"), {vocabulary.GUARDS_MODE: "audit"})


_PUBLISHED = {"headGroupSpec": {"enableIngress": True}}

_FILES = {
    "capacity": {"storage": "1Ti"},
    "accessModes": ["ReadOnlyMany"],
    "storageClassName": "files",
    "claimRef": {"namespace": "acme--train", "name": "files"},
}


def _volume(name: str, path: tuple[Any, ...], broken: Any, mended: Any, **source: Object) -> Case:
    item = manifest("v1", "PersistentVolume", name, {"spec": {**_FILES, **source}}, None)
    return _case("stor-09", with_field(item, path, broken), path, mended)


_MOUNTED = {"driver": "s3.csi.aws.com", "volumeHandle": "models", "volumeAttributes": {"bucketName": "models"}}
_EFS = {"driver": "efs.csi.aws.com", "volumeHandle": "fs-0a::fsap-0b"}
OBJECT_CASES = (
    _pod(
        "img-02",
        "moving",
        {"containers": [container(image="registry.example/a/b:latest")]},
        ("spec", "containers", 0, "image"),
        "registry.example/a/b:1",
    ),
    _volume("any-claims", ("spec", "claimRef"), None, _FILES["claimRef"], csi=_EFS),
    _volume("somewhere", ("spec", "claimRef", "namespace"), None, "acme--train", csi=_EFS),
    _volume("of-a-node", ("spec", "hostPath"), {"path": "/data"}, None, csi=_EFS),
    _volume("drivers", ("spec", "csi", "volumeAttributes", "authenticationSource"), "driver", "pod", csi=_MOUNTED),
    _space("cost-02", "unbilled", (*_LABELS, "cost-center"), None),
    _space("ns-03", "weak", (*_LABELS, vocabulary.PSA_ENFORCE), "baseline"),
    _space("ns-03", "unlevelled", (*_LABELS, vocabulary.PSA_ENFORCE), None),
    _space("ns-03", "unpinned", (*_LABELS, vocabulary.PSA_VERSION), "latest"),
    _space("ns-03", "outdated", (*_LABELS, vocabulary.PSA_VERSION), "v1.0"),
    _protected_case("unkept"),
    _pod("gpu-01", "runtime", {"runtimeClassName": "nvidia"}, ("spec", "runtimeClassName"), None),
    _case(
        "gpu-01",
        manifest("batch/v1", "CronJob", "nightly", {"spec": _CRON}, namespace="acme--pods"),
        ("spec", "jobTemplate", "spec", "template", "spec", "runtimeClassName"),
        None,
    ),
    _pod(
        "gpu-02",
        "devices",
        {"containers": [container(env=_VISIBLE)]},
        ("spec", "containers", 0, "env", 0, "value"),
        "",
    ),
    _case(
        "gpu-01",
        manifest(
            "v1",
            "ReplicationController",
            "forgotten",
            {"spec": {"template": {"spec": {"containers": [], "runtimeClassName": "nvidia"}}}},
            namespace="acme--pods",
        ),
        ("spec", "template", "spec", "runtimeClassName"),
        None,
    ),
    *(
        _case(
            "gpu-08",
            manifest("resource.k8s.io/v1", kind, name, {"spec": spec}, namespace="acme--pods"),
            (*path, "devices", "requests", 0, "exactly", "adminAccess"),
            None,
        )
        for kind, name, spec, path in (
            ("ResourceClaim", "monitor", _CLAIM, ("spec",)),
            ("ResourceClaimTemplate", "a100-1", {"spec": _CLAIM}, ("spec", "spec")),
        )
    ),
    _case(
        "gpu-08",
        manifest("resource.k8s.io/v1beta1", "ResourceClaim", "older", {"spec": _FLAT_CLAIM}, namespace="acme--pods"),
        ("spec", "devices", "requests", 0, "adminAccess"),
        False,
    ),
    _pod("sched-02", "placed", {"nodeName": "node-1"}, ("spec", "nodeName"), None),
    Case(
        "guard-01",
        (_binding_of("soft"), with_field(_guard("soft"), ("spec", "failurePolicy"), "Ignore")),
        (_binding_of("soft"), _guard("soft")),
        "ValidatingAdmissionPolicy soft",
    ),
    Case(
        "guard-01",
        (_guard("mild"), with_field(_binding_of("mild"), ("spec", "validationActions"), ["Audit"])),
        (_guard("mild"), _binding_of("mild")),
        "ValidatingAdmissionPolicyBinding mild",
    ),
    Case(
        "guard-03",
        (_guard("patient"), with_field(_patient("patient"), ("spec", "validationActions"), ["Warn", "Audit"])),
        (_guard("patient"), _patient("patient")),
        "ValidatingAdmissionPolicyBinding patient",
    ),
    Case(
        "guard-01",
        (_guard("silent"), with_field(_patient("silent"), ("spec", "validationActions"), ["Audit"])),
        (_guard("silent"), _patient("silent")),
        "ValidatingAdmissionPolicyBinding silent",
    ),
    _case(
        "net-01",
        manifest("v1", "Service", "open", {"spec": {"type": "NodePort"}}, namespace="acme--net"),
        ("spec", "type"),
        "ClusterIP",
    ),
    _case(
        "net-01",
        manifest("v1", "Service", "stolen", {"spec": {"externalIPs": ["192.0.2.1"]}}, namespace="acme--net"),
        ("spec", "externalIPs"),
        [],
    ),
    *(
        _case(
            "net-01",
            manifest("ray.io/v1", kind, kind.lower(), {"spec": spec}, namespace="acme--net"),
            ("spec", *at, "enableIngress"),
            False,
        )
        for kind, at, spec in (
            ("RayCluster", ("headGroupSpec",), _PUBLISHED),
            (
                "RayJob",
                ("rayClusterSpec", "headGroupSpec"),
                {"submissionMode": "HTTPMode", "rayClusterSpec": _PUBLISHED},
            ),
            ("RayService", ("rayClusterConfig", "headGroupSpec"), {"rayClusterConfig": _PUBLISHED}),
        )
    ),
    _policy("net-02", "all-peers", {"ingress": [{"from": []}]}, ("spec", "ingress", 0, "from"), [{"podSelector": {}}]),
    _policy(
        "net-02",
        "neighbours",
        {"egress": [{"to": [{"namespaceSelector": {}}]}]},
        ("spec", "egress", 0, "to", 0, "namespaceSelector"),
        {"matchLabels": {vocabulary.TENANT: "acme"}},
    ),
    _policy(
        "net-05",
        "metadata",
        {"egress": [{"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}]}]},
        ("spec", "egress", 0, "to", 0, "ipBlock", "cidr"),
        "198.51.100.0/24",
    ),
    _cilium("net-02", "from-all", "ingress", {"fromEntities": ["all"]}, ("fromEntities", 0), "health"),
    _cilium("net-02", "to-the-cluster", "egress", {"toEntities": ["cluster"]}, ("toEntities", 0), "none"),
    _cilium(
        "net-02",
        "to-the-node",
        "egress",
        on_port("10250", toEntities=["host"]),
        ("toPorts", 0, "ports", 0, "port"),
        "80",
    ),
    _cilium(
        "net-02",
        "to-every-port-of-the-api-server",
        "egress",
        on_port("0", toEntities=["kube-apiserver"]),
        ("toPorts", 0, "ports", 0, "port"),
        "443",
    ),
    _cilium("net-02", "from-any-peer-on-a-port", "ingress", on_port("80"), ("fromEndpoints",), [{}]),
    _cilium(
        "net-02",
        "from-neighbours",
        "ingress",
        {"fromEndpoints": [of_space("rival--main")]},
        ("fromEndpoints", 0, "matchLabels", _SPACE),
        "acme--net",
    ),
    _cilium(
        "net-02",
        "from-any-namespace",
        "ingress",
        {"fromEndpoints": [{"matchExpressions": [{"key": _SPACE, "operator": "Exists"}]}]},
        ("fromEndpoints", 0, "matchExpressions", 0),
        {"key": _SPACE, "operator": "In", "values": ["acme--net"]},
    ),
    _cilium(
        "net-02",
        "from-another-tenant",
        "ingress",
        {"fromEndpoints": [{"matchLabels": {_TENANTS_LABEL: "rival"}}]},
        ("fromEndpoints", 0, "matchLabels", _TENANTS_LABEL),
        "acme",
    ),
    _cilium(
        "net-02",
        "from-a-reserved-identity",
        "ingress",
        {"fromEndpoints": [{"matchLabels": {"reserved:world": ""}}]},
        ("fromEndpoints", 0, "matchLabels"),
        {"app": "web"},
    ),
    _cilium(
        "net-02",
        "past-the-dns",
        "egress",
        {"toEndpoints": [of_space("kube-system")], "toPorts": [{"ports": [{"port": "53", "endPort": 65535}]}]},
        ("toPorts", 0, "ports", 0, "endPort"),
        53,
    ),
    _cilium(
        "net-02",
        "to-services-anywhere",
        "egress",
        {"toServices": [{"k8sServiceSelector": {"selector": {"matchLabels": {"app": "web"}}}}]},
        ("toServices", 0, "k8sServiceSelector", "namespace"),
        "acme--net",
    ),
    _cilium("net-02", "to-nodes", "egress", {"toNodes": [{"matchLabels": {"a": "b"}}]}, ("toNodes",), []),
    _case(
        "net-02",
        manifest(
            CILIUM,
            "CiliumNetworkPolicy",
            "one-of-several",
            {"specs": [{"endpointSelector": {}}, {"endpointSelector": {}, "egress": [{"toEntities": ["all"]}]}]},
            namespace="acme--net",
        ),
        ("specs", 1),
        {"endpointSelector": {}, "egressDeny": [{"toEntities": ["all"]}]},
    ),
    _cilium("net-05", "to-the-world", "egress", {"toEntities": ["world"]}, ("toEntities", 0), "none"),
    _cilium("net-05", "from-everywhere", "ingress", {"fromCIDR": ["0.0.0.0/0"]}, ("fromCIDR", 0), "198.51.100.0/24"),
    _cilium(
        "net-05",
        "to-the-metadata",
        "egress",
        {"toCIDRSet": [{"cidr": "169.254.169.254/32"}]},
        ("toCIDRSet", 0, "cidr"),
        "198.51.100.0/24",
    ),
    _cilium(
        "net-05",
        "to-a-group-of-ranges",
        "egress",
        {"toCIDRSet": [{"cidrGroupRef": "partners"}]},
        ("toCIDRSet", 0),
        {"cidr": "198.51.100.0/24"},
    ),
    _cilium(
        "net-05",
        "to-a-group-of-aws",
        "egress",
        {"toGroups": [{"aws": {"securityGroupsIds": ["sg-0a"]}}]},
        ("toGroups",),
        [],
    ),
    _cilium(
        "net-05",
        "to-every-name",
        "egress",
        {"toFQDNs": [{"matchPattern": "*"}]},
        ("toFQDNs", 0, "matchPattern"),
        "*.bank.example",
    ),
    _policy(
        "net-02",
        "past-the-dns",
        {
            "egress": [
                {
                    "to": [{"namespaceSelector": {"matchLabels": {vocabulary.SPACE_NAME: "kube-system"}}}],
                    "ports": [{"port": 53, "endPort": 65535}],
                }
            ]
        },
        ("spec", "egress", 0, "ports", 0, "endPort"),
        53,
    ),
    _policy(
        "net-02",
        "every-port-of-a-service",
        {
            "egress": [
                {
                    "to": [
                        {
                            "namespaceSelector": {"matchLabels": {vocabulary.SPACE_NAME: "monitoring"}},
                            "podSelector": {"matchLabels": {"app": "prometheus"}},
                        }
                    ],
                    "ports": [{"protocol": "TCP"}],
                }
            ]
        },
        ("spec", "egress", 0, "ports", 0, "port"),
        9090,
    ),
    _case(
        "quota-01",
        manifest(
            "v1",
            "ResourceQuota",
            "uncounted",
            {"spec": {"hard": {"limits.nvidia.com/gpu": "4"}}},
            namespace="acme--main",
        ),
        ("spec", "hard"),
        {"requests.nvidia.com/gpu": "4"},
    ),
    _case(
        "quota-02",
        manifest(
            "v1",
            "LimitRange",
            "gpus",
            {"spec": {"limits": [{"type": "Container", "default": {"nvidia.com/gpu": "1"}}]}},
            namespace="acme--main",
        ),
        ("spec", "limits", 0, "default"),
        {"cpu": "1"},
    ),
    _case(
        "quota-02",
        manifest("v1", "LimitRange", "huge", {"spec": {"limits": [_WITHOUT_DEFAULT]}}, namespace="acme--main"),
        ("spec", "limits", 0, "default"),
        {"hugepages-2Mi": "0"},
    ),
    _role("rbac-01", "all", "", "*", "get", ("rules", 0, "resources"), ["pods"]),
    _role("rbac-01", "scaling-all", "", "*/scale", "update", ("rules", 0, "resources"), ["deployments/scale"]),
    _case(
        "rbac-01",
        manifest(f"{RBAC}/v1", "ClusterRole", "growing", {"aggregationRule": _AGGREGATED, "rules": []}),
        ("aggregationRule",),
        None,
    ),
    _role("rbac-02", "climbing", "", "pods", "escalate", ("rules", 0, "verbs"), ["get"]),
    _role("rbac-02", "posing-for", "", "users", "impersonate-on:user-info:list", ("rules", 0, "verbs"), ["get"]),
    _role("rbac-02", "minting", "", "serviceaccounts/token", "create", ("rules", 0, "resources"), ["pods"]),
    _role(
        "rbac-02", "lying", DEVICES, "resourceclaims/status", "update", ("rules", 0, "resources"), ["resourceclaims"]
    ),
    _role("rbac-03", "unlimited", "", "resourcequotas", "delete", ("rules", 0, "verbs"), ["get"]),
    _role("rbac-03", "classless", DEVICES, "deviceclasses", "create", ("rules", 0, "verbs"), ["get"]),
    _role("rbac-03", "inventive", DEVICES, "resourceslices", "update", ("rules", 0, "verbs"), ["list"]),
    _case(
        "rbac-04",
        manifest(f"{RBAC}/v1", "ClusterRoleBinding", "wide", with_field(_WIDE, _SUBJECTS, "x")),
        (*_LABELS, vocabulary.TENANT),
        None,
    ),
    _case(
        "rbac-05",
        binding("all-users", "acme--main", "acme", "tenancy-viewer", "system:authenticated", "ClusterRole"),
        _SUBJECTS,
        "acme-people",
    ),
    _case(
        "kueue-05",
        local_queue("foreign", "acme--main", "acme", "rival--batch"),
        ("spec", "clusterQueue"),
        "acme--batch",
    ),
    _case(
        "kueue-05",
        local_queue("alike", "acme--main", "acme", "acme-2--batch"),
        ("spec", "clusterQueue"),
        "acme--batch",
    ),
    _case(
        "kueue-11",
        cluster_queue("rivals", namespaceSelector={"matchLabels": {vocabulary.TENANT: "rival"}}),
        ("spec", "namespaceSelector", "matchLabels", vocabulary.TENANT),
        "acme",
    ),
    _case(
        "kueue-11",
        cluster_queue("all-namespaces", namespaceSelector={}),
        ("spec", "namespaceSelector"),
        {"matchLabels": {vocabulary.TENANT: "acme"}},
    ),
    _case(
        "kueue-11",
        cluster_queue("without-tenant", None, namespaceSelector={}),
        ("spec", "namespaceSelector"),
        {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
    ),
    _case(
        "kueue-12",
        cluster_queue("generous", resourceGroups=_groups(_UNLIMITED)),
        (*_QUOTA_PATH, "lendingLimit"),
        "0",
    ),
    _case("kueue-12", cohort("generous", _UNLIMITED), (*_QUOTA_PATH, "lendingLimit"), "0"),
    _case(
        "kueue-13",
        cluster_queue("starving", preemption={"reclaimWithinCohort": "Never"}),
        ("spec", "preemption", "reclaimWithinCohort"),
        "Any",
    ),
    _case("kueue-13", cluster_queue("silent", preemption={}), ("spec", "preemption", "reclaimWithinCohort"), "Any"),
)
_PODS = {
    "clusterName": "bank",
    "namespace": "acme--train",
    "serviceAccount": "train",
    "roleArn": "arn:aws:iam::111122223333:role/acme",
}
MACHINE_CASES = (
    _trust("wide", role("wide", "system:serviceaccount:acme--main:*"), role("wide", _SUBJECT)),
    _trust("open", role("open", None), role("open", _SUBJECT)),
    _trust("public", role("public", None, "*"), role("public", None, {"Service": "pods.eks.amazonaws.com"})),
    _trust("listed", role("listed", None, {"AWS": ["*"]}), role("listed", None, {"AWS": ["111122223333"]})),
    _trust("all-but", _with("all-but", "NotPrincipal"), _with("all-but", "Principal")),
    _principal_case("an-account", {"AWS": "arn:aws:iam::444455556666:root"}, {"AWS": "arn:aws:iam::111122223333:root"}),
    _principal_case("a-number", {"AWS": "444455556666"}, {"AWS": "111122223333"}),
    _principal_case(
        "a-role", {"AWS": ["arn:aws:iam::444455556666:role/ci"]}, {"AWS": ["arn:aws:iam::111122223333:role/ci"]}
    ),
    _principal_case(
        "one-of-two",
        {"AWS": [_ROLE("ci"), "arn:aws:sts::444455556666:assumed-role/ci/x"]},
        {"AWS": [_ROLE("ci"), "arn:aws:sts::111122223333:assumed-role/ci/x"]},
    ),
    _principal_case("deleted-role", {"AWS": "AROADBQP57FF2AEXAMPLE"}, {"AWS": _ROLE("ci")}),
    _principal_case(
        "with-an-id",
        {"AWS": "arn:aws:iam::444455556666:root"},
        {"AWS": _ROLE("ci")},
        {"StringEquals": {"sts:ExternalId": "0a"}},
    ),
    _case(
        "id-05",
        on_aws(
            aws.ROLE,
            "any-google-account",
            {
                "assumeRolePolicy": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"Federated": "accounts.google.com"},
                            "Action": "sts:AssumeRoleWithWebIdentity",
                            "Condition": {"StringEquals": {"accounts.google.com:aud": "0a"}},
                        }
                    ],
                },
                "tags": _TAGS,
            },
        ),
        ("assumeRolePolicy", "Statement", 0, "Condition", "StringEquals"),
        {"accounts.google.com:sub": "1137"},
    ),
    _case(
        "id-05",
        on_aws(
            aws.ROLE,
            "an-organization",
            {
                "assumeRolePolicy": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"AWS": "*"},
                            "Action": "sts:AssumeRole",
                            "Condition": _OWN_ORGANIZATION,
                        }
                    ],
                },
                "tags": _TAGS,
                "permissionsBoundary": _BORDER,
            },
        ),
        ("assumeRolePolicy", "Statement", 0, "Condition", "StringEquals"),
        {"aws:PrincipalOrgID": "o-0a", "aws:PrincipalAccount": "111122223333"},
    ),
    _principal_case(
        "an-issuer",
        {"Federated": "arn:aws:iam::444455556666:saml-provider/people"},
        {"Federated": "arn:aws:iam::111122223333:saml-provider/people"},
    ),
    _case(
        "id-05",
        on_aws(
            aws.ROLE,
            "nowhere",
            {
                "assumeRolePolicy": json.loads(_with("x", "Principal")["assumeRolePolicy"]),
                "tags": _TAGS,
            },
        ),
        ("assumeRolePolicy", "Statement", 0, "Principal"),
        {"Service": "pods.eks.amazonaws.com"},
    ),
    _case(
        "id-05",
        on_aws(
            aws.ROLE,
            "any-of-that-issuer",
            {
                "assumeRolePolicy": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": "*",
                            "Action": "sts:AssumeRole",
                            "Condition": {"StringEquals": {"aws:PrincipalAccount": "444455556666"}},
                        }
                    ],
                },
                "tags": _TAGS,
                "permissionsBoundary": _BORDER,
            },
        ),
        ("assumeRolePolicy", "Statement", 0, "Condition", "StringEquals", "aws:PrincipalAccount"),
        "111122223333",
    ),
    *(
        _tested(f"all-principals-{name}", condition, mended, "*")
        for name, condition, mended in (
            ("here", {"StringEquals": {"aws:RequestedRegion": "eu-central-1"}}, _OWN_ORGANIZATION),
            ("with-an-id", {"StringEquals": {"sts:ExternalId": "0a"}}, _OWN_ORGANIZATION),
            ("tagged", {"StringEquals": {"aws:PrincipalTag/team": "acme"}}, _OWN_ORGANIZATION),
            ("but-one", {"StringNotEquals": {"aws:PrincipalOrgID": "o-0a"}}, _OWN_ORGANIZATION),
            ("of-any-organization", {"StringLike": {"aws:PrincipalOrgID": "o-*"}}, _OWN_ORGANIZATION),
            ("if-exists", {"StringEqualsIfExists": {"aws:PrincipalOrgID": "o-0a"}}, _OWN_ORGANIZATION),
            ("or-none", {"ForAllValues:StringEquals": {"aws:PrincipalOrgID": "o-0a"}}, _OWN_ORGANIZATION),
            (
                "of-any-account",
                {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::*:role/people"}},
                {"ArnLike": {"aws:PrincipalArn": "arn:aws:iam::111122223333:role/*"}},
            ),
        )
    ),
    *(
        _tested(name, condition, {"StringEquals": {_SUB: _SUBJECT}})
        for name, condition in (
            ("all-but-one", {"StringNotEquals": {_SUB: _SUBJECT}}),
            ("any-without-it", {"StringEqualsIfExists": {_SUB: _SUBJECT}}),
            ("any-without-values", {"ForAllValues:StringEquals": {_SUB: _SUBJECT}}),
            ("of-another-issuer", {"StringEquals": {"oidc.eks.eu-west-1.amazonaws.com/id/0B:sub": _SUBJECT}}),
        )
    ),
    *(
        _permits(aws.POLICY, name, _document(action, on="*"), _document("s3:ListAllMyBuckets", on="*"))
        for name, action in (("any-action", "s3:?*"), ("any-service", "*:*"), ("any-of-s", "S*"))
    ),
    *(
        _permits(aws.POLICY, name, _document("s3:*", on=on), _document("s3:*"), tags=_TAGS)
        for name, on in (
            ("of-any-region", "arn:aws:s3:*:*:*"),
            ("cut-short", "arn:aws:s3:*"),
            ("two-stars", "arn:aws:s3:::data/**"),
            ("any-key", "arn:aws:s3:::data/?*"),
            ("any-bucket", "arn:aws:s3:::*/acme/*"),
            ("half-a-prefix", "arn:aws:s3:::data/ac*"),
            ("any-access-point", "arn:aws:s3:eu-central-1:111122223333:accesspoint/*"),
        )
    ),
    *(
        _permits(
            aws.POLICY,
            name,
            _document("s3:ListBucket", on="*", Condition=condition),
            _document("s3:ListBucket", on="*", Condition={"StringLike": {"s3:prefix": "acme/*"}}),
            tags=_TAGS,
        )
        for name, condition in (
            ("any-prefix", {"StringLike": {"s3:prefix": "*"}}),
            ("any-folder", {"StringLike": {"s3:prefix": "*/"}}),
            ("alike", {"StringLike": {"s3:prefix": "acme*"}}),
            ("one-of-two", {"StringLike": {"s3:prefix": ["acme/*", ""]}}),
            ("not-one", {"StringNotLike": {"s3:prefix": "rival/*"}}),
            ("if-there-is-one", {"StringLikeIfExists": {"s3:prefix": "acme/*"}}),
        )
    ),
    _permits(
        aws.POLICY,
        "under-no-condition",
        _document("s3:GetObject", on="arn:aws:s3:::data/*", Condition={"Bool": {"aws:SecureTransport": "true"}}),
        _document("s3:GetObject", on="arn:aws:s3:::data/*", Condition={"StringEquals": {"aws:SourceVpce": "vpce-0a"}}),
        tags=_TAGS,
    ),
    _case(
        "id-06",
        on_aws(aws.ATTACHMENT, "reader", {"role": "r", "policyArn": "arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess"}),
        ("policyArn",),
        "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy",
    ),
    _case(
        "id-06",
        on_aws(
            aws.ROLE,
            "tenants",
            {
                "assumeRolePolicy": _TRUST,
                "tags": _TAGS,
                "managedPolicyArns": ["arn:aws:iam::aws:policy/SecretsManagerReadWrite"],
            },
        ),
        ("managedPolicyArns", 0),
        "arn:aws:iam::aws:policy/AWSXRayDaemonWriteAccess",
    ),
    _permits(
        aws.ROLE_POLICY,
        "all-of-it",
        _document("s3:*", on="arn:aws:s3:::data/*"),
        _document("s3:*", on="arn:aws:s3:::data/acme/*"),
        role="another",
    ),
    _permits(aws.POLICY, "everything", _document("*", on="*"), _document("ec2:DescribeInstances", on="*")),
    _permits(aws.POLICY, "rights", _document("iam:*", on="*"), _document("iam:Get*", on="*")),
    _permits(
        aws.POLICY,
        "rights-of-an-account",
        _document("i*:*", on="arn:aws:iam::111122223333:role/*"),
        _document("i*:*", on="arn:aws:iam::111122223333:role/acme/*"),
    ),
    *(
        _lets(f"gives-{action.lower()}", f"iam:{action}", "iam:GetRole", on=_ROLE("acme"))
        for action in (
            "AttachRolePolicy",
            "PutRolePolicy",
            "UpdateAssumeRolePolicy",
            "CreatePolicyVersion",
            "DeleteRolePermissionsBoundary",
            "CreateAccessKey",
            "P*Policy",
            "*",
        )
    ),
    _lets("gives-keys", "iam:CreateAccessKey", "iam:ListAccessKeys", on="arn:aws:iam::111122223333:user/ci"),
    *(
        _lets(f"gives-{action.replace(':', '-').lower()}", action, "eks:DescribeCluster", on="*")
        for action in ("eks:CreateAccessEntry", "eks:AssociateAccessPolicy", "eks-auth:AssumeRoleForPodIdentity", "e*")
    ),
    _lets("gives-a-bucket", "s3:PutBucketPolicy", "s3:GetBucketPolicy", on="arn:aws:s3:::data"),
    _permits(
        aws.POLICY,
        "all-but-data",
        json.dumps({"Statement": [{"Effect": "Allow", "NotAction": ["s3:*"], "Resource": _ROLE("acme")}]}),
        json.dumps(
            {"Statement": [{"Effect": "Allow", "NotAction": ["s3:*", "iam:*", "sts:*"], "Resource": _ROLE("acme")}]}
        ),
        tags=_TAGS,
    ),
    _permits(
        aws.POLICY,
        "all-but-one-role",
        json.dumps({"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "NotResource": _ROLE("admin")}]}),
        json.dumps({"Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole", "Resource": _ROLE("admin")}]}),
        tags=_TAGS,
    ),
    *(
        _reaches(name, action, on, resource_pattern)
        for name, action, on, resource_pattern in (
            ("passes-any-role", "iam:PassRole", "*", _ROLE("acme-jobs")),
            ("passes-roles-alike", "iam:PassRole", _ROLE("acme*"), _ROLE("acme-jobs")),
            ("passes-roles-of-a-path", "iam:P*R*e", _ROLE("service-role/*"), _ROLE("acme-jobs")),
            ("becomes-any-role", "sts:AssumeRole", "*", _ROLE("acme-jobs")),
            ("becomes-it-anywhere", "sts:Assume*", "arn:aws:iam::*:role/acme-jobs", _ROLE("acme-jobs")),
            ("on-any-machine", "ssm:SendCommand", _INSTANCE("*"), _INSTANCE("i-0a")),
            ("in-any-machine", "ssm:StartSession", "arn:aws:ec2:*:*:*", _INSTANCE("i-0a")),
            (
                "any-function",
                "lambda:UpdateFunctionCode",
                "arn:aws:lambda:eu-central-1:111122223333:function:*",
                "arn:aws:lambda:eu-central-1:111122223333:function:acme:*",
            ),
        )
    ),
    *(
        _permits(
            aws.POLICY,
            name,
            _document(action, on=on, Condition=broken),
            _document(action, on=on, Condition=mended),
            tags=_TAGS,
        )
        for name, action, on, broken, mended in (
            (
                "passes-to-a-service",
                "iam:PassRole",
                "*",
                {"StringEquals": {"iam:PassedToService": "lambda.amazonaws.com"}},
                {"StringEquals": {"iam:ResourceTag/tenancy:tenant": "acme"}},
            ),
            (
                "on-any-tagged-machine",
                "ssm:SendCommand",
                "*",
                {"StringLike": {"ssm:resourceTag/tenancy:tenant": "*"}},
                {"StringLike": {"ssm:resourceTag/tenancy:tenant": "acme"}},
            ),
            (
                "gives-without-a-border",
                "iam:PutRolePolicy",
                _ROLE("acme/*"),
                {"StringEquals": {"aws:ResourceTag/tenancy:tenant": "acme"}},
                {"StringEquals": {"iam:PermissionsBoundary": _BORDER}},
            ),
        )
    ),
    _permits(
        aws.POLICY,
        "whole-bucket",
        _document("s3:Get*", on="arn:aws:s3:::data/*"),
        _document("s3:Get*", on="arn:aws:s3:::data/acme/*"),
        tags=_TAGS,
    ),
    _case(
        "id-06",
        on_aws(
            aws.ROLE,
            "inline",
            {"assumeRolePolicy": _TRUST, "inlinePolicies": [{"name": "p", "policy": _document("s3:*", on="*")}]},
        ),
        ("inlinePolicies", 0, "policy"),
        _document("s3:*"),
    ),
    _case(
        "id-06",
        on_aws(
            aws.ROLE,
            "managed",
            {"assumeRolePolicy": _TRUST, "managedPolicyArns": ["arn:aws:iam::aws:policy/AmazonS3FullAccess"]},
        ),
        ("managedPolicyArns", 0),
        "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy",
    ),
    _case(
        "id-06",
        on_aws(aws.ATTACHMENT, "admin", {"role": "r", "policyArn": "arn:aws:iam::aws:policy/AdministratorAccess"}),
        ("policyArn",),
        "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy",
    ),
    _case(
        "cost-03",
        bucket("unbilled", tags={key: value for key, value in _TAGS.items() if key != "cost-center"}),
        ("tags",),
        _TAGS,
    ),
    _case(
        "stor-10",
        on_aws(aws.PUBLIC_ACCESS, "published", {"bucket": "b", **_CLOSED, "blockPublicPolicy": False}),
        ("blockPublicPolicy",),
        True,
    ),
    _case("stor-11", on_aws(aws.KEY, "lasting", {"enableKeyRotation": False}), ("enableKeyRotation",), True),
    _case(
        "img-04",
        on_aws(aws.REPOSITORY, "moving", {"imageTagMutability": "MUTABLE"}),
        ("imageTagMutability",),
        "IMMUTABLE",
    ),
    _case(
        "eks-04",
        on_aws(aws.SECURITY_GROUP, "open", {"ingress": [{**_SSH, "cidrBlocks": ["0.0.0.0/0"]}]}),
        ("ingress",),
        [{**_SSH, "cidrBlocks": ["10.0.0.0/8"]}],
    ),
    _case(
        "eks-04",
        on_aws(aws.INGRESS, "wide", {"securityGroupId": "sg-0a", "ipProtocol": "-1", "cidrIpv6": "::/0"}),
        ("cidrIpv6",),
        "fd00::/8",
    ),
    _case("stor-08", bucket("fleeting", forceDestroy=True), ("forceDestroy",), False),
    _case(
        "id-09",
        on_aws(aws.POD_IDENTITY, "untagged", {**_PODS, "disableSessionTags": True}),
        ("disableSessionTags",),
        False,
    ),
    _case(
        "kueue-14",
        kueue_map("unqueued", manageJobsWithoutQueueName=False),
        _MAP_TEXT,
        _kueue_text(),
    ),
    _case(
        "kueue-14",
        kueue_map("uncounted", resources={"excludeResourcePrefixes": ["cpu", "nvidia.com"]}),
        _MAP_TEXT,
        _kueue_text(resources={"excludeResourcePrefixes": ["cpu"]}),
    ),
    _case("kueue-31", kueue_map("returned", featureGates={"ReclaimablePods": True}), _MAP_TEXT, _kueue_text()),
    _case(
        "kueue-31",
        kueue_map("evicting", fairSharing={"preemptionStrategies": [*PREEMPTION, "LessThanInitialShare"]}),
        _MAP_TEXT,
        _kueue_text(fairSharing={"preemptionStrategies": list(PREEMPTION)}),
    ),
    _case("ami-01", group("old", releaseVersion="1.36.3-20260512"), ("releaseVersion",), "1.36.3-20260903"),
    _case("ami-01", group("formless", releaseVersion="latest"), ("releaseVersion",), "1.36.3-20260903"),
    _case(
        "ami-01",
        node_class("old", amiSelectorTerms=[{"alias": "al2023@v20260512"}]),
        ("spec", "amiSelectorTerms", 0, "alias"),
        "al2023@v20260903",
    ),
    _case(
        "ami-02",
        group("unpinned", amiType="AL2023_x86_64_STANDARD", releaseVersion=None),
        ("releaseVersion",),
        "1.36.3-20260903",
    ),
    _case(
        "ami-02",
        node_class("unpinned", amiSelectorTerms=[{"alias": "al2023@latest"}]),
        ("spec", "amiSelectorTerms", 0, "alias"),
        "al2023@v20260903",
    ),
    _case("eks-01", cluster("open", {}), ("vpcConfig", "endpointPublicAccess"), False),
    _case(
        "eks-01",
        cluster("wide", {"endpointPublicAccess": True, "publicAccessCidrs": ["0.0.0.0/0"]}),
        ("vpcConfig", "publicAccessCidrs"),
        ["198.51.100.0/24"],
    ),
    *(
        _case(
            "eks-01",
            cluster(f"open-to-{about}", {"endpointPublicAccess": True, "publicAccessCidrs": [*others, cidr]}),
            ("vpcConfig", "publicAccessCidrs"),
            [*others, mended],
        )
        for about, others, cidr, mended in (
            ("a-companys-own", (), "10.1.0.0/16", "11.1.0.0/16"),
            ("itself", (), "127.0.0.0/8", "126.0.0.0/8"),
            ("an-address-with-a-length", (), "203.0.113.7/24", "203.0.113.7/32"),
            ("one-beside-a-good-one", ("198.51.100.0/24",), "172.16.0.0/12", "172.0.0.0/12"),
        )
    ),
    _case(
        "eks-01",
        cluster("open-to-many", {"endpointPublicAccess": True, "publicAccessCidrs": _many_ranges(MOST_PUBLIC + 1)}),
        ("vpcConfig", "publicAccessCidrs"),
        _many_ranges(MOST_PUBLIC),
    ),
    _case(
        "eks-02",
        cluster("mapped", None, {"bootstrapClusterCreatorAdminPermissions": False}),
        ("accessConfig", "authenticationMode"),
        "API",
    ),
    _case(
        "eks-02",
        cluster("creators", None, {"authenticationMode": "API"}),
        ("accessConfig", "bootstrapClusterCreatorAdminPermissions"),
        False,
    ),
    _case(
        "node-01",
        template("tokenless", metadataOptions={"httpPutResponseHopLimit": 1}),
        ("metadataOptions", "httpTokens"),
        "required",
    ),
    _case(
        "node-01",
        template("far", metadataOptions={"httpTokens": "required", "httpPutResponseHopLimit": 2}),
        ("metadataOptions", "httpPutResponseHopLimit"),
        1,
    ),
    _case(
        "node-01",
        node_class("far", metadataOptions={"httpPutResponseHopLimit": 2}),
        ("spec", "metadataOptions", "httpPutResponseHopLimit"),
        1,
    ),
    _case(
        "node-02",
        template("plain", blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": {"volumeSize": 200}}]),
        _VOLUME_PATH,
        "true",
    ),
    _case(
        "node-02",
        with_field(template("default"), ("blockDeviceMappings",), None),
        ("blockDeviceMappings",),
        [{"deviceName": "/dev/xvda", "ebs": {"encrypted": "true"}}],
    ),
    _case("node-02", node_class("plain", blockDeviceMappings=_VOLUME), ("spec", *_VOLUME_PATH), True),
    _case("node-02", group("default", launchTemplate=None), ("launchTemplate",), {"id": "lt-0a", "version": "1"}),
    _case(
        "node-03",
        group("bare", instanceTypes=["p5.48xlarge"]),
        ("taints",),
        [{"key": "nvidia.com/gpu", "effect": "NO_SCHEDULE"}],
    ),
    _case(
        "node-03",
        group(
            "soft", amiType="AL2023_x86_64_NVIDIA", taints=[{"key": "nvidia.com/gpu", "effect": "PREFER_NO_SCHEDULE"}]
        ),
        ("taints", 0, "effect"),
        "NO_SCHEDULE",
    ),
    _case("node-03", node_pool("bare", P5, []), _TAINTED, [GPU_TAINT]),
    _case("kueue-33", _WAITING, ("spec", "progressDeadlineSeconds"), 86400),
    _case(
        "node-10",
        with_field(node_pool("packing", P5, [GPU_TAINT]), _PACKS, "WhenEmptyOrUnderutilized"),
        _PACKS,
        "WhenEmpty",
    ),
    _case("node-10", with_field(node_pool("ageing", P5, [GPU_TAINT]), _AGES, "720h"), _AGES, "Never"),
    _case(
        "node-07",
        with_field(node_pool("endless", P5, [GPU_TAINT]), ("spec", "limits"), None),
        ("spec", "limits"),
        {"nvidia.com/gpu": "64"},
    ),
    _case(
        "node-03",
        node_pool("family", one_of("karpenter.k8s.aws/instance-family", "m7i", "g6"), []),
        ("spec", "template", "spec", "requirements", 0, "values"),
        ["m7i"],
    ),
    _case(
        "node-04",
        template("placed", capacityReservationSpecification=_RESERVED, placement={"groupName": "near"}),
        ("placement",),
        None,
    ),
    _case(
        "node-04",
        node_class(
            "placed", capacityReservationSelectorTerms=[{"id": "cr-0a"}], placementGroupSelector={"name": "near"}
        ),
        ("spec", "placementGroupSelector"),
        None,
    ),
    _case(
        "gpu-09",
        release("nri", {"cdi": {"enabled": True, "nriPluginEnabled": True}}),
        ("values", "cdi", "nriPluginEnabled"),
        False,
    ),
    _case(
        "gpu-09",
        manifest("nvidia.com/v1", "ClusterPolicy", "nri", {"spec": {"cdi": {"nriPluginEnabled": True}}}, None),
        ("spec", "cdi", "nriPluginEnabled"),
        False,
    ),
    _case("node-09", release("server", {"dcgm": {"enabled": True}}), ("values", "dcgm", "enabled"), False),
    _case(
        "node-09",
        manifest("nvidia.com/v1", "ClusterPolicy", "server", {"spec": {"dcgm": {"enabled": True}}}, None),
        ("spec", "dcgm", "enabled"),
        False,
    ),
    _case(
        "share-02",
        release("nameless", {"devicePlugin": {"config": {"create": True, "data": {"any": _NAMELESS}}}}),
        ("values", "devicePlugin", "config", "data", "any"),
        _RENAMED_SHARING,
    ),
)
STACK_MACHINE_CASES = (
    _permitted(
        "whole-bucket",
        _document("s3:GetObject", on="arn:aws:s3:::data/*"),
        _document("s3:GetObject", on="arn:aws:s3:::data/acme/*"),
    ),
    _permitted(
        "all-names",
        _document("s3:ListBucket", on="arn:aws:s3:::data"),
        _document("s3:ListBucket", on="arn:aws:s3:::data", Condition={"StringLike": {"s3:prefix": "acme/*"}}),
    ),
    _permitted("passes-all", _document("iam:PassRole", on="*"), _document("iam:PassRole", on=_ROLE("acme"))),
    _passes("passes-anothers", "iam:PassRole", "rival-own", "acme-own"),
    _passes("passes-the-platforms", "iam:PassRole", "of-all", "acme-own"),
    _passes("becomes-anothers", "sts:AssumeRole", "rival-own", "of-all"),
    _attached("by-its-role", "role", "platform", role="acme-jobs", **{aws.POLICIES: [_ANY_DATA]}),
    _attached(
        "by-its-policy",
        "policyArn",
        "arn:aws:iam::111122223333:policy/narrow",
        policyArn="arn:aws:iam::111122223333:policy/wide",
        **{aws.ROLES: [_TENANTS_ROLE]},
    ),
    Case(
        "eks-03",
        (
            namespace("resident", "resident"),
            *isolation_resources("resident", "resident"),
            cluster("fragile", deletable=True),
        ),
        (namespace("resident", "resident"), *isolation_resources("resident", "resident"), cluster("fragile")),
        f"{aws.CLUSTER} fragile",
    ),
    Case(
        "pool-06",
        (efa_template("efa-a", "sg-0a"), efa_template("efa-b", "sg-0a")),
        (efa_template("efa-a", "sg-0a"), efa_template("efa-b", "sg-0b")),
        f"{aws.TEMPLATE} efa-b",
    ),
    Case(
        "pool-06",
        (efa_template("efa-m", "sg-0m"), efa_class("efa-n", {"id": "sg-0m"})),
        (efa_template("efa-m", "sg-0m"), efa_class("efa-n", {"id": "sg-0n"})),
        "EC2NodeClass efa-n",
    ),
    Case(
        "pool-06",
        (efa_class("efa-x", {"tags": {"x": "1", "pool": "a"}}), efa_class("efa-y", {"tags": {"x": "1"}})),
        (efa_class("efa-x", {"tags": {"x": "1", "pool": "a"}}), efa_class("efa-y", {"tags": {"x": "2"}})),
        "EC2NodeClass efa-y",
    ),
    Case(
        "mig-04",
        (node_pool("cut", P5, [GPU_TAINT], {MIG_CONFIG: "cut"}), overlay("o", "other")),
        (node_pool("cut", P5, [GPU_TAINT], {MIG_CONFIG: "cut"}), overlay("o", "cut")),
        "NodePool cut",
    ),
    Case(
        "node-03",
        (_BY_TEMPLATE, group("bare-by-template", templates=[_BY_TEMPLATE])),
        (
            _BY_TEMPLATE,
            group(
                "bare-by-template",
                templates=[_BY_TEMPLATE],
                taints=[{"key": "nvidia.com/gpu", "effect": "NO_SCHEDULE"}],
            ),
        ),
        f"{aws.GROUP} bare-by-template",
    ),
    *(
        Case(
            "node-05",
            (node_pool(name, P5, [GPU_TAINT, _POOL_TAINT]), _operated(name, *broken)),
            (node_pool(name, P5, [GPU_TAINT, _POOL_TAINT]), _operated(name, _BOTH, _BOTH)),
            f"Release {OPERATORS}/{name}",
        )
        for name, broken in (("unplugged", (_GPU_ONLY, _BOTH)), ("undiscovered", (_BOTH, _GPU_ONLY)))
    ),
    Case(
        "share-02",
        (_READER, manifest("v1", "ConfigMap", "sharing", {"data": {"any": _TWICE}}, None, OPERATORS)),
        (_READER, manifest("v1", "ConfigMap", "sharing", {"data": {"any": _RENAMED_SHARING}}, None, OPERATORS)),
        f"ConfigMap {OPERATORS}/sharing",
    ),
    Case(
        "rbac-04",
        (*_OWNED, on_aws(aws.ENTRY, "people", _ENTRY), on_aws(aws.ASSOCIATION, "people", _VIEW)),
        (
            *_OWNED,
            on_aws(aws.ENTRY, "people", _ENTRY),
            on_aws(aws.ASSOCIATION, "people", {**_VIEW, "accessScope": _IN_NAMESPACE}),
        ),
        f"{aws.ASSOCIATION} people",
    ),
)
STACK_CASES = (
    *(
        Case(
            "ns-04",
            (*(wall for wall in isolation_resources(name, name) if wall["kind"] != missing), namespace(name, name)),
            (*isolation_resources(name, name), namespace(name, name)),
            f"Namespace {name}",
        )
        for name, missing in (("unmetered", "ResourceQuota"), ("unbounded", "LimitRange"), ("open", "NetworkPolicy"))
    ),
    *(
        Case(
            "ns-04",
            tuple(with_field(wall, path, new_value) if wall["kind"] == kind else wall for wall in _walled(name)),
            _walled(name),
            f"Namespace {name}",
        )
        for name, kind, path, new_value in (
            ("unnumbered", "ResourceQuota", ("spec", "hard"), {}),
            ("half-metered", "ResourceQuota", ("spec", "scopes"), ["BestEffort"]),
            ("limitless", "LimitRange", ("spec", "limits"), []),
        )
    ),
    _together("net-02", cilium("open", None, ingress=[{"fromEntities": ["all"]}]), ("spec", "ingress"), [], *_OWNED),
    _together(
        "net-02",
        cilium("all-endpoints", None, ingress=[{"fromEndpoints": [{}]}]),
        ("spec", "endpointSelector"),
        of_space("monitoring"),
        *_OWNED,
    ),
    _together("net-05", cilium("out", None, egress=[{"toEntities": ["world"]}]), ("spec", "egress"), [], *_OWNED),
    *(
        _together(
            "net-05",
            manifest(
                "networking.k8s.io/v1",
                "NetworkPolicy",
                f"the-rest-{direction}",
                {"spec": {direction: [{side: [{"ipBlock": {"cidr": "12.0.0.0/8"}}]}]}},
                "owned",
                "summed",
            ),
            ("spec", direction, 0, side, 0, "ipBlock", "cidr"),
            "11.192.0.0/10",
            *(*_OWNED, namespace("summed", "owned"), *isolation_resources("summed", "owned")),
            manifest(
                CILIUM,
                "CiliumNetworkPolicy",
                f"some-{direction}",
                {
                    "spec": {
                        direction: [{f"{side}CIDR": ["11.0.0.0/9"]}, {f"{side}CIDRSet": [{"cidr": "11.128.0.0/9"}]}]
                    }
                },
                "owned",
                "summed",
            ),
        )
        for direction, side in (("egress", "to"), ("ingress", "from"))
    ),
    _together(
        "net-02",
        manifest(
            CILIUM,
            "CiliumNetworkPolicy",
            "by-name",
            {"spec": {"ingress": [on_port("80", fromEndpoints=[of_space("right", app="web")])]}},
            "left",
            "left",
        ),
        ("spec", "ingress", 0, "fromEndpoints", 0, "matchLabels", _SPACE),
        "monitoring",
        *_TWO_NAMESPACES,
    ),
    _together(
        "net-02",
        manifest(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "by-name",
            {"spec": {"ingress": [{"from": [_OF_RIGHT], "ports": [{"port": 1, "endPort": 65535}]}]}},
            "left",
            "left",
        ),
        ("spec", "ingress", 0, "from", 0, "namespaceSelector", "matchLabels", vocabulary.SPACE_NAME),
        "monitoring",
        *_TWO_NAMESPACES,
    ),
    _together(
        "rbac-05",
        {
            **binding("foreign-account", "right", "right", "tenancy-viewer", "", "ClusterRole"),
            "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "left"}],
        },
        (*_SUBJECTS[:-1], "namespace"),
        "right",
        *_TWO_NAMESPACES,
    ),
    _together(
        "rbac-05",
        binding("viewer", "right", "right", "tenancy-developer", "both", "ClusterRole"),
        ("roleRef", "name"),
        "tenancy-viewer",
        *_TWO_NAMESPACES,
    ),
    _bound("rbac-01", "anything", "*", "get", ("rules", 0, "resources"), ["pods"]),
    _bound("rbac-02", "posing", "users", "impersonate", ("rules", 0, "verbs"), ["get"]),
    _bound("rbac-03", "selfmade", "networkpolicies", "delete", ("rules", 0, "verbs"), ["get"]),
    Case(
        "rbac-04",
        (*_OWNED, manifest(f"{RBAC}/v1", "ClusterRoleBinding", "everywhere", _WIDE, None)),
        (
            *_OWNED,
            with_field(manifest(f"{RBAC}/v1", "ClusterRoleBinding", "everywhere", _WIDE, None), _SUBJECTS, "ops"),
        ),
        "ClusterRoleBinding everywhere",
    ),
    Case(
        "rbac-04",
        (*_OWNED, _every_login("system:authenticated")),
        (*_OWNED, _every_login("platform-admins")),
        "ClusterRoleBinding every-login",
    ),
    Case(
        "rbac-05",
        (*_TWO_NAMESPACES, binding("developer", "right", "right", "tenancy-developer", "both", "ClusterRole")),
        (*_TWO_NAMESPACES, binding("developer", "right", "right", "tenancy-developer", "right-people", "ClusterRole")),
        "RoleBinding right/developer",
    ),
    Case(
        "kueue-05",
        (*_OWNED, local_queue("foreign", "owned", None, "rival--batch")),
        (*_OWNED, local_queue("foreign", "owned", None, "owned--batch")),
        "LocalQueue owned/foreign",
    ),
    Case(
        "kueue-05",
        (*_OWNED, local_queue("foreign", "unmanaged", None, "owned--batch")),
        (*_OWNED, local_queue("foreign", "unmanaged", None, "unmanaged--batch")),
        "LocalQueue unmanaged/foreign",
    ),
)
_KEY = "arn:aws:kms:eu-central-1:111122223333:key/0a"
_SECRETS = {"provider": {"keyArn": _KEY}, "resources": ["secrets"]}
_AUDITED = {"encryptionConfig": _SECRETS, "enabledClusterLogTypes": ["api", "audit"]}
_BY_KEY = [{"applyServerSideEncryptionByDefault": {"sseAlgorithm": "aws:kms", "kmsMasterKeyId": _KEY}}]
_KEY_PATH = (0, "applyServerSideEncryptionByDefault", "kmsMasterKeyId")
_MAPPED = [{"deviceName": "/dev/xvda", "ebs": {"encrypted": "true", "kmsKeyId": _KEY}}]
_KARPENTERS = [{"deviceName": "/dev/xvda", "ebs": {"encrypted": True, "kmsKeyID": _KEY}}]
_VAULT = bucket("vault")


def encryption(name: str, rules: list[Object]) -> Object:
    return on_aws(aws.ENCRYPTION, name, {"rules": rules, aws.BUCKETS: [bucket(name)]})


def held_to(name: str, pool: str) -> tuple[Object, ...]:
    """A tenant whose work runs in a pool."""
    return (
        *isolation_resources(name, name),
        with_field(namespace(name, name), ("metadata", "annotations"), {vocabulary.ALLOWED_POOLS: pool}),
    )


def _unset(rule: str, item: Object, path: tuple[Any, ...], *others: Object) -> Case:
    return Case(rule, (*others, with_field(item, path, None)), (*others, item), name_of(item))


REGULATED_CASES = (
    Case(
        "reg-01",
        (*held_to("lodger", "lodgers"), *held_to("guest", "common"), *held_to("stranger", "common")),
        (*held_to("lodger", "lodgers"), *held_to("guest", "guests"), *held_to("stranger", "common")),
        "Namespace guest",
    ),
    _unset(
        "reg-01",
        held_to("homeless", "homes")[-1],
        ("metadata", "annotations"),
        *isolation_resources("homeless", "homeless"),
    ),
    _unset("reg-02", {**cluster("secretive"), **_AUDITED}, ("encryptionConfig",)),
    _unset("reg-04", {**cluster("heard"), **_AUDITED}, ("enabledClusterLogTypes", 1)),
    _unset("reg-02", on_aws(aws.LOGS, "logs", {"retentionInDays": 400, "kmsKeyId": _KEY}), ("kmsKeyId",)),
    _unset("reg-03", on_aws(aws.LOGS, "kept", {"retentionInDays": 400, "kmsKeyId": _KEY}), ("retentionInDays",)),
    _unset(
        "reg-02", on_aws(aws.VOLUME, "disk", {"availabilityZone": "eu-central-1a", "kmsKeyId": _KEY}), ("kmsKeyId",)
    ),
    _unset("reg-02", template("mapped", blockDeviceMappings=_MAPPED), ("blockDeviceMappings", 0, "ebs", "kmsKeyId")),
    _unset(
        "reg-02",
        node_class("mapped", blockDeviceMappings=_KARPENTERS),
        ("spec", "blockDeviceMappings", 0, "ebs", "kmsKeyID"),
    ),
    _unset("reg-02", encryption("safe", _BY_KEY), ("rules", *_KEY_PATH), bucket("safe")),
    Case("reg-02", (_VAULT,), (_VAULT, encryption("vault", _BY_KEY)), f"{aws.BUCKET} vault"),
)
ALONE_CASES = (*OBJECT_CASES, *MACHINE_CASES)
TOGETHER_CASES = (*STACK_CASES, *STACK_MACHINE_CASES)
CASES = (*ALONE_CASES, *TOGETHER_CASES)

_SECURED_CRON = {"jobTemplate": {"spec": {"template": {"spec": {**SECURED, "containers": [container()]}}}}}
SIZE_CASES = (
    _pod("avail-01", "slow", {"terminationGracePeriodSeconds": 601}, ("spec", "terminationGracePeriodSeconds"), 600),
    _pod("avail-06", "forgotten", {"terminationGracePeriodSeconds": 0}, ("spec", "terminationGracePeriodSeconds"), 1),
    _case(
        "avail-07",
        manifest(
            "batch/v1",
            "CronJob",
            "ticking",
            {"spec": {**_SECURED_CRON, "schedule": "@every 1s"}},
            namespace="acme--pods",
        ),
        ("spec", "schedule"),
        "* * * * *",
    ),
    _pod(
        "avail-05",
        "large",
        {"containers": [container(env=[{"name": "NOTE", "value": "a" * sizes.SPEC}])]},
        ("spec", "containers", 0, "env", 0, "value"),
        "a",
    ),
    _pod(
        "sched-06", "watching", _preferring([{**_TERM, "namespaces": ["other"]}]), (*_PREFERRED, 0, *_ELSEWHERE), None
    ),
    _pod(
        "sched-09",
        "choosy",
        _preferring([_TERM] * (sizes.AFFINITY_TERMS + 1)),
        _PREFERRED,
        [{"weight": 1, "podAffinityTerm": _TERM}] * sizes.AFFINITY_TERMS,
    ),
    _case("avail-03", _marked("kept", finalizers=["bank.example/keep"]), ("metadata", "finalizers"), None),
    _case(
        "obs-01",
        _labelled("shown", vocabulary.LOADED_LABELS[0]),
        ("metadata", "labels", vocabulary.LOADED_LABELS[0]),
        None,
    ),
    _case(
        "net-11",
        manifest(
            "v1",
            "Service",
            "fixed",
            {"spec": {"clusterIP": "10.100.0.10", "ports": [{"port": 80}]}},
            namespace="acme--net",
        ),
        ("spec", "clusterIP"),
        None,
    ),
)
"""Cases of one object alone: its size, its end, its affinity, its metadata."""
