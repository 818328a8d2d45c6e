"""Objects rendered for Argo CD and Flux, judged by a real API server with their own definitions."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import judges
import pytest
import yaml

from tenancy.deploy.gitops import GitOpsSource, GitOpsTool, rendered
from tenancy.lab import control_plane, ports
from tenancy.lab.api import ApiError, LabApi
from tenancy.planning import make_plan
from tenancy.spec.fields.environment import Layout
from tenancy.spec.loader import load
from tests.kinds import define

pytestmark = pytest.mark.exhaustive(
    reason=(
        "the API server judges the files of both tools by the tools' own "
        "definitions; their fields are in "
        "tests/unit/deploy/test_gitops_files.py"
    )
)

BANK = Path(__file__).parents[2] / "stacks" / "bank"
CREATE = "application/json"
FILES = {GitOpsTool.OPERATOR: "stacks"}
DIGEST = "sha256:" + "0" * 64
DEFINITIONS = {
    "schemas-argo-cd": ["application-crd.yaml", "appproject-crd.yaml"],
    "schemas-flux-kustomize": ["kustomize.toolkit.fluxcd.io_kustomizations.yaml"],
    "schemas-flux-source": ["source.toolkit.fluxcd.io_gitrepositories.yaml"],
}
TEXT, FLAG, NUMBER = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "format": "int64"}
QUANTITY = {"x-kubernetes-int-or-string": True}


def mapping(required: str = "", **properties: Any) -> dict[str, Any]:
    needs = {"required": required.split()} if required else {}
    return {"type": "object", "properties": properties, **needs}


def list_of(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": item}


def by_name(item: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": item}


REFERENCE = mapping(
    "type",
    type=TEXT,
    env=mapping("name", name=TEXT),
    filesystem=mapping("path", path=TEXT),
    literal=mapping("value", value=TEXT),
    secret=mapping("key name", key=TEXT, name=TEXT, namespace=TEXT),
)
WORKSPACE = mapping(
    env=list_of({"type": "object", "x-kubernetes-preserve-unknown-fields": True}),
    image=TEXT,
    imagePullPolicy=TEXT,
    pulumiLogLevel={"type": "integer", "format": "int32"},
    resources=mapping(limits=by_name(QUANTITY), requests=by_name(QUANTITY)),
    securityProfile=TEXT,
    serviceAccountName=TEXT,
)
STACK = mapping(
    "stack",
    accessTokenSecret=TEXT,
    backend=TEXT,
    branch=TEXT,
    commit=TEXT,
    config={"x-kubernetes-preserve-unknown-fields": True},
    continueResyncOnCommitMatch=FLAG,
    destroyOnFinalize=FLAG,
    envRefs=by_name(REFERENCE),
    environment=list_of(TEXT),
    expectNoRefreshChanges=FLAG,
    gitAuth=mapping(accessToken=REFERENCE),
    gitAuthSecret=TEXT,
    prerequisites=list_of(mapping("name", name=TEXT, requirement=mapping(succeededWithinDuration=TEXT))),
    preview=FLAG,
    programRef=mapping("name", name=TEXT),
    projectRepo=TEXT,
    refresh=FLAG,
    repoDir=TEXT,
    resyncFrequencySeconds=NUMBER,
    retryMaxBackoffDurationSeconds=NUMBER,
    retryOnUpdateConflict=FLAG,
    secrets=by_name(TEXT),
    secretsProvider=TEXT,
    secretsRef=by_name(REFERENCE),
    serviceAccountName=TEXT,
    shallow=FLAG,
    stack=TEXT,
    targetDependents=FLAG,
    targets=list_of(TEXT),
    workspaceReclaimPolicy={**TEXT, "enum": ["Retain", "Delete"]},
    workspaceTemplate=mapping(metadata={"type": "object"}, spec=WORKSPACE),
)
"""Fields, types and what is required, of pulumi-kubernetes-operator's `stacks.pulumi.com` at 0d34c847, without what of
the API is deprecated or Flux's, and without the template of a pod: its own definition is in no module or package."""
OPERATOR = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "stacks.pulumi.com"},
    "spec": {
        "group": "pulumi.com",
        "names": {"kind": "Stack", "listKind": "StackList", "plural": "stacks", "singular": "stack"},
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": mapping(spec=STACK)},
            }
        ],
    },
}
PLURALS = {
    "AppProject": "appprojects",
    "Application": "applications",
    "GitRepository": "gitrepositories",
    "Kustomization": "kustomizations",
    "Stack": "stacks",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabApi]:
    crds = [
        yaml.safe_load((judges.folder(module) / name).read_text("utf-8"))
        for module, names in DEFINITIONS.items()
        for name in names
    ]
    crds.append(OPERATOR)
    root = tmp_path_factory.mktemp("gitops")
    (root / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        lab = control_plane.up(root=root)
        try:
            with LabApi(lab, ports.remembered(lab)["kube-apiserver"]) as api:
                define(api, crds)
                for name in ("argocd", "flux-system", "pulumi-system"):
                    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
                    api.request("POST", "/api/v1/namespaces", space, CREATE)
                yield api
        finally:
            control_plane.down(root=root)


def gitops_items(tool: GitOpsTool) -> list[dict[str, Any]]:
    loaded = load(BANK)
    plan = make_plan(loaded, loaded.day)
    source = GitOpsSource(
        "https://git.bank.example/gpus", "rendered/bank", organization="bank", image=f"pulumi@{DIGEST}"
    )
    text = rendered(plan, Layout.PER_TENANT, tool, source)
    return list(yaml.safe_load_all(text[f"gitops/{FILES.get(tool, tool)}.yaml"]))


def ask(api: LabApi, item: dict[str, Any]) -> None:
    """Create it, strictly: a field that is not in the schema is an error."""
    where = f"/apis/{item['apiVersion']}/namespaces/{item['metadata']['namespace']}/{PLURALS[item['kind']]}"
    api.request("POST", f"{where}?fieldValidation=Strict&dryRun=All", item, CREATE)


KINDS = {
    GitOpsTool.ARGO: {"AppProject", "Application"},
    GitOpsTool.FLUX: {"GitRepository", "Kustomization"},
    GitOpsTool.OPERATOR: {"Stack"},
}


@pytest.mark.parametrize("tool", KINDS)
def test_all_of_it_is_taken(tool: GitOpsTool, server: LabApi) -> None:
    items = gitops_items(tool)
    assert {item["kind"] for item in items} == KINDS[tool]
    for item in items:
        ask(server, item)


@pytest.mark.parametrize(
    ("tool", "kind", "field", "value", "message"),
    [
        (GitOpsTool.ARGO, "Application", "sources_", {}, 'unknown field "spec.sources_"'),
        (GitOpsTool.ARGO, "Application", "project", None, "spec.project"),
        (GitOpsTool.ARGO, "AppProject", "sourceRepos", "one", "spec.sourceRepos"),
        (GitOpsTool.FLUX, "Kustomization", "deletionPolicy", "Perhaps", "spec.deletionPolicy"),
        (GitOpsTool.FLUX, "Kustomization", "dependOn", [], 'unknown field "spec.dependOn"'),
        (GitOpsTool.FLUX, "GitRepository", "url", "nowhere", "spec.url"),
        (GitOpsTool.OPERATOR, "Stack", "stack", None, "spec.stack"),
        (GitOpsTool.OPERATOR, "Stack", "prerequisite", [], 'unknown field "spec.prerequisite"'),
        (GitOpsTool.OPERATOR, "Stack", "refresh", "yes", "spec.refresh"),
        (GitOpsTool.OPERATOR, "Stack", "envRefs", {"A": {"literal": {"value": "b"}}}, "spec.envRefs.A.type"),
    ],
)
def test_a_twin_with_one_field_wrong_is_refused_by_the_schema(
    tool: GitOpsTool, kind: str, field: str, value: Any, message: str, server: LabApi
) -> None:
    item = next(copy.deepcopy(candidate) for candidate in gitops_items(tool) if candidate["kind"] == kind)
    ask(server, item)
    item["spec"][field] = value
    with pytest.raises(ApiError) as refused:
        ask(server, item)
    assert refused.value.status in {400, 422}
    assert message in str(refused.value)
