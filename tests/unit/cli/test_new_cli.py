"""`tenancy new`: the file that it writes is what was asked for, and nothing else is written, ever."""

from __future__ import annotations

import os
import pty
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.catalog import vocabulary
from tenancy.catalog.text import is_shown
from tenancy.cli import main, new
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.reading.source import compose, values
from tenancy.spec.reading.writing import tenant_text
from tests.aws_cases import ON_AWS
from tests.conftest import SpecFolder, examples

WHO = ("--owner", "scoring-leads", "--mail", "scoring@bank.example")
NEEDED = (*WHO, "--department", "research", "--cost-center", "CC-9200", "--tier", "batch")
FILE = "tenants/scoring.yaml"


OTHER_NOTES = ("is reported", "alerts on budgets", "a strict department")


def run(*words: object, input: str | None = None) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words], input=input)
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is typed"
    return result


def make(spec: SpecFolder, *options: object, name: str = "scoring") -> Result:
    return run("new", name, spec.path, *NEEDED, *options)


def new_tenant(spec: SpecFolder, *options: object) -> Tenant:
    result = make(spec, *options)
    lines = [line for line in result.stderr.splitlines() if not any(rule in line for rule in OTHER_NOTES)]
    assert (result.exit_code, lines) == (0, [])
    return next(tenant for tenant in spec.load().tenants if tenant.tenant == "scoring")


def files(spec: SpecFolder) -> dict[str, bytes]:
    return {str(path.relative_to(spec.path)): path.read_bytes() for path in spec.path.rglob("*") if path.is_file()}


# What is written


def test_the_shortest_command_makes_a_tenant_that_validates(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "  serve:\n", "  cpu: {instance-type: m7i.4xlarge, nodes: 1}\n  serve:\n")
    tenant = new_tenant(spec)
    assert (tenant.owner.name, tenant.department, tenant.tier, tenant.team) == (
        *("scoring-leads", "research", "batch"),
        "scoring",
    )


def test_options_are_what_the_file_says(spec: SpecFolder) -> None:
    tenant = new_tenant(
        spec,
        *("--title", "Scoring: of cards, and more", "--team", "cards"),
        *("--namespace", "train", "--namespace", "serve=production"),
        *("--group", "scoring=engineers=developer", "--group", "auditors=viewer"),
        *("--gpu", "a100=4", "--lend", "a100=3", "--borrow", "a100=6"),
        *("--storage", "datasets/teams/scoring/=read-write", "--storage", "datasets/shared/"),
    )
    expected = {
        "tenant": "scoring",
        "title": "Scoring: of cards, and more",
        "team": "cards",
        "owner": {"name": "scoring-leads", "mail": "scoring@bank.example"},
        "department": "research",
        "cost-center": "CC-9200",
        "tier": "batch",
        "namespaces": ["train", {"name": "serve", "tier": "production"}],
        "people": [{"group": "scoring=engineers", "role": "developer"}, {"group": "auditors", "role": "viewer"}],
        "gpus": {"a100": {"guaranteed": 4, "sharing": "lend-and-borrow", "lending-limit": 3, "borrowing-limit": 6}},
        "storage": [
            {"bucket": "datasets", "prefix": "teams/scoring/", "access": "read-write"},
            {"bucket": "datasets", "prefix": "shared/"},
        ],
    }
    assert tenant == Tenant.model_validate(expected)


@pytest.mark.parametrize(("options", "note_count"), [(("--storage", "datasets/teams/scoring/"), 1), ((), 0)])
def test_who_asks_for_a_bucket_that_it_has_no_way_to_is_told(
    spec: SpecFolder, options: tuple[str, ...], note_count: int
) -> None:
    spec.edit("environment.yaml", "  cni: vpc-cni\n", ON_AWS)
    result = make(spec, *options)
    assert result.exit_code == 0
    assert result.stderr.count("aws.network.aws-service-cidrs:") == note_count
    assert result.stderr.count("given none, and grants of buckets to scoring, who") == note_count


