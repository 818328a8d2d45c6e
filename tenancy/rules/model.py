"""The model of a rule: its words, and the components that enforce it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Flag, StrEnum, auto

from tenancy.catalog.frameworks import Framework
from tenancy.catalog.versions import COMPATIBLE
from tenancy.rules.scene import Attacks


class Severity(StrEnum):
    """The risk of a broken rule."""

    CRITICAL = "critical"  # another tenant's data or devices
    HIGH = "high"  # another tenant's capacity, or a guard that can be bypassed
    MEDIUM = "medium"  # the tenant's own safety, or a wrong bill


class Face(Flag):
    """A stage or component that enforces a rule; `tenancy.rules.faces` says which ones a rule has."""

    SPEC = auto()  # when spec files are read, and before they are planned
    PREVIEW = auto()  # in the policy pack and by `tenancy check`
    API_SERVER = auto()  # by an admission policy
    AWS = auto()  # by IAM, a bucket policy or an AWS service
    ATTACK = auto()  # `tenancy verify` tries to break it on a running cluster


FACES: Mapping[Face, str] = {
    Face.SPEC: "file",
    Face.PREVIEW: "preview",
    Face.API_SERVER: "API server",
    Face.AWS: "AWS",
    Face.ATTACK: "attack",
}
"""Names of the faces, as tables show them."""


class GuardSubject(StrEnum):
    """The subject of an expression. `tenancy.planning.guards` says which admission policy judges which subjects."""

    PODS = "pods and every pod template"
    POD = "pods alone, instead of the expression on pods and templates"
    TEMPLATES = "pod templates alone"
    WORK = "objects that make pods, in addition to their templates"
    CLAIMS_OF_WORK = "claims and metadata that work makes beside its pods, in addition to its templates"
    POD_SECURITY = "what Pod Security requires of all pod templates of an object"
    NAMESPACE_OF_WORK = "the namespace of pods and of work"
    BUILT_IN_WORK = "Deployments, StatefulSets, Jobs and other kinds of Kubernetes with one pod template"
    CRON_JOBS = "CronJobs"
    FRAMEWORKS = "kinds of other operators, such as JobSet"
    FRAMEWORK_PODS = "kinds of other operators, in addition to their templates"
    QUEUED = "everything that queues, pods and work"
    QUEUED_PODS = "pods that queue, instead of the expression on everything that queues"
    QUEUED_TEMPLATES = "pod templates of work that queues"
    QUEUED_WORK = "work whose pods wait with it"
    RUNNING_WORK = "changes of work that runs"
    SCALES = "requests to scale work, and autoscalers"
    DELETIONS = "requests to delete work and pods"
    QUEUED_DELETIONS = "requests to delete work and pods, where there is a queue"
    CONFIG_MAPS = "ConfigMaps"
    SECRETS = "Secrets"
    SERVICE_ACCOUNTS = "ServiceAccounts"
    SERVICES = "Services"
    NETWORK_POLICIES = "NetworkPolicies"
    CLAIMS = "PersistentVolumeClaims"
    BUDGETS = "PodDisruptionBudgets"
    NAMESPACES = "Namespaces"
    REMOVALS = "deletions of Namespaces"
    NODES = "Nodes"
    QUEUES = "LocalQueues"
    ADMISSIONS = "admissions of work, which Kueue writes into the status of a Workload"
    DEVICE_CLAIMS = "ResourceClaims"
    DEVICE_CLAIM_TEMPLATES = "ResourceClaimTemplates"
    SIZES_OF_WORK = "writes of work by people and service accounts"
    SIZES_OF_OBJECTS = "writes of other objects by people and service accounts"
    UNMANAGED_PODS = "pods of unmanaged namespaces"


PREVIEWED = frozenset(
    {
        *(GuardSubject.PODS, GuardSubject.TEMPLATES, GuardSubject.WORK, GuardSubject.CLAIMS_OF_WORK),
        *(GuardSubject.CRON_JOBS, GuardSubject.FRAMEWORK_PODS),
        *(GuardSubject.CONFIG_MAPS, GuardSubject.SECRETS, GuardSubject.SERVICE_ACCOUNTS, GuardSubject.SERVICES),
        *(GuardSubject.NETWORK_POLICIES, GuardSubject.CLAIMS, GuardSubject.BUDGETS, GuardSubject.QUEUES),
        *(GuardSubject.DEVICE_CLAIMS, GuardSubject.DEVICE_CLAIM_TEMPLATES),
        *(GuardSubject.SIZES_OF_WORK, GuardSubject.SIZES_OF_OBJECTS),
    }
)
"""Subjects that `tenancy check` and the policy pack judge before a request is made: objects that a manifest creates."""


@dataclass(frozen=True, slots=True)
class GuardFacts:
    """Facts that expressions depend on, beside the labels and annotations of the namespace at the time of the
    request."""

    platform_group: str
    """Group of the platform's people and of its engine."""
    system_namespaces: tuple[str, ...]
    """Namespaces of the platform and of Kubernetes."""
    kubernetes: str
    """Version of the control plane, such as 1.34."""
    queued: bool
    """Whether Kueue decides when work starts."""
    devices_by_claim: bool
    """Whether pods get GPUs by ResourceClaims."""
    virtual_clusters: bool
    frameworks: tuple[Framework, ...]
    """Kinds of other operators that the environment queues, sorted by name."""
    claim_classes: tuple[str, ...]
    """Storage classes that claims of tenants may name."""
    volume_attributes_classes: tuple[str, ...]
    keys: tuple[str, ...]
    """Keys of labels and annotations that the platform allows in addition; a key without '/' is a domain."""
    resources: tuple[str, ...] = ()
    """Resources of the policy that is assembled."""


