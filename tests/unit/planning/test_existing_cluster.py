"""A cluster that another tool made: everything but the cluster is planned, each service on its own, and no field is
dropped in silence."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenancy.catalog import vocabulary
from tenancy.planning import Plan, make_plan
from tenancy.planning.render import file_texts
from tenancy.spec.loader import on_lab, spec_notes
from tenancy.spec.reading.problems import SpecError
from tests.aws_cases import ON_AWS
from tests.conftest import SpecFolder, documents, every

BANK = Path(__file__).parents[3] / "stacks" / "bank"
ENV, FRAUD, RESEARCH = "environment.yaml", "tenants/fraud.yaml", "tenants/research.yaml"
MORE = """ci: {github: bank/fraud-models, branch: main}
aws-resources: {repositories: [scoring], secrets: [card-network], log-groups: [jobs], sqs-queues: [jobs]}
"""


@pytest.fixture
def existing(spec: SpecFolder) -> SpecFolder:
    """The small environment on a cluster of EKS that exists."""
    spec.edit(ENV, "  cni: vpc-cni\n", f"  mode: existing\n{ON_AWS}")
    spec.add(FRAUD, MORE)
    return spec


def planned(spec: SpecFolder) -> Plan:
    loaded = spec.load()
    return make_plan(loaded, loaded.day)


def test_everything_but_the_cluster_is_made(existing: SpecFolder) -> None:
    plan = planned(existing)
    assert plan.cluster is None
    assert plan.account
    assert plan.account.cluster == "small"
    assert plan.platform.services is None, "charts are present there"
    assert plan.platform.storage_classes == ()
    existing.edit(ENV, "  mode: existing\n", "")
    built = planned(existing)
    assert built.cluster, "without the line it is built"
    assert built.platform.services
    assert plan.platform.data == built.platform.data
    assert [tenant.aws for tenant in plan.tenants] == [tenant.aws for tenant in built.tenants]
    for tenant_plan in (tenant.aws for tenant in plan.tenants):
        assert tenant_plan
        filled = {field.name for field in fields(tenant_plan) if getattr(tenant_plan, field.name)}
        assert filled >= ({"roles", "associations", "tags"})


def test_guards_and_tenants_objects_are_those_of_a_cluster_that_is_built(existing: SpecFolder) -> None:
    existing_plan = planned(existing)
    existing.edit(ENV, "  mode: existing\n", "")
    assert existing_plan.platform.guards == planned(existing).platform.guards
    assert [t.namespaces for t in existing_plan.tenants] == [t.namespaces for t in planned(existing).tenants]


@pytest.mark.parametrize(
    ("service", "charts"), [("gpu-operator", ["gpu-operator"]), ("kueue", ["kueue"]), ("storage-class", [])]
)
def test_each_service_is_installed_on_its_own(existing: SpecFolder, service: str, charts: list[str]) -> None:
    existing.add(ENV, f"services: {{{service}: install}}\n")
    plan = planned(existing)
    services = plan.platform.services
    assert [chart.name for chart in (services.charts if services else ())] == charts
    assert [item["metadata"]["name"] for item in plan.platform.storage_classes] == (
        ["tenancy-gp3"] if service == "storage-class" else []
    )
    if services:
        assert services.add_ons == ()
        assert services.identities == {}
        assert services.nodes == ()
        assert "tenancy.gpu/pool" not in str(_selectors(services.charts[0].values)), "no node there is the platform's"


def _selectors(value: Any) -> list[Any]:
    if isinstance(value, dict):
        own_selectors = [value[key] for key in ("nodeSelector", "nodeAffinity") if key in value]
        return [*own_selectors, *(selector for item in value.values() for selector in _selectors(item))]
    return [selector for item in value for selector in _selectors(item)] if isinstance(value, list) else []


def _chosen_pools(value: Any) -> set[str]:
    """Pools whose nodes a rendered file asks for: by a node selector, an affinity or a chart's own list."""
    if isinstance(value, list):
        return {pool for item in value for pool in _chosen_pools(item)}
    if not isinstance(value, dict):
        return set()
    own_pools = {value[vocabulary.POOL]} if isinstance(value.get(vocabulary.POOL), str) else set()
    if value.get("key") == vocabulary.POOL or vocabulary.POOL in value.get("keys", ()):
        own_pools |= set(value.get("values", ()))
    return own_pools | {pool for item in value.values() for pool in _chosen_pools(item)}


