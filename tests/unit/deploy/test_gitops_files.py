"""Files for Argo CD, Flux and Pulumi's operator: their order, objects that stay, and errors of a bad call."""

from __future__ import annotations

import re
import shlex
import subprocess
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tenancy import planning
from tenancy.cli import main
from tenancy.deploy.gitops import GitOpsSource, GitOpsTool, argo, rendered
from tenancy.deploy.gitops.argo import COMPARE, SYNC, WAVE, application_bytes
from tenancy.deploy.gitops.flux import PRUNE_ANNOTATION, SHARD
from tenancy.kube import quantities
from tenancy.lab import tools
from tenancy.planning import Plan, make_plan
from tenancy.planning.render import file_texts
from tenancy.spec.fields.environment import Layout
from tenancy.spec.loader import Loaded, load
from tests.conftest import SpecFolder, documents, every, nonempty, unreserved

BANK = Path(__file__).parents[3] / "stacks" / "bank"
LOCAL = BANK.with_name("local")
ENGINE_BYTES = 450 * 2**20
"""Memory of engine, provider, program and pack of one stack, measured: docs/gitops.md."""
IMAGE = f"registry.bank.example/shared/tenancy-ci@sha256:{'0' * 64}"
REPO = ("--repo", "https://x.example/y")
SOURCE = GitOpsSource(
    "https://git.bank.example/gpus", "rendered/bank", "main", IMAGE, "bank", role="arn:aws:iam::1:role/x"
)


@pytest.fixture(scope="module")
def bank() -> Loaded:
    return load(BANK)


@pytest.fixture(scope="module")
def plan(bank: Loaded) -> Plan:
    return make_plan(bank, bank.day)


_OBJECTS: dict[tuple[int, GitOpsTool, GitOpsSource], tuple[Plan, dict[str, list[dict[str, Any]]]]] = {}
"""By the identity of a plan, beside the plan itself: while it lives, no other gets its identity."""


def objects(plan: Plan, tool: GitOpsTool, source: GitOpsSource = SOURCE) -> dict[str, list[dict[str, Any]]]:
    """Objects by file. Tests share them, and change none."""
    key = (id(plan), tool, source)
    if key not in _OBJECTS:
        file_texts = rendered(plan, Layout.PER_TENANT, tool, source)
        _OBJECTS[key] = plan, {p: documents(text) for p, text in file_texts.items() if p.endswith(".yaml")}
    return _OBJECTS[key][1]


def of_cluster(files: dict[str, list[dict[str, Any]]]) -> list[tuple[str, dict[str, Any]]]:
    return [(path, i) for path, items in files.items() if path.startswith(("platform/", "tenants/")) for i in items]


TOOLS_OWN = {WAVE, SYNC, COMPARE, PRUNE_ANNOTATION}


def key(item: dict[str, Any]) -> tuple[str, str, str]:
    return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]


def plain(item: dict[str, Any]) -> dict[str, Any]:
    """Without what the tools read."""
    own_annotations = {k: v for k, v in item["metadata"].get("annotations", {}).items() if k not in TOOLS_OWN}
    metadata = {k: v for k, v in item["metadata"].items() if k != "annotations"} | (
        {"annotations": own_annotations} if own_annotations else {}
    )
    return {**item, "metadata": metadata}


@pytest.mark.parametrize("tool", list(GitOpsTool))
def test_the_objects_are_those_of_a_plain_rendering(tool: GitOpsTool, plan: Plan) -> None:
    usual = {path: documents(text) for path, text in file_texts(plan).items()}
    expected = {key(item): plain(item) for _, item in of_cluster(usual)}
    assert {key(item): plain(item) for _, item in of_cluster(objects(plan, tool))} == expected


def waves(plan: Plan) -> dict[str, set[int]]:
    waves_by_kind: dict[str, set[int]] = {}
    for path, item in of_cluster(objects(plan, GitOpsTool.ARGO)):
        part = "tenants" if path.startswith("tenants/") else "platform"
        waves_by_kind.setdefault(f"{part} {item['kind']}", set()).add(int(item["metadata"]["annotations"][WAVE]))
    return waves_by_kind


