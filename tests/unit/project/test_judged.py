"""`make judged` without its judges: canned answers, waivers, checklists, seeded faults, and what it writes."""

from __future__ import annotations

import datetime as dt
import json
import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from judged import checklists, faults, mtb, parse, report, run, waivers
from judged.aws import journey
from judged.aws.edits import Comparison
from judged.aws.engine import AwsRequest
from judged.aws.journey import JUDGE
from judged.model import Finding, SkippedJudge, Verdict
from judged.waivers import UnusableWaivers, Waiver, weigh
from tenancy.cli import main
from tenancy.spec.loader import load
from tenancy.verify.attacks import Scene, all_attacks
from tests.conftest import nonempty

ROOT = Path(__file__).parents[3]
TODAY = dt.date(2026, 11, 24)
PRIVILEGED_POD = Finding("fake", "F1", "samples/Pod.a.b", "it is privileged")


def verdict(*findings: Finding, checks: int = 3, skipped: str = "") -> Verdict:
    return Verdict("fake", "1.0", "samples", checks, findings, skipped=skipped)


def waiver(**changes: Any) -> Waiver:
    fields = {"judge": "fake", "check": "F?", "object": "samples/*", "reason": "known", "owner": "platform"}
    return Waiver(**{**fields, "until": TODAY, **changes})


# Waivers


def test_a_finding_without_a_waiver_is_a_problem() -> None:
    (problem,) = weigh([verdict(PRIVILEGED_POD)], [], TODAY).problems
    assert "F1" in problem
    assert "it is privileged" in problem


def test_a_waived_finding_is_none() -> None:
    judged = weigh([verdict(PRIVILEGED_POD)], [waiver()], TODAY)
    assert (judged.problems, judged.open(verdict(PRIVILEGED_POD))) == ([], [])


@pytest.mark.parametrize("other_fields", [{"judge": "real"}, {"check": "G1"}, {"object": "bank/*"}])
def test_a_waiver_of_another_judge_check_or_object_covers_nothing(other_fields: dict[str, str]) -> None:
    assert any(
        problem.startswith("fake F1")
        for problem in weigh([verdict(PRIVILEGED_POD)], [waiver(**other_fields)], TODAY).problems
    )


def test_a_waiver_whose_finding_is_gone_is_a_problem() -> None:
    (problem,) = weigh([verdict()], [waiver()], TODAY).problems
    assert problem.startswith("waiver matches no finding: fake F? on samples/*")


def test_a_waiver_of_a_skipped_judge_is_left_alone() -> None:
    assert weigh([verdict(checks=0, skipped="not installed")], [waiver()], TODAY).problems == []


def test_a_waiver_covers_nothing_after_its_last_day() -> None:
    problems = weigh([verdict(PRIVILEGED_POD)], [waiver()], TODAY + dt.timedelta(1)).problems
    assert [problem.partition(" ")[0] for problem in problems] == ["waiver", "fake"]
    assert "expired on 2026-11-24" in problems[0]


@pytest.mark.parametrize(("days", "problems"), [(waivers.LONGEST, 0), (waivers.LONGEST + 1, 1)])
def test_a_waiver_lasts_a_year_at_most(days: int, problems: int) -> None:
    long_waiver = waiver(until=TODAY + dt.timedelta(days))
    assert len(weigh([verdict(PRIVILEGED_POD)], [long_waiver], TODAY).problems) == problems


def test_a_judge_that_made_no_check_has_passed_nothing() -> None:
    (problem,) = weigh([verdict(checks=0)], [], TODAY).problems
    assert "made no check" in problem


ROW = "{judge: a, check: b, object: c, reason: d, owner: e, until: 2027-01-01}"


