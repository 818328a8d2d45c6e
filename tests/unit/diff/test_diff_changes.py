"""`tenancy diff`: what a change of the files means to tenants, and what stops it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenancy.cli import main
from tenancy.cli.diff import _ALARMS
from tenancy.diff import outputs
from tenancy.diff.alarms import ReviewReason, alarm
from tenancy.diff.changes import UNKNOWN, Change, ChangeTopic, SpecState, diff
from tenancy.diff.sources import spec_in_folder
from tests import field_edits
from tests.conftest import SpecFolder, in_days

FRAUD, RESEARCH, ENVIRONMENT = "tenants/fraud.yaml", "tenants/research.yaml", "environment.yaml"
PRICES = "prices: {a100-40gb: 2, l4: 1}\n"
Edit = Callable[[SpecFolder], None]


def run(*words: object) -> Result:
    result = CliRunner().invoke(main, ["diff", *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is given"
    return result


@pytest.fixture
def before(spec: SpecFolder, tmp_path: Path) -> Path:
    """The files as they were; `spec` is where they are changed."""
    spec.add(ENVIRONMENT, PRICES)
    shutil.copytree(spec.path, tmp_path / "before" / spec.path.name)
    return tmp_path / "before" / spec.path.name


def replaced(file: str, old: str, new: str) -> Edit:
    return lambda spec: spec.edit(file, old, new)


def added(file: str, text: str) -> Edit:
    return lambda spec: spec.add(file, text)


def removed(file: str) -> Edit:
    return lambda spec: (spec.path / file).unlink()


def changes(before: Path, spec: SpecFolder, edit: Edit) -> tuple[Change, ...]:
    edit(spec)
    return diff(spec_in_folder(before, "before"), spec_in_folder(spec.path, "after"))


UNTIL = in_days(99)
WAIVER = f"""\
exceptions:
  - {{rule: ns-03, namespace: main, reason: a vendor's image runs as root, owner: sec@bank.example, until: {UNTIL}}}
"""
CASES: dict[str, tuple[Edit, ChangeTopic, tuple[Any, ...], ReviewReason | None, str]] = {
    "less is guaranteed": (
        replaced(RESEARCH, "guaranteed: 8", "guaranteed: 6"),
        ChangeTopic.GPUS,
        ("research", "a100", "guaranteed", 8, 6),
        ReviewReason.LOST_GUARANTEE,
        "! research: a100: guaranteed 8 → 6",
    ),
    "more is guaranteed": (
        replaced(RESEARCH, "guaranteed: 8", "guaranteed: 10"),
        ChangeTopic.GPUS,
        ("research", "a100", "guaranteed", 8, 10),
        None,
        "  research: a100: guaranteed 8 → 10",
    ),
    "a flavor goes": (
        replaced(RESEARCH, "  a100: {guaranteed: 8}\n", ""),
        ChangeTopic.GPUS,
        ("research", "a100", "guaranteed", 8, None),
        ReviewReason.LOST_GUARANTEE,
        "! research: a100: guaranteed 8 → 0",
    ),
    "less may be borrowed": (
        replaced(FRAUD, "borrowing-limit: 16", "borrowing-limit: 4"),
        ChangeTopic.GPUS,
        ("fraud", "a100", "may borrow", 16, 4),
        None,
        "  fraud: a100: may borrow 16 → 4",
    ),
    "others lend less": (
        replaced(FRAUD, "lending-limit: 8", "lending-limit: 2"),
        ChangeTopic.GPUS,
        ("fraud", "a100", "lends", 8, 2),
        None,
        "  fraud: a100: lends 8 → 2",
    ),
    "a quota changes": (
        replaced(FRAUD, "cpu: 16, pods: 20", "cpu: 14, pods: 20"),
        ChangeTopic.QUOTA,
        ("fraud", "fraud--serve", "requests.cpu", "16", "14"),
        None,
        "  fraud: fraud--serve: limits.cpu 32 → 28, requests.cpu 16 → 14",
    ),
    "a place opens": (
        replaced(FRAUD, "egress:\n", "egress:\n  - {cidr: 203.0.113.0/24, port: 443}\n"),
        ChangeTopic.NETWORK,
        ("fraud", "pods", "203.0.113.0/24, port 443/TCP", None, "connect"),
        ReviewReason.WIDER_ACCESS,
        "! fraud: pods can now connect to 203.0.113.0/24, port 443/TCP",
    ),
    "a place closes": (
        replaced(FRAUD, "egress:\n  - {cidr: 198.51.100.0/24, port: 8443}\n", ""),
        ChangeTopic.NETWORK,
        ("fraud", "pods", "198.51.100.0/24, port 8443/TCP", "connect", None),
        None,
        "  fraud: pods can no longer connect to 198.51.100.0/24, port 8443/TCP",
    ),
    "a pool is closed": (
        replaced(
            ENVIRONMENT,
            "train: {instance-type: p4d.24xlarge, nodes: 4}",
            "train: {instance-type: p4d.24xlarge, nodes: 4, tenants: [fraud, research]}",
        ),
        ChangeTopic.STACK,
        ("", "all", "small", ..., ...),
        None,
        "  small: updated (all: ",
    ),
    "a group joins": (
        replaced(RESEARCH, "people:\n", "people:\n  - {group: contractors, role: viewer}\n"),
        ChangeTopic.ACCESS,
        ("research", "Group contractors", "research--main", None, "viewer"),
        ReviewReason.WIDER_ACCESS,
        "! research: Group contractors gains «viewer» in research--main",
    ),
    "a user leaves": (
        replaced(FRAUD, "  - {user: jane@bank.example, role: viewer}\n", ""),
        ChangeTopic.ACCESS,
        ("fraud", "User jane@bank.example", "fraud--train", "viewer", None),
        None,
        "  fraud: User jane@bank.example loses «viewer» in fraud--serve, fraud--train",
    ),
    "a group may do more": (
        replaced(RESEARCH, "{group: researchers, role: developer}", "{group: researchers, role: owner}"),
        ChangeTopic.ACCESS,
        ("research", "Group researchers", "research--main", "developer", "owner"),
        ReviewReason.WIDER_ACCESS,
        "! research: Group researchers: «developer» → «owner» in research--main",
    ),
    "a group may do less": (
        replaced(RESEARCH, "{group: researchers, role: developer}", "{group: researchers, role: viewer}"),
        ChangeTopic.ACCESS,
        ("research", "Group researchers", "research--main", "developer", "viewer"),
        None,
        "  research: Group researchers: «developer» → «viewer» in research--main",
    ),
    "data is read by more": (
        replaced(RESEARCH, "prefix: shared/}", "prefix: shared/}\n  - {bucket: models, prefix: out/}"),
        ChangeTopic.ACCESS,
        ("research", "service account research--main/workload", "s3://models/out/", None, "reads"),
        ReviewReason.WIDER_ACCESS,
        "! research: service account research--main/workload gains «reads» in s3://models/out/",
    ),
    "data is only read": (
        replaced(FRAUD, "access: read-write", "access: read-only"),
        ChangeTopic.ACCESS,
        (
            "fraud",
            "service account fraud--train/workload",
            "s3://datasets/teams/fraud/",
            "reads, writes, deletes",
            "reads",
        ),
        None,
        "  fraud: service account fraud--train/workload: «reads, writes, deletes» → «reads» in",
    ),
    "nodes cost more": (
        replaced(ENVIRONMENT, "nodes: 4}", "nodes: 5}"),
        ChangeTopic.COST,
        ("", "", "nodes always on", 61320, 73_000),
        ReviewReason.HIGHER_COST,
        "! the cluster: nodes always on 61,320 → 73,000 (+11,680)",
    ),
    "a budget": (
        replaced(FRAUD, "budget: {monthly-usd: 180000}\n", ""),
        ChangeTopic.COST,
        ("fraud", "", "budget", 180_000, None),
        None,
        "  fraud: budget 180,000 → none",
    ),
    "an exception": (
        lambda spec: (
            spec.edit(RESEARCH, "people:", "namespaces: [{name: main, pod-security: baseline}]\npeople:"),
            spec.add(RESEARCH, WAIVER),
        ),
        ChangeTopic.EXCEPTION,
        ("research", "ns-03 in main", ..., None, f"until {UNTIL}"),
        ReviewReason.NEW_EXCEPTION,
        f"! research: ns-03 in main is waived until {UNTIL}: a vendor's image runs as root",
    ),
    "a namespace goes": (
        replaced(RESEARCH, "people:", "namespaces: [other]\npeople:"),
        ChangeTopic.WORK,
        ("research", "research--main", "namespace", "made here", None),
        ReviewReason.DISRUPTION,
        "! research: namespace research--main is deleted, with everything in it",
    ),
    "a queue leads elsewhere": (
        replaced(FRAUD, "{name: train, purpose: nightly retraining}", "{name: train, tier: production}"),
        ChangeTopic.WORK,
        ("fraud", "fraud--train/default", "queue", "fraud--batch", "fraud--production"),
        ReviewReason.DISRUPTION,
        "! fraud: LocalQueue fraud--train/default points to fraud--production, before to fraud--batch",
    ),
    "a tenant is drained": (
        added(RESEARCH, "stop-policy: hold-and-drain\n"),
        ChangeTopic.WORK,
        ("research", "", "queue is", None, "hold-and-drain"),
        ReviewReason.DISRUPTION,
        "! research: its queue is drained: running work is evicted",
    ),
    "a namespace is held": (
        replaced(FRAUD, "{name: train, ", "{name: train, stop-policy: hold, "),
        ChangeTopic.WORK,
        ("fraud", "fraud--train", "queue is", None, "hold"),
        ReviewReason.DISRUPTION,
        "! fraud: the queue of fraud--train starts no new work",
    ),
    "nodes are others": (
        replaced(ENVIRONMENT, "instance-type: g6.12xlarge", "instance-type: g6.24xlarge"),
        ChangeTopic.WORK,
        ("", "notebooks", "nodes of pool", ..., ...),
        ReviewReason.DISRUPTION,
        "! platform: every node of pool notebooks is replaced (work of research): g6.12xlarge, on-demand",
    ),
    "nodes are upgraded": (
        replaced(ENVIRONMENT, 'kubernetes: "1.36"', 'kubernetes: "1.35"'),
        ChangeTopic.WORK,
        ("", "", "Kubernetes of every node", "1.36", "1.35"),
        ReviewReason.DISRUPTION,
        "! platform: Kubernetes 1.36 → 1.35: every node is replaced, pool by pool",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_told_as_what_it_is_and_with_its_alarm(name: str, before: Path, spec: SpecFolder) -> None:
    edit, topic, (tenant, subject, what, old, new), expected, sentence = CASES[name]
    all_changes = changes(before, spec, edit)
    (matching_change,) = [
        change
        for change in all_changes
        if (change.topic, change.tenant, change.of) == (topic, tenant, subject) and what in (..., change.what)
    ]
    assert old in (..., matching_change.before)
    assert new in (..., matching_change.after)
    assert alarm(matching_change) is expected
    text = outputs.text("small", SpecState("a"), spec_in_folder(spec.path, "b"), all_changes)
    assert sentence in text


def test_every_topic_but_rules_and_tenants_has_a_case() -> None:
    assert {case[1] for case in CASES.values()} == set(ChangeTopic) - {ChangeTopic.RULE, ChangeTopic.TENANT}


def test_the_same_files_change_nothing(before: Path, spec: SpecFolder) -> None:
    assert changes(before, spec, lambda _: None) == ()
    result = run(before, spec.path)
    assert (result.exit_code, result.stdout.partition(": ")[2].split()) == (
        0,
        "Nothing changes for any tenant, and no stack has to run.".split(),
    )


def test_a_comment_changes_nothing(before: Path, spec: SpecFolder) -> None:
    assert changes(before, spec, added(FRAUD, "# reviewed\n")) == ()


def test_a_tenant_that_goes_loses_all_it_had(before: Path, spec: SpecFolder) -> None:
    all_changes = changes(before, spec, removed(FRAUD))
    summary = outputs.text("small", spec_in_folder(before, "a"), spec_in_folder(spec.path, "b"), all_changes)
    for sentence in (
        "  fraud: is removed",
        "! fraud: a100: guaranteed 16 → 0",
        "  fraud: Group fraud-engineers loses «developer» in fraud--serve, fraud--train",
        "! fraud: namespace fraud--train is deleted, with everything in it",
    ):
        assert sentence in summary
    assert {change.after for change in all_changes if change.tenant == "fraud"} == {None}


def test_an_adopted_namespace_stays(before: Path, spec: SpecFolder) -> None:
    for name in (before / FRAUD, spec.path / FRAUD):
        name.write_text(name.read_text() + "adopt: true\n")
    spaces = [c for c in changes(before, spec, removed(FRAUD)) if c.what == "namespace"]
    assert [(c.before, c.after, alarm(c)) for c in spaces] == [("adopted", None, None)] * 2


def test_what_others_lend_is_there_to_borrow(before: Path, spec: SpecFolder) -> None:
    """The borrower's file did not change."""
    lends = "guaranteed: 8, sharing: lend, lending-limit: 8"
    all_changes = changes(before, spec, replaced(RESEARCH, "guaranteed: 8", lends))
    assert Change(ChangeTopic.GPUS, "fraud", "always on", 8, 16, "a100") in all_changes


def test_a_price_that_is_not_set_is_unknown(before: Path, spec: SpecFolder) -> None:
    spot = "    nodes: {min: 0, max: 3}\n    purchase: spot\n    tiers: [batch]\n"
    more = f"  burst:\n    instance-type: c7i.xlarge\n{spot}"
    all_changes = changes(before, spec, lambda s: s.edit(ENVIRONMENT, "  notebooks:\n", f"{more}  notebooks:\n"))
    assert Change(ChangeTopic.COST, "", "max nodes", 84_680, UNKNOWN) in all_changes
    assert Change(ChangeTopic.COST, "", "price", None, UNKNOWN, "burst") in all_changes
    summary = outputs.text("small", spec_in_folder(before, "a"), spec_in_folder(spec.path, "b"), all_changes)
    assert "! the cluster: pool burst has no price: write costs.pools" in summary
    assert "max nodes 84,680 → unknown" in summary


def edits(tmp_path: Path, field: str, old: str, new: str, part: str = "cluster") -> tuple[SpecState, SpecState]:
    """An environment that builds its cluster, with two values of a field."""
    states = []
    for value in (old, new):
        environment = field_edits.base()
        environment[part][field] = value
        folder = field_edits.write(tmp_path / value / "edits", environment)
        states.append(spec_in_folder(folder, value))
    return states[0], states[1]


REFUSAL = "EKS updates a cluster by one minor at a time, and none back, and `tenancy up` refuses it; write"


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("1.35", "1.36", "every node is replaced, pool by pool"),
        ("1.34", "1.36", f"{REFUSAL} 1.35"),
        ("1.35", "1.34", f"{REFUSAL} 1.35"),
    ],
)
def test_a_minor_that_an_update_refuses_is_told_as_refused(old: str, new: str, words: str, tmp_path: Path) -> None:
    before, after = edits(tmp_path, "kubernetes", old, new)
    text = " ".join(outputs.text("edits", before, after, diff(before, after)).split())
    assert f"! platform: Kubernetes {old} → {new}: {words}" in text
    assert ("every node is replaced" in text) is (REFUSAL not in words)