def test_all_of_the_platform_is_before_any_tenant_and_bindings_are_last(plan: Plan) -> None:
    waves_by_kind = waves(plan)
    tenants = {kind: n for kind, ns in waves_by_kind.items() if kind.startswith("tenants ") for n in ns}
    platform = [n for kind, ns in waves_by_kind.items() if kind.startswith("platform ") for n in ns]
    assert max(platform) < min(tenants.values())
    guards = (
        waves_by_kind["platform ValidatingAdmissionPolicy"] | waves_by_kind["platform ValidatingAdmissionPolicyBinding"]
    )
    assert max(guards) < min(waves_by_kind["tenants Namespace"])
    (last,) = waves_by_kind["tenants RoleBinding"]
    assert {kind for kind, n in tenants.items() if n >= last} == {"tenants RoleBinding", "tenants ServiceAccount"}
    assert max(waves_by_kind["tenants Namespace"]) < min(waves_by_kind["tenants NetworkPolicy"])


WALLS = {"Namespace", "ResourceQuota", "LimitRange", "NetworkPolicy default-deny", "ServiceAccount default"}
LISTED_BY_NAME = {"NetworkPolicy", "ServiceAccount"}
CLUSTER_POLICY = "CiliumClusterwideNetworkPolicy"
STAYS = pytest.mark.parametrize(
    ("tool", "annotation", "value"),
    [(GitOpsTool.ARGO, SYNC, "Prune=false,Delete=false"), (GitOpsTool.FLUX, PRUNE_ANNOTATION, "disabled")],
)


@STAYS
def test_guards_and_cluster_policies_stay_when_a_file_of_the_platforms_goes(
    tool: GitOpsTool, annotation: str, value: str, plan: Plan
) -> None:
    items = [item for path, item in of_cluster(objects(plan, tool)) if path.startswith("platform/")]
    isolation_resources = [
        i for i in items if i["kind"].startswith("ValidatingAdmissionPolicy") or i["kind"] == CLUSTER_POLICY
    ]
    assert len(isolation_resources) == len(
        [*plan.platform.guards, *plan.platform.readiness_probe, *plan.platform.cluster_policies]
    )
    for item in isolation_resources:
        name = f"{item['kind']} {item['metadata']['name']}"
        assert item["metadata"].get("annotations", {}).get(annotation) == value, f"{name} would be pruned"


@STAYS
def test_isolation_stay_when_a_file_goes_and_access_bindings_do_not(
    tool: GitOpsTool, annotation: str, value: str, plan: Plan
) -> None:
    items = [item for path, item in of_cluster(objects(plan, tool)) if path.startswith("tenants/")]
    kept_objects = [item for item in items if annotation in item["metadata"].get("annotations", {})]
    assert {item["metadata"]["annotations"][annotation] for item in kept_objects} == {value}
    kept_names = {
        f"{i['kind']} {i['metadata']['name']}" if i["kind"] in LISTED_BY_NAME else i["kind"] for i in kept_objects
    }
    assert kept_names == {*WALLS, CLUSTER_POLICY}
    fences = [item for item in kept_objects if item["kind"] == CLUSTER_POLICY]
    assert len(fences) == sum(len(tenant.cluster_policies) for tenant in plan.tenants)
    once = [
        item for item in kept_objects if item["kind"] != CLUSTER_POLICY and "scopeSelector" not in item.get("spec", {})
    ]
    assert len(once) == sum(item["kind"] == "Namespace" for item in items) * len(WALLS)
    assert every(item["kind"] != "RoleBinding" for item in kept_objects)


