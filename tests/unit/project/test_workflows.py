"""The workflows of ci/: what they may do, and that each of their steps does what it says."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import judges
import pytest
import yaml
from answering import answering

from tests.conftest import every, nonempty

ROOT = Path(__file__).parents[3]
CI = ROOT / "ci"
STEPS = CI / "steps"
GITHUB = sorted((CI / "github").glob("*.yaml"))
GITLAB = CI / "gitlab" / "tenancy.gitlab-ci.yml"
DIGEST = "sha256:" + "0123456789abcdef" * 4


def run(step: str, *words: str, folder: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    base = {key: value for key, value in os.environ.items() if not key.startswith(("GITHUB_", "CI_", "GIT_"))}
    path = f"{Path(sys.executable).parent}:{base['PATH']}"
    home = folder.parent / "home"
    home.mkdir(exist_ok=True)
    step_env = {**base, "PATH": path, "PYTHONPATH": str(ROOT), "HOME": str(home), **(env or {})}
    return subprocess.run([STEPS / step, *words], cwd=folder, env=step_env, capture_output=True, text=True, check=False)


# What the files say


def jobs(path: Path) -> dict[str, Any]:
    return yaml.safe_load(path.read_text("utf-8"))["jobs"]


def commands(path: Path) -> Iterator[str]:
    if path == GITLAB:
        for job in yaml.safe_load(path.read_text("utf-8")).values():
            yield from job.get("script", ()) if isinstance(job, dict) else ()
    else:
        yield from (step["run"] for job in jobs(path).values() for step in job["steps"] if "run" in step)


def lint(*paths: Path) -> subprocess.CompletedProcess[str]:
    command = [judges.folder("actionlint"), "-no-color", "-shellcheck=", "-pyflakes=", *paths]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_there_is_a_workflow_for_pull_requests_for_merges_and_for_the_night() -> None:
    assert [path.stem for path in GITHUB] == ["tenancy-drift", "tenancy-merge", "tenancy-pull-request"]


def test_the_linter_has_nothing_against_them() -> None:
    result = lint(*GITHUB)
    assert (result.returncode, result.stdout) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("needs.affected.outputs.all != ''", "needs.affected.outputs.al != ''", '"al" is not defined'),
        ("needs: affected\n", "needs: effected\n", '"effected" which does not exist'),
        ("id-token: write", "id-tokens: write", 'unknown permission scope "id-tokens"'),
    ],
)
def test_the_linter_would_have(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = (CI / "github" / "tenancy-pull-request.yaml").read_text("utf-8")
    assert old in text
    (tmp_path / "w.yaml").write_text(text.replace(old, new), "utf-8")
    result = lint(tmp_path / "w.yaml")
    assert result.returncode == 1
    assert message in result.stdout


def by_gitlabs_schema(path: Path) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).parent / "check-jsonschema", "--builtin-schema", "vendor.gitlab-ci", path]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_gitlabs_schema_has_nothing_against_its_pipeline() -> None:
    result = by_gitlabs_schema(GITLAB)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\n  stage: ", "\n  stages: ", "stages"),
        ("when: always", "when: sometimes", "sometimes"),
        ("interruptible: ", "interruptible: sometimes #", "interruptible"),
    ],
)
def test_gitlabs_schema_would_have(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = GITLAB.read_text("utf-8")
    assert old in text
    (tmp_path / "p.yml").write_text(text.replace(old, new), "utf-8")
    result = by_gitlabs_schema(tmp_path / "p.yml")
    assert result.returncode == 1
    assert message in result.stdout


@pytest.mark.parametrize("path", GITHUB, ids=lambda path: path.stem)
def test_actions_are_pinned_by_commit_with_the_version_beside(path: Path) -> None:
    used = re.findall(r"uses:(.*)", path.read_text("utf-8"))
    assert used
    assert [line for line in used if not re.fullmatch(r" [\w.-]+/[\w.-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", line)] == []


def test_one_action_is_one_commit_everywhere() -> None:
    pins = {tuple(pin) for path in GITHUB for pin in re.findall(r"uses: (\S+)@(\S+)", path.read_text("utf-8"))}
    assert len(pins) == len({name for name, _ in pins})


@pytest.mark.parametrize("path", [*GITHUB, GITLAB], ids=lambda path: path.stem)
def test_what_runs_is_a_step_of_ours(path: Path) -> None:
    step_commands = list(commands(path))
    assert step_commands
    for command in step_commands:
        step = re.fullmatch(r"(?:\. )?(ci/steps/[\w.-]+)( [\w\"$^ -]+)?", command)
        assert step, f"{command!r} would run untested"
        assert (ROOT / step[1]).is_file()
        assert command.startswith(". ") or os.access(ROOT / step[1], os.X_OK)
        assert "${{" not in command, "what others write would be read as a command"


@pytest.mark.parametrize("path", [*GITHUB, GITLAB, *STEPS.iterdir()], ids=lambda path: path.name)
def test_no_key_of_aws_is_kept_anywhere(path: Path) -> None:
    if path.is_file():
        assert not re.search(r"secrets\.|access.?key|AKIA", path.read_text("utf-8"), re.IGNORECASE)


def test_a_job_with_a_token_for_aws_takes_a_role_by_it_and_no_other_does() -> None:
    for path in GITHUB:
        for name, job in jobs(path).items():
            token = job.get("permissions", {}).get("id-token") == "write"
            roles = [step["with"]["role-to-assume"] for step in job["steps"] if "aws-actions" in step.get("uses", "")]
            role = "UPDATE" if path.stem == "tenancy-merge" else "HOLD" if name == "hold" else "PREVIEW"
            assert roles == ([f"${{{{ vars.TENANCY_{role}_ROLE }}}}"] if token else []), f"{path.stem}: {name}"


WRITES = {
    ("tenancy-pull-request", "preview"): {"id-token"},
    ("tenancy-pull-request", "comment"): {"pull-requests"},
    ("tenancy-merge", "first"): {"id-token"},
    ("tenancy-merge", "tenants"): {"id-token"},
    ("tenancy-merge", "last"): {"id-token"},
    ("tenancy-drift", "hold"): {"id-token"},
    ("tenancy-drift", "drift"): {"id-token", "issues"},
}


def test_a_job_may_write_what_it_needs_and_nothing_else() -> None:
    writes = {}
    for path in GITHUB:
        assert yaml.safe_load(path.read_text("utf-8"))["permissions"] == {"contents": "read"}
        for name, job in jobs(path).items():
            may = {key for key, value in job.get("permissions", {}).items() if value == "write"}
            writes |= {(path.stem, name): may} if may else {}
    assert writes == WRITES


def test_updates_run_on_merges_alone_and_one_at_a_time_for_each_stack() -> None:
    for path in GITHUB:
        for name, job in jobs(path).items():
            updates = any("ci/steps/update" in step.get("run", "") for step in job["steps"])
            assert updates is (path.stem == "tenancy-merge" and name != "affected")
            if updates:
                assert job["concurrency"] == {"group": "tenancy-${{ matrix.stack }}", "cancel-in-progress": False}
                assert job["environment"] == "${{ matrix.environment }}"
    merge = yaml.safe_load((CI / "github" / "tenancy-merge.yaml").read_text("utf-8"))
    assert merge[True] == {"push": {"branches": ["main"]}}, "YAML reads the key on as true"


def test_a_fork_gets_neither_a_role_nor_a_comment() -> None:
    same_repository = "github.event.pull_request.head.repo.full_name == github.repository"
    guarded_jobs = {name for name, job in jobs(GITHUB[2]).items() if same_repository in job.get("if", "")}
    assert guarded_jobs == {"preview", "comment"}
    assert "pull_request_target" not in GITHUB[2].read_text("utf-8")


def test_the_image_is_made_of_what_has_a_digest_and_of_files_that_are_there() -> None:
    lines = (CI / "Containerfile").read_text("utf-8").splitlines()
    bases = [line.partition("=")[2] for line in lines if line.startswith(("ARG PYTHON", "ARG TRIVY"))]
    assert len(bases) == 2
    assert every(re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", base) for base in bases)
    for line in nonempty(lines):
        if line.startswith("COPY ") and "--from" not in line:
            assert every((ROOT / name).exists() for name in line.split()[1:-1]), line


def test_what_the_image_imports_to_compile_it_is_there() -> None:
    (code,) = re.findall(r'-c "(import .+)"', (CI / "Containerfile").read_text("utf-8"))
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


# Steps: what is affected


BLOCK = "purchase: {capacity-block: cr-0a1b2c3d4e5f60718, ends: 2027-03-01}"


@pytest.mark.parametrize(("bought", "ran"), [(BLOCK, True), ("purchase: {reservation: cr-0a1b2c3d4e5f60718}", False)])
@pytest.mark.parametrize("code", [0, 1])
def test_the_night_applies_what_the_day_changes_where_there_is_a_capacity_block(
    repository: Path, bought: str, ran: bool, code: int
) -> None:
    path = repository / "stacks" / "bank" / "environment.yaml"
    text = path.read_text("utf-8")
    old = "purchase: {reservation: cr-0a1b2c3d4e5f60718}"
    assert old in text
    path.write_text(text.replace(old, bought, 1), "utf-8")
    bin = repository.parent / "bin"
    bin.mkdir()
    (bin / "tenancy").write_text(f'#!/bin/sh\nprintf "%s " "$@" >>"{bin}/asked"\nexit {code}\n', "utf-8")
    (bin / "tenancy").chmod(0o755)
    result = run("hold", "bank", folder=repository, env={"PATH": f"{bin}:{os.environ['PATH']}"})
    called = (bin / "asked").read_text("utf-8").strip() if (bin / "asked").exists() else ""
    assert called == ("up stacks/bank" if ran else "")
    assert result.returncode == (code if ran else 0), "a run that fails is a job that fails"
    assert ran or "no capacity block" in result.stdout


@pytest.mark.parametrize(
    ("bought", "role", "is_reported"),
    [
        (BLOCK, "", True),
        (BLOCK, "arn:aws:iam::111122223333:role/holds", False),
        # The words alone, in a comment, are no capacity block.
        ("purchase: {reservation: cr-0a1b2c3d4e5f60718}  # was a capacity-block", "", False),
    ],
)
def test_a_capacity_block_without_the_role_of_holds_is_reported(
    repository: Path, bought: str, role: str, is_reported: bool
) -> None:
    path = repository / "stacks" / "bank" / "environment.yaml"
    text = path.read_text("utf-8")
    path.write_text(text.replace("purchase: {reservation: cr-0a1b2c3d4e5f60718}", bought), "utf-8")
    report = repository.parent / "bank.md"
    result = run("unheld.py", "bank", str(report), folder=repository, env={"TENANCY_HOLD_ROLE": role})
    assert (result.returncode, result.stderr) == (int(is_reported), "")
    report_text = report.read_text("utf-8") if report.exists() else ""
    assert ("capacity-block in train-a100, train-efa, and no TENANCY_HOLD_ROLE" in report_text) is is_reported


def test_both_forges_look_for_capacity_blocks_that_are_not_held() -> None:
    nightly = jobs(CI / "github" / "tenancy-drift.yaml")["drift"]["steps"][-1]
    assert nightly["env"]["TENANCY_HOLD_ROLE"] == "${{ vars.TENANCY_HOLD_ROLE }}", "GitLab hands over every variable"
    assert '"$(dirname "$0")/unheld.py" "$environment" "$report"' in (STEPS / "drift").read_text("utf-8")


def test_an_environment_that_there_is_not_has_no_night(repository: Path) -> None:
    result = run("hold", "bnak", folder=repository)
    assert (result.returncode, "an environment under stacks/" in result.stderr) == (2, True)


def test_holds_come_before_drift_is_looked_for_and_by_a_role_of_their_own() -> None:
    """An update under way looks like drift. A night without the role looks for drift all the same."""
    drift_jobs = jobs(CI / "github" / "tenancy-drift.yaml")
    assert drift_jobs["drift"]["needs"] == ["environments", "hold"]
    assert drift_jobs["drift"]["if"].startswith("!cancelled()")
    assert "vars.TENANCY_HOLD_ROLE != ''" in drift_jobs["hold"]["if"]
    assert drift_jobs["hold"]["concurrency"] == {
        "group": "tenancy-${{ matrix.environment }}",
        "cancel-in-progress": False,
    }
    pipeline = yaml.safe_load(GITLAB.read_text("utf-8"))
    assert pipeline["stages"].index("hold") < pipeline["stages"].index("nightly")
    assert pipeline["hold"]["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule" && $TENANCY_HOLD_ROLE'}]
    assert pipeline["nightly"]["rules"] == [{"if": '$CI_PIPELINE_SOURCE == "schedule"', "when": "always"}]


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with both example environments and one commit."""
    root = tmp_path_factory.mktemp("workflows") / "repository"
    (root / "stacks").mkdir(parents=True)
    subprocess.run(["cp", "-r", ROOT / "stacks" / "bank", ROOT / "stacks" / "local", root / "stacks"], check=True)
    (root / "__main__.py").write_text("", "utf-8")
    git(root, "init", "-q", "-b", "main")
    commit(root)
    return root


