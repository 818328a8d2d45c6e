"""Claims of an environment: each control with its cases, each rule with its plane and proof, each known bypass.

Counted from the attacks that are possible in the environment, so that a page says nothing that cannot be tested.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tenancy.check.judge import JUDGED
from tenancy.kube import deniers
from tenancy.planning import Plan, make_plan
from tenancy.planning.guards import BACKSTOPS, GUARDED, guards
from tenancy.planning.guards.objects import DELETIONS
from tenancy.rules.catalogue import RULES, Rule
from tenancy.rules.faces import with_face
from tenancy.rules.model import Face
from tenancy.spec.loader import Loaded
from tenancy.verify.attacks import Attack, Scene, all_attacks
from tenancy.verify.bypasses import Bypass, bypasses, families

SCRIPT = "scripts/verify-on-cluster.sh"
QUEUE_TESTS = "tests/attacks/test_queue_attacks.py"
MUTATION = "tests/attacks/test_attacks.py"
CLASSES = ("nvidia",)
"""Runtime classes that a cluster with GPUs has."""

_CONTROL, _DATA, _RESOURCE, _OBSERVABILITY = "control", "data", "resource", "observability"
PLANES: Mapping[str, str] = {
    **dict.fromkeys(
        ("name", "ref", "rbac", "ns", "exc", "build", "guard", "seen", "eks", "ver", "aws", "id", "img", "pod", "iso"),
        _CONTROL,
    ),
    **dict.fromkeys(("net", "dns", "stor", "reg"), _DATA),
    **dict.fromkeys(
        ("gpu", "sched", "kueue", "queue", "quota", "share", "pool", "mig", "dra", "node", "ami", "avail"), _RESOURCE
    ),
    **dict.fromkeys(("cost", "bill", "price"), _OBSERVABILITY),
}
"""Plane that a family of rules protects: access, data and connections, machines, or visibility and cost."""

_NODE, _CNI, _KUEUE = "node configuration", "CNI", "Kueue"
ENFORCERS: Mapping[str, str] = {
    **dict.fromkeys(("ami", "mig", "node", "dra"), _NODE),
    **dict.fromkeys(("net",), _CNI),
    **dict.fromkeys(("kueue", "share", "queue"), _KUEUE),
    **dict.fromkeys(("pool-02", "pool-08", "gpu-09"), _NODE),
    **dict.fromkeys(("quota-01", "quota-02", "quota-05", "rbac"), "API server"),
}
"""Enforcer of a rule that no guard enforces; by family, or by rule where that differs."""

ON_CLUSTER: Mapping[str, str] = {
    "ami-01": "a GPU without asking for one",
    "node-01": "a metadata token, in a pod without network policies",
    "net-05": "instance metadata, IPv4",
    "net-02": "another tenant's pod",
    "net-08": "the cluster's DNS",
    "pool-06": "EFA from",
    "mig-01": "nvidia-mig-parted assert on",
}
"""Rules whose effect only real hardware can show, and the check of the script that does."""

CONTROLS: Mapping[str, tuple[str, str]] = {
    "ResourceQuota": ("quota", "of every namespace"),
    "LimitRange": ("limits", "of every namespace"),
    "Namespace": ("pod-security", "the label of every namespace"),
    "ClusterRole": ("rbac", "every right that is not granted"),
    "RoleBinding": ("rbac", "every right that is not granted"),
}
"""Kinds of the plan that are a control of their own, and what attacks on it name as their rule."""

OTHER_OBJECTS: Mapping[str, str] = {
    "NetworkPolicy": f"the CNI enforces it: `{SCRIPT}`, another tenant's pod",
    "PriorityClass": "sched-04 limits tenants to their own",
    "ResourceFlavor": "Kueue enforces it: the tests of queues run it",
    "ClusterQueue": "Kueue enforces it: the tests of queues run it",
    "Cohort": "Kueue enforces it: the tests of queues run it",
    "Topology": "Kueue enforces it: the tests of queues run it",
    "LocalQueue": "kueue-01 limits tenants to their own",
    "WorkloadPriorityClass": "kueue-06 limits tenants to their own",
    "ServiceAccount": "identity of a pod: without a right of its own",
    "DeviceClass": "gpu-08 limits tenants to their own",
    "ConfigMap": "says that the guards are stored",
    "ValidatingAdmissionPolicy": "each of its rules is a control",
    "ValidatingAdmissionPolicyBinding": "without it none of the policy's rules is enforced",
    "MutatingAdmissionPolicy": "fills in what cost-01 then judges, and spreads replicas",
    "MutatingAdmissionPolicyBinding": "without it the policy fills in nothing",
    "Role": "rights of the platform's own programs",
    "RuntimeClass": "gpu-01 limits tenants to their own",
    "PriorityLevelConfiguration": "limits concurrent requests to the API server: `tests/attacks/test_flow_control.py`",
    "FlowSchema": "assigns requests to a level: `tests/attacks/test_flow_control.py`; rbac denies it to tenants",
    "StorageClass": "stor-03 requires every claim to name one",
}
"""Kinds of the plan that no attack is aimed at by itself."""

SPEC_RULES = with_face(Face.SPEC)
"""Rules that reading the files enforces."""


@dataclass(frozen=True, slots=True)
class Control:
    """A control that can be removed, and the attacks that then succeed."""

    name: str
    where: str
    attacks: Sequence[Attack]


class Claims:
    """The controls of an environment, and the attacks that show what each one refuses."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded = loaded
        self.attacks = all_attacks(Scene(loaded.environment, loaded.tenants, CLASSES))

    @cached_property
    def applicable_attacks(self) -> list[Attack]:
        """Attacks that apply to the environment."""
        return [attack for attack in self.attacks if not attack.skipped]

    @cached_property
    def plan(self) -> Plan:
        """The plan of the environment."""
        return make_plan(self.loaded, self.loaded.day)

    def of_rule(self, rule: str) -> list[Attack]:
        """Attacks on a rule."""
        return [attack for attack in self.applicable_attacks if attack.rule == rule]

    def controls(self) -> list[Control]:
        """Every rule of every guard, and every other kind of isolation resource."""
        guard_controls = []
        for guard in guards(self.loaded.environment):
            for rule in guard.rules:
                denier = deniers.guard(guard.name, rule)
                guard_controls.append(
                    Control(
                        rule,
                        guard.name,
                        [attack for attack in self.applicable_attacks if attack.expected_denier == denier],
                    )
                )
        kinds = {item["kind"] for item in self.plan.objects()}
        isolation_resources = dict.fromkeys(CONTROLS[kind] for kind in CONTROLS if kind in kinds)
        return [*guard_controls, *(Control(rule, where, self.of_rule(rule)) for rule, where in isolation_resources)]

    def reason(self, rule: str) -> str:
        """Why a rule is not attacked here; empty if it is, or never is."""
        return next((attack.skipped for attack in self.attacks if attack.rule == rule and attack.skipped), "")


