"""Changes of an existing cluster: those that `tenancy up` refuses, those that need a name, and those without effect."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from tenancy import planning
from tenancy.catalog.days import today
from tenancy.cli import main
from tenancy.cli.up_report import Report
from tenancy.cli.up_settings import EnvironmentRun, RemovableTenants, SelectedStacks, StackSelection, expect_replaceable
from tenancy.cli.up_stack import preview_and_update, remove_former_tenants
from tenancy.deploy.changes import Outcome, ResourceChange
from tenancy.deploy.cluster_changes import ClusterChanges, unrequested_changes
from tenancy.deploy.driver import RunFailed
from tenancy.planning.aws.cluster import PLATFORM_ROLE, ClusterPlan, cluster_plan
from tenancy.planning.aws.creation import FIXED_FIELDS, fixed_values
from tenancy.planning.scope import StackScope
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import load
from tests import recorded
from tests.registered import Registered, register
from tests.registered_aws import inputs_of_kinds

ROOT = Path(__file__).parents[3]
ZONES = ["eu-central-1a", "eu-central-1b", "eu-central-1c"]
Edit = Callable[[dict[str, Any]], None]


@cache
def environment_fields() -> dict[str, Any]:
    """The bank's environment as its file has it."""
    return load(ROOT / "stacks" / "bank").environment.model_dump(mode="json", by_alias=True, exclude_unset=True)


def edited(*edits: tuple[str, Any]) -> Environment:
    """The bank with other values at these paths; None drops a field."""
    fields = _copied(environment_fields())
    for path, value in edits:
        *parents, field = path.split(".")
        part = fields
        for name in parents:
            part = part.setdefault(name, {})
        if value is None:
            part.pop(field, None)
        else:
            part[field] = value
    return Environment.model_validate(fields)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copied(item) for key, item in value.items()}
    return list(map(_copied, value)) if isinstance(value, list) else value


def planned(*edits: tuple[str, Any]) -> ClusterPlan:
    plan = cluster_plan(edited(*edits), today())
    assert plan
    return plan