@pytest.fixture
def repository(committed: Path, tmp_path: Path) -> Path:
    return shutil.copytree(committed, tmp_path / "repository")


def git(root: Path, *words: str) -> str:
    author = ["-c", "user.name=t", "-c", "user.email=t@bank.example", "-c", "commit.gpgsign=false"]
    process = subprocess.run(["git", *author, *words], cwd=root, check=True, capture_output=True, text=True)
    return process.stdout.strip()


def commit(root: Path) -> str:
    git(root, "add", ".")
    git(root, "commit", "-qm", "next")
    return git(root, "rev-parse", "HEAD")


def edit(root: Path, name: str, old: str, new: str) -> None:
    path = root / "stacks" / name
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


FRAUD = "bank/tenants/fraud.yaml"
OF_FRAUD = ["first bank bank update", "tenants bank bank--fraud update"]
"""What has to run where the file of that tenant changes."""
NEW_TENANT = """\
tenant: {name}
team: {name}
owner: {{name: leads, mail: {name}@bank.example}}
department: risk
cost-center: CC-1
tier: batch
people:
  - {{group: {name}-engineers, role: developer}}
"""


def affected(root: Path, *words: str, **env: str) -> tuple[int, list[str], dict[str, Any], str]:
    """Exit code, lines, what a matrix gets, and what is said."""
    outputs = root.parent / "outputs"
    outputs.unlink(missing_ok=True)
    revisions = words or ("HEAD^1", "HEAD")
    result = run("affected", *revisions, "out", folder=root, env={"GITHUB_OUTPUT": str(outputs), **env})
    lists = dict(line.split("=", 1) for line in outputs.read_text("utf-8").splitlines()) if outputs.exists() else {}
    return result.returncode, result.stdout.splitlines(), {k: json.loads(v) for k, v in lists.items()}, result.stderr