def test_what_stays_of_a_tenant_does_not_count_as_out_of_sync_for_argo(plan: Plan) -> None:
    for _, item in nonempty(of_cluster(objects(plan, GitOpsTool.ARGO))):
        notes = item["metadata"]["annotations"]
        assert (notes.get(COMPARE) == "IgnoreExtraneous") is (SYNC in notes), key(item)


def test_argo_may_make_what_is_rendered_and_nothing_else(plan: Plan) -> None:
    files = objects(plan, GitOpsTool.ARGO)
    project, application = files["gitops/argo.yaml"]
    assert application["spec"]["project"] == project["metadata"]["name"] == "bank"
    may = {tuple(allowance.values()) for name in ("clusterResourceWhitelist", "namespaceResourceWhitelist")
           for allowance in project["spec"][name]}  # fmt: skip
    assert may == {(i["apiVersion"].rpartition("/")[0], i["kind"]) for _, i in of_cluster(files)}
    assert project["spec"]["sourceRepos"] == [SOURCE.repository]
    assert "finalizers" not in application["metadata"], "who deletes the Application deletes no tenant"
    assert application["spec"]["source"]["path"] == "rendered/bank"


def test_more_objects_than_an_application_can_keep_are_refused_with_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(LOCAL)
    plan = make_plan(loaded, loaded.day)
    size = application_bytes(plan.objects())
    for limit, code in ((size, 0), (size - 1, 2)):
        monkeypatch.setattr(argo, "ETCD_REQUEST", limit)
        result = run("--out", tmp_path / str(limit), "--gitops", "argo", *REPO)
        assert result.exit_code == code, result.output
    assert f"given {len(plan.tenants)} tenants and one Application of Argo CD" in result.stderr
    assert not (tmp_path / str(size - 1)).exists()
    assert run("--out", tmp_path / "flux", "--gitops", "flux", *REPO).exit_code == 0
    number = re.findall(r"change: --shards (\d+)", result.stderr)[0]
    result = run("--out", tmp_path / "shards", "--gitops", "argo", *REPO, "--shards", number)
    assert result.exit_code == 0, "as many as the message says suffice"
    monkeypatch.setattr(argo, "ETCD_REQUEST", application_bytes(plan.platform.objects()) - 1)
    result = run("--out", tmp_path / "none", "--gitops", "argo", *REPO, "--shards", number)
    assert result.exit_code == 2
    assert "change: another tool, or several environments" in result.stderr


def sharded(plan: Plan, tool: GitOpsTool, shards: int, *, prune: bool = True) -> dict[str, list[dict[str, Any]]]:
    return objects(plan, tool, replace(SOURCE, shards=shards, prune=prune))


def test_each_tenant_is_in_one_application_of_argos_and_the_platform_in_its_own(plan: Plan) -> None:
    files = sharded(plan, GitOpsTool.ARGO, 3)
    _, *applications = files["gitops/argo.yaml"]
    folders = {item["metadata"]["name"]: item["spec"]["source"]["path"] for item in applications}
    of_shards = {f"bank.shard-{n}": f"rendered/bank/shards/shard-{n}" for n in (1, 2, 3)}
    assert folders == {"bank.platform": "rendered/bank/platform", **of_shards}
    usual, sharded_tenants = objects(plan, GitOpsTool.ARGO), {}
    for path, items in nonempty(files.items()):
        part, _, shard_path = path.partition("/")
        if part == "shards":
            sharded_tenants["tenants/" + shard_path.partition("/")[2]] = items
        else:
            assert part in {"platform", "gitops"} or usual[path] == items
    assert sharded_tenants == {path: items for path, items in usual.items() if path.startswith("tenants/")}
    empty = {item["metadata"]["name"]: item["spec"]["syncPolicy"]["automated"]["allowEmpty"] for item in applications}
    assert empty == {"bank.platform": False, **dict.fromkeys(of_shards, True)}


