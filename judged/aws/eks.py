"""EKS as far as Terraform's provider asks it. It keeps what it is given and fills in what EKS fills in, as the API
reference says; every update is finished at once.

Refused is what a change of the program can run into: a name that exists, a cluster with node groups or with deletion
protection. Whether EKS would take a value, a quota or a combination is not known here.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from judged.aws.answers import ACCOUNT, RefusedRequest, now, unknown

Values = dict[str, Any]
LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
NOT_STORED = ("clientRequestToken", "force", "labels", "podIdentityAssociations", "resolveConflicts", "tags", "taints")
"""Parameters of requests that no answer repeats as they are."""
ACTIVE = {"status": "ACTIVE", "health": {"issues": []}}
EXISTS = "ResourceInUseException"


@dataclass(frozen=True, slots=True)
class Request:
    """A request to EKS: the parts of its path are decoded."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, list[str]]
    body: Values
    region: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of resource of a cluster: its key in answers, its name, its ARN, and the path of the ARN."""

    answer: str
    name: str
    arn: str
    path: str


KINDS = {
    "node-groups": Kind("nodegroup", "nodegroupName", "nodegroupArn", "nodegroup"),
    "addons": Kind("addon", "addonName", "addonArn", "addon"),
    "access-entries": Kind("accessEntry", "principalArn", "accessEntryArn", "access-entry"),
    "pod-identity-associations": Kind("association", "associationId", "associationArn", "podidentityassociation"),
}
"""By the part of a request's path."""