IMAGE = f"registry.bank.example/clock@sha256:{'0' * 64}"
OTHERS: dict[str, tuple[str, ...]] = {
    "nothing is installed": (),
    "everything is installed": (
        "services: {kueue: install, gpu-operator: install, storage-class: install}\n",
        f"queues: {{clock: true, clock-image: '{IMAGE}'}}\n",
        "metrics: {collector: install, cost-tool: opencost}\n",
    ),
    "charts of others": (f"queues: {{clock: true, clock-image: '{IMAGE}'}}\n", "metrics: {collector: existing}\n"),
}
"""Fields of an environment on a cluster that it does not make."""


@pytest.mark.parametrize("cni", ["vpc-cni", "cilium"])
@pytest.mark.parametrize("on_aws", [False, True])
@pytest.mark.parametrize("case", OTHERS)
def test_what_is_rendered_for_a_cluster_of_others_selects_only_pools_of_the_files(
    case: str, on_aws: bool, cni: str, spec: SpecFolder
) -> None:
    """A selector of a pool that is in no file keeps pods Pending; of Kueue's pods, all work with them."""
    fields = "".join(OTHERS[case])
    if on_aws:
        spec.edit(ENV, "  cni: vpc-cni\n", f"  mode: existing\n{ON_AWS}")
    else:
        fields = fields.replace(", storage-class: install", "").replace("collector: install", "collector: existing")
    spec.edit(ENV, "  cni: vpc-cni\n", f"  cni: {cni}\n")
    spec.add(ENV, fields)
    loaded = spec.load()
    rendered = file_texts(make_plan(loaded, loaded.day))
    assert any(path.endswith("kueue.yaml") for path in rendered)
    for path, text in rendered.items():
        assert _chosen_pools(documents(text)) <= set(loaded.environment.pools), path


def test_what_is_rendered_for_a_cluster_of_ours_selects_the_systems_nodes(existing: SpecFolder) -> None:
    existing.edit(ENV, "  mode: existing\n", "")
    rendered = file_texts(planned(existing))
    pools_by_path = {path: _chosen_pools(documents(text)) for path, text in rendered.items() if "kueue" in path}
    assert every(pools == {"system"} for pools in pools_by_path.values())


def test_layouts_of_mig_are_rendered_wherever_nodes_are_made(existing: SpecFolder) -> None:
    """`verify-on-cluster.sh` compares nodes with them."""
    layouts = file_texts(planned(existing))["cluster/mig-parted.yaml"]
    existing.edit(ENV, "  mode: existing\n", "")
    assert file_texts(planned(existing))["cluster/mig-parted.yaml"] == layouts
    assert set(documents(layouts)[0]["mig-configs"]) == {"serve"}


def test_the_operator_is_installed_beside_a_device_plugin_or_an_exporter_of_others(existing: SpecFolder) -> None:
    existing.add(ENV, "services: {gpu-operator: install, device-plugin: present, dcgm-exporter: none}\n")
    services = planned(existing).platform.services
    assert services
    values = services.charts[0].values
    assert [values[key] for key in ("devicePlugin", "dcgmExporter")] == [{"enabled": False}] * 2


def test_pools_need_a_device_plugin_and_not_the_operator(existing: SpecFolder) -> None:
    existing.add(ENV, "services: {gpu-operator: none, device-plugin: present}\n")
    assert existing.load()


def test_a_cluster_that_is_not_on_aws_gets_the_same_charts(spec: SpecFolder) -> None:
    spec.add(ENV, "services: {gpu-operator: install, kueue: install}\n")
    services = planned(spec).platform.services
    assert services
    assert [chart.name for chart in services.charts] == ["kueue", "gpu-operator"]


