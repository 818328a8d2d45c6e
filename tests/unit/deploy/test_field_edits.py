"""Effects of every field of an environment, as one table: what the engine would create, update, replace or delete,
what `tenancy up` refuses or does only by name, and what `tenancy diff` says.

    pytest tests/unit/deploy/test_field_edits.py --update-golden
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from tenancy.deploy.changes import ResourceChange
from tenancy.deploy.cluster_changes import ClusterChanges, unrequested_changes
from tenancy.diff.alarms import ReviewReason, alarm
from tenancy.diff.changes import KARPENTER_NODES, REFUSED_MINOR, REPLACED_NODES, Change, ChangeTopic, SpecState, diff
from tenancy.planning import Plan
from tenancy.planning.scope import StackScope
from tenancy.spec.loader import load
from tests import recorded
from tests.conftest import nonempty
from tests.engine_model import Step, object_steps, steps
from tests.field_edits import EDITS, FieldEdit, base, covered, edited, fields, write
from tests.registered import Registered, register

BY_NAME = {"Cluster", "Vpc", "Subnet", "NodeGroup", "Namespace", "Bucket", "Key"}
"""Kinds that nothing replaces or deletes unless a file or an option says so by name."""


@dataclass(frozen=True)
class Side:
    """An environment's files, and what its program registers."""

    folder: Path

    @cached_property
    def state(self) -> SpecState:
        return SpecState("files", load(str(self.folder)))

    @property
    def plan(self) -> Plan:
        assert self.state.plan
        return self.state.plan

    @cached_property
    def cluster(self) -> Registered:
        return register(self.plan, StackScope.CLUSTER)

    @cached_property
    def recorded(self) -> list[dict[str, Any]]:
        """Resources in the state of the cluster's stack."""
        return recorded.resources(self.cluster)

    @property
    def beside_objects(self) -> tuple[Any, ...]:
        """Resources on AWS of the platform and its tenants."""
        platform = self.plan.platform
        services = replace(platform.services, charts=(), nodes=()) if platform.services else None
        return (services, platform.data, *(tenant.aws for tenant in self.plan.tenants))

    @cached_property
    def others(self) -> Registered:
        return register(self.plan, StackScope.ALL)


@dataclass(frozen=True)
class Row:
    """An edit and what follows from it."""

    edit: FieldEdit
    before: Side
    after: Side

    @cached_property
    def steps(self) -> list[Step]:
        """Steps of the engine, in the cluster's stack and in all others."""
        all_steps: list[Step] = []
        if self.before.plan.cluster != self.after.plan.cluster:
            all_steps += steps(self.before.cluster, self.after.cluster if self.after.plan.cluster else Registered())
        if self.before.beside_objects != self.after.beside_objects:
            all_steps += steps(self.before.others, self.after.others)
        else:
            all_steps += object_steps(self.before.plan, self.after.plan)
        return all_steps

    @cached_property
    def refusals(self) -> list[str]:
        """Why `tenancy up` does not apply it, unless an option names more."""
        if self.after.plan.cluster is None:
            return ["the files no longer build the cluster"]
        return list(self.changes().refusals())

    def changes(self, *replaceable_groups: str) -> ClusterChanges:
        assert self.after.plan.cluster
        return ClusterChanges(self.after.plan.cluster, self.before.recorded, replaceable_groups)

    @cached_property
    def disruptions(self) -> list[Change]:
        """Disruptions that `tenancy diff` tells."""
        all_changes = diff(self.before.state, self.after.state)
        return [c for c in all_changes if c.topic is ChangeTopic.WORK and alarm(c) is ReviewReason.DISRUPTION]

    def text(self) -> str:
        """Its lines of the table."""
        counted = Counter(
            (step.operation, step.kind.startswith("aws:"), step.kind.rpartition(":")[2]) for step in self.steps
        )
        lines = [self.edit.title]
        for operation in ("delete", "replace", "create", "update"):
            for place, on_aws in ((" on AWS", True), ("", False)):
                kinds = [
                    f"{kind}{f' ×{n}' * (n > 1)}"
                    for (*step, kind), n in sorted(counted.items())
                    if step == [operation, on_aws]
                ]
                lines += [f"  {operation}{place}: {', '.join(kinds)}"] * bool(kinds)
        lines += [f"  up: refused: {text.partition('; change:')[0]}" for text in self.refusals]
        lines += [f"  diff: {change.what} {change.of}: {change.before} → {change.after}" for change in self.disruptions]
        return re.sub(r"20\d\d-\d\d-\d\d", "DAY", "\n".join(lines)) + "\n"


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Row]]:
    """Every edit once, by its title."""
    folder = tmp_path_factory.mktemp("edits")

    edits = {repr(edit.before): edit for edit in EDITS}
    sides_before = {
        key: Side(write(folder / f"before-{n}" / "edits", base(edit))) for n, (key, edit) in enumerate(edits.items())
    }
    with pytest.MonkeyPatch.context() as patch:
        recorded.answer(patch)
        rows_by_title = {
            edit.title: Row(edit, sides_before[repr(edit.before)], Side(write(folder / str(n) / "edits", edited(edit))))
            for n, edit in enumerate(EDITS)
        }
        assert len(rows_by_title) == len(EDITS), "titles are unique"
        yield rows_by_title