def test_who_asks_for_no_gpus_where_all_machines_have_some_is_told(spec: SpecFolder) -> None:
    result = make(spec)
    assert result.exit_code == 0
    assert "scoring--main, which has no GPUs and which no CPU-only pool admits" in result.stderr


TO_COME = """\
  efa: {instance-type: p4d.24xlarge, nodes: 1, efa: true, zones: [eu-central-1a], tenants: [llm]}
  slices: {instance-type: g6.12xlarge, nodes: 1, gpu-sharing: {time-slicing: 4}, tenants: [vision]}
  serve:
"""


@pytest.mark.parametrize("order", [("llm", "vision"), ("vision", "llm")])
def test_pools_that_must_name_a_tenant_come_before_their_tenants_in_any_order(
    spec: SpecFolder, order: tuple[str, str]
) -> None:
    spec.edit("environment.yaml", "  serve:\n", TO_COME)
    gpus = {"llm": "a100=8", "vision": "l4-shared=4"}
    for added_count, name in enumerate(order):
        validated = run("validate", spec.path)
        assert validated.exit_code == 0
        missing = order[added_count:]
        assert validated.stderr.count("which has no file yet") == len(missing)
        for missing_tenant in missing:
            assert f"given tenant '{missing_tenant}', which has no file yet" in validated.stderr
            assert f"`tenancy new {missing_tenant} small`" in validated.stderr
        assert make(spec, "--gpu", gpus[name], name=name).exit_code == 0
    assert "which has no file yet" not in run("validate", spec.path).stderr
    admitted = {
        pool for pool, spec_pool in spec.load().environment.pools.items() if spec_pool.admits("llm", frozenset())
    }
    assert "efa" in admitted
    assert "slices" not in admitted, "the other tenant's"


def test_a_slip_in_the_name_of_a_pools_tenant_is_told_with_what_is_meant(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "nodes: 4}", "nodes: 4, tenants: [fraud, reserch], tiers: [batch]}")
    message = run("validate", spec.path).stderr
    assert "pools.train.tenants[1]: given tenant 'reserch', which has no file yet" in message
    assert "change: write research if that is meant, or write it with `tenancy new reserch small`" in message


def test_what_a_new_tenant_asks_for_without_effect_is_told(spec: SpecFolder) -> None:
    message = make(spec, "--storage", "datasets/teams/scoring/").stderr
    assert "tenants/scoring.yaml:" in message
    assert ": storage: given storage with aws.enabled: false: no role, bucket policy or access point is made" in message
    assert "fraud.yaml" not in message


@pytest.mark.parametrize(
    ("options", "share"),
    [
        ((), {"guaranteed": 4}),
        (("--sharing", "lend"), {"guaranteed": 4, "sharing": "lend", "lending-limit": 4}),
        (("--lend", "a100=1"), {"guaranteed": 4, "sharing": "lend", "lending-limit": 1}),
        (
            ("--sharing", "lend-and-borrow"),
            {"guaranteed": 4, "sharing": "lend-and-borrow", "lending-limit": 4, "borrowing-limit": 4},
        ),
    ],
)
def test_what_is_shared_is_written_out(spec: SpecFolder, options: tuple[str, ...], share: dict[str, Any]) -> None:
    make(spec, "--gpu", "a100=4", *options)
    document, _ = values(compose((spec.path / FILE).read_text("utf-8")))
    assert document["gpus"] == {"a100": share}


def test_a_dry_run_prints_the_file_and_writes_none(spec: SpecFolder) -> None:
    before = files(spec)
    text = make(spec, "--gpu", "a100=4", "--dry-run").stdout
    assert files(spec) == before
    make(spec, "--gpu", "a100=4")
    assert (spec.path / FILE).read_text("utf-8") == text


def test_an_editor_finds_the_schema_where_the_project_has_one(spec: SpecFolder, tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "tenant.json").touch()
    make(spec)
    first, *_ = (spec.path / FILE).read_text("utf-8").splitlines()
    assert first == "# yaml-language-server: $schema=../../schemas/tenant.json"