def test_argos_applications_stay_as_they_are_when_tenants_come_and_go(plan: Plan) -> None:
    fewer = replace(plan, tenants=[tenant for tenant in plan.tenants if tenant.name == "fraud"])
    fewer_files, all_of = sharded(fewer, GitOpsTool.ARGO, 9), sharded(plan, GitOpsTool.ARGO, 9)
    assert fewer_files["gitops/argo.yaml"][1:] == all_of["gitops/argo.yaml"][1:]
    files_of_fraud = {path: items for path, items in all_of.items() if "/fraud/" in path}
    assert files_of_fraud == {path: items for path, items in fewer_files.items() if path.startswith("shards/")}, (
        "in the same place"
    )
    source = replace(SOURCE, shards=9)
    texts = rendered(fewer, Layout.PER_TENANT, GitOpsTool.ARGO, source)
    assert {f"shards/shard-{n}/README.md" for n in range(1, 10)} < texts.keys(), "git keeps no empty folder"


@pytest.mark.parametrize("shards", [None, 3])
def test_another_number_of_argos_applications_needs_that_none_prunes(shards: int | None, tmp_path: Path) -> None:
    def render(number: int | None, *more: str) -> Result:
        words = ("--shards", number) if number else ()
        return run("--out", tmp_path / "out", "--gitops", "argo", *REPO, *words, *more)

    assert render(shards).exit_code == 0
    first_content = (tmp_path / "out" / "gitops" / "argo.yaml").read_bytes()
    for more in ((), ("--no-prune",)):
        result = render(4, *more)
        assert result.exit_code == 2, "the former ones prune"
        assert "rule: none may prune while tenants move to another one" in result.stderr
    assert (tmp_path / "out" / "gitops" / "argo.yaml").read_bytes() == first_content
    assert render(shards, "--no-prune").exit_code == 0
    assert render(4).exit_code == 2, "the next ones prune"
    assert render(4, "--no-prune").exit_code == 0
    assert render(4).exit_code == 0, "now all tenants are where they stay"


def test_the_number_of_argos_applications_is_not_guessed_from_a_damaged_file(tmp_path: Path) -> None:
    words = ("--out", tmp_path / "out", "--gitops", "argo", *REPO)
    assert run(*words).exit_code == 0
    file = tmp_path / "out" / "gitops" / "argo.yaml"
    file.write_text(file.read_text("utf-8").replace("kind: Application\n", "kind: [\n"), "utf-8")
    assert run(*words).exit_code == 2
    assert run(*words, "--no-prune").exit_code == 0


def test_fluxs_shards_are_labels_of_tenants_kustomizations_and_change_nothing_else(plan: Plan) -> None:
    usual, files = objects(plan, GitOpsTool.FLUX), deepcopy(sharded(plan, GitOpsTool.FLUX, 3))
    shard = {}
    for item in files["gitops/flux.yaml"]:
        if labels := item["metadata"].pop("labels", {}):
            assert labels.keys() == {SHARD}
            shard[item["metadata"]["name"]] = labels[SHARD]
    assert files == usual
    assert shard.keys() == {f"bank--{name}.{part}" for name in plan.names for part in ("isolation", "access")}
    assert every(shard[f"bank--{name}.isolation"] == shard[f"bank--{name}.access"] for name in plan.names)
    assert {*shard.values()} == {"shard-1", "shard-2", "shard-3"}


def test_roles_come_after_the_guards_so_that_no_binding_gives_anything_before_them(plan: Plan) -> None:
    waves_by_kind = waves(plan)
    guards = (
        waves_by_kind["platform ValidatingAdmissionPolicy"] | waves_by_kind["platform ValidatingAdmissionPolicyBinding"]
    )
    assert max(guards) < min(waves_by_kind["platform ClusterRole"])
    roles = {item["metadata"]["name"] for _, item in of_cluster(objects(plan, GitOpsTool.ARGO))
             if item["kind"] == "ClusterRole"}  # fmt: skip
    bound = {item["roleRef"]["name"] for path, item in of_cluster(objects(plan, GitOpsTool.ARGO))
             if item["kind"] == "RoleBinding" and path.startswith("tenants/")}  # fmt: skip
    assert bound
    assert bound <= roles


