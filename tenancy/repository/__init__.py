"""The files of a new repository: program, environments, policy pack, workflows. `tenancy init` writes them.

The folders `ci` and `policy` lie beside this module in the wheel, and at the top of a checkout.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.planning.aws.documents import partition

PACKAGE_FOLDER = Path(__file__).parent
KUBERNETES = "1.36"
"""Version of Kubernetes of the environments, the lab's own."""
TENANTS = (
    # environment, tenant, title, tier, cost center, guaranteed GPUs
    ("dev", "vision", "Computer Vision", "batch", 1001, 4),
    ("prod", "vision", "Computer Vision", "batch", 1001, 8),
    ("prod", "speech", "Speech Recognition", "production", 1002, 4),
)


class Forge(StrEnum):
    """Forge for which workflows are written."""

    GITHUB = "github"
    GITLAB = "gitlab"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class RepositoryAnswers:
    """Settings of a new repository."""

    organisation: str
    """Name of the organisation: the root of the queue tree, and the forge's organisation in CODEOWNERS."""
    group: str
    """The platform team's group on the cluster and on the forge."""
    region: str
    account: str
    """AWS account, 12 digits."""
    registry: str
    """Beginning of image names, ending with '/'."""
    forge: Forge


def default_registry(account: str, region: str) -> str:
    """The account's own registry."""
    end = "com.cn" if region.startswith("cn-") else "com"
    return f"{account}.dkr.ecr.{region}.amazonaws.{end}/"


def repository(answers: RepositoryAnswers, version: str) -> Iterator[tuple[str, str, bool]]:
    """Path, text and whether it can be run, of each file of a repository that uses this version of the package."""
    from tenancy.spec.json_schema import MODELS, schema

    facts = {**_facts(answers), "version": version}

    def text(template: str, **more: Any) -> str:
        return _templates().get_template(f"{template}.j2").render(**facts, **more)

    yield "__main__.py", "from tenancy.program import run\n\nrun()\n", False
    yield "Pulumi.yaml", text("Pulumi.yaml"), False
    yield "requirements.txt", text("requirements.txt"), False
    yield "constraints.txt", _constraints(version), False
    yield "wheels/README.md", text("wheels.md"), False
    yield "README.md", text("README.md"), False
    yield ".gitignore", text("gitignore"), False
    yield "CODEOWNERS", text("CODEOWNERS"), False
    for name in MODELS:
        yield f"schemas/{name}.json", json.dumps(schema(name), indent=1) + "\n", False
    for environment, nodes in (("dev", 2), ("prod", 3)):
        variables = {"environment": environment, "lab": environment == "dev", "nodes": nodes}
        yield f"stacks/{environment}/environment.yaml", text("stacks/environment.yaml", **variables), False
    for environment, name, title, tier, cost, gpus in TENANTS:
        variables = {"name": name, "title": title, "tier": tier, "cost": cost, "gpus": gpus}
        yield f"stacks/{environment}/tenants/{name}.yaml", text("stacks/tenant.yaml", **variables), False
    for name in ("PulumiPolicy.yaml", "__main__.py"):
        yield f"policy/{name}", (wheel_folder("policy") / name).read_text("utf-8"), False
    if answers.forge is not Forge.NONE:
        yield "ci/Containerfile", text("Containerfile"), False
        yield from _workflows(answers.forge, text)


def _workflows(forge: Forge, text: Any) -> Iterator[tuple[str, str, bool]]:
    ci = wheel_folder("ci")
    for path in sorted((ci / "steps").iterdir()):
        if path.is_file() and (forge is Forge.GITLAB or not path.name.startswith("gitlab-")):
            content = path.read_text("utf-8")
            yield f"ci/steps/{path.name}", content, content.startswith("#!")
    if forge is Forge.GITHUB:
        for path in sorted((ci / "github").iterdir()):
            yield f".github/workflows/{path.name}", path.read_text("utf-8"), False
    else:
        yield "ci/gitlab/tenancy.gitlab-ci.yml", (ci / "gitlab" / "tenancy.gitlab-ci.yml").read_text("utf-8"), False
        yield ".gitlab-ci.yml", text("gitlab-ci.yml"), False


def _constraints(version: str) -> str:
    """Pins of every package that this version was tested with."""
    inside = PACKAGE_FOLDER / "constraints.txt"
    pins = inside if inside.is_file() else PACKAGE_FOLDER.parents[1] / "requirements" / "package.txt"
    return f"# The versions with which gpu-tenancy {version} was tested.\n{pins.read_text('utf-8')}"


def wheel_folder(name: str) -> Path:
    """A folder that the wheel carries."""
    inside = PACKAGE_FOLDER / name
    return inside if inside.is_dir() else PACKAGE_FOLDER.parents[1] / name


def _facts(answers: RepositoryAnswers) -> dict[str, Any]:
    bases = re.findall(r"^ARG .*$", (wheel_folder("ci") / "Containerfile").read_text("utf-8"), re.MULTILINE)
    python, trivy = (next(line for line in bases if line.startswith(f"ARG {name}=")) for name in ("PYTHON", "TRIVY"))
    return {
        "project": vocabulary.PRODUCT,
        "organisation": answers.organisation,
        "group": answers.group,
        "region": answers.region,
        "account": answers.account,
        "partition": partition(answers.region),
        "registry": answers.registry,
        "ci": answers.forge.value,
        "context": vocabulary.LAB_CONTEXT,
        "kubernetes": KUBERNETES,
        "python": python,
        "trivy": trivy,
        "tenants": [(environment, name, f"{name}-leads") for environment, name, *_ in TENANTS],
        "handle": lambda group: f"@{answers.organisation}/{group}",
    }


def _templates() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    from tenancy.spec.reading.writing import flow

    environment = Environment(
        loader=PackageLoader("tenancy.repository"),
        autoescape=False,  # YAML and Markdown; `yaml` quotes what needs it
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["yaml"] = flow
    return environment