def test_only_the_stacks_that_change_are_in_the_matrix(repository: Path) -> None:
    edit(repository, FRAUD, "guaranteed: 64", "guaranteed: 56")
    commit(repository)
    # A forge gives a variable that is not set as an empty one.
    code, lines, lists, _ = affected(repository, TENANCY_FAIL_ON="")
    assert (code, lines) == (0, OF_FRAUD)
    fraud_entry = {"environment": "bank", "stack": "bank--fraud", "operation": "update"}
    assert lists["tenants"] == [fraud_entry]
    assert lists["first"] == [{**fraud_entry, "stack": "bank"}]
    assert lists["last"] == []
    assert lists["all"] == lists["first"] + lists["tenants"]
    assert sorted(path.name for path in (repository / "out").iterdir()) == ["bank.json", "bank.md", "stacks"]
    assert "fraud: a100: guaranteed 64 → 56" in (repository / "out" / "bank.md").read_text("utf-8")


def test_a_tenant_that_goes_is_removed_last(repository: Path) -> None:
    (repository / "stacks/bank/tenants/voice.yaml").unlink()
    commit(repository)
    lists = affected(repository)[2]
    assert lists["last"] == [{"environment": "bank", "stack": "bank--voice", "operation": "delete"}]


def test_a_cluster_that_stands_comes_last(repository: Path) -> None:
    edit(repository, "bank/environment.yaml", "nodes: 72", "nodes: 73")
    commit(repository)
    assert [entry["stack"] for entry in affected(repository)[2]["last"]] == ["bank.cluster"]