def test_an_image_is_told_by_the_waves_that_replace_nodes(tmp_path: Path) -> None:
    before, after = edits(tmp_path, "ami-release", "v20260903", "v20260912", "aws")
    text = " ".join(outputs.text("edits", before, after, diff(before, after)).split())
    release = "image v20260903 → v20260912"
    assert f"! platform: wave 0 replaces the nodes of system: {release}" in text
    assert (
        "! platform: wave 1 replaces the nodes of block, fabric, general, reserved, serve, sliced, whole "
        f"(work of fraud): {release}"
    ) in text
    assert f"! platform: Karpenter replaces its nodes of general, serve (work of fraud): {release}" in text
    assert "launch template" not in text


def test_policies_of_cilium_that_go_with_it_are_named(tmp_path: Path) -> None:
    before, after = edits(tmp_path, "cni", "cilium", "vpc-cni")
    deleted = [change for change in diff(before, after) if "policies of Cilium" in change.what]
    assert {change.tenant: alarm(change) for change in deleted} == dict.fromkeys(
        ("", "aml", "fraud"), ReviewReason.WIDER_ACCESS
    )
    text = " ".join(outputs.text("edits", before, after, diff(before, after)).split())
    assert "! platform: pods of tenants can now connect to whatever only policies of Cilium restrict" in text
    assert (
        "! fraud: pods can now connect to whatever only policies of Cilium restrict; deleted: "
        "CiliumClusterwideNetworkPolicy tenancy--fraud, CiliumNetworkPolicy fraud--main/dns, CiliumNetworkPolicy "
        "fraud--main/pod-identity" in text
    )
    assert not [change for change in diff(after, before) if "policies of Cilium" in change.what]