FEWEST = GuardFacts(
    platform_group="platform",
    system_namespaces=(),
    kubernetes=COMPATIBLE["guards"].oldest,
    queued=False,
    devices_by_claim=False,
    virtual_clusters=False,
    frameworks=(),
    claim_classes=(),
    volume_attributes_classes=(),
    keys=(),
)
"""Facts of an environment that has nothing beside what each has."""

Expression = str | Callable[[GuardFacts], str | None]
"""CEL that is true for what the rule admits; a function of the facts where the text depends on the environment. None:
the environment needs no such expression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """`title` states what must be true, `why` the damage if it is not, and `fix` what to write instead."""

    id: str
    title: str
    why: str
    fix: str
    severity: Severity = Severity.HIGH
    guards: Mapping[GuardSubject, Expression] = field(default_factory=dict)
    """CEL of the API server's guards, of the preview and of `tenancy check`, by what it judges."""
    aws_settings: Mapping[str, str] = field(default_factory=dict)
    """Properties of resources by which AWS itself refuses what breaks the rule, by the resource's type."""
    earlier_control: str = ""
    """Another control that refuses first whatever the guards would, so that no request can attack them."""
    attacks: tuple[Attacks, ...] = ()
    """Requests that break the rule, each with a twin that does not and differs from it in one field."""
    fix_of_object: str = ""
    """The change to make in an object that no spec file describes, where `fix` names a field of a spec file."""
    waivable: bool = False
    advises: bool = False
    """The policy pack only warns, unless it is configured to refuse: correct programs can break the rule too."""
    partial: Mapping[Face, str] = field(default_factory=dict)
    """Why a face finds less than the others, by face. The text completes "this face finds less, because"."""

    def __post_init__(self) -> None:
        if self.id in RULES_BY_ID:
            raise ValueError(f"given a second rule {self.id}; change: give each rule an id of its own")
        RULES_BY_ID[self.id] = self

    @property
    def previewed(self) -> bool:
        """Whether the expressions of its guards are judged in a preview too."""
        expressions = (expression for subject, expression in self.guards.items() if subject in PREVIEWED)
        return any(isinstance(expression, str) or expression(FEWEST) is not None for expression in expressions)


RULES_BY_ID: dict[str, Rule] = {}
"""Every rule of the families that are imported; `tenancy.rules.catalogue` imports all."""
