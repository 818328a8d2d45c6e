"""One stack at a time through the engine, by Pulumi's Automation API."""

from __future__ import annotations

import datetime as dt
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Collection, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, path_of
from tenancy.cluster.drift import Drift, drift
from tenancy.cluster.preflight import REMOVING, REPLACING
from tenancy.deploy import cost_tags
from tenancy.deploy.changes import TENANT_TYPE, Outcome, is_access_binding, resources_below, summary, tenant_resources
from tenancy.deploy.plain_engine import BY_COMMAND
from tenancy.deploy.recovery import (
    StackLocked,
    damaged_state,
    end_orphans,
    is_settled,
    mend_backend,
    settle_deployment,
    stack_names,
    stale_locks,
    stored_deployment,
)
from tenancy.deploy.unrecorded_objects import first_run_variables
from tenancy.planning.aws.platform_models import KNOWN_COST_TAGS
from tenancy.planning.scope import CLUSTER_SUFFIX
from tenancy.rules.catalogue import RULES
from tenancy.spec.loader import ON_LAB

PROJECT = "gpu-tenancy"
PACK = "policy"
OWN_TYPES = ("kubernetes:", "aws:")
NO_ENGINE = (
    "given a PATH without `pulumi`; rule: stacks go through Pulumi's engine; change: for the lab `tenancy lab up`, for "
    "a cluster install Pulumi's CLI"
)
SILENT = "the engine ended without output; run the command again, it goes on from there"


class RunFailed(Exception):
    """A run ended without doing what it should; the message says why."""