def test_only_stacks_whose_part_changes_have_to_run(before: Path, spec: SpecFolder) -> None:
    for path in (before, spec.path):
        file = path / ENVIRONMENT
        file.write_text(file.read_text() + "stacks: per-tenant\n")
    all_changes = changes(before, spec, replaced(RESEARCH, "role: developer", "role: viewer"))
    assert outputs.stack_order(all_changes) == [
        {"stack": "small--research", "scope": "tenant", "tenant": "research", "operation": "update"}
    ]


def test_stacks_are_told_in_the_order_in_which_they_run() -> None:
    bank = spec_in_folder(Path(__file__).parents[3] / "stacks" / "bank", "b")
    stacks = outputs.stack_order(diff(SpecState("a"), bank))
    assert [stack["scope"] for stack in stacks[:2]] == ["cluster", "platform"]
    assert {stack["operation"] for stack in stacks} == {"create"}
    assert len(stacks) == 17


# Rules


def test_a_rule_that_is_newly_broken_is_told_and_ends_with_1(before: Path, spec: SpecFolder) -> None:
    spec.edit(RESEARCH, "guaranteed: 8", "guaranteed: 800")
    result = run(before, spec.path)
    assert result.exit_code == 1
    assert "! pool-03: is broken: tenants/research.yaml, gpus.a100.guaranteed: given " in result.stdout.replace(
        "\n   ", ""
    )
    assert "cannot be read:" in result.stdout