@pytest.mark.parametrize(
    ("text", "message_part"),
    [
        ("other: []", "rule: a list `waivers`"),
        ("[", "rule: a list `waivers`"),
        (f"waivers: [{ROW[:-1]}, more: f}}]", "waivers[0]"),
        (f"waivers: [{ROW}, {{judge: a}}]", "waivers[1]"),
        (f"waivers: [{ROW.replace('2027-01-01', 'never')}]", "write YYYY-MM-DD"),
        ("waivers: [" + ROW.replace("reason: d", "reason: ' '") + "]", "waivers[0].reason: nothing"),
    ],
)
def test_a_list_of_another_form_is_named(text: str, message_part: str, tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(text, "utf-8")
    with pytest.raises(UnusableWaivers, match=re.escape(message_part)):
        waivers.read(tmp_path / "w.yaml")


def test_the_repositorys_own_waivers_name_judges_that_run() -> None:
    accepted = waivers.read()
    assert {waiver.judge for waiver in accepted} <= set(run.RUN)
    assert len({(waiver.judge, waiver.check, waiver.object) for waiver in accepted}) == len(accepted)


# Answers of judges

CHECKOV = {
    "results": {
        "failed_checks": [
            {"check_id": "CKV_1", "check_name": "N", "file_path": "/bank/1.yaml", "resource": "Pod.a.b"},
        ]
    },
    "summary": {"passed": 4, "parsing_errors": 0},
}
SCORED = [
    {
        "object_name": "Pod/v1/a/b",
        "checks": [
            {"check": {"id": "ok", "comment": "c"}, "grade": 10, "skipped": False, "comments": None},
            {"check": {"id": "bad", "comment": "c"}, "grade": 1, "skipped": False, "comments": [{"summary": "s"}]},
            {"check": {"id": "gone", "comment": "c"}, "grade": 0, "skipped": True, "comments": None},
        ],
    }
]
ZIZMOR = [
    {
        "ident": "unpinned",
        "desc": "d",
        "locations": [
            {
                "symbolic": {"kind": "Primary", "key": {"Local": {"verbatim_path": "w.yaml"}}},
                "concrete": {"location": {"start_point": {"row": 13}}},
            }
        ],
    }
]
BANDIT = {
    "errors": [],
    "results": [{"test_id": "B1", "filename": "a.py", "issue_text": "t", "line_number": 2}],
    "metrics": {"a.py": {}, "b.py": {}, "_totals": {}},
}
AUDITED = {
    "dependencies": [
        {"name": "a", "version": "1", "vulns": [{"id": "CVE-1"}]},
        {"name": "b", "version": "1", "vulns": []},
    ]
}
VALIDATED = """INFO /x/bank/1.yaml passed for resource pod/a against version 1.36
WARN /x/bank/2.yaml Couldn't find schema for kind Cohort
ERROR /x/bank/3.yaml did not validate for resource pod/a against version 1.36: no
"""
LINTED = {"comments": [{"code": 2086, "file": "s", "message": "m", "line": 1}]}
ACTION = [{"kind": "expression", "filepath": "w.yaml", "message": "m", "line": 7}]
TYPED = {"code": "arg-type", "file": "a.py", "message": "m", "line": 1, "severity": "error"}
APPLIED = {
    "summary": {"error": 0},
    "results": [
        {"policy": "pods", "rule": "a", "result": "pass", "resources": [], "message": ""},
        {"policy": "pods", "rule": "b", "result": "skip", "resources": [], "message": ""},
        {
            "policy": "pods",
            "rule": "autogen-c",
            "result": "fail",
            "resources": [{"kind": "Job", "namespace": "n", "name": "j"}],
            "message": "m",
        },
    ],
}
CONFORMED = {
    "resources": [
        {"filename": "/x/bank/1.yaml", "status": "statusValid", "msg": ""},
        {"filename": "/x/bank/2.yaml", "status": "statusInvalid", "msg": "no"},
    ]
}
PROWLED: list[dict[str, Any]] = [
    {"status_code": "PASS", "metadata": {"event_code": "rbac"}, "resources": [{"name": "r"}], "status_detail": ""},
    {"status_code": "MANUAL", "metadata": {"event_code": "file"}, "resources": [{"name": "r"}], "status_detail": ""},
    {
        "status_code": "FAIL",
        "metadata": {"event_code": "core"},
        "resources": [{"name": "p", "namespace": "namespace: fraud--train"}],
        "status_detail": "m",
    },
]
HARDENED = {
    "cluster_wide": {
        "security": {
            "iam": {
                "Restrict wildcards.": [{"status": True, "resources": [""], "namespace": None}],
                "Disable tokens.": [{"status": False, "resources": ["default"], "namespace": "a"}],
            }
        }
    }
}
CLOUD: list[dict[str, Any]] = [
    {"name": "Good", "passed": True, "skipped": False, "message": "All 14 nodes are Ready"},
    {"name": "Bad", "passed": False, "skipped": False, "message": "Found 1 pending pods:\n a/b"},
]


def behaved() -> Verdict:
    """The benchmark's behaviours on a cluster that admits a pod whatever its imagePullPolicy."""
    rows = checklists.read()["kubectl-mtb"].items
    sent = [{"id": attack_id, "refused": True, "twin_admitted": True} for row in rows for attack_id in row.shown_by]
    loaded = load(ROOT / "stacks" / "local")
    limits = ("cpu", "memory", "requests.ephemeral-storage", "pods", "services", "secrets", "configmaps")
    quotas = [
        {
            "metadata": {"namespace": tenant.namespace_name(part)},
            "spec": {"hard": dict.fromkeys((*limits, "persistentvolumeclaims"), "1")},
        }
        for tenant in loaded.tenants
        for part in tenant.namespaces
    ]
    answer = subprocess.CompletedProcess([], 0, json.dumps({"items": quotas}))
    return mtb.verdict(sent, loaded, lambda *_: answer)


def travelled() -> Verdict:
    """An environment of which one request was wrong."""
    bank = journey.Journey("bank", steps=3)
    wrong = AwsRequest("kms", "TagResource", 200, [(".Tags", "51 items")])
    bank.judge_requests([wrong, AwsRequest("kms", "ListTags", 200, ())])
    return journey.summary(
        [bank], {row["name"]: ["found"] for row in journey.faults()}, Comparison(JUDGE), 0, "5.100.0"
    )


ANSWERS: dict[str, tuple[Callable[[], Verdict], int, tuple[str, str]]] = {
    "checkov": (lambda: parse.checkov(json.dumps([CHECKOV]), "1", ""), 5, ("CKV_1", "bank/Pod.a.b")),
    "checkov-aws": (
        lambda: parse.checkov(json.dumps(CHECKOV), "1", "", "checkov-aws"),
        5,
        ("CKV_1", "bank/Pod.a.b"),
    ),
    "kyverno": (
        lambda: parse.kyverno(f"Warning: old\n{json.dumps(APPLIED)}", "1", "", "bank"),
        2,
        ("pods/c", "bank/Job/n/j"),
    ),
    "kubeconform": (lambda: parse.kubeconform(json.dumps(CONFORMED), "1", ""), 2, ("invalid", "bank/2.yaml")),
    "prowler": (lambda: parse.prowler(PROWLED, "1", ""), 2, ("core", "fraud--train/p")),
    "hardeneks": (lambda: parse.hardeneks(HARDENED, "1", ""), 2, ("Disable tokens", "a/default")),
    "kubectl-mtb": (behaved, 18, ("MTB-PL1-CC-DI-1", "fraud--train")),
    "nvidia": (lambda: parse.nvidia(CLOUD, ["Bad", "Good"], {}, "1", ""), 2, ("Bad", "lab")),
    "kube-score": (lambda: parse.kube_score(json.dumps(SCORED), "1", ""), 2, ("bad", "Pod/v1/a/b")),
    "kubernetes-validate": (lambda: parse.kubernetes_validate(VALIDATED, "1", ""), 2, ("schema", "bank/3.yaml")),
    "promtool": (
        lambda: parse.promtool([("a", "  SUCCESS: 7 rules found"), ("b", "  FAILED: x")], "1", ""),
        8,
        ("rules", "b"),
    ),
    "actionlint": (lambda: parse.actionlint(json.dumps(ACTION), "1", "", 3), 3, ("expression", "w.yaml")),
    "shellcheck": (lambda: parse.shellcheck(json.dumps(LINTED), "1", "", 3), 3, ("SC2086", "s")),
    "zizmor": (lambda: parse.zizmor(json.dumps(ZIZMOR), "1", "", 3), 3, ("unpinned", "w.yaml")),
    "bandit": (lambda: parse.bandit(json.dumps(BANDIT), "1", ""), 2, ("B1", "a.py")),
    "pip-audit": (lambda: parse.pip_audit(json.dumps(AUDITED), "1", ""), 2, ("CVE-1", "a")),
    "mypy": (lambda: parse.mypy(json.dumps(TYPED), "1", "", 3), 3, ("arg-type", "a.py")),
    "trestle": (lambda: parse.trestle("no uuid", "1", "", 204), 204, ("oscal", "component-definition")),
    "aws-engine": (travelled, 6 + len(journey.faults()), ("request", "bank/kms:TagResource.Tags")),
    "pymarkdown": (
        lambda: parse.pymarkdown("/r/docs/a.md:1:1: MD040: words", "1", "", 3, "/r"),
        3,
        ("MD040", "docs/a.md"),
    ),
}


def test_every_judge_that_runs_has_a_canned_answer() -> None:
    assert set(ANSWERS) == set(run.RUN)


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_read_as_checks_and_findings(name: str) -> None:
    ask, checks, (check, what) = ANSWERS[name]
    read = ask()
    (finding,) = read.findings
    assert (read.judge, read.checks) == (name, checks)
    assert (finding.judge, finding.check, finding.object) == (name, check, what)


def test_an_audit_that_looked_up_nothing_is_skipped_though_it_ends_well() -> None:
    answer = {"dependencies": [{"name": "a", "skip_reason": "not found"}]}
    with pytest.raises(SkippedJudge, match="looked up no package"):
        parse.pip_audit(json.dumps(answer), "1", "")


def test_a_policy_that_could_not_be_applied_is_an_error() -> None:
    with pytest.raises(ValueError, match="2 rules could not be applied"):
        parse.kyverno(json.dumps({"summary": {"error": 2}, "results": []}), "1", "", "")


def test_a_package_that_an_audit_did_not_look_up_is_a_finding() -> None:
    answer = {"dependencies": [*AUDITED["dependencies"][1:], {"name": "c", "skip_reason": "not found"}]}
    (finding,) = parse.pip_audit(json.dumps(answer), "1", "").findings
    assert (finding.check, finding.object) == ("not-looked-up", "c")


@pytest.mark.parametrize("text", ["", "[1]", "Traceback (most recent call last):"])
def test_an_answer_of_another_form_is_an_error(text: str) -> None:
    for read in (parse.kube_score, parse.bandit, parse.pip_audit):
        with pytest.raises((ValueError, KeyError, TypeError)):
            read(text, "1", "")


# What is written


def test_the_table_counts_passed_waived_and_failed() -> None:
    open_finding = Finding("fake", "F2", "bank/Pod.a.b", "m")
    judged = weigh([verdict(PRIVILEGED_POD, open_finding)], [waiver()], TODAY)
    assert report.row(judged.verdicts[0], judged) == ("fake", "1.0", "samples", "3", "1", "1", "1")


def test_sarif_has_a_suppression_for_a_waived_finding_only() -> None:
    open_finding = Finding("fake", "F2", "bank/Pod.a.b", "m", "bank.yaml", 4)
    judged = weigh([verdict(PRIVILEGED_POD, open_finding), verdict(skipped="no")], [waiver()], TODAY)
    (sarif_run,) = report.sarif(judged)["runs"]
    assert [len(result.get("suppressions", ())) for result in sarif_run["results"]] == [1, 0]
    assert sarif_run["results"][1]["locations"][0]["physicalLocation"]["region"] == {"startLine": 4}
    assert sarif_run["properties"] == {"checks": 3, "judged": "samples"}


def test_the_page_names_skipped_judges_and_every_waiver() -> None:
    judged = weigh([verdict(PRIVILEGED_POD), Verdict("gone", "–", "–", skipped="not here")], [waiver()], TODAY)
    page = report.page(
        judged, checklists.read(), {"privileged": {"checkov": ["CKV_K8S_16"]}}, {"movable-tags": ["CKV_AWS_51"]}
    )
    for line in (
        "| fake | 1.0 | samples | 3 | 2 | 1 | 0 |",
        "| gone | not here |",
        "| fake | `F?` | `samples/*` | 1 | known | platform | 2026-11-24 |",
        "| privileged | CKV_K8S_16 | – | – | pod-02 |",
        "| movable-tags | `aws:ecr/repository:Repository` | CKV_AWS_51 | img-04 |",
    ):
        assert line in page.splitlines()


def test_the_page_has_what_a_judge_says_besides_its_row() -> None:
    judged = weigh([Verdict("fake", "1.0", "samples", 1, details=("## More", "", "words", ""))], [], TODAY)
    lines = report.page(judged, checklists.read(), {}, {}).splitlines()
    assert lines[lines.index("## More") : lines.index("## Not run")] == ["## More", "", "words", ""]


def test_the_page_in_the_docs_has_todays_judges_and_waivers() -> None:
    page = (ROOT / "docs" / "judged.md").read_text("utf-8")
    for name in (*run.RUN, *run.NOT_RUN):
        assert f"\n| {name} | " in page, f"{name}: make judged"
    for recorded_waiver in nonempty(waivers.read()):
        assert f"| {recorded_waiver.judge} | `{recorded_waiver.check}` | `{recorded_waiver.object}` |" in page, (
            f"{recorded_waiver}: make judged"
        )


# Checklists and seeded faults


@cache
def attack_ids() -> frozenset[str]:
    loaded = load(ROOT / "stacks" / "local")
    scene = Scene(loaded.environment, loaded.tenants, ["nvidia"], ["plain"])
    return frozenset(attack.id.partition("@")[0] for attack in all_attacks(scene))


@pytest.mark.parametrize("name", checklists.read())
def test_what_a_checklist_is_shown_by_exists(name: str) -> None:
    for item in nonempty(checklists.read()[name].items):
        for proof in item.shown_by:
            assert proof in attack_ids() or (ROOT / proof).is_file(), f"{item.id}: {proof}"


@pytest.fixture(scope="module")
def seeded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "all"
    faults.write(folder)
    return folder


def rules_in(folder: Path) -> set[str]:
    completed = CliRunner().invoke(main, ["check", str(folder), "--format", "json"])
    return {finding["rule"] for finding in json.loads(completed.stdout)["findings"]}


@pytest.mark.parametrize("fault", faults.faults(), ids=lambda fault: fault.name)
def test_a_fault_that_other_tools_know_is_found_by_a_rule_or_refused_by_a_guard(
    fault: faults.Fault, seeded: Path
) -> None:
    if fault.attack:
        assert fault.attack in attack_ids()
        return
    new = rules_in(seeded / fault.name) - rules_in(seeded / faults.TWIN)
    assert new & set(fault.rules), f"found {sorted(new)}"