def test_a_change_elsewhere_runs_nothing(repository: Path) -> None:
    (repository / "notes.txt").write_text("x", "utf-8")
    commit(repository)
    code, lines, lists, _ = affected(repository)
    assert (code, lines) == (0, [])
    assert lists == {"first": [], "tenants": [], "last": [], "all": []}
    assert [path.name for path in (repository / "out").iterdir()] == ["stacks"]


def test_another_program_runs_every_stack_and_the_comment_says_so(repository: Path) -> None:
    (repository / "__main__.py").write_text("pass\n", "utf-8")
    (repository / "stacks/bank/tenants/voice.yaml").unlink()
    commit(repository)
    _, lines, lists, _ = affected(repository)
    assert len(lists["tenants"]) == 14
    assert "last bank bank.cluster update" in lines
    assert "last bank bank--voice delete" in lines
    assert "first local local update" in lines
    assert "The program itself changes" in (repository / "out" / "local.md").read_text("utf-8")


def test_a_broken_rule_ends_it_with_1_and_is_in_the_comment(repository: Path) -> None:
    edit(repository, FRAUD, "a100: {guaranteed: 64", "a100: {guaranteed: 640")
    commit(repository)
    code, _, lists, _ = affected(repository)
    assert (code, lists["all"]) == (1, [])
    assert "pool-03: is broken" in (repository / "out" / "bank.md").read_text("utf-8")


@pytest.mark.parametrize(("policy", "code"), [("lost-guarantee", 1), ("wider-access new-exception", 0)])
def test_the_policy_is_the_repositorys(policy: str, code: int, repository: Path) -> None:
    edit(repository, FRAUD, "guaranteed: 64", "guaranteed: 56")
    commit(repository)
    assert affected(repository, TENANCY_FAIL_ON=policy)[0] == code


def test_a_new_branch_is_compared_with_its_first_commit(repository: Path) -> None:
    edit(repository, FRAUD, "guaranteed: 64", "guaranteed: 56")
    commit(repository)
    assert affected(repository, "0" * 40, "HEAD")[1] == OF_FRAUD


@pytest.mark.parametrize("words", [("nowhere", "HEAD"), ("HEAD", "nowhere")])
def test_a_revision_that_was_not_fetched_ends_it_with_2(words: tuple[str, str], repository: Path) -> None:
    code, _, lists, stderr = affected(repository, *words)
    assert (code, lists) == (2, {})
    assert "nowhere; rule: a revision; change: fetch it" in stderr