def test_mending_a_broken_base_is_no_alarm(before: Path, spec: SpecFolder) -> None:
    file = before / RESEARCH
    file.write_text(file.read_text().replace("guaranteed: 8", "guaranteed: 800"))
    result = run(before, spec.path, "--fail-on", "any")
    assert result.exit_code == 0
    assert "pool-03: is no longer broken" in result.stdout


# Policy


@pytest.mark.parametrize(
    ("fail_on", "code"),
    [((), 0), (("lost-guarantee",), 1), (("wider-access",), 0), (("wider-access", "lost-guarantee"), 1), (("any",), 1),
     (("nothing", "any"), 0)],
)  # fmt: skip
def test_the_policy_decides_the_exit_code(fail_on: tuple[str, ...], code: int, before: Path, spec: SpecFolder) -> None:
    spec.edit(RESEARCH, "guaranteed: 8", "guaranteed: 6")
    options = [word for policy in fail_on for word in ("--fail-on", policy)]
    assert run(before, spec.path, *options).exit_code == code


def test_every_alarm_can_be_stopped_at() -> None:
    assert set(_ALARMS) == set(ReviewReason)
    raised = {case[3] for case in CASES.values()} | {ReviewReason.BROKEN_RULE}
    assert raised == {*ReviewReason, None}