@pytest.fixture(autouse=True)
def answers(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded.answer(monkeypatch)


def registered_cluster(*edits: tuple[str, Any]) -> Registered:
    return register(planning.plan(edited(*edits), load(ROOT / "stacks" / "bank").tenants), StackScope.CLUSTER)


_STATES: dict[str, list[dict[str, Any]]] = {}


def state(*edits: tuple[str, Any]) -> list[dict[str, Any]]:
    """The engine's record of such a cluster."""
    key = repr(edits)
    if key not in _STATES:
        _STATES[key] = recorded.resources(registered_cluster(*edits))
    return _STATES[key]


def refused(
    *edits: tuple[str, Any], before: tuple[tuple[str, Any], ...] = (), replaceable_groups: tuple[str, ...] = ()
) -> list[str]:
    return list(ClusterChanges(planned(*edits), state(*before), replaceable_groups).refusals())


def test_the_same_files_change_nothing_that_is_fixed() -> None:
    changes = ClusterChanges(planned(), state())
    assert (list(changes.refusals()), list(changes.notes())) == ([], [])
    assert (changes.replacing, changes.removed) == (frozenset(), frozenset())


def test_a_cluster_that_is_still_to_be_made_may_have_any_value() -> None:
    assert list(ClusterChanges(planned(("cluster.service-cidr", "172.21.0.0/16")), []).refusals()) == []


FIXED_EDITS: dict[str, tuple[str, str]] = {
    "aws.account": ("222233334444", "111122223333"),
    "aws.region": ("eu-west-1", "eu-central-1"),
    "aws.network.cidr": ("10.80.0.0/16", "10.64.0.0/16"),
    "aws.kms-key-arn": ("arn:aws:kms:eu-central-1:111122223333:key/0a1b", "made here"),
    "cluster.name": ("bank-2", "bank"),
    "cluster.service-cidr": ("172.21.0.0/16", recorded.SERVICE_CIDR),
}
MOVED: dict[str, tuple[tuple[str, Any], ...]] = {
    # What else has to follow, so that the file is valid.
    "aws.account": (("aws.platform-role", "arn:aws:iam::222233334444:role/gpu-platform"),),
    "aws.region": (("aws.zones", ["eu-west-1a", "eu-west-1b", "eu-west-1c"]),),
}


@pytest.mark.parametrize("field", FIXED_EDITS)
def test_a_value_that_aws_fixes_at_creation_is_refused_with_both_values_and_the_way(field: str) -> None:
    value, old = FIXED_EDITS[field]
    plan = planned((field, value)) if field not in MOVED else _moved(field, value)
    refusals = list(ClusterChanges(plan, state()).refusals())
    (text,) = [refusal for refusal in refusals if refusal.startswith(f"given {field}: {value}")]
    assert f"made with {old}; rule: {FIXED_FIELDS[field]}" in text
    assert "second environment with another cluster.name" in text
    assert text.endswith("nothing was changed")


def _moved(field: str, value: str) -> ClusterPlan:
    return replace(planned(), **{field.rpartition(".")[2]: value})


def test_every_fixed_field_is_told_apart() -> None:
    assert (
        FIXED_FIELDS.keys() == fixed_values(planned()).keys() == ClusterChanges(planned(), state())._recorded().keys()
    )
    assert FIXED_FIELDS.keys() == {*FIXED_EDITS, "aws.network.vpc"}


def test_the_range_that_eks_has_chosen_may_be_written() -> None:
    assert refused(("cluster.service-cidr", recorded.SERVICE_CIDR)) == []


def test_a_range_of_services_that_is_no_longer_written_stays() -> None:
    assert refused(before=(("cluster.service-cidr", "172.21.0.0/16"),)) == []


def test_another_vpc_is_refused() -> None:
    subnets = {zone: f"subnet-0123abc{zone[-1]}" for zone in ZONES}
    edits = (("aws.network", {"vpc": "vpc-0456cdef", "subnets": subnets}), ("aws.zones", None))
    (text, *_) = refused(*edits)
    assert "given aws.network.vpc: vpc-0456cdef, and a cluster that was made with made here" in text


PROTECTED = {
    *("Cluster", "NodeGroup", "Vpc", "Subnet", "Addon", "AccessEntry", "AccessPolicyAssociation"),
    *("PodIdentityAssociation", "Key"),
}


@pytest.mark.parametrize("protection", [True, False])
def test_what_a_replaced_cluster_would_take_with_it_is_protected_like_the_cluster(protection: bool) -> None:
    protected_resources = inputs_of_kinds(registered_cluster(("aws.deletion-protection", protection)), *PROTECTED)
    assert {request.type.rpartition(":")[2] for request in protected_resources.values() if request.custom} == PROTECTED
    assert {request.protect for request in protected_resources.values() if request.custom} == {protection}


def test_a_state_without_protection_gets_it() -> None:
    """An engine records it only with another change."""
    before = _copied(state())
    assert ClusterChanges(planned(), before).unprotected == frozenset()
    for resource in before:
        resource["protect"] = resource["type"].endswith(":Key")
    unprotected = ClusterChanges(planned(), before).unprotected
    assert {urn.rpartition("::")[0].rpartition(":")[2] for urn in unprotected} == PROTECTED - {"Key"}
    assert ClusterChanges(planned(("aws.deletion-protection", False)), before).unprotected == frozenset()


def test_a_group_that_is_named_may_be_replaced_and_no_other() -> None:
    plan = planning.plan(edited(), load(ROOT / "stacks" / "bank").tenants)
    node_groups = inputs_of_kinds(
        register(plan, StackScope.CLUSTER, replacing=frozenset({"general"})), "NodeGroup"
    ).values()
    loose = {r.name: (r.protect, list(r.ignoreChanges)) for r in node_groups if r.custom}
    assert loose.pop("bank-general-nodes") == (False, [])
    assert set(map(repr, loose.values())) == {repr((True, ["subnetIds"]))}


def test_the_platforms_access_follows_its_role_because_the_file_says_so() -> None:
    role = "arn:aws:iam::111122223333:role/platform-2"
    changes = ClusterChanges(planned(("aws.platform-role", role)), state())
    assert (list(changes.refusals()), changes.replacing) == ([], {PLATFORM_ROLE})
    plan = planning.plan(edited(), load(ROOT / "stacks" / "bank").tenants)
    access_entries = inputs_of_kinds(
        register(plan, StackScope.CLUSTER, replacing=changes.replacing), "AccessEntry", "AccessPolicyAssociation"
    )
    assert {request.protect for request in access_entries.values()} == {False}


def test_a_pool_that_the_file_no_longer_has_takes_its_group_alone() -> None:
    plan = planned()
    without = replace(plan, groups=tuple(group for group in plan.groups if group.name != "general"))
    changes = ClusterChanges(without, state())
    assert list(changes.refusals()) == []
    assert {urn.rpartition("::")[2] for urn in changes.removed} == {"bank-general-nodes"}


def test_without_karpenter_its_association_goes() -> None:
    changes = ClusterChanges(replace(planned(), karpenter=None), state())
    assert {urn.rpartition("::")[2] for urn in changes.removed} == {"bank-karpenter"}


# Zones


TWO, THREE = ("aws.zones", ZONES[:2]), ("aws.zones", ZONES)
SYSTEM_IN_TWO = ("aws.system", {"zones": ZONES[:2]})


def test_the_order_of_zones_says_nothing() -> None:
    assert planned(("aws.zones", ZONES[::-1])) == planned()


@pytest.mark.parametrize(
    ("zones", "quarters", "ranges"),
    [
        ("bc", {}, {"b": "10.64.64.0/18", "c": "10.64.128.0/18"}),
        ("fe", {}, {"e": "10.64.64.0/18", "f": "10.64.128.0/18"}),
        ("ad", {"d": 3}, {"a": "10.64.0.0/18", "d": "10.64.128.0/18"}),
    ],
)
def test_a_zones_range_follows_the_zone(zones: str, quarters: dict[str, int], ranges: dict[str, str]) -> None:
    names = list(_by_zone(dict.fromkeys(zones)))
    # A reservation is in one zone.
    pools = [(f"pools.{pool}.zones", sorted(names)[:1]) for pool in ("train-a100", "train-efa")]
    plan = planned(*pools, ("aws.zones", names), ("aws.network.zone-quarters", _by_zone(quarters)))
    assert {subnet.zone[-1]: subnet.private for subnet in plan.network.subnets} == ranges
    public = [subnet.public for subnet in plan.network.subnets]
    assert len(set(public)) == len(public)


def _by_zone(by_letter: Mapping[str, Any]) -> dict[str, Any]:
    return {f"eu-central-1{letter}": value for letter, value in by_letter.items()}


def test_a_zone_that_is_added_replaces_nothing() -> None:
    changes = ClusterChanges(planned(THREE), state(TWO))
    assert (list(changes.refusals()), changes.replacing, changes.removed) == ([], frozenset(), frozenset())
    notes = " ".join(changes.notes())
    assert "nodes of system stay in the zones that they have" in notes
    assert "`--replace general`" in notes
    assert "train-a100" not in notes, "its zone is written"


def test_a_group_takes_the_zone_that_was_added_when_it_is_named() -> None:
    changes = ClusterChanges(planned(THREE), state(TWO), {"general"})
    assert changes.replacing == {"general"}
    assert "general" not in " ".join(changes.notes())


def test_a_zone_of_the_control_plane_is_not_left_even_by_name() -> None:
    (text,) = refused(TWO, before=(THREE,), replaceable_groups=(ZONES[2],))
    assert f"given aws.zones without {ZONES[2]}, in which the control plane was made" in text
    assert "nodes of general, notebooks, serve-mig, system" in text
    assert "name the other zones in aws.system.zones and in the pools' zones" in text


def state_without_zone(zone: str) -> list[dict[str, Any]]:
    """The state of a cluster that was made without this zone, whose groups were replaced into it since."""
    resources = _copied(state(THREE))
    for resource in resources:
        if resource["type"].endswith(":Cluster"):
            subnets = resource["inputs"]["vpcConfig"]["subnetIds"]
            resource["inputs"]["vpcConfig"]["subnetIds"] = [subnet for subnet in subnets if zone not in subnet]
    return resources


def test_a_zone_that_was_added_later_is_left_only_by_name() -> None:
    (text,) = ClusterChanges(planned(TWO), state_without_zone(ZONES[2])).refusals()
    assert f"given aws.zones without {ZONES[2]}, which has nodes of general, notebooks, serve-mig, system" in text
    changes = ClusterChanges(planned(TWO), state_without_zone(ZONES[2]), {ZONES[2]})
    assert list(changes.refusals()) == []
    assert changes.replacing == {"general", "notebooks", "serve-mig", "system"}
    names = {urn.rpartition("::")[2] for urn in changes.removed}
    assert names == {f"bank-network-{kind}-{ZONES[2]}" for kind in ("private", "public")}


def test_nodes_leave_a_zone_that_the_environment_keeps_only_by_name() -> None:
    (text,) = refused(THREE, SYSTEM_IN_TWO, before=(THREE,))
    assert f"given aws.system with zones {', '.join(ZONES)} → {', '.join(ZONES[:2])}" in text
    changes = ClusterChanges(planned(THREE, SYSTEM_IN_TWO), state(THREE), {"system"})
    assert (list(changes.refusals()), changes.replacing) == ([], {"system"})


def test_a_range_that_a_subnet_does_not_have_is_refused_with_the_quarter_that_it_has() -> None:
    before = _copied(state(TWO))
    for resource in before:
        if resource["urn"].endswith(f"private-{ZONES[1]}"):
            resource["inputs"]["cidrBlock"] = "10.64.128.0/18"
    (text,) = ClusterChanges(planned(TWO), before).refusals()
    assert f"given 10.64.64.0/18 for {ZONES[1]}, whose subnet has 10.64.128.0/18" in text
    assert f"write aws.network.zone-quarters: {{{ZONES[1]}: 3}}" in text


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (("pools.general.zones", ZONES[:1]), "zones eu-central-1a, eu-central-1b, eu-central-1c → eu-central-1a"),
        (("pools.general.instance-type", "m7g.8xlarge"), "image type AL2023_x86_64_STANDARD → AL2023_ARM_64_STANDARD"),
    ],
)
def test_a_value_that_eks_fixes_of_a_node_group_is_refused_unless_the_pool_is_named(edit: Any, words: str) -> None:
    (text,) = refused(edit)
    assert f"given pools.general with {words}" in text
    assert "`--replace general`" in text
    changes = ClusterChanges(planned(edit), state(), {"general"})
    assert (list(changes.refusals()), changes.replacing) == ([], {"general"})