@pytest.mark.parametrize(
    ("edit", "field"),
    [
        (("  mode: existing\n", "  mode: build\n", "services: {gpu-operator: present}\n"), "services.gpu-operator"),
        (("", "", "services: {gpu-operator: none}\n"), "services.gpu-operator"),
        (("", "", "services: {device-plugin: none}\n"), "services.device-plugin"),
        (("", "", "services: {device-plugin: install}\n"), "services.device-plugin"),
        (("", "", "services: {dcgm-exporter: install}\n"), "services.dcgm-exporter"),
        (("  mode: existing\n", "  mode: build\n", "services: {device-plugin: present}\n"), "services.device-plugin"),
        (("", "", "services: {dcgm-exporter: none}\nmetrics: {collector: existing}\n"), "services.dcgm-exporter"),
        (("", "", "services: {kueue: none}\n"), "services.kueue"),
        (("", "", "metrics: {collector: install}\n"), "metrics.collector"),
        (("  enabled: true\n", "  enabled: true\n  identity: irsa\n", ""), "aws.identity"),
        (("  enabled: true\n", "  enabled: true\n  irsa: true\n", ""), "aws.irsa"),
    ],
)
def test_a_switch_that_nothing_can_follow_is_refused(
    existing: SpecFolder, edit: tuple[str, str, str], field: str
) -> None:
    assert existing.load(), "its twin without the switch"
    old, new, more = edit
    if old:
        existing.edit(ENV, old, new)
    existing.add(ENV, more)
    assert [problem.field for problem in existing.problems()] == [field]


def test_a_cluster_is_built_on_aws_alone(spec: SpecFolder) -> None:
    spec.edit(ENV, "  cni: vpc-cni\n", "  cni: vpc-cni\n  mode: build\n")
    assert [problem.field for problem in spec.problems()] == ["cluster.mode"]
    spec.edit(ENV, "  mode: build\n", "  mode: existing\n")
    assert spec.load()


def test_roles_by_irsa_trust_the_clusters_own_issuer(existing: SpecFolder) -> None:
    issuer = "oidc.eks.eu-central-1.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF"
    existing.edit(ENV, "  enabled: true\n", f"  enabled: true\n  identity: irsa\n  oidc-issuer: {issuer}\n")
    plan = planned(existing)
    (fraud, _) = plan.tenants
    assert fraud.aws
    assert fraud.aws.associations == ()
    assert issuer in str(fraud.aws.roles[0].trust)
    assert plan.platform.data
    assert not [p for p in plan.platform.data.providers if p.url.endswith(issuer)], "the account has it"
    existing.edit(ENV, "  identity: irsa\n", "  identity: irsa\n  irsa: true\n")
    data = planned(existing).platform.data
    assert data
    assert [p.url for p in data.providers if p.url.endswith(issuer)] == [f"https://{issuer}"]


# Nothing is dropped in silence


RICH = """\
aws:
  enabled: true
  account: "111122223333"
  region: eu-central-1
  zones: [eu-central-1a, eu-central-1b]
  platform-role: arn:aws:iam::111122223333:role/platform
  permissions-boundary: arn:aws:iam::111122223333:policy/boundary
  public-access-cidrs: [198.51.100.0/24]
  log-retention-days: 90
  kms-key-arn: arn:aws:kms:eu-central-1:111122223333:key/0123abcd
  tenant-log-kms-key-arn: arn:aws:kms:eu-central-1:111122223333:key/4567abcd
  deletion-protection: false
  irsa: true
  oidc-issuer: oidc.eks.eu-central-1.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF
  system: {instance-type: m7i.2xlarge, nodes: 4}
  ami-release: v20260724
  root-volume-size: 300
  extended-support: false
  add-ons: {release: latest, versions: {coredns: v1.12.1-eksbuild.2}}
  upgrade-pause: 10
  organization-id: o-b4nkexampl3
  management-account: true
  existing-oidc-providers: [github.com]
  group-roles: {fraud-engineers: "arn:aws:iam::111122223333:role/fraud"}
  network: {cidr: 10.80.0.0/16, aws-service-cidrs: [198.51.101.0/24]}
services: {gpu-operator: install, device-plugin: present, kueue: install, dra-driver: present, efa-device-plugin:
install, storage-class: present}
namespace-name: "{tenant}-{namespace}"
guards: audit
metrics: {collector: existing, namespace: metrics, labels: {release: ours}, tenant-queries: false, cost-tool: opencost,
  mail: {server: "mail.bank.example:587", sender: a@bank.example, platform: b@bank.example}, idle-alert-after: 10m,
  max-wait-p90: {batch: 1h}, guaranteed-wait-alert-after: 5m}
"""
"""Further fields of the small environment: of each part of the file some."""
ELSEWHERE = {
    "organisation.departments.risk.title": "reports",
    "aws.upgrade-pause": "tenancy up",
    "aws.zones": "the report on what a lost zone takes",
    "gpus.a100.borrowing-limit": "as many as are guaranteed is its default, and the file says the same",
    "tiers.production.quota.cpu": "the ceiling of a namespace that asks for less",
    "tiers.production.quota.pods": "the ceiling of a namespace that asks for less",
    "aws.root-volume-size": "what of a node is left for pods",
    "services.dra-driver": "present is the default of a cluster that exists",
    "services.storage-class": "present or not, only what uses it asks",
}
"""Fields that other commands read than those that plan."""