# How it is said


def test_the_comment_has_a_marker_that_stays_and_looks_first_at_alarms(before: Path, spec: SpecFolder) -> None:
    spec.edit(RESEARCH, "guaranteed: 8", "guaranteed: 6")
    spec.edit(FRAUD, "borrowing-limit: 16", "borrowing-limit: 4")
    lines = run(before, spec.path, "--format", "markdown").stdout.splitlines()
    assert lines[0] == f"<!-- gpu-tenancy diff: {spec.path.name} -->"
    assert "2 tenants affected: fraud, research. To review: smaller guarantee: research." in lines[3]
    assert lines[5:8] == ["**Smaller guarantee**", "", "- research: a100: guaranteed 8 → 6"], "before the fold"
    gpus = lines[lines.index("### GPUs") + 2 :]
    assert gpus[0] == "- **research**: a100: guaranteed 8 → 6"
    assert gpus[1].startswith("- fraud: a100: ")


def test_what_people_write_is_no_markup_of_the_comment(before: Path, spec: SpecFolder) -> None:
    group = "x](https://evil.example) <b>@all|*`"
    spec.edit(RESEARCH, "people:\n", f"people:\n  - {{group: {json.dumps(group)}, role: viewer}}\n")
    lines = [text for text in run(before, spec.path, "--format", "markdown").stdout.splitlines() if "evil" in text]
    assert lines
    for line in lines:
        assert "](" not in line.replace("\\](", "")
        assert "<b>" not in line
        assert "@all" not in line
        assert line.count("|") == line.count("\\|")