def test_the_file_can_be_read_by_others(spec: SpecFolder) -> None:
    make(spec)
    assert (spec.path / FILE).stat().st_mode & 0o777 == 0o644


# What it will get


def _shown_rows(spec: SpecFolder, *options: object) -> list[list[str]]:
    result = make(spec, *options)
    assert result.exit_code == 0, result.stderr
    return [line.split() for line in result.stdout.splitlines()]


def test_it_says_how_many_gpus_are_guaranteed_and_how_many_there_are_to_borrow(spec: SpecFolder) -> None:
    """32 A100, 24 of them guaranteed, of which fraud lends 8; the unallocated GPUs are within min nodes too."""
    rows = _shown_rows(spec, "--gpu", "a100=2", "--borrow", "a100=20")
    assert ["a100", "2", "2", "20", "14", "train"] in rows


def test_it_says_the_quota_of_each_namespace(spec: SpecFolder) -> None:
    rows = _shown_rows(spec, "--namespace", "train", "--namespace", "serve=production", "--gpu", "a100=4")
    assert ["scoring--train", "batch", "restricted", *"64 256Gi 50 2Ti 4 nvidia.com/gpu".split()] in rows
    assert ["scoring--serve", "production", "restricted", *"128 512Gi 100 2Ti 4 nvidia.com/gpu".split()] in rows


def test_it_says_who_gets_in(spec: SpecFolder) -> None:
    assert "scoring-engineers developer every namespace".split() in _shown_rows(
        spec, "--group", "scoring-engineers=developer"
    )


def test_it_says_that_only_the_platform_gets_in(spec: SpecFolder) -> None:
    assert "the platform group only – –".split() in _shown_rows(spec)


def test_it_says_what_to_run_next(spec: SpecFolder) -> None:
    text = make(spec, "--gpu", "a100=1").stdout
    assert "tenancy up small" in text
    assert "tenancy sample job small --tenant scoring --gpu a100=1" in text


# What is refused


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--tier", "bach"), "tier: given tier 'bach'; rule ref-01"),
        (("--mail", "scoring"), "owner.mail: given 'scoring'; rule one mail address"),
        (("--group", "fraud-engineers=developer"), "people[0].group: given group 'fraud-engineers', which belongs"),
        (("--group", "system:masters=viewer"), "rule rbac-05"),
        (("--storage", "datasets/teams/fraud/=read-write"), "rule stor-02"),
        (("--gpu", "h100=1"), "gpus.h100: given flavor 'h100'; rule ref-01"),
        (("--gpu", "a100=4", "--sharing", "strict", "--lend", "a100=2"), "rule share-01"),
        (("--gpu", "a100=4", "--lend", "a100=5"), "given lending-limit: 5 of 4 guaranteed; rule share-01"),
    ],
)
def test_a_broken_rule_is_named_and_nothing_is_left_behind(
    spec: SpecFolder, options: tuple[str, ...], message: str
) -> None:
    before = files(spec)
    result = make(spec, *options)
    assert (result.exit_code, result.stdout, files(spec)) == (2, "", before)
    assert message in result.stderr
    assert "tenants/scoring.yaml:" in result.stderr
    assert result.stderr.endswith("1 problem; nothing was written\n")


def test_more_than_there_is_is_refused_with_what_is_left(spec: SpecFolder) -> None:
    result = make(spec, "--gpu", "a100=9")
    assert result.exit_code == 2
    assert "gpus.a100.guaranteed: given fraud 16 + scoring 9 + research 8 = 33 guaranteed of 32 a100" in result.stderr
    assert "rule pool-03" in result.stderr
    assert "change: ask for at most 8, the number left" in result.stderr
    assert not (spec.path / FILE).exists()


def test_what_is_left_is_granted(spec: SpecFolder) -> None:
    assert new_tenant(spec, "--gpu", "a100=8").gpus["a100"].guaranteed == 8