def plane(rule: str) -> str:
    """Plane that the rule protects, by its family; see PLANES."""
    return PLANES.get(rule.partition("-")[0], _CONTROL)


def enforcer(rule: str) -> str:
    """Controls that enforce a rule at run time; files and previews are earlier checks, for those who use them."""
    enforcers = ["API server"] if rule in GUARDED else []
    on_aws = "AWS" if RULES[rule].aws_settings else ""
    other_enforcer = on_aws or ENFORCERS.get(rule) or ENFORCERS.get(rule.partition("-")[0])
    if other_enforcer and not enforcers:
        enforcers.append(other_enforcer)
    if rule in SPEC_RULES:
        enforcers.append("files")
    if rule in JUDGED:
        enforcers.append("preview")
    return ", ".join(enforcers) or "product"


def page(loaded: Loaded) -> str:
    """The page docs/claims.md."""
    claims = Claims(loaded)
    return "\n".join([*_head_lines(claims), *_rules(claims), *_controls(claims), *_bypass_lines(claims)]) + "\n"


def _head_lines(claims: Claims) -> Iterator[str]:
    name = claims.loaded.environment.environment
    distinct = {attack.id.partition("@")[0] for attack in claims.applicable_attacks}
    bypass_counts = {
        sort: sum(any(mitigation.sort == sort for mitigation in bypass.mitigations) for bypass in bypasses().values())
        for sort in ("attack", "cluster")
    }
    yield from (
        "# Claims",
        "",
        f"Claims about `{name}`: what enforces each, and what proves it. Made by `tenancy claims {name} --markdown`",
        "from the rules, the plan and the attacks themselves; a test checks that it is up to date.",
        "",
        f"{len(claims.applicable_attacks)} cases ({len(distinct)} attacks, some of them for several "
        "namespaces), each with a twin",
        "that differs in one field and has to be admitted. `tenancy verify` runs them on a live cluster.",
        f"Of {len(bypasses())} known bypasses {bypass_counts['attack']} are attacked; "
        f"{bypass_counts['cluster']} have a part that only a",
        f"real cluster shows: run `{SCRIPT}` there.",
        "",
    )


def _rules(claims: Claims) -> Iterator[str]:
    yield from (
        "## Rules",
        "",
        "Where the API server does not enforce a rule, `files` is the check when tenant files are read, and `preview`",
        "is the policy pack.",
        "",
        "| rule | what it requires | plane | enforced by | proven by |",
        "|---|---|---|---|---|",
    )
    for rule in RULES.values():
        proof = "; ".join(_proof(claims, rule))
        name = f"[{rule.id}](rules.md#{rule.id})"
        yield f"| {name} | {_cell(rule.title)} | {plane(rule.id)} | {enforcer(rule.id)} | {proof} |"
    yield ""