@pytest.mark.parametrize(
    ("tenants", "sharded"),
    [
        (200, 0),
        (201, 5),
        pytest.param(1000, 20, marks=pytest.mark.exhaustive(reason="1,000 tenants; `make test` has 200 and 201")),
    ],
)
def test_more_stacks_than_a_matrix_takes_are_shards_of_fifty(tenants: int, sharded: int, repository: Path) -> None:
    tenant_count = len(list((repository / "stacks/local/tenants").iterdir()))
    for number in range(tenants - tenant_count):
        path = repository / "stacks/local/tenants" / f"team-{number}.yaml"
        path.write_text(NEW_TENANT.format(name=f"team-{number}"), "utf-8")
    environment = repository / "stacks/local/environment.yaml"
    text = environment.read_text("utf-8").replace("  name: local\n", "  name: local\n  object-overcommit: 100\n")
    text = text.replace("object-overcommit: 100", "object-overcommit: 1000")
    environment.write_text(f"{text}stacks: per-tenant\n", "utf-8")
    commit(repository)
    code, lines, lists, stderr = affected(repository)
    assert code == 0, stderr
    names = [f"local.shard-{number}-of-{sharded}" for number in range(1, sharded + 1)]
    assert [entry["stack"] for entry in lists["tenants"] if "shard" in entry["stack"]] == names
    assert len(lists["tenants"]) == (sharded or tenants)
    assert [entry["stack"] for entry in lists["first"]] == ["local"], "the platform before its tenants"
    assert len(lists["all"]) <= 256
    assert sum(line.startswith("tenants ") for line in lines) == (sharded or tenants), "GitLab's jobs too"


@pytest.mark.parametrize(
    ("stack", "operation", "target"),
    [
        ("bank.shard-3-of-20", "update", "--shard 3/20"),
        ("bank--fraud", "update", "--stack bank--fraud"),
        ("bank--gone", "delete", ""),
    ],
)
@pytest.mark.parametrize("step", ["preview", "update"])
def test_a_job_runs_its_stack_or_its_shard(
    step: str, stack: str, operation: str, target: str, repository: Path
) -> None:
    bin = repository.parent / "bin"
    bin.mkdir()
    (bin / "tenancy").write_text(f'#!/bin/sh\nprintf "%s " "$@" >"{bin}/asked"\n', "utf-8")
    (bin / "tenancy").chmod(0o755)
    words = [*(["out"] if step == "preview" else [])]
    path = f"{bin}:{os.environ['PATH']}"
    result = run(step, "bank", stack, operation, *words, folder=repository, env={"PATH": path})
    assert result.returncode == 0, result.stderr
    ran = (bin / "asked").read_text("utf-8").split()
    assert " ".join(ran) == " ".join(f"up stacks/bank {'--preview' if step == 'preview' else ''} {target}".split())


def test_environments_are_listed_for_the_night(repository: Path) -> None:
    outputs = repository.parent / "outputs"
    result = run("environments", folder=repository, env={"GITHUB_OUTPUT": str(outputs)})
    assert result.stdout.split() == ["bank", "local"]
    assert outputs.read_text("utf-8") == 'list=["bank","local"]\n'


@pytest.mark.parametrize("name", ["a b", "a;id", "../x", "--lab", "$(id)", ""])
@pytest.mark.parametrize("step", ["preview", "update"])
def test_a_name_is_no_command_and_no_option(step: str, name: str, repository: Path) -> None:
    more = ("update", "out") if step == "preview" else ("update",)
    result = run(step, "local", name, *more, folder=repository)
    assert result.returncode == 2
    assert "rule: a name of an environment or a stack" in result.stderr


@pytest.mark.parametrize(
    ("environment", "expected"),
    [("bank", "eks update-kubeconfig --name bank --region eu-central-1 --alias bank\n"), ("local", "")],
)
def test_a_cluster_on_aws_gets_into_the_kubeconfig_and_no_other(
    environment: str, expected: str, repository: Path
) -> None:
    aws = repository.parent / "bin" / "aws"
    aws.parent.mkdir()
    aws.write_text('#!/bin/sh\necho "$@"\n', "utf-8")
    aws.chmod(0o755)
    path = f"{aws.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = run("connect", environment, folder=repository, env={"PATH": path})
    assert (result.returncode, result.stdout) == (0, expected), result.stderr


# Steps: GitLab's second pipeline

MERGE_REQUEST = {"CI_MERGE_REQUEST_IID": "7"}


def pipeline(root: Path, **env: str) -> dict[str, Any]:
    head = git(root, "rev-parse", "HEAD")
    base = git(root, "rev-parse", "HEAD^1")
    shas = {"CI_COMMIT_SHA": head, "CI_COMMIT_BEFORE_SHA": base, "CI_MERGE_REQUEST_DIFF_BASE_SHA": base}
    result = run("gitlab-affected", "out", folder=root, env={**shas, **env})
    assert result.returncode == 0, result.stderr
    return yaml.safe_load((root / "out" / "pipeline.yml").read_text("utf-8"))


def test_a_merge_request_previews_each_stack_and_comments_after_all(repository: Path) -> None:
    edit(repository, FRAUD, "guaranteed: 64", "guaranteed: 56")
    base = git(repository, "rev-parse", "HEAD")
    commit(repository)
    jobs_by_name = pipeline(repository, **MERGE_REQUEST)
    assert {name for name in jobs_by_name if name.startswith("stack ")} == {"stack bank", "stack bank--fraud"}
    job = jobs_by_name["stack bank--fraud"]
    assert job["variables"]["AWS_ROLE_ARN"] == "$TENANCY_PREVIEW_ROLE"
    assert job["id_tokens"] == {"AWS_TOKEN": {"aud": "sts.amazonaws.com"}}
    assert job["script"][-1] == 'ci/steps/preview "$ENVIRONMENT" "$STACK" "$OPERATION" previews'
    assert jobs_by_name["stages"].index(jobs_by_name["comment"]["stage"]) > jobs_by_name["stages"].index(job["stage"])
    assert base in jobs_by_name["comment"]["script"][0]
    assert_steps_of_ours(jobs_by_name)