def leaves(node: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every key of a document, deepest first."""
    paths: list[tuple[Any, ...]] = []
    for key, value in node.items() if isinstance(node, dict) else ():
        paths += leaves(value, (*path, key))
    return [*paths, *([path] if path else [])]


def without(document: Any, path: tuple[Any, ...]) -> Any:
    key, *inner_path = path
    if not inner_path:
        return {name: value for name, value in document.items() if name != key}
    return {name: without(value, tuple(inner_path)) if name == key else value for name, value in document.items()}


def silent(spec: SpecFolder, file: str) -> set[str]:
    """Fields of a file without which the plan and the notes are the same."""
    document = yaml.safe_load((spec.path / file).read_text("utf-8"))
    loaded = spec.load()
    plan, noted_fields = make_plan(loaded, loaded.day), {note.field for note in spec_notes(loaded)}
    silent_fields = set()
    for where in leaves(document):
        dotted = ".".join(map(str, where))
        if any(f"{note}.".startswith(f"{dotted}.") or f"{dotted}.".startswith(f"{note}.") for note in noted_fields):
            continue
        spec.write(file, yaml.safe_dump(without(document, where), sort_keys=False))
        try:
            less = spec.load()
        except SpecError:
            continue  # it is required, or another field needs it
        # A value that is the default's says what would be there anyway.
        has_effect_on_models = (
            less.environment.model_dump() != loaded.environment.model_dump() or less.tenants != loaded.tenants
        )
        if has_effect_on_models and make_plan(less, less.day) == plan:
            silent_fields.add(dotted)
    spec.write(file, yaml.safe_dump(document, sort_keys=False))
    return silent_fields


@pytest.mark.parametrize(
    "mode",
    [
        pytest.param(
            "build", marks=pytest.mark.exhaustive(reason="a cluster that is built; `make test` has one that exists")
        ),
        "existing",
        pytest.param(
            "off", marks=pytest.mark.exhaustive(reason="no AWS at all; `make test` has a cluster that exists")
        ),
    ],
)
def test_every_field_has_an_effect_on_the_plan_or_a_note(spec: SpecFolder, mode: str) -> None:
    rich = RICH
    if mode != "existing":
        rich = re.sub("^services: [^}]*}\n", "", rich, flags=re.MULTILINE)
    if mode == "off":
        rich = rich.replace("enabled: true", "enabled: false")
    if mode == "existing":
        spec.edit(ENV, "  cni: vpc-cni\n", "  cni: vpc-cni\n  mode: existing\n")
    spec.add(ENV, rich)
    spec.add(FRAUD, MORE)
    assert silent(spec, ENV) <= set(ELSEWHERE)
    assert silent(spec, FRAUD) <= set(ELSEWHERE)


def test_fields_of_what_is_not_made_are_named_with_their_line(existing: SpecFolder) -> None:
    existing.edit(ENV, "  zones: ", "  deletion-protection: false\n  zones: ")
    lines_by_field = {note.field: note.line for note in spec_notes(existing.load())}
    assert "aws.zones" not in lines_by_field, "the report on what a lost zone takes reads them"
    lines = (existing.path / ENV).read_text("utf-8").splitlines()
    assert lines[lines_by_field["aws.deletion-protection"] - 1].strip() == "deletion-protection: false"
    existing.edit(ENV, "  mode: existing\n", "")
    assert "aws.deletion-protection" not in {note.field for note in spec_notes(existing.load())}


def test_a_run_on_the_lab_names_services_that_it_does_not_install(existing: SpecFolder) -> None:
    existing.add(ENV, "services: {gpu-operator: install}\n")
    loaded = existing.load()
    assert "services.gpu-operator" not in {note.field for note in spec_notes(loaded)}
    played = on_lab(loaded)
    assert "services.gpu-operator" in {note.field for note in spec_notes(played)}
    assert make_plan(played, played.day).platform.services is None