def test_every_field_has_an_edit() -> None:
    """A new field is added to `tests/field_edits.py`."""
    assert fields() - covered() == set()


def test_the_table_is_this(rows: dict[str, Row], golden: Any) -> None:
    golden.check("field-edits.txt", "\n".join(row.text() for _, row in sorted(rows.items())))


def test_nothing_of_value_goes_without_a_name(rows: dict[str, Row]) -> None:
    """Resources that would go are protected in the state, and `tenancy up` refuses from the state."""
    for title, row in nonempty(rows.items()):
        losses = [s for s in row.steps if s.operation in {"replace", "delete"} and s.kind.rpartition(":")[2] in BY_NAME]
        for step in losses:
            assert step.protected, f"{title}: the engine would {step.operation} {step.kind} {step.name}"
        if losses and not row.refusals:
            # The file says by name that a pool has no managed nodes any more.
            removed = {urn.rpartition("::")[2] for urn in row.changes().removed}
            assert {step.name for step in losses} <= removed, title


def test_what_a_preview_would_take_is_refused_by_the_preview_too(rows: dict[str, Row]) -> None:
    """Whatever the state says: with a state that is not protected, `up` has the preview left to look at."""
    for title, row in nonempty(rows.items()):
        changes = [ResourceChange("", s.operation, f"{s.kind.rpartition(':')[2]} {s.name}") for s in row.steps]
        replaced_objects = {
            c.object for c in changes if c.operation == "replace" and c.object.partition(" ")[0] in BY_NAME
        }
        cluster = row.after.plan.cluster or row.before.plan.cluster
        assert len(unrequested_changes(changes, cluster, (), ())) >= len(replaced_objects), title


def test_diff_tells_whatever_is_refused_replaced_or_deleted(rows: dict[str, Row]) -> None:
    for title, row in nonempty(rows.items()):
        losses = [s for s in row.steps if s.operation in {"replace", "delete"} and s.kind.rpartition(":")[2] in BY_NAME]
        if losses or row.refusals:
            assert row.disruptions, f"{title}: {losses} {row.refusals}"


def test_diff_names_what_an_update_refuses(rows: dict[str, Row]) -> None:
    jumps = {title for title, row in rows.items() if any("one minor at a time" in text for text in row.refusals)}
    titles = {title for title, row in rows.items() if any(change.what == REFUSED_MINOR for change in row.disruptions)}
    assert titles == jumps == {"cluster.kubernetes (two minors)", "cluster.kubernetes (back)"}


@pytest.mark.parametrize(
    ("kind", "what"), [("LaunchTemplate", REPLACED_NODES), ("EC2NodeClass", KARPENTER_NODES)], ids=str
)
def test_diff_says_why_nodes_are_replaced(rows: dict[str, Row], kind: str, what: str) -> None:
    """EKS replaces the nodes of a group whose template changes, and Karpenter those of a class that changes."""
    updated = {
        title: row
        for title, row in rows.items()
        if ("update", kind) in {(step.operation, step.kind.rpartition(":")[2]) for step in row.steps}
    }
    assert len(updated) > 5
    settings = {
        title: {str(change.after) for change in row.disruptions if change.what == what}
        for title, row in updated.items()
    }
    assert settings["aws.root-volume-size"] >= {"root volume 200 GiB → 300 GiB"}
    assert [title for title, row in updated.items() if not (settings[title] or row.disruptions)] == []


def test_diff_names_the_release_of_an_image(rows: dict[str, Row]) -> None:
    """Of the release alone no template changes: EKS has it as a field of the group."""
    disruptions = rows["aws.ami-release"].disruptions
    assert {str(change.after) for change in disruptions} == {"image v20260903 → v20260912"}
    assert {change.of for change in disruptions if change.what == REPLACED_NODES} >= {"system", "general", "serve"}
    assert {change.of for change in disruptions if change.what == KARPENTER_NODES} == {"general", "serve"}


def test_what_is_refused_for_a_pool_is_done_by_its_name(rows: dict[str, Row]) -> None:
    rows_with_advice = {title: row for title, row in rows.items() if any("--replace" in text for text in row.refusals)}
    assert len(rows_with_advice) > 3
    for title, row in rows_with_advice.items():
        pools = {change.group.name for change in row.changes().group_changes}
        remaining = [text for text in row.changes(*pools).refusals() if "--replace" in text]
        assert not [text for text in remaining if "control plane" not in text], title


def test_zones_in_another_order_change_nothing(rows: dict[str, Row]) -> None:
    assert rows["aws.zones (another order)"].steps == []


def test_one_more_zone_touches_no_node_and_no_control_plane(rows: dict[str, Row]) -> None:
    kinds = {(step.operation, step.kind.rpartition(":")[2]) for step in rows["aws.zones (one more)"].steps}
    assert {operation for operation, _ in kinds} == {"create", "update"}
    assert {kind for operation, kind in kinds if operation == "update"} <= {"VpcEndpoint", "NodePool"}