def _proof(claims: Claims, rule: Rule) -> Iterator[str]:
    if attacks := claims.of_rule(rule.id):
        yield f"{_count(len(attacks), 'case')}, such as `{attacks[0].id}`"
    elif reason := claims.reason(rule.id):
        yield f"not tested here: {_cell(reason)}"
    elif rule.id in BACKSTOPS:
        yield f"tested with the control before it removed: `{QUEUE_TESTS}`"
    if file := _test_files(rule.id):
        yield f"`{file}`"
    if check := ON_CLUSTER.get(rule.id):
        yield f"effect not provable without hardware: run `{SCRIPT}`, *{check}*"


def _test_files(rule: str) -> str:
    """The tests in which a rule is broken; nothing without the tests at hand."""
    parts = (
        ("tests/unit/rules/test_spec_rules.py", rule in SPEC_RULES),
        ("tests/pack_cases.py", rule in JUDGED and not RULES[rule].previewed),
        ("tests/unit/rules/test_rule_faces.py", RULES[rule].previewed),
        ("tests/chargeback", rule.startswith("bill-")),
        ("tests/engine/test_no_harm.py", rule in {"ns-06", "rbac-07"}),
        ("tests/unit/planning/test_library.py", rule == "custom-01"),
        ("tests/unit/cluster/test_deployer.py", rule == "rbac-07"),
        ("tests/engine/test_one_stack.py", rule == "ns-07"),
    )
    return "`, `".join(file for file, is_listed in parts if is_listed)


def _controls(claims: Claims) -> Iterator[str]:
    yield from (
        "## Controls and their cases",
        "",
        "Each control is removed once on the running API server. Then exactly its own cases are no longer refused by",
        f"it, and no other case changes: `{MUTATION}` and its neighbours check both. A rule of several guards is",
        "removed from all of them.",
        "",
        "| control | where | cases | such as |",
        "|---|---|---:|---|",
    )
    for control in claims.controls():
        example = f"`{control.attacks[0].id}`" if control.attacks else _reason_without_attack(claims, control)
        yield f"| {control.name} | {control.where} | {len(control.attacks)} | {example} |"
    kinds = dict.fromkeys(item["kind"] for item in claims.plan.objects())
    yield from ("", "Other objects of the plan: another component enforces them, or they enforce nothing:", "")
    yield from ("| kind | |", "|---|---|")
    yield from (f"| {kind} | {OTHER_OBJECTS[kind]} |" for kind in sorted(kinds) if kind in OTHER_OBJECTS)
    yield ""


def _reason_without_attack(claims: Claims, control: Control) -> str:
    if control.where == DELETIONS:
        return f"only existing objects can be deleted; tested on existing work, by `{QUEUE_TESTS}`"
    if control.name in BACKSTOPS:
        return "another control refuses first; tested with that one removed"
    return _cell(
        claims.reason(control.name) or "reached only through what another guard or the API server refuses first"
    )


def _bypass_lines(claims: Claims) -> Iterator[str]:
    yield from (
        "## Known bypasses",
        "",
        "Known ways to bypass a tenant's isolation, and what mitigates each. `outside`: outside the product's control,",
        "with the reason. `open`: not mitigated yet.",
        "",
    )
    for letter, title in families().items():
        yield from (f"### {letter}: {title}", "", "| id | bypass | mitigated by |", "|---|---|---|")
        for bypass in bypasses().values():
            if bypass.family == letter:
                yield f"| {bypass.id} | {_cell(bypass.title)} | {'; '.join(_mitigations(claims, bypass))} |"
        yield ""


def _mitigations(claims: Claims, bypass: Bypass) -> Iterator[str]:
    for mitigation in bypass.mitigations:
        if mitigation.sort == "attack":
            attacks = [attack for attack in claims.applicable_attacks if attack.id.startswith(mitigation.name)]
            case_count = f" ({_count(len(attacks), 'case')})" if attacks else " (not tested here)"
            yield f"`{mitigation.name}`{case_count}"
        elif mitigation.sort == "rule":
            yield f"[{mitigation.name}](rules.md#{mitigation.name})"
        elif mitigation.sort == "test":
            file, _, name = mitigation.name.partition("::")
            yield f"`{file.rpartition('/')[2].removesuffix('.py')}`: {name.removeprefix('test_').replace('_', ' ')}"
        elif mitigation.sort == "cluster":
            yield f"`{SCRIPT.rpartition('/')[2]}`, *{mitigation.name}*"
        else:
            yield f"**{mitigation.sort}**: {_cell(mitigation.name)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