def test_a_long_section_is_cut_and_says_so(before: Path, spec: SpecFolder) -> None:
    people = "".join(f"  - {{group: g{n}, role: viewer}}\n" for n in range(60))
    spec.edit(RESEARCH, "people:\n", f"people:\n{people}")
    comment = run(before, spec.path, "--format", "markdown").stdout
    first, _, everything = comment.partition("<details>")
    assert (first.count("gains «viewer»"), everything.count("gains «viewer»")) == (
        outputs.MAX_ALARM_SENTENCES,
        outputs.MAX_SENTENCES,
    )
    assert "- … and 48 more, below" in first
    assert "Access (60)" in everything
    assert "and 30 more; --format json has all of them" in comment
    assert len(json.loads(run(before, spec.path, "--format", "json").stdout)["changes"]) > 60


def test_json_has_every_change_its_alarm_and_the_stacks(before: Path, spec: SpecFolder) -> None:
    spec.edit(RESEARCH, "guaranteed: 8", "guaranteed: 6")
    output = json.loads(run(before, spec.path, "--format", "json").stdout)
    assert output["alarms"] == ["lost-guarantee"]
    assert {"topic": "GPUs", "tenant": "research", "what": "guaranteed", "before": 8, "after": 6, "of": "a100",
            "alarm": "lost-guarantee"} in output["changes"]  # fmt: skip
    assert output["stacks"] == [{"stack": "small", "scope": "all", "tenant": "", "operation": "update"}]


def test_what_is_worst_is_on_the_first_screen_however_much_there_is(before: Path, tmp_path: Path) -> None:
    """An environment that goes loses many promises; that its namespaces are deleted has to be seen."""
    (tmp_path / "nothing").mkdir()
    first = run(before, tmp_path / "nothing", "--format", "markdown").stdout.partition("<details>")[0].splitlines()
    lines = [line for line in first if line.startswith("- ") and "…" not in line]
    assert len(lines) <= outputs.MAX_ALARM_SENTENCES
    assert lines[0] == "- fraud: namespace fraud--serve is deleted, with everything in it"
    assert first.index("**Running work is disrupted**") < first.index("**Smaller guarantee**")