def test_where_nothing_is_left_zero_is_the_most(spec: SpecFolder) -> None:
    new_tenant(spec, "--gpu", "a100=8")
    result = run("new", "late", spec.path, *NEEDED, "--gpu", "a100=1")
    assert "is left: lower the guarantee of another tenant, or raise nodes" in result.stderr


def test_a_tenant_that_is_there_is_not_written_over(spec: SpecFolder) -> None:
    before = files(spec)
    result = make(spec, name="fraud")
    assert (result.exit_code, files(spec)) == (2, before)
    assert "given tenant fraud, which small already has; rule name-02" in result.stderr


def test_a_file_that_comes_in_the_meantime_is_not_written_over(
    spec: SpecFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = new._load_with_tenant

    def meanwhile(*words: Any) -> Any:
        output = judged(*words)
        spec.write(FILE, "another writer's")
        return output

    monkeypatch.setattr(new, "_load_with_tenant", meanwhile)
    result = make(spec)
    assert result.exit_code == 2
    assert "another process has just created" in result.stderr
    assert (spec.path / FILE).read_text("utf-8") == "another writer's"
    assert [path.name for path in (spec.path / "tenants").iterdir() if path.name.startswith(".")] == []


def test_a_folder_that_cannot_be_written_is_said(spec: SpecFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "hardlink_to", full)
    result = make(spec)
    assert result.exit_code == 1
    assert "cannot be written (No space left on device); nothing was written" in result.stderr
    assert sorted(path.name for path in (spec.path / "tenants").iterdir()) == ["fraud.yaml", "research.yaml"]


@pytest.mark.parametrize("name", ["kube-x", "a--b", "../x", "x/y", "", "X", "x" * 31])
def test_a_name_that_no_tenant_may_have_is_refused(spec: SpecFolder, name: str) -> None:
    before = files(spec)
    result = make(spec, name=name)
    assert (result.exit_code, files(spec)) == (2, before)
    assert "rule name-01" in result.stderr


def test_an_environment_with_mistakes_gets_no_tenant(spec: SpecFolder) -> None:
    spec.edit("tenants/fraud.yaml", "tier: batch", "tier: bach")
    result = make(spec)
    assert result.exit_code == 2
    assert "given tier 'bach'" in result.stderr
    assert not (spec.path / FILE).exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--group", "x"),
        ("--group", "x=king"),
        ("--gpu", "a100"),
        ("--gpu", "a100=-1"),
        ("--gpu", "a100=1", "--gpu", "a100=2"),
        ("--storage", "datasets"),
        ("--storage", "datasets/x/=all"),
        ("--sharing", "everything"),
    ],
)
def test_a_misspelt_option_ends_with_2_and_its_form(spec: SpecFolder, options: tuple[str, ...]) -> None:
    result = make(spec, *options)
    assert result.exit_code == 2
    assert options[0] in result.stderr
    assert not (spec.path / FILE).exists()


def test_what_is_missing_is_named_without_a_terminal(spec: SpecFolder) -> None:
    result = run("new", "scoring", spec.path, *WHO, "--tier", "batch")
    assert result.exit_code == 2
    assert "given no --department --cost-center; rule: required" in result.stderr


# Which environment