class Eks:
    """Clusters of all regions. `ec2` gives moto's EC2 of a region, `clusters` are names of those that others made."""

    def __init__(self, ec2: Callable[[str], Any], clusters: Iterable[str] = ()) -> None:
        self._ec2 = ec2
        self._clusters: dict[str, Values] = {name: {"name": name, **ACTIVE} for name in clusters}
        self._items: dict[tuple[str, str, str], Values] = {}
        """By cluster, kind and name."""
        self._policies: dict[tuple[str, str], dict[str, Values]] = {}
        self._tags: dict[str, dict[str, str]] = {}
        self._updates: dict[str, Values] = {}
        self._tokens: dict[str, tuple[str, str, str]] = {}

    def answer(self, request: Request) -> Values:
        """The answer to a request. Raises RefusedRequest."""
        match request.path:
            case ["tags", *arn]:
                return self._tagging(request, "/".join(arn))
            case ["addons", "supported-versions"]:
                return _add_on_versions(request.query)
            case ["clusters"] if request.method == "POST":
                return self._create_cluster(request.body, request.region)
            case ["clusters", cluster, *_] if cluster not in self._clusters:
                raise _absent("cluster", cluster)
            case ["clusters", cluster, "updates", id]:
                return {"update": self._updates[id]}
            case ["clusters", cluster, "access-entries", principal, "access-policies", *arn]:
                return self._policy(request, (cluster, principal), "/".join(arn))
            case ["clusters", cluster, kind] if kind in KINDS and request.method == "POST":
                return {KINDS[kind].answer: self._create(cluster, kind, request.body, request.region)}
            case ["clusters", cluster, kind] if kind in KINDS:
                items = [item for key, item in self._items.items() if key[:2] == (cluster, kind)]
                return {f"{KINDS[kind].answer}s": items}
            case ["clusters", cluster, kind, name, *action] if kind in KINDS:
                return self._item(request, (cluster, kind, name), action)
            case ["clusters", cluster, *action]:
                return self._cluster(request, cluster, action)
        raise unknown(f"eks {request.method} {'/'.join(request.path)}")

    def _tagging(self, request: Request, arn: str) -> Values:
        tags = self._tags.setdefault(arn, {})
        if request.method == "POST":
            tags |= request.body["tags"]
        elif request.method == "DELETE":
            for key in request.query.get("tagKeys", []):
                tags.pop(key, None)
        return {"tags": tags} if request.method == "GET" else {}

    def _update(self) -> Values:
        id = str(uuid.uuid4())
        update = {"id": id, "status": "Successful", "type": "ConfigUpdate", "params": [], "errors": []}
        self._updates[id] = {**update, "createdAt": now()}
        return {"update": self._updates[id]}

    def _create_cluster(self, body: Values, region: str) -> Values:
        name, network = body["name"], body["resourcesVpcConfig"]
        if name in self._clusters:
            raise RefusedRequest(409, EXISTS, f"Cluster already exists with name: {name}")
        public = network.get("endpointPublicAccess", True)
        ec2, identity = self._ec2(region), uuid.uuid4().hex.upper()
        vpc = ec2.get_subnet(network["subnetIds"][0]).vpc_id
        group = ec2.create_security_group(f"eks-cluster-sg-{name}", "EKS created security group", vpc_id=vpc)
        cluster = {
            "version": "1.33",
            "encryptionConfig": [],
            "deletionProtection": False,
            "upgradePolicy": {"supportType": "EXTENDED"},
            **_stored(body),
            **ACTIVE,
            "arn": _arn(region, "cluster", name),
            "createdAt": now(),
            "endpoint": f"https://{identity}.gr7.{region}.eks.amazonaws.com",
            "identity": {"oidc": {"issuer": f"https://oidc.eks.{region}.amazonaws.com/id/{identity}"}},
            "certificateAuthority": {"data": "eA=="},
            "platformVersion": "eks.1",
            "resourcesVpcConfig": {
                "securityGroupIds": [],
                "endpointPublicAccess": public,
                "endpointPrivateAccess": False,
                **network,
                "publicAccessCidrs": network.get("publicAccessCidrs") or (["0.0.0.0/0"] if public else []),
                "vpcId": vpc,
                "clusterSecurityGroupId": group.id,
            },
            "kubernetesNetworkConfig": {
                "serviceIpv4Cidr": "172.20.0.0/16",
                "ipFamily": "ipv4",
                "elasticLoadBalancing": {"enabled": False},
                **(body.get("kubernetesNetworkConfig") or {}),
            },
            "logging": _logging(body.get("logging") or {}),
            "accessConfig": {"authenticationMode": "CONFIG_MAP", **(body.get("accessConfig") or {})},
        }
        cluster["accessConfig"].pop("bootstrapClusterCreatorAdminPermissions", None)  # no answer has it
        self._clusters[name] = cluster
        self._tags[cluster["arn"]] = body.get("tags", {})
        return {"cluster": {**cluster, "tags": self._tags[cluster["arn"]]}}

    def _cluster(self, request: Request, name: str, action: list[str]) -> Values:
        cluster = self._clusters[name]
        if action == ["updates"]:
            cluster["version"] = request.body["version"]
            return self._update()
        if action == ["update-config"]:
            for key, value in _stored(request.body).items():
                cluster[key] = {**cluster.get(key, {}), **value} if isinstance(value, dict) else value
            if "logging" in request.body:
                cluster["logging"] = _logging(request.body["logging"])
            return self._update()
        if request.method == "DELETE":
            if cluster["deletionProtection"]:
                raise RefusedRequest(400, "InvalidRequestException", "Deletion protection is enabled for the cluster")
            if any(key[:2] == (name, "node-groups") for key in self._items):
                raise RefusedRequest(409, EXISTS, "Cluster has nodegroups attached")
            self._ec2(request.region).delete_security_group(
                group_id=cluster["resourcesVpcConfig"]["clusterSecurityGroupId"]
            )
            del self._clusters[name]
        return {"cluster": {**cluster, "tags": self._tags[cluster["arn"]]}}

    def _create(self, cluster: str, kind: str, body: Values, region: str, owner: str = "") -> Values:
        form, id = KINDS[kind], f"a-{uuid.uuid4().hex[:17]}"
        name = body.get(form.name, id)
        token = body.get("clientRequestToken")
        if token and self._tokens.get(token) == (cluster, kind, name):
            item = self._items[cluster, kind, name]  # asked again by an SDK that did not get the answer
            return {**item, "tags": self._tags[item[form.arn]]}
        if (cluster, kind, name) in self._items:
            raise RefusedRequest(409, EXISTS, f"{name} exists already in {cluster}")
        suffixes = {"access-entries": ("role", ACCOUNT, name.rpartition("/")[2], str(uuid.uuid4()))}
        arn = _arn(
            region, form.path, cluster, *suffixes.get(kind, (name,) if name == id else (name, str(uuid.uuid4())))
        )
        names = {"clusterName": cluster, form.name: name, form.arn: arn, "createdAt": now(), "modifiedAt": now()}
        self._items[cluster, kind, name] = {**self._filled(cluster, kind, body, region, arn), **names}
        if owner:
            self._items[cluster, kind, name]["ownerArn"] = owner
        self._tags[arn] = body.get("tags", {})
        if token:
            self._tokens[token] = (cluster, kind, name)
        return {**self._items[cluster, kind, name], "tags": self._tags[arn]}

    def _filled(self, cluster: str, kind: str, body: Values, region: str, arn: str) -> Values:
        """The parameters of a new item, with EKS' defaults."""
        match kind:
            case "node-groups":
                template = body.get("launchTemplate")
                name = self._ec2(region).get_launch_template(template["id"]).name if template else ""
                return {
                    "version": self._clusters[cluster]["version"],
                    "releaseVersion": "the newest",
                    "capacityType": "ON_DEMAND",
                    "amiType": "AL2023_x86_64_STANDARD",
                    "updateConfig": {"maxUnavailable": 1},
                    "nodeRepairConfig": {"enabled": False},
                    "resources": {"autoScalingGroups": [{"name": f"eks-{body['nodegroupName']}-{uuid.uuid4()}"}]},
                    **({} if template else {"diskSize": 20}),
                    **_stored(body),
                    **ACTIVE,
                    "instanceTypes": body.get("instanceTypes") or ([] if template else ["t3.medium"]),
                    "labels": body.get("labels", {}),
                    "taints": body.get("taints", []),
                    **({"launchTemplate": {**template, "name": name}} if template else {}),
                }
            case "addons":
                pods = [
                    self._create(cluster, "pod-identity-associations", {"namespace": "kube-system", **pod}, region, arn)
                    for pod in body.get("podIdentityAssociations", [])
                ]
                arns = {"podIdentityAssociations": [pod["associationArn"] for pod in pods]}
                return {"addonVersion": "v1.2.3-eksbuild.1", "publisher": "eks", **_stored(body), **ACTIVE, **arns}
            case "access-entries":
                role = body["principalArn"].rpartition("/")[2]
                user = f"arn:aws:sts::{ACCOUNT}:assumed-role/{role}/{{{{SessionName}}}}"
                return {"kubernetesGroups": [], "type": "STANDARD", "username": user, **_stored(body)}
        return {"disableSessionTags": False, **_stored(body)}

    def _item(self, request: Request, key: tuple[str, str, str], action: list[str]) -> Values:
        form = KINDS[key[1]]
        if key not in self._items:
            raise _absent(form.answer, key[2])
        item, body = self._items[key], request.body
        if request.method == "DELETE":
            self._policies.pop((key[0], key[2]), None)
            return {form.answer: self._items.pop(key)}
        if request.method == "POST":
            item |= _stored(body)
            if "labels" in body:
                labels = {**item["labels"], **body["labels"].get("addOrUpdateLabels", {})}
                removed = body["labels"].get("removeLabels", [])
                item["labels"] = {name: value for name, value in labels.items() if name not in removed}
            if "taints" in body:
                updates = [*body["taints"].get("addOrUpdateTaints", []), *body["taints"].get("removeTaints", [])]
                keys = [(taint["key"], taint["effect"]) for taint in updates]
                others = [taint for taint in item["taints"] if (taint["key"], taint["effect"]) not in keys]
                item["taints"] = [*others, *body["taints"].get("addOrUpdateTaints", [])]
        if action:
            return self._update()
        return {form.answer: {**item, "tags": self._tags.get(item[form.arn], {})}}

    def _policy(self, request: Request, key: tuple[str, str], arn: str) -> Values:
        policies = self._policies.setdefault(key, {})
        names, body = {"clusterName": key[0], "principalArn": key[1]}, request.body
        if request.method == "DELETE":
            policies.pop(arn, None)
            return {}
        if request.method == "POST":
            scope, times = {"namespaces": [], **body["accessScope"]}, {"associatedAt": now(), "modifiedAt": now()}
            policies[body["policyArn"]] = {"policyArn": body["policyArn"], "accessScope": scope, **times}
            return {**names, "associatedAccessPolicy": policies[body["policyArn"]]}
        return {**names, "associatedAccessPolicies": list(policies.values())}