# The preview


@pytest.mark.parametrize("kind", ["Bucket", "Cluster", "Key", "NodeGroup", "Subnet", "Vpc"])
def test_no_preview_replaces_what_was_not_named(kind: str) -> None:
    change = ResourceChange("platform", "replace", f"{kind} bank-general-nodes", ("subnetIds",))
    assert unrequested_changes([change], planned(), (), ()) == [f"± {kind} bank-general-nodes: subnetIds"]


def test_a_named_group_and_what_the_files_no_longer_have_go() -> None:
    replaced = ResourceChange("platform", "replace", "NodeGroup bank-general-nodes")
    deleted = ResourceChange("platform", "delete", "NodeGroup bank-old-nodes")
    assert unrequested_changes([replaced, deleted], planned(), {"general"}, ["urn::bank-old-nodes"]) == []
    assert unrequested_changes([replaced, deleted], planned(), (), ()) == [str(replaced), str(deleted)]


def test_updates_and_other_kinds_are_not_held_up() -> None:
    changes = [
        ResourceChange("platform", "update", "NodeGroup bank-general-nodes"),
        ResourceChange("platform", "replace", "SecurityGroup bank-efa-train-efa-group"),
        ResourceChange("fraud", "delete", "Bucket bank-fraud"),
    ]
    assert unrequested_changes(changes, planned(), (), ()) == []