def test_the_only_environment_need_not_be_named(
    spec: SpecFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stacks").mkdir()
    spec.path.rename(tmp_path / "stacks" / "small")
    monkeypatch.chdir(tmp_path)
    assert run("new", "scoring", *NEEDED).exit_code == 0
    assert (tmp_path / "stacks" / "small" / FILE).exists()


def test_of_several_environments_one_has_to_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        (tmp_path / "stacks" / name).mkdir(parents=True)
        (tmp_path / "stacks" / name / "environment.yaml").touch()
    monkeypatch.chdir(tmp_path)
    result = run("new", "scoring", *NEEDED)
    assert result.exit_code == 2
    assert "there are 2 environments; change: name one or two" in result.stderr


# Questions


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(new, "_on_terminal", lambda: True)


ANSWERS = ["Scoring", "", "", "scoring@bank.example", "research", "CC-9200", "batch", "", "engineers=developer", ""]


@pytest.mark.usefixtures("terminal")
def test_questions_make_the_same_file_as_options(spec: SpecFolder) -> None:
    answers = [*ANSWERS, "4", "6", "datasets/teams/scoring/=read-write", ""]
    answered = run("new", "scoring", spec.path, "--dry-run", input="\n".join(answers) + "\n")
    options = ("--title", "Scoring", "--group", "engineers=developer", "--gpu", "a100=4", "--borrow", "a100=6")
    from_options = make(spec, *options, "--storage", "datasets/teams/scoring/=read-write", "--dry-run")
    assert answered.exit_code == 0, answered.stderr
    assert answered.stdout == from_options.stdout


@pytest.mark.usefixtures("terminal")
def test_a_question_says_what_is_left(spec: SpecFolder) -> None:
    result = run("new", "scoring", spec.path, "--dry-run", input="\n".join([*ANSWERS, "0", "0", ""]) + "\n")
    assert "a100 guaranteed (8 left)" in result.stderr


@pytest.mark.usefixtures("terminal")
def test_flavors_that_no_pool_yields_to_it_are_not_asked_for(spec: SpecFolder) -> None:
    result = run("new", "scoring", spec.path, "--dry-run", input="\n".join([*ANSWERS, "0", "0", ""]) + "\n")
    assert "l4-shared" not in result.stderr


@pytest.mark.usefixtures("terminal")
def test_a_wrong_answer_is_asked_for_again(spec: SpecFolder) -> None:
    answers = ["", "", "", "no mail", "scoring@bank.example", "sales", "research", "CC-9200", "batch", ""]
    result = run("new", "scoring", spec.path, "--dry-run", input="\n".join([*answers, "", "0", "0", ""]) + "\n")
    assert result.exit_code == 0
    assert "given 'no mail'; rule one mail address" in result.stderr
    assert "'sales' is not one of 'risk', 'research'" in result.stderr


@pytest.mark.usefixtures("terminal")
def test_who_says_everything_is_asked_nothing(spec: SpecFolder) -> None:
    assert make(spec, "--dry-run").stderr == ""


def test_on_a_terminal_it_asks(spec: SpecFolder) -> None:
    child, terminal = pty.fork()
    if child == 0:
        os.execv(sys.executable, [sys.executable, "-m", "tenancy", "new", "scoring", str(spec.path)])
    heard = b""
    while b"Title" not in heard:
        heard += os.read(terminal, 1024)
    os.write(terminal, b"\x04")  # end of input
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 1
    assert not (spec.path / FILE).exists()


# Any answers


def _texts(alphabet: str, **sizes: int) -> st.SearchStrategy[str]:
    return st.text(alphabet, min_size=1, max_size=12, **sizes)


_SLUG = _texts("abcxyz019").filter(lambda text: text not in vocabulary.RESERVED_NAMES)
_PLAIN = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=12)
_WORDS = st.sampled_from(["yes", "No", "null", "~", "1e3", "0644", "1.5e3", "12:30", "a: b", "#x", "- x", "'", '"\\'])
_LINE = st.one_of(_WORDS, st.text(st.characters(exclude_categories=["C", "Zl", "Zp"]), max_size=20))
_COUNTS = st.integers(0, 9)