def test_a_merge_updates_each_stack_in_its_stage_and_one_at_a_time(repository: Path) -> None:
    edit(repository, "bank/environment.yaml", "nodes: 72", "nodes: 73")
    edit(repository, FRAUD, "guaranteed: 64", "guaranteed: 56")
    commit(repository)
    jobs_by_name = pipeline(repository)
    stages = {name: job["stage"] for name, job in jobs_by_name.items() if name.startswith("stack ")}
    assert stages == {"stack bank": "first", "stack bank--fraud": "tenants", "stack bank.cluster": "last"}
    for name in stages:
        job = jobs_by_name[name]
        assert job["resource_group"] == f"tenancy-{name.removeprefix('stack ')}"
        assert job["variables"]["AWS_ROLE_ARN"] == "$TENANCY_UPDATE_ROLE"
        assert job["script"][-1] == 'ci/steps/update "$ENVIRONMENT" "$STACK" "$OPERATION"'
    assert "comment" not in jobs_by_name
    assert_steps_of_ours(jobs_by_name)


def test_a_merge_without_a_stack_is_a_pipeline_still(repository: Path) -> None:
    (repository / "notes.txt").write_text("x", "utf-8")
    commit(repository)
    assert pipeline(repository)["nothing"]["script"] == ["echo no stack has to run"]


def assert_steps_of_ours(jobs_by_name: dict[str, Any]) -> None:
    scripts = [job["script"] for name, job in jobs_by_name.items() if name.startswith("stack ")]
    for command in nonempty(command for script in scripts for command in script):
        assert (ROOT / re.findall(r"ci/steps/[\w.-]+", command)[0]).is_file()


# Steps: the forge


class Double(BaseHTTPRequestHandler):
    """Double of both forges: answers the requests of these tests and keeps them."""

    store: dict[str, list[dict[str, Any]]]
    requests: list[tuple[str, str, str]]
    refuses = False

    def _answer(self, code: int, body: Any) -> None:
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _handle(self) -> None:
        path, _, query = self.path.partition("?")
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        self.requests.append((self.command, path, self.headers.get("Authorization") or self.headers["PRIVATE-TOKEN"]))
        if self.refuses:
            self._answer(403, {"message": "Resource not accessible by integration"})
        elif path.endswith("/user"):
            self._answer(200, {"id": 5})
        elif self.command == "GET":
            page = int(dict(part.split("=") for part in query.split("&"))["page"])
            open_items = [item for item in self.store.get(path, []) if item.get("state", "open").startswith("open")]
            self._answer(200, open_items[(page - 1) * 100 : page * 100])
        elif self.command == "POST":
            number = sum(map(len, self.store.values())) + 1
            body |= {"id": number, "number": number, "iid": number}
            body |= {"user": {"login": "github-actions[bot]"}, "author": {"id": 5}, "state": "open"}
            self.store.setdefault(path, []).append(body)
            self._answer(201, body)
        else:
            where, _, number = path.rpartition("/")
            where = where if where in self.store else where.replace("/issues/comments", "/issues/7/comments")
            (stored_item,) = [item for item in self.store[where] if str(item["id"]) == number]
            stored_item |= body
            if stored_item.pop("state_event", "") == "close":
                stored_item["state"] = "closed"
            self._answer(200, stored_item)

    do_GET = do_POST = do_PATCH = do_PUT = _handle  # noqa: N815

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def forge(tmp_path: Path) -> Iterator[type[Double]]:
    class FreshDouble(Double):
        store: dict[str, list[dict[str, Any]]] = {}  # noqa: RUF012
        requests: list[tuple[str, str, str]] = []  # noqa: RUF012

    FreshDouble.store, FreshDouble.requests = {}, []
    server = ThreadingHTTPServer(("127.0.0.1", 0), FreshDouble)
    FreshDouble.root = f"http://127.0.0.1:{server.server_port}"  # type: ignore[attr-defined]
    (tmp_path / "work").mkdir()
    with answering(server):
        yield FreshDouble