def _arn(region: str, *path: str) -> str:
    return f"arn:aws:eks:{region}:{ACCOUNT}:{'/'.join(path)}"


def _absent(kind: str, name: str) -> RefusedRequest:
    return RefusedRequest(404, "ResourceNotFoundException", f"No {kind} found for name: {name}.")


def _stored(body: Values) -> Values:
    return {key: value for key, value in body.items() if key not in NOT_STORED and value is not None}


def _add_on_versions(query: Mapping[str, list[str]]) -> Values:
    """Two versions of each add-on for a minor version of Kubernetes, which no floor refuses: the most recent one first,
    as EKS lists them, then its default."""
    (name,), (minor,) = query["addonName"], query["kubernetesVersion"]
    versions = [
        {
            "addonVersion": f"v9.{minor.partition('.')[2]}.{patch}-eksbuild.1",
            "compatibilities": [{"clusterVersion": minor, "platformVersions": ["*"], "defaultVersion": patch == 0}],
        }
        for patch in (1, 0)
    ]
    return {"addons": [{"addonName": name, "addonVersions": versions}]}


def _logging(setting: Values) -> Values:
    """EKS answers with the types of logs that are on and with those that are off."""
    enabled = [name for part in setting.get("clusterLogging", []) if part.get("enabled") for name in part["types"]]
    disabled = [name for name in LOG_TYPES if name not in enabled]
    parts = ((enabled, True), (disabled, False))
    return {"clusterLogging": [{"types": types, "enabled": state} for types, state in parts if types]}