def test_a_folder_gets_every_form(before: Path, spec: SpecFolder, tmp_path: Path) -> None:
    spec.edit(RESEARCH, "guaranteed: 8", "guaranteed: 6")
    result = run(before, spec.path, "--out", tmp_path / "out")
    assert "research: a100: guaranteed 8 → 6" in result.stdout
    for name, form in (("small.md", "markdown"), ("small.json", "json"), ("small.stacks", "stacks")):
        assert (tmp_path / "out" / name).read_text("utf-8") == run(before, spec.path, "--format", form).stdout


# Git


@pytest.fixture
def repository(spec: SpecFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with two revisions, the tag `first` and HEAD, and a third state in the working tree."""
    root = tmp_path / "repository"
    home = root / "stacks" / spec.path.name
    shutil.copytree(spec.path, home)
    monkeypatch.chdir(root)

    def git(*words: str) -> None:
        author = ["-c", "user.name=t", "-c", "user.email=t@bank.example", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *author, *words], cwd=root, check=True, capture_output=True)

    def guarantee(old: int, new: int) -> None:
        file = home / RESEARCH
        file.write_text(file.read_text().replace(f"a100: {{guaranteed: {old}}}", f"a100: {{guaranteed: {new}}}"))

    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "first")
    git("tag", "first")
    guarantee(8, 6)
    git("commit", "-qam", "second")
    guarantee(6, 10)
    return root


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (("first..HEAD", "--", "stacks/small"), "8 → 6"),
        (("first...HEAD", "small"), "8 → 6"),
        (("first..", "small"), "8 → 6"),
        (("HEAD..first", "small"), "6 → 8"),
        (("small",), "6 → 10"),
        (("--from", "first", "small"), "8 → 10"),
        (("--from", "first", "--to", "HEAD", "stacks/small"), "8 → 6"),
        (("--from", "HEAD", "--to", "worktree", "small"), "6 → 10"),
    ],
)
def test_two_revisions_are_compared(words: tuple[str, ...], difference: str, repository: Path) -> None:
    before = {path: path.read_bytes() for path in repository.rglob("*.yaml")}
    result = run(*words)
    assert f"research: a100: guaranteed {difference}" in result.stdout, result.stderr
    assert {path: path.read_bytes() for path in repository.rglob("*.yaml")} == before


def test_an_environment_that_is_new_or_goes_is_compared_with_nothing(repository: Path) -> None:
    shutil.copytree(repository / "stacks" / "small", repository / "stacks" / "other")
    file = repository / "stacks" / "other" / ENVIRONMENT
    file.write_text(file.read_text().replace("environment: small", "environment: other"))
    assert "research: is new" in run("other").stdout
    shutil.rmtree(repository / "stacks" / "small")
    assert "research: is removed" in run("stacks/small").stdout


def test_a_mistake_at_a_revision_is_shown_by_its_name(repository: Path) -> None:
    file = repository / "stacks" / "small" / RESEARCH
    file.write_text(file.read_text().replace("tier: batch", "tier: bach"))
    output = json.loads(run("small", "--format", "json").stdout)
    assert [problem["file"] for problem in output["unread"]] == ["worktree:tenants/research.yaml"]


@pytest.mark.parametrize(
    ("words", "message_part"),
    [
        (("nowhere..HEAD", "small"), "nowhere"),
        (("--from", "--help=x", "small"), "--help=x"),
        (("first..HEAD", "stacks/nothing"), "neither in first nor in HEAD"),
        (("first..HEAD", "../outside"), "outside of"),
        (("first..HEAD", "--from", "first", "small"), "FROM..TO and an environment"),
        (("a", "b", "c"), "FROM..TO and an environment"),
        (("small", "--fail-on", "mood"), "mood"),
    ],
)
@pytest.mark.usefixtures("repository")
def test_what_cannot_be_compared_ends_with_2(words: tuple[str, ...], message_part: str) -> None:
    result = run(*words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message_part in result.stderr


def test_outside_of_a_repository_revisions_are_refused(
    spec: SpecFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    result = run("a..b", spec.path)
    assert result.exit_code == 2
    assert "not a git repository" in result.stderr