def test_flux_waits_for_the_platform_and_for_a_tenants_isolation(plan: Plan) -> None:
    files = objects(plan, GitOpsTool.FLUX)
    specs = {
        item["metadata"]["name"]: item["spec"] for item in files["gitops/flux.yaml"] if item["kind"] == "Kustomization"
    }
    assert len(specs) == 1 + 2 * len(plan.tenants)
    after = {name: [dependency["name"] for dependency in spec.get("dependsOn", [])] for name, spec in specs.items()}
    assert after["bank.platform"] == []
    assert after["bank--fraud.isolation"] == ["bank.platform"]
    assert after["bank--fraud.access"] == ["bank--fraud.isolation"]
    assert every(spec["wait"] for spec in specs.values())
    folders = {path.rpartition("/")[0] for path in files if path.startswith(("platform/", "tenants/"))}
    assert {spec["path"].removeprefix("./rendered/bank/") for spec in specs.values()} == folders
    bindings = {path for path, item in of_cluster(files) if item["kind"] == "RoleBinding"}
    assert {path.split("/")[2] for path in bindings} == {"access"}


def test_the_operator_has_a_stack_for_each_and_tenants_wait_for_the_platform(plan: Plan) -> None:
    stacks = {item["spec"]["stack"]: item for item in objects(plan, GitOpsTool.OPERATOR)["gitops/stacks.yaml"]}
    assert len(stacks) == 2 + len(plan.tenants)
    after = {
        name: [prerequisite["name"] for prerequisite in item["spec"].get("prerequisites", [])]
        for name, item in stacks.items()
    }
    assert after["bank/gpu-tenancy/bank.cluster"] == []
    assert after["bank/gpu-tenancy/bank"] == ["bank---cluster"]
    assert after["bank/gpu-tenancy/bank--fraud"] == ["bank"]
    for item in stacks.values():
        assert item["spec"]["envRefs"]["PULUMI_OPTION_POLICY_PACK"]["literal"]["value"] == "policy"
        # It refreshes first, and would end at a field that another manager owns.
        assert item["spec"]["envRefs"]["PULUMI_K8S_ENABLE_PATCH_FORCE"]["literal"]["value"] == "true"
        assert item["spec"]["destroyOnFinalize"] is False
        workspace = item["spec"]["workspaceTemplate"]["spec"]
        assert workspace["image"] == IMAGE
        assert quantities.parse(workspace["resources"]["requests"]["memory"]) >= ENGINE_BYTES
        assert item["spec"]["workspaceReclaimPolicy"] == "Delete", "a pod that stays keeps its request"


@pytest.mark.parametrize("backend", ["", "s3://bank-pulumi-state?region=eu-central-1"])
def test_a_stack_reads_its_variables_as_the_operator_does(backend: str, plan: Plan) -> None:
    source = GitOpsSource("https://git.bank.example/gpus", image=IMAGE, backend=backend)
    for item in nonempty(objects(plan, GitOpsTool.OPERATOR, source)["gitops/stacks.yaml"]):
        for reference in item["spec"]["envRefs"].values():
            assert reference.keys() == {"type", reference["type"].lower()}
        assert ("PULUMI_ACCESS_TOKEN" in item["spec"]["envRefs"]) is not bool(backend)


def preview(plan: Plan, branch: str, *stacks: str) -> list[Any]:
    source = replace(SOURCE, revision=branch, preview=True, stacks=stacks)
    return objects(plan, GitOpsTool.OPERATOR, source)["gitops/stacks.yaml"]