def ask(forge: Any, kind: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    github = {"GITHUB_API_URL": forge.root, "GITHUB_REPOSITORY": "bank/gpus", "GITHUB_TOKEN": "gh"}
    gitlab = {"CI_API_V4_URL": forge.root, "CI_PROJECT_ID": "9", "GITLAB_TOKEN": "gl"}
    return run("forge.py", *words, folder=folder, env={**(github if kind == "github" else gitlab), "PULL_REQUEST": "7"})


COMMENTS = {"github": "/repos/bank/gpus/issues/7/comments", "gitlab": "/projects/9/merge_requests/7/notes"}
ISSUES = {"github": "/repos/bank/gpus/issues", "gitlab": "/projects/9/issues"}
BODY = {"github": "body", "gitlab": "description"}


@pytest.fixture
def comment_file(tmp_path: Path, forge: Any) -> Path:  # noqa: ARG001
    path = tmp_path / "work" / "bank.md"
    path.write_text("<!-- gpu-tenancy diff: bank -->\nfirst\n", "utf-8")
    return path


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_a_comment_is_made_once_and_then_written_anew_in_place(kind: str, forge: Any, comment_file: Path) -> None:
    assert ask(forge, kind, "comment", "bank.md", folder=comment_file.parent).stdout == "comment: created\n"
    comment_file.write_text("<!-- gpu-tenancy diff: bank -->\nsecond\n", "utf-8")
    assert ask(forge, kind, "comment", "bank.md", folder=comment_file.parent).stdout == "comment: updated\n"
    (comment,) = forge.store[COMMENTS[kind]]
    assert comment["body"].endswith("second")
    assert {token for *_, token in forge.requests} == {"Bearer gh" if kind == "github" else "gl"}


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_another_users_comment_with_the_same_line_stays(kind: str, forge: Any, comment_file: Path) -> None:
    foreign_comment = {
        "id": 1,
        "user": {"login": "mallory"},
        "author": {"id": 6},
        "body": comment_file.read_text("utf-8"),
    }
    forge.store[COMMENTS[kind]] = [dict(foreign_comment)]
    assert ask(forge, kind, "comment", "bank.md", folder=comment_file.parent).stdout == "comment: created\n"
    assert forge.store[COMMENTS[kind]][0] == foreign_comment
    assert len(forge.store[COMMENTS[kind]]) == 2


def test_a_comment_is_found_behind_a_hundred_others(forge: Any, comment_file: Path) -> None:
    others = [{"id": 1000 + n, "user": {"login": "jane"}, "body": "x"} for n in range(130)]
    own_comment = {"id": 5, "user": {"login": "github-actions[bot]"}, "body": comment_file.read_text("utf-8")}
    forge.store[COMMENTS["github"]] = [*others, own_comment]
    assert ask(forge, "github", "comment", "bank.md", folder=comment_file.parent).stdout == "comment: updated\n"


@pytest.mark.parametrize("kind", ["github", "gitlab"])
def test_an_issue_is_opened_written_anew_and_closed(kind: str, forge: Any, comment_file: Path) -> None:
    answers = [
        ask(forge, kind, word, "bank.md", folder=comment_file.parent).stdout
        for word in ("close", "issue", "issue", "close")
    ]
    assert answers == ["close: not found\n", "issue: created\n", "issue: updated\n", "close: closed\n"]
    (issue,) = forge.store[ISSUES[kind]]
    assert (issue["title"], issue["state"]) == ("gpu-tenancy diff: bank", "closed")
    assert issue[BODY[kind]].endswith("first")


def test_previews_are_folded_and_cannot_end_their_fence(forge: Any, comment_file: Path) -> None:
    (comment_file.parent / "bank--fraud.txt").write_text("```\n</details> @all\n", "utf-8")
    assert ask(forge, "github", "comment", "bank.md", "bank--fraud.txt", folder=comment_file.parent).returncode == 0
    body = forge.store[COMMENTS["github"]][0]["body"]
    assert "<summary>bank--fraud</summary>\n\n````\n```\n</details> @all\n````" in body


def test_a_body_is_no_longer_than_a_forge_takes_and_says_what_is_left_out(forge: Any, comment_file: Path) -> None:
    for number in range(6):
        (comment_file.parent / f"s{number}.txt").write_text("x" * 30_000, "utf-8")
    names = [f"s{number}.txt" for number in range(6)]
    assert ask(forge, "github", "comment", "bank.md", *names, folder=comment_file.parent).returncode == 0
    body = forge.store[COMMENTS["github"]][0]["body"]
    assert len(body) < 65_536
    assert "and 10000 characters more" in body
    assert "Left out for its length: s2, s3, s4, s5" in body


def test_a_token_without_the_right_ends_it_with_1(forge: Any, comment_file: Path) -> None:
    forge.refuses = True
    result = ask(forge, "github", "comment", "bank.md", folder=comment_file.parent)
    assert result.returncode == 1
    assert "403" in result.stderr
    assert "change: give the token the rights that docs/pull-requests.md names" in result.stderr


def test_a_job_of_no_forge_and_a_file_without_a_marker_are_refused(forge: Any, comment_file: Path) -> None:
    result = run("forge.py", "comment", "bank.md", folder=comment_file.parent, env={})
    assert result.returncode == 1
    assert "given no CI_API_V4_URL" in result.stderr
    comment_file.write_text("no marker", "utf-8")
    result = ask(forge, "github", "comment", "bank.md", folder=comment_file.parent)
    assert (result.returncode, forge.requests) == (1, [])
    assert "its first line is a marker" in result.stderr


def test_the_comment_of_a_pull_request_has_the_previews_of_its_environment_alone(forge: Any, repository: Path) -> None:
    edit(repository, FRAUD, "guaranteed: 64", "guaranteed: 56")
    edit(repository, "local/tenants/fraud.yaml", "guaranteed: 32", "guaranteed: 24")
    commit(repository)
    assert affected(repository)[0] == 0
    for stack in ("bank", "bank--fraud", "local"):
        (repository / "out" / f"{stack}.txt").write_text(f"preview of {stack}", "utf-8")
    env = {"GITHUB_API_URL": forge.root, "GITHUB_REPOSITORY": "bank/gpus", "GITHUB_TOKEN": "gh", "PULL_REQUEST": "7"}
    assert run("comment", "out", folder=repository, env=env).returncode == 0
    bank, local = (comment["body"] for comment in forge.store[COMMENTS["github"]])
    assert re.findall(r"preview of (\S+)", bank) == ["bank", "bank--fraud"]
    assert re.findall(r"preview of (\S+)", local) == ["local"]


def test_on_gitlab_a_broken_rule_is_commented_though_no_second_pipeline_runs(forge: Any, repository: Path) -> None:
    edit(repository, FRAUD, "a100: {guaranteed: 64", "a100: {guaranteed: 640")
    base = git(repository, "rev-parse", "HEAD")
    env = {"CI_MERGE_REQUEST_DIFF_BASE_SHA": base, "CI_COMMIT_SHA": commit(repository), **MERGE_REQUEST}
    gitlab = {"CI_API_V4_URL": forge.root, "CI_PROJECT_ID": "9", "GITLAB_TOKEN": "gl"}
    assert run("gitlab-affected", "out", folder=repository, env={**env, **gitlab}).returncode == 1
    (comment,) = forge.store[COMMENTS["gitlab"]]
    assert "pool-03: is broken" in comment["body"]


# Steps: images


@pytest.fixture
def manifests(tmp_path: Path) -> Path:
    """A tenant's manifests, and a scanner that finds what its exit code says."""
    (tmp_path / "bin").mkdir()
    scanner = tmp_path / "bin" / "trivy"
    scanner.write_text('#!/bin/sh\necho "$@" >>"$SCANNED"\nexit "${FINDS:-0}"\n', "utf-8")
    scanner.chmod(0o755)
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def job(*images: str) -> str:
    pods = [{"name": f"c{n}", "image": image} for n, image in enumerate(images)]
    spec = {"template": {"spec": {"initContainers": pods[1:], "containers": pods[:1]}}}
    return yaml.safe_dump({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": spec})


def scan(manifests: Path, **env: str) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    scanned = manifests.parent / "scanned"
    path = f"{manifests.parent / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    result = run("scan", "jobs.yaml", folder=manifests, env={"PATH": path, "SCANNED": str(scanned), **env})
    return result, scanned.read_text("utf-8").splitlines() if scanned.exists() else []


def test_every_image_is_scanned_once_by_its_digest(manifests: Path) -> None:
    first, second = f"registry.example/a@{DIGEST}", f"registry.example/b:1@{DIGEST}"
    (manifests / "jobs.yaml").write_text("---\n".join([job(first, second), job(first)]), "utf-8")
    result, scanned = scan(manifests)
    assert result.returncode == 0, result.stderr
    assert [line.split()[-1] for line in scanned] == [first, second]
    assert every("--severity HIGH,CRITICAL" in line and "--exit-code 1" in line for line in scanned)


def test_the_threshold_is_the_repositorys(manifests: Path) -> None:
    (manifests / "jobs.yaml").write_text(job(f"a@{DIGEST}"), "utf-8")
    assert "--severity CRITICAL" in scan(manifests, TENANCY_SCAN_SEVERITY="CRITICAL")[1][0]


def test_what_the_scanner_finds_ends_it_with_1(manifests: Path) -> None:
    (manifests / "jobs.yaml").write_text(job(f"a@{DIGEST}"), "utf-8")
    assert scan(manifests, FINDS="1")[0].returncode == 1


def test_an_image_without_its_digest_is_refused_and_the_others_are_scanned(manifests: Path) -> None:
    (manifests / "jobs.yaml").write_text(job("a:latest", f"b@{DIGEST}"), "utf-8")
    result, scanned = scan(manifests)
    assert result.returncode == 1
    assert "jobs.yaml:1: given image 'a:latest'; rule: an image is named by its digest" in result.stderr
    assert len(scanned) == 1


def test_manifests_that_are_not_there_or_cannot_be_read_end_it_with_2(manifests: Path) -> None:
    assert scan(manifests)[0].returncode == 2
    (manifests / "jobs.yaml").write_text("{", "utf-8")
    assert scan(manifests)[0].returncode == 2


def test_without_a_scanner_nothing_passes(manifests: Path) -> None:
    (manifests / "jobs.yaml").write_text(job(f"a@{DIGEST}"), "utf-8")
    (manifests.parent / "bin" / "trivy").unlink()
    result, _ = scan(manifests)
    assert result.returncode == 2
    assert "given no trivy on PATH" in result.stderr