# The command


@pytest.mark.parametrize(
    ("environment", "name", "words"),
    [
        ("bank", "train", "rule: managed nodes of bank, or a zone; change: name one of system, general,"),
        ("bank", "eu-west-1a", "or a zone such as eu-central-1a"),
        ("local", "system", "a cluster of another tool"),
    ],
)
def test_a_name_that_has_no_nodes_here_is_bad_input(environment: str, name: str, words: str) -> None:
    result = CliRunner().invoke(main, ["up", str(ROOT / "stacks" / environment), "--replace", name])
    assert result.exit_code == 2
    assert f"given --replace {name}" in result.stderr
    assert words in result.stderr


@pytest.mark.parametrize("name", ["system", "general", ZONES[0], "eu-central-1f"])
def test_nodes_and_zones_of_the_region_may_be_named(name: str) -> None:
    expect_replaceable(edited(), [name])


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ((("aws.network.zone-quarters", {ZONES[0]: 2}),), f"{ZONES[1]} in quarter 2, which is that of {ZONES[0]}"),
        ((("aws.network.zone-quarters", {"eu-central-1f": 2}),), "zone eu-central-1f outside aws.zones"),
        ((("aws.system", {"zones": ["eu-central-1f"]}),), "zone eu-central-1f outside aws.zones"),
    ],
)
def test_a_quarter_has_one_zone_and_both_are_the_environments(edits: tuple[tuple[str, Any], ...], words: str) -> None:
    assert edited().builds_cluster, "without the edit it is valid"
    with pytest.raises(ValidationError, match=words):
        edited(*edits)