def test_a_stack_of_a_pull_request_previews_each_commit_once_and_waits_for_no_other(plan: Plan) -> None:
    updates = {item["spec"]["stack"]: item for item in objects(plan, GitOpsTool.OPERATOR)["gitops/stacks.yaml"]}
    previews = preview(plan, "topic/more-gpus")
    assert [item["spec"]["stack"] for item in previews] == list(updates)
    for item in previews:
        spec, update = item["spec"], updates[item["spec"]["stack"]]["spec"]
        assert (spec["preview"], spec["branch"], spec["continueResyncOnCommitMatch"]) == (
            True,
            "topic/more-gpus",
            False,
        )
        assert "prerequisites" not in spec
        assert spec["destroyOnFinalize"] is False, "its end ends no tenant"
        assert spec["envRefs"] == update["envRefs"], "with the pack"
        assert "preview" not in update


def test_stacks_of_two_pull_requests_and_of_the_main_branch_have_names_of_their_own(plan: Plan) -> None:
    of_main = objects(plan, GitOpsTool.OPERATOR)["gitops/stacks.yaml"]
    stacks = [*of_main, *preview(plan, "topic/a"), *preview(plan, "topic-a")]
    names = [item["metadata"]["name"] for item in stacks]
    assert len(set(names)) == 3 * len(of_main)
    assert max(len(f"{name}-workspace-0") for name in names) <= 63


def test_a_pull_request_previews_the_stacks_that_it_names(plan: Plan) -> None:
    previewed = preview(plan, "topic", "bank--fraud", "bank")
    assert [item["spec"]["stack"] for item in previewed] == ["bank/gpu-tenancy/bank", "bank/gpu-tenancy/bank--fraud"]


def test_names_are_as_long_as_the_tools_take_and_stay_apart(bank: Loaded) -> None:
    long = unreserved(bank.environment).model_copy(update={"environment": "e" * 31})
    tenants = [t.model_copy(update={"tenant": "t" * 29 + end}) for t, end in zip(bank.tenants, "ab", strict=False)]
    wide = planning.plan(long, tenants)
    kustomizations = [i["metadata"]["name"] for i in objects(wide, GitOpsTool.FLUX)["gitops/flux.yaml"]]
    stack_names = [i["metadata"]["name"] for i in objects(wide, GitOpsTool.OPERATOR)["gitops/stacks.yaml"]]
    assert max(map(len, kustomizations)) <= 63
    assert max(len(f"{name}-workspace-0") for name in stack_names) <= 63
    assert len(set(stack_names)) == 4
    assert len(set(kustomizations)) == 6
    assert every(re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name) for name in stack_names)


