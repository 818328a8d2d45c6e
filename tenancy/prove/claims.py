"""What an environment claims: each control with its cases, each rule with its plane and proof, each known bypass.

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
from tenancy.prove.attacks import Attack, Scene, all_attacks
from tenancy.prove.ways import Bypass, families, ways
from tenancy.rules.catalogue import RULES, Face, Rule
from tenancy.validation import SPEC_RULES, Loaded

SCRIPT = "scripts/verify-on-cluster.sh"
OF_WORK = "tests/attacks/test_queue_attacks.py"
MUTATION = "tests/attacks/test_attacks.py"
CLASSES = ("nvidia",)
"""Runtime classes that a cluster with GPUs has."""

_CONTROL, _DATA, _RESOURCE, _SEEN = "control", "data", "resource", "observability"
PLANES: Mapping[str, str] = {
    **dict.fromkeys(
        ("name", "ref", "rbac", "ns", "exc", "build", "guard", "seen", "eks", "ver", "aws", "id", "img", "pod", "iso"),
        _CONTROL,
    ),
    **dict.fromkeys(("net", "dns", "stor", "reg"), _DATA),
    **dict.fromkeys(
        ("gpu", "sched", "kueue", "queue", "quota", "share", "pool", "mig", "dra", "node", "ami", "avail"), _RESOURCE
    ),
    **dict.fromkeys(("cost", "bill", "price"), _SEEN),
}
"""What a family of rules protects: who may do what, data and connections, machines, or what is seen and charged."""

_NODE, _CNI, _KUEUE = "node configuration", "CNI", "Kueue"
BEHIND: Mapping[str, str] = {
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

ELSEWHERE: Mapping[str, str] = {
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
    def asked(self) -> list[Attack]:
        """Attacks that apply to the environment."""
        return [attack for attack in self.attacks if not attack.skipped]

    @cached_property
    def plan(self) -> Plan:
        """The plan of the environment."""
        return make_plan(self.loaded.environment, self.loaded.tenants)

    def of_rule(self, rule: str) -> list[Attack]:
        """Attacks on a rule."""
        return [attack for attack in self.asked if attack.rule == rule]

    def controls(self) -> list[Control]:
        """Every rule of every guard, and every other kind of isolation resource."""
        found = []
        for guard in guards(self.loaded.environment):
            for rule in guard.rules:
                denier = deniers.guard(guard.name, rule)
                found.append(Control(rule, guard.name, [a for a in self.asked if a.expected_denier == denier]))
        kinds = {item["kind"] for item in self.plan.objects()}
        isolation_resources = dict.fromkeys(CONTROLS[kind] for kind in CONTROLS if kind in kinds)
        return [*found, *(Control(rule, where, self.of_rule(rule)) for rule, where in isolation_resources)]

    def reason(self, rule: str) -> str:
        """Why a rule is not attacked here; empty if it is, or never is."""
        return next((attack.skipped for attack in self.attacks if attack.rule == rule and attack.skipped), "")


def plane(rule: str) -> str:
    """What the rule protects, by its family; see PLANES."""
    return PLANES.get(rule.partition("-")[0], _CONTROL)


def enforcer(rule: str) -> str:
    """Who enforces a rule at run time; files and previews are earlier checks, for those who use them."""
    found = ["API server"] if rule in GUARDED else []
    on_aws = "AWS" if Face.AWS in RULES[rule].faces else ""
    behind = on_aws or BEHIND.get(rule) or BEHIND.get(rule.partition("-")[0])
    if behind and not found:
        found.append(behind)
    if rule in SPEC_RULES:
        found.append("files")
    if rule in JUDGED:
        found.append("preview")
    return ", ".join(found) or "product"


def page(loaded: Loaded) -> str:
    """The page docs/claims.md."""
    claims = Claims(loaded)
    return "\n".join([*_head(claims), *_rules(claims), *_controls(claims), *_ways(claims)]) + "\n"


def _head(claims: Claims) -> Iterator[str]:
    name = claims.loaded.environment.environment
    distinct = {attack.id.partition("@")[0] for attack in claims.asked}
    held = {by: sum(any(h.by == by for h in way.held) for way in ways().values()) for by in ("attack", "cluster")}
    yield from (
        "# Claims",
        "",
        f"Claims about `{name}`: what enforces each, and what proves it. Made by `tenancy claims {name} --markdown`",
        "from the rules, the plan and the attacks themselves; a test checks that it is up to date.",
        "",
        f"{len(claims.asked)} cases ({len(distinct)} attacks, some of them for several namespaces), each with a twin",
        "that differs in one field and has to be admitted. `tenancy verify` runs them on a live cluster.",
        f"Of {len(ways())} known bypasses {held['attack']} are attacked; {held['cluster']} have a part that only a",
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
        yield f"tested with the control before it removed: `{OF_WORK}`"
    if file := _named(rule.id):
        yield f"`{file}`"
    if check := ON_CLUSTER.get(rule.id):
        yield f"effect not provable without hardware: run `{SCRIPT}`, *{check}*"


def _named(rule: str) -> str:
    """The tests in which a rule is broken; nothing without the tests at hand."""
    parts = (
        ("tests/unit/test_spec_rules.py", rule in SPEC_RULES),
        ("tests/pack_cases.py", rule in JUDGED),
        ("tests/chargeback", rule.startswith("bill-")),
        ("tests/engine/test_no_harm.py", rule in {"ns-06", "rbac-07"}),
        ("tests/unit/test_library.py", rule == "custom-01"),
        ("tests/unit/test_deployer.py", rule == "rbac-07"),
        ("tests/engine/test_one_stack.py", rule == "ns-07"),
    )
    return "`, `".join(file for file, holds in parts if holds)


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
        example = f"`{control.attacks[0].id}`" if control.attacks else _unasked(claims, control)
        yield f"| {control.name} | {control.where} | {len(control.attacks)} | {example} |"
    kinds = dict.fromkeys(item["kind"] for item in claims.plan.objects())
    yield from ("", "Other objects of the plan: another component enforces them, or they enforce nothing:", "")
    yield from ("| kind | |", "|---|---|")
    yield from (f"| {kind} | {ELSEWHERE[kind]} |" for kind in sorted(kinds) if kind in ELSEWHERE)
    yield ""


def _unasked(claims: Claims, control: Control) -> str:
    if control.where == DELETIONS:
        return f"only existing objects can be deleted; tested on existing work, by `{OF_WORK}`"
    if control.name in BACKSTOPS:
        return "another control refuses first; tested with that one removed"
    return _cell(
        claims.reason(control.name) or "reached only through what another guard or the API server refuses first"
    )


def _ways(claims: Claims) -> Iterator[str]:
    yield from (
        "## Known bypasses",
        "",
        "Known ways to bypass a tenant's isolation, and what mitigates each. `outside`: outside the product's control,",
        "with the reason. `open`: not mitigated yet.",
        "",
    )
    for letter, title in families().items():
        yield from (f"### {letter}: {title}", "", "| id | bypass | mitigated by |", "|---|---|---|")
        for way in ways().values():
            if way.family == letter:
                yield f"| {way.id} | {_cell(way.what)} | {'; '.join(_held(claims, way))} |"
        yield ""


def _held(claims: Claims, way: Bypass) -> Iterator[str]:
    for held in way.held:
        if held.by == "attack":
            found = [attack for attack in claims.asked if attack.id.startswith(held.name)]
            many = f" ({_count(len(found), 'case')})" if found else " (not tested here)"
            yield f"`{held.name}`{many}"
        elif held.by == "rule":
            yield f"[{held.name}](rules.md#{held.name})"
        elif held.by == "test":
            file, _, name = held.name.partition("::")
            yield f"`{file.rpartition('/')[2].removesuffix('.py')}`: {name.removeprefix('test_').replace('_', ' ')}"
        elif held.by == "cluster":
            yield f"`{SCRIPT.rpartition('/')[2]}`, *{held.name}*"
        else:
            yield f"**{held.by}**: {_cell(held.name)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