@dataclass(frozen=True)
class Driver:
    """Runs the Pulumi engine on the stacks of an environment."""

    root: Path
    """The project's folder."""
    context: str
    say: Callable[[str], None]
    engine: Any
    """Pulumi's command, asked for its version once."""
    removing: Collection[str] = ()
    """Tenants and namespaces whose removal was requested by name; the program gets this list."""

    @cached_property
    def api(self) -> Api:
        """The API server; ApiUnreachable without one. A cluster that is still to be made has none."""
        return Api(self.context)

    @classmethod
    def open(cls, root: Path, context: str, say: Callable[[str], None], removing: Collection[str] = ()) -> Driver:
        """A driver for the project in the folder `root`; RunFailed without an engine."""
        from pulumi import automation

        try:
            engine = automation.PulumiCommand()
        except FileNotFoundError as error:
            raise RunFailed(NO_ENGINE) from error
        except automation.InvalidVersionError as error:
            raise RunFailed(str(error)) from error
        mend_backend(_backend())
        return cls(root, context, say, engine, removing)

    def select(self, name: str) -> Any:
        """The stack, made if it does not exist; locks and operations that a dead engine left are cleared."""

        stack = self._open(name, to_run=True)
        self.end_orphans()
        return self._without_leftovers(stack)

    def end_orphans(self) -> None:
        """End plugins of engines that were killed on this machine."""
        end_orphans(Path(os.environ.get("PULUMI_HOME") or Path.home() / ".pulumi"))

    def for_parallel_run(self, say: Callable[[str], None]) -> Driver:
        """A driver for a stack that runs beside others: its messages go to `say`, and Ctrl-C does not reach its
        engine. Client and command are shared, so that neither is set up for each stack."""
        from tenancy.deploy.command import OwnGroupCommand

        driver = replace(self, say=say, engine=OwnGroupCommand(self.engine))
        driver.__dict__["api"] = self.api
        return driver

    def open_known(self, name: str, *, exists: bool) -> Any:
        """As `select`, for a stack of which it is known whether it exists, after `end_orphans`: the engine is not
        asked, and no stack is made the workspace's current one, which only one process at a time may do."""
        from pulumi import automation

        from tenancy.deploy.command import UnselectedWorkspace

        self._expect_state(name)
        workspace = UnselectedWorkspace(
            env_vars=self._program_variables(), work_dir=str(self.root), pulumi_command=self.engine
        )
        try:
            if not exists:
                with suppress(automation.StackAlreadyExistsError):  # made by a run that failed later
                    self.engine.run(["stack", "init", name, "--no-select"], str(self.root), self._program_variables())
            return self._without_leftovers(automation.Stack.select(name, workspace))
        except automation.CommandError as error:
            raise RunFailed(f"stack {name}: {_reason(error)}") from error

    def _without_leftovers(self, stack: Any) -> Any:
        """The stack without locks and operations that a dead engine left."""
        from pulumi import automation

        name = stack.name
        try:
            locks = stale_locks(_backend(), PROJECT, name)
        except StackLocked as error:
            raise RunFailed(str(error)) from error
        if locks:
            self.say(f"{name}: taking over the lock of an engine that has died")
            stack.cancel()
        self._settle_operations(stack)
        # The SDK asks for them after each run, by three commands of the engine; the events have them already.
        stack.outputs = dict
        nothing = automation.UpdateSummary("", dt.datetime.now(dt.UTC), "", {}, {}, "")
        stack.info = lambda *_, **__: nothing
        return stack

    def _expect_state(self, name: str) -> None:
        """RunFailed if the stack's state cannot be read. It is not removed here: what it named on AWS would be made
        twice."""
        if damaged_file := damaged_state(_backend(), PROJECT, name):
            raise RunFailed(
                f"given stack {name}, whose state {damaged_file} is empty or cut off; rule: the engine goes on from a "
                f"whole state; change: free space on the disk, then restore the file from {damaged_file.name}.bak or a "
                "backup; if the stack has no resources on AWS, delete the file: the next run takes over the objects "
                "that it finds on the cluster"
            )

    def open_read_only(self, name: str) -> Any:
        """The stack, to be read; RunFailed if it does not exist."""
        return self._open(name, to_run=False)

    def _open(self, name: str, *, to_run: bool) -> Any:
        """The stack; one that is to run is made if it does not exist, and its config says where it runs."""
        from pulumi import automation

        self._expect_state(name)
        variables = self._program_variables() if to_run else None
        open_stack = automation.create_or_select_stack if to_run else automation.select_stack
        try:
            options = automation.LocalWorkspaceOptions(env_vars=variables, pulumi_command=self.engine)
            return open_stack(name, work_dir=str(self.root), opts=options)
        except automation.CommandError as error:
            raise RunFailed(f"stack {name}: {_reason(error)}") from error

    def _program_variables(self) -> dict[str, str]:
        """Variables that tell the program who runs it and where."""
        lab = {ON_LAB: "true"} if self.context == vocabulary.LAB_CONTEXT else {}
        removing = {REMOVING: ",".join(sorted(self.removing))} if self.removing else {}
        return {BY_COMMAND: "true"} | lab | vocabulary.PATCH_FORCE_ENVIRONMENT | removing

    def set_known_cost_tags(self, stack: Any, keys: Sequence[str], region: str) -> None:
        """Let the stack's program activate the keys that AWS knows, and those that it has activated before."""
        active_keys = {
            resource["inputs"]["tagKey"] for resource in self.resources(stack) if resource["type"] == cost_tags.TOKEN
        }
        try:
            known_keys = cost_tags.known_keys(keys, region)
            if unknown_keys := [key for key in keys if key not in known_keys | active_keys]:
                self.say(
                    f"{stack.name}: AWS does not know the tag keys {', '.join(unknown_keys)} yet; it does about a day "
                    "after their first use, and a later run activates them"
                )
        except cost_tags.CostTagsUnavailable as error:
            known_keys = frozenset[str]()
            self.say(
                f"{stack.name}: cost-allocation tags stay as they are: {error}; with the right to "
                "ce:ListCostAllocationTags a later run activates them"
            )
        key_list = ",".join(key for key in keys if key in known_keys | active_keys)
        stack.workspace.env_vars = {**stack.workspace.env_vars, KNOWN_COST_TAGS: key_list}

    def set_replacements(self, stack: Any, names: Collection[str]) -> None:
        """Let the stack's program replace these node groups, or the platform's access."""
        stack.workspace.env_vars = {**stack.workspace.env_vars, REPLACING: ",".join(sorted(names))}

    def preview(self, stack: Any, *, refresh: bool) -> Outcome:
        """Changes that an update would make; RunFailed if a mandatory rule of the pack is broken or the program fails.

        With `refresh` it first refreshes the state from the cluster and AWS.
        """
        return self._run(stack, partial(stack.preview, refresh=refresh), "preview")

    def update(
        self,
        stack: Any,
        only: Sequence[str] = (),
        *,
        refresh: bool,
        program: Callable[[], None] | None = None,
        first: bool = False,
    ) -> Outcome:
        """Apply the changes, or only those of resources with these logical names.

        With `refresh` it first refreshes the state from the cluster and AWS. With `program` that function registers the
        resources in this process, instead of a process of the project's program. Stack rules of a pack run when
        resources have been made: call it only after a preview, or if the pack's rules have passed on the plan. With
        `first` a backend that writes whole states gets one at the end of the run, not after each step: only for a
        stack that has no resources, whose objects `find_unrecorded` finds on the cluster if the engine is killed.
        """
        targets = [f"**::{name}" for name in only]
        up = partial(stack.up, target=targets or None, refresh=refresh, program=program)
        return self._run(stack, up, "update", extra_variables=first_run_variables(_backend()) if first else {})

    def stacks(self, environment: str) -> list[str]:
        """Existing stacks of the environment, its tenants' before its own."""
        names = stack_names(_backend(), PROJECT)
        if names is None:
            names = self._list_stacks(environment)
        tenants = [name for name in names if name.startswith(vocabulary.derived_name(environment, ""))]
        environment_stacks = (environment, environment + CLUSTER_SUFFIX)
        return [*tenants, *(name for name in environment_stacks if name in names)]

    def _list_stacks(self, environment: str) -> list[str]:
        from pulumi import automation

        try:
            stacks = automation.LocalWorkspace(work_dir=str(self.root), pulumi_command=self.engine).list_stacks()
        except automation.CommandError as error:
            raise RunFailed(f"the stacks of {environment} cannot be listed: {_reason(error)}") from error
        return sorted(stack.name for stack in stacks)

    def has_resource(self, name: str, resource: str) -> bool:
        """Whether there is a stack of that name with a resource of that logical name."""
        environment = name.removesuffix(CLUSTER_SUFFIX)
        if name not in self.stacks(environment):
            return False
        return any(entry["urn"].endswith(f"::{resource}") for entry in self.resources(self.select(name)))

    def drift_with_managers(self, stack: Any, selector: str) -> list[tuple[Drift, str]]:
        """Drift of the objects with these labels that the stack made on the cluster: changes by other field managers.
        Each comes with the engine's own field manager of the object."""
        cluster_resources = [
            resource for resource in self.resources(stack) if not _on_aws(resource) and "kind" in resource["inputs"]
        ]
        managers = {
            path_of(resource["inputs"]): resource["outputs"]["__fieldManager"] for resource in cluster_resources
        }
        drifts = drift(self.api, selector, [resource["inputs"] for resource in cluster_resources], managers)
        return [(object_drift, managers[path_of(object_drift.item)]) for object_drift in drifts]

    def resources(self, stack: Any) -> list[dict[str, Any]]:
        """Resources of the cluster and of AWS in the stack's state."""
        return [resource for resource in _state(stack.name, lambda: stack) if resource["type"].startswith(OWN_TYPES)]

    def destroy(self, stack: Any) -> Outcome:
        """Delete all resources of the stack, protected or not."""
        if any(resource.get("protect") for resource in _state(stack.name, lambda: stack)):
            self._set_protection(stack, "unprotect", ["--all"])
        return self._run(stack, stack.destroy, "removal", pack=False)

    def tenant_resources(self, stack: Any, tenant: str) -> list[dict[str, Any]]:
        """Resources of one tenant in the stack's state: the children of its component."""
        return tenant_resources(_state(stack.name, lambda: stack), tenant)

    def components(self, name: str) -> dict[str, str]:
        """URNs of tenants' components in the state of an existing stack, by their tenants."""
        urns = [
            resource["urn"]
            for resource in _state(name, lambda: self.open_read_only(name))
            if resource["type"] == TENANT_TYPE
        ]
        return {urn.rpartition("::")[2]: urn for urn in urns}

    def move(self, source: str, target: str, urn: str) -> None:
        """Move a component and all below it from one state to the other; RunFailed if the engine refuses."""
        from pulumi import automation

        try:
            self.engine.run(
                ["state", "move", "--source", source, "--dest", target, "--yes", urn],
                str(self.root),
                self._program_variables(),
            )
        except automation.CommandError as error:
            raise RunFailed(f"given stack {source}, from which {urn} cannot be moved: {_reason(error)}") from error

    def remove_component(self, name: str, urn: str) -> None:
        """Take a component and all below it out of a state, because another state has them."""
        stack = self.open_known(name, exists=True)
        exported = stack.export_stack()
        resources = (exported.deployment or {}).get("resources") or ()
        removed_urns = {resource["urn"] for resource in resources_below(resources, (urn,))}
        exported.deployment["resources"] = [resource for resource in resources if resource["urn"] not in removed_urns]
        stack.import_stack(exported)

    def delete_access(self, stack: Any, tenant: str) -> Outcome:
        """Delete only the tenant's access: bindings, accounts, and its identities on AWS."""
        targets = [resource["urn"] for resource in self.tenant_resources(stack, tenant) if is_access_binding(resource)]
        if not targets:
            return Outcome()
        return self._run(stack, partial(stack.destroy, target=targets), "removing its access", pack=False)

    @contextmanager
    def unprotected(
        self, stack: Any, tenants: Collection[str], urns: Collection[str] = (), *, is_final: bool
    ) -> Generator[None]:
        """Let the engine delete these tenants' namespaces and the resources of these URNs, and forget the tenants'
        resources with their data, which are kept on AWS. All other resources stay protected, and after a preview these
        are protected again."""
        resources = _state(stack.name, lambda: stack) if tenants or urns else ()
        tenant_urns = {resource["urn"] for tenant in tenants for resource in tenant_resources(resources, tenant)}
        released_urns = [
            r["urn"]
            for r in resources
            if r.get("protect")
            and (
                r["urn"] in urns
                or (r["urn"] in tenant_urns and (r.get("retainOnDelete") or r["type"] == vocabulary.NAMESPACE_TYPE))
            )
        ]
        self._set_protection(stack, "unprotect", released_urns)
        try:
            yield
        finally:
            if not is_final:
                self._set_protection(stack, "protect", released_urns)

    def protect(self, stack: Any, urns: Collection[str]) -> None:
        """Protect these resources in the stack's state: an update records it only with another change of theirs."""
        self._set_protection(stack, "protect", sorted(urns))

    def _set_protection(self, stack: Any, command: str, urns: Sequence[str]) -> None:
        """Protect or unprotect resources in the stack's state; RunFailed if the engine refuses."""
        from pulumi import automation

        if not urns:
            return
        arguments = ["state", command, "--stack", stack.name, "--yes", *urns]
        try:
            self.engine.run(arguments, str(self.root), self._program_variables())
        except automation.CommandError as error:
            raise RunFailed(f"stack {stack.name}: {_reason(error)}") from error

    def forget(self, stack: Any) -> None:
        """Remove a stack that has no resources of the cluster or of AWS, and its settings."""
        from pulumi import automation

        emptied = not self.resources(stack)  # its provider may be left, which stands for nothing outside of the state
        try:
            stack.workspace.remove_stack(stack.name, force=emptied)
        except automation.CommandError as error:
            raise RunFailed(f"stack {stack.name}: {_reason(error)}") from error

    def _run(
        self,
        stack: Any,
        action: Callable[..., Any],
        action_name: str,
        pack: bool = True,
        extra_variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Outcome:
        from pulumi import automation

        outcome = Outcome()
        began = time.monotonic()
        packs = {"policy_packs": [str(self.root / PACK)]} if pack else {}
        try:
            warnings.filterwarnings("ignore", "Error in event stream")  # it precedes the error that says why
            with _scratch(stack.workspace, extra_variables):
                action(on_event=outcome.listen, suppress_progress=True, color="never", **packs)
        except automation.CommandError as error:
            raise RunFailed(_failure_message(stack.name, action_name, outcome, error)) from error
        for text in outcome.advice:
            self.say(f"advice: {text}")
        self.say(f"{stack.name}: {action_name} in {time.monotonic() - began:.1f} s: {summary(outcome)}")
        return outcome

    def _settle_operations(self, stack: Any) -> None:
        """Bring the state in line with the cluster where an engine died in the middle of something."""
        from pulumi import automation

        if is_settled(_backend(), PROJECT, stack.name):
            return
        exported = stack.export_stack()
        pending = (exported.deployment or {}).get("pending_operations")
        if not pending:
            return
        unknown_urns = [op["resource"]["urn"] for op in pending if op["type"] == "creating" and _on_aws(op["resource"])]
        if unknown_urns:
            names = ", ".join(urn.rpartition("::")[2] for urn in unknown_urns)
            raise RunFailed(
                f"given stack {stack.name}, whose engine was ended while AWS made {names}; rule: nothing on AWS is "
                f"forgotten; change: `pulumi import` into {stack.name} what is there, then `pulumi refresh --stack "
                f"{stack.name} --clear-pending-creates`"
            )
        # AWS is not asked here: a run on the cluster's stack alone needs no API server.
        needs_cluster = any(not _on_aws(operation["resource"]) for operation in pending)
        deployment, stale = settle_deployment(exported.deployment, self.api if needs_cluster else None)
        try:
            stack.import_stack(automation.Deployment(version=exported.version, deployment=deployment))
            if stale:
                stack.refresh(target=stale, suppress_progress=True, color="never")
        except automation.CommandError as error:
            raise RunFailed(
                f"stack {stack.name}: what an engine left unfinished cannot be settled: {_reason(error)}"
            ) from error
        self.say(f"{stack.name}: settled {len(pending)} operations that an engine left unfinished")


def _backend() -> str:
    return os.environ.get("PULUMI_BACKEND_URL", "")


def _state(name: str, open_stack: Callable[[], Any]) -> Sequence[dict[str, Any]]:
    """Resources of a stack's state; the engine is asked, which takes half a second, only where no file has them."""
    deployment = stored_deployment(_backend(), PROJECT, name)
    if deployment is None:
        deployment = open_stack().export_stack().deployment or {}
    return deployment.get("resources") or ()


def _on_aws(resource: dict[str, Any]) -> bool:
    return str(resource["type"]).startswith("aws:")


@contextmanager
def _scratch(workspace: Any, extra_variables: Mapping[str, str]) -> Generator[None]:
    """A folder for temporary files, and more variables, for one run: the Kubernetes provider leaves a copy of the
    kubeconfig there each time."""
    with tempfile.TemporaryDirectory() as folder:
        former_variables = workspace.env_vars
        workspace.env_vars = {**former_variables, **extra_variables, "TMPDIR": folder}
        try:
            yield
        finally:
            workspace.env_vars = former_variables


def _failure_message(stack: str, action_name: str, outcome: Outcome, error: Exception) -> str:
    if outcome.violations:
        lines = [f"stack {stack}: the policy pack refuses the {action_name}; nothing was changed", *outcome.violations]
        return "\n  ".join(dict.fromkeys(lines))
    if protected_names := _protected_spaces("\n".join([*outcome.errors, str(error)])):
        return (
            f"given stack {stack}, whose {action_name} would delete Namespace {', '.join(protected_names)} and all "
            f"that is in it; rule ns-07: {RULES['ns-07'].title}; change: {RULES['ns-07'].fix}; if the resource was "
            "renamed or belongs to another stack by now, `pulumi state rename` or `pulumi state move` it; nothing was "
            "deleted"
        )
    if outcome.errors:
        messages = dict.fromkeys(text for text in outcome.errors if text)
        return f"stack {stack}: {action_name} failed\n  " + "\n  ".join(messages)
    return f"stack {stack}: {action_name} failed: {_reason(error)}"


def _protected_spaces(text: str) -> list[str]:
    """Namespaces that the engine refuses to delete, because the program protects them."""
    if "because it is protected" not in " ".join(text.split()):
        return []
    return sorted(set(re.findall(r"kubernetes:core/v1:Namespace::([a-z0-9-]+)", text)))


def _reason(error: Exception) -> str:
    """The engine's last error, with the list below it where it says that several occurred."""
    errors = re.findall(r"\berror: (.+(?:\n\s+(?:\*|\d+\)) .+)*)", str(error))
    return re.sub(r"\n\s+", "\n  ", errors[-1].strip()) if errors else SILENT