def test_deployments_are_set_by_flags_that_the_engine_has(plan: Plan) -> None:
    text = rendered(plan, Layout.PER_TENANT, GitOpsTool.DEPLOYMENTS, SOURCE)["gitops/deployments.sh"]
    help_text = subprocess.run(
        [tools.ensure(only=["pulumi"])["pulumi"], "deployment", "settings", "edit", "--help"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    calls = [shlex.split(line) for line in text.splitlines() if line.startswith("pulumi ")]
    assert len(calls) == 2 + len(plan.tenants)
    for call in calls:
        assert call[:4] == ["pulumi", "deployment", "settings", "edit"]
        flags = [word for word in call if word.startswith("--")]
        assert [flag for flag in flags if not re.search(rf"{flag}\b", help_text)] == []
        assert "PULUMI_OPTION_POLICY_PACK=policy" in call
    assert calls[-1][calls[-1].index("--stack") + 1] == "bank/gpu-tenancy/bank--voice"


# The command


def run(*words: object, folder: Path = LOCAL) -> Result:
    result = CliRunner().invoke(main, ["render", str(folder), *map(str, words)])
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is given"
    return result


def test_a_folder_changes_from_one_tool_to_another_and_keeps_nothing_of_the_first(tmp_path: Path) -> None:
    for tool in ("argo", "flux"):
        assert run("--out", tmp_path / "out", "--gitops", tool, "--repo", "https://x.example/y").exit_code == 0
    assert {path.name for path in (tmp_path / "out" / "gitops").iterdir()} == {"flux.yaml"}
    assert not (tmp_path / "out/tenants/fraud/20-access.yaml").exists()
    assert run("--out", tmp_path / "out").exit_code == 0
    assert not (tmp_path / "out" / "gitops").exists()


def test_the_same_spec_is_the_same_bytes(plan: Plan) -> None:
    for tool in GitOpsTool:
        assert rendered(plan, Layout.PER_TENANT, tool, SOURCE) == rendered(plan, Layout.PER_TENANT, tool, SOURCE)


@pytest.mark.parametrize(
    ("words", "message_part"),
    [
        (("--gitops", "argo"), "given --gitops argo without --repo"),
        (("--repo", "https://x.example/y"), "given --repo without --gitops"),
        (("--gitops", "operator", "--repo", "x"), "rule: an image by digest"),
        (("--gitops", "operator", "--repo", "x", "--image", "a:latest"), "given --image 'a:latest'"),
        (("--gitops", "deployments", "--repo", "x"), "given --gitops deployments without --organization"),
        (("--gitops", "jenkins", "--repo", "x"), "jenkins"),
        (("--gitops", "flux", "--repo", "x", "--preview"), "given --preview; rule: it is for --gitops operator"),
        (("--gitops", "operator", *REPO, "--image", IMAGE, "--shards", "2"), "rule: it is for --gitops argo or flux"),
        (("--shards", "2"), "given --shards 2; rule"),
        (("--gitops", "argo", *REPO, "--shards", "1"), "1 is not in the range 2<=x<=1000"),
        (("--gitops", "flux", *REPO, "--no-prune"), "given --no-prune; rule: it is for --gitops argo"),
        (
            ("--gitops", "operator", "--repo", "x", "--image", IMAGE, "--stack", "bank"),
            "given --stack without --preview",
        ),
        (
            ("--gitops", "operator", "--repo", "x", "--image", IMAGE, "--preview", "--stack", "local--ghost"),
            "given --stack local--ghost; rule: a stack of local; change: use one of local",
        ),
    ],
)
def test_a_bad_call_ends_with_2_and_writes_nothing(words: tuple[str, ...], message_part: str, tmp_path: Path) -> None:
    result = run("--out", tmp_path / "out", *words)
    assert result.exit_code == 2
    assert message_part in result.stderr
    assert not (tmp_path / "out").exists()


def test_that_no_tool_asks_what_the_cluster_runs_is_said_where_guards_would_refuse_it(tmp_path: Path) -> None:
    repo = ("--repo", "https://x.example/y")
    sentence = "the tool does not ask what the cluster runs"
    for tool in ("argo", "flux"):
        assert sentence in run("--out", tmp_path / tool, "--gitops", tool, *repo).stderr
    operator = run("--out", tmp_path / "operator", "--gitops", "operator", *repo, "--image", IMAGE)
    assert (operator.exit_code, sentence in operator.stderr) == (0, False), "it runs the program, which asks"
    small = SpecFolder(tmp_path / "small")
    small.edit("environment.yaml", "environment: small\n", "environment: small\nguards: audit\n")
    command = ["render", str(small.path), "--out", str(tmp_path / "out"), "--gitops", "argo", *repo]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, sentence in result.stderr) == (0, False), "guards that warn stop nothing"


def test_what_a_tool_does_not_make_on_aws_is_said_where_there_is_something(tmp_path: Path) -> None:
    repo = ("--repo", "https://x.example/y")
    sentence = "the tool creates Kubernetes objects only"
    assert sentence in run("--out", tmp_path / "argo", "--gitops", "argo", *repo, folder=BANK).stderr
    operator = run("--out", tmp_path / "all", "--gitops", "operator", *repo, "--image", IMAGE, folder=BANK)
    assert sentence not in operator.stderr
    small = SpecFolder(tmp_path / "small")
    command = ["render", str(small.path), "--out", str(tmp_path / "out"), "--gitops", "argo", *repo]
    result = CliRunner().invoke(main, command)
    assert (result.exit_code, sentence in result.stderr) == (0, False)