def run_of(driver: Any, *removed_names: str, only_preview: bool = False) -> EnvironmentRun:
    loaded = load(ROOT / "stacks" / "bank")
    leavers = RemovableTenants(frozenset(), frozenset(removed_names), 1)
    plan = planning.plan(edited(), loaded.tenants)
    return EnvironmentRun(
        loaded,
        plan,
        leavers,
        driver,
        Report("text"),
        StackSelection((), None),
        only_preview=only_preview,
        refresh=False,
    )


def test_a_stack_whose_cluster_the_files_no_longer_build_is_kept() -> None:
    run = run_of(SimpleNamespace(stacks=lambda _: ["bank.cluster"]), "bank.cluster")
    stacks = SelectedStacks(("bank",), True, None, (), is_whole=True)
    with pytest.raises(RunFailed, match="whose cluster the files no longer build"):
        remove_former_tenants(run, stacks)
    remove_former_tenants(run, replace(stacks, is_whole=False))


def preview(capsys: pytest.CaptureFixture[str], *changes: ResourceChange) -> list[str]:
    """Lines of `tenancy up --preview` below the changes of the cluster's stack."""
    outcome = Outcome(list(changes))
    driver: Any = SimpleNamespace(
        resources=lambda _: state(),
        unprotected=lambda *_, **__: nullcontext(),
        preview=lambda *_, **__: outcome,
    )
    run = run_of(driver, only_preview=True)
    preview_and_update(run, cast("Any", SimpleNamespace(name="bank.cluster")))
    return [line for line in capsys.readouterr().out.splitlines() if line.startswith("bank.cluster: wave ")]


def group_change(group: str, kind: str, *details: str) -> ResourceChange:
    name = f"bank-{group}-{'template' if kind == 'LaunchTemplate' else 'nodes'}"
    return ResourceChange("platform", "update", f"{kind} {name}", details)


def test_a_preview_says_which_wave_replaces_which_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    release = "releaseVersion 1.36.3-20260903 → 1.36.3-20260912"
    assert preview(
        capsys,
        group_change("train-a100", "LaunchTemplate", "userData"),
        group_change("train-a100", "NodeGroup", "launchTemplate.version"),
        *(group_change(name, "NodeGroup", release) for name in ("system", "notebooks", "general")),
    ) == [
        "bank.cluster: wave 0 replaces the nodes of system",
        "bank.cluster: wave 1 replaces the nodes of general, notebooks",
        "bank.cluster: wave 2 replaces the nodes of train-a100",
    ]


def test_labels_and_sizes_of_a_group_replace_no_node(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        preview(capsys, group_change("general", "NodeGroup", "labels.team a → b", "scalingConfig.minSize 1 → 2")) == []
    )


class Previewed(Exception):
    """The run has come to its preview."""


def test_the_state_of_a_cluster_is_read_once_before_its_preview() -> None:
    reads, protections = [], []

    def resources(_: object) -> list[dict[str, Any]]:
        reads.append("read")
        return state(("aws.deletion-protection", False))

    def unprotected(*_: object, **__: object) -> None:
        raise Previewed

    driver: Any = SimpleNamespace(
        resources=resources, protect=lambda _, urns: protections.append(urns), unprotected=unprotected
    )
    run = run_of(driver)
    stack: Any = SimpleNamespace(name="bank.cluster")
    with pytest.raises(Previewed):
        preview_and_update(run, stack)
    assert reads == ["read"]
    (urns,) = protections
    assert urns