@st.composite
def tenants(draw: st.DrawFn) -> dict[str, Any]:
    """A tenant's file, right in form."""
    gpus = {}
    for flavor in draw(st.lists(st.sampled_from(["a100", "a100-1g.5gb", "1g"]), unique=True)):
        guaranteed = draw(st.integers(0, 9))
        share: dict[str, Any] = {"guaranteed": guaranteed}
        if draw(st.booleans()):
            share |= {"sharing": "lend", "lending-limit": draw(st.integers(0, guaranteed))}
            if draw(st.booleans()):
                share |= {"sharing": "lend-and-borrow", "borrowing-limit": draw(_COUNTS)}
        gpus[flavor] = share
    tiers = draw(st.dictionaries(st.sampled_from(["train", "serve", "on", "no"]), st.none() | _SLUG, max_size=3))
    groups = draw(st.lists(st.one_of(_WORDS.map(str.strip), _PLAIN, _PLAIN.map(lambda x: f"a {x}=b")), max_size=3))
    prefixes = draw(st.lists(_PLAIN.filter(lambda text: not set(text) & set("*?\\/")), unique=True, max_size=3))
    document = {
        "tenant": "scoring",
        "title": draw(_LINE),
        "team": draw(_SLUG),
        "owner": {"name": draw(_SLUG), "mail": f"{draw(_SLUG)}@bank.example"},
        "department": draw(_SLUG),
        "cost-center": draw(_SLUG),
        "tier": draw(_SLUG),
        "namespaces": [{"name": name, "tier": tier} if tier else name for name, tier in tiers.items()],
        "people": [{"group": group, "role": draw(st.sampled_from(["viewer", "owner"]))} for group in groups],
        "gpus": gpus,
        "storage": [
            {"bucket": "datasets", "prefix": f"{p}/", **draw(st.sampled_from([{}, {"access": "append-only"}]))}
            for p in prefixes
        ],
    }
    return {key: value for key, value in document.items() if value}


def _options(document: dict[str, Any]) -> dict[str, Any]:
    """The options with which a person makes this file."""
    gpus = document.get("gpus", {})
    namespaces = [f"{p['name']}={p['tier']}" if isinstance(p, dict) else p for p in document.get("namespaces", ())]
    return {
        **{key: document.get(key) for key in ("title", "team", "department", "cost-center", "tier")},
        "owner": document["owner"]["name"],
        "mail": document["owner"]["mail"],
        "namespaces": namespaces,
        "groups": [f"{person['group']}={person['role']}" for person in document.get("people", ())],
        "sharing": None,
        **{
            option: [f"{flavor}={share[key]}" for flavor, share in gpus.items() if key in share]
            for option, key in (("gpus", "guaranteed"), ("lends", "lending-limit"), ("borrows", "borrowing-limit"))
        },
        "storage": [
            f"{grant['bucket']}/{grant['prefix']}" + (f"={grant['access']}" if "access" in grant else "")
            for grant in document.get("storage", ())
        ],
    }


@given(tenants())
@settings(max_examples=examples(300))
def test_whatever_is_asked_for_is_what_the_file_says(document: dict[str, Any]) -> None:
    text = tenant_text(new.document_of("scoring", _options(document)), "x.json")
    field_values, refused = values(compose(text))
    assert (field_values, refused) == (document, [])


@pytest.fixture(scope="module")
def shared_spec(tmp_path_factory: pytest.TempPathFactory) -> SpecFolder:
    return SpecFolder(tmp_path_factory.mktemp("new") / "small")


@given(groups=st.lists(_PLAIN, unique=True, max_size=2), title=_LINE, guaranteed=st.integers(0, 12))
@settings(max_examples=30)
def test_a_file_is_written_if_and_only_if_the_environment_is_right_with_it(
    shared_spec: SpecFolder, groups: list[str], title: str, guaranteed: int
) -> None:
    options = [word for group in groups for word in ("--group", f"{group}=viewer")]
    result = make(shared_spec, f"--title={title}", "--gpu", f"a100={guaranteed}", *options)
    tenant_file = shared_spec.path / FILE
    try:
        assert result.exit_code in {0, 2}
        assert tenant_file.exists() is (result.exit_code == 0)
        assert shared_spec.problems() == ()
        is_visible = all(is_shown(text) for text in (title, *groups)) and not any(
            set(group) & set("|<>`") for group in groups
        )
        assert (result.exit_code == 0) is (is_visible and guaranteed <= 8), result.stderr
        if tenant_file.exists():
            written_tenant = next(tenant for tenant in shared_spec.load().tenants if tenant.tenant == "scoring")
            assert [person.group for person in written_tenant.people] == groups
            assert written_tenant.title == title
    finally:
        tenant_file.unlink(missing_ok=True)
