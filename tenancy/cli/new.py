from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenancy.catalog import vocabulary
from tenancy.cli.common import (
    BAD_INPUT,
    environment_or_default,
    example,
    fail,
    load_or_exit,
    optional_environment,
    print_notes,
    refuses_bad_input,
)
from tenancy.rules.catalogue import Violation
from tenancy.spec.fields.data import Access
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.queues import SharingPreset
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.loader import ENVIRONMENT_FILE, TENANTS_FOLDER, Loaded, load, spec_notes
from tenancy.spec.reading.problems import Problem, SpecError

if TYPE_CHECKING:
    from tenancy.output.tables import Table

SCHEMA = "schemas/tenant.json"
REQUIRED_OPTIONS = ("owner", "mail", "department", "cost-center", "tier")
"""Options without a default: asked for on a terminal, required elsewhere."""
OVERSOLD_RULE = "pool-03"

Document = dict[str, Any]


_EXAMPLE = r"""tenancy new scoring local --owner scoring-leads --mail scoring@bank.example --department research \
    --cost-center CC-9200 --tier research --group scoring-engineers=developer --dry-run"""


@click.command("new", epilog=example(_EXAMPLE))
@click.argument("tenant")
@optional_environment
@click.option("--title", metavar="TEXT", help="Display name of the tenant. Default: none.")
@click.option("--team", metavar="NAME", help="Team for cost allocation (a cost label). Default: the tenant's name.")
@click.option("--owner", metavar="NAME", help="Group or person responsible for the tenant.")
@click.option("--mail", metavar="ADDRESS", help="Mail address for the tenant's alerts and reports.")
@click.option("--department", metavar="NAME", help="Department of the tenant, one of the environment's departments.")
@click.option("--cost-center", metavar="ID", help="Cost center of the tenant (a cost label), such as CC-4411.")
@click.option("--tier", metavar="NAME", help="Tier (priority) of the tenant's work, one of the environment's tiers.")
@click.option(
    "--namespace",
    "namespaces",
    multiple=True,
    metavar="NAME[=TIER]",
    help="Namespace of the tenant, called TENANT--NAME; repeatable. Default: one namespace, main.",
)
@click.option(
    "--group",
    "groups",
    multiple=True,
    metavar="NAME=ROLE",
    help=f"Group with access to the tenant's namespaces, and its role: {', '.join(Role)}; repeatable.",
)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="FLAVOR=N",
    help="Number of guaranteed GPUs (or slices or replicas) of a flavor; repeatable. Default: 0.",
)
@click.option(
    "--sharing",
    type=click.Choice([preset.value for preset in SharingPreset]),
    help="Sharing of idle GPUs: strict neither lends nor borrows. Default: as --lend and --borrow need, else strict.",
)
@click.option(
    "--lend",
    "lends",
    multiple=True,
    metavar="FLAVOR=N",
    help="Max number of idle guaranteed GPUs of a flavor to lend; repeatable. Default: all of them, with a --sharing "
    "that lends.",
)
@click.option(
    "--borrow",
    "borrows",
    multiple=True,
    metavar="FLAVOR=N",
    help="Max number of GPUs of a flavor to borrow; repeatable. Default: the guaranteed number, with a --sharing that "
    "borrows.",
)
@click.option(
    "--storage",
    "storage",
    multiple=True,
    metavar="BUCKET/PREFIX[=ACCESS]",
    help=f"Prefix of an S3 bucket, ending with '/', and the access to it: {', '.join(Access)}; repeatable. Default "
    "access: read-only.",
)
@click.option("--dry-run", is_flag=True, help="Print the spec file instead of writing it.")
@refuses_bad_input
def command(tenant: str, environment: str | None, dry_run: bool, **option_values: Any) -> None:
    """Write the spec file of a new TENANT of ENV, and show what the tenant will get.

    On a terminal the command asks for options that are not given; elsewhere --owner, --mail, --department,
    --cost-center and --tier are required. The file is written only if the whole environment is valid with it, and never
    replaces an existing file. Default of ENV: the only environment.
    """
    from tenancy.spec.reading.writing import tenant_text

    loaded = load_or_exit(environment_or_default(environment))
    path = _free_path(loaded, tenant)
    option_values = {key.replace("_", "-"): value for key, value in option_values.items()}
    if missing_options := [key for key in REQUIRED_OPTIONS if not option_values[key]]:
        if not _on_terminal():
            options = " ".join(f"--{key}" for key in missing_options)
            fail(f"given no {options}; rule: required; change: add the options, or run it on a terminal", BAD_INPUT)
        _ask(loaded, tenant, option_values)
    text = tenant_text(document_of(tenant, option_values), _schema(path))
    validated = _load_with_tenant(loaded, path, text)
    if dry_run:
        click.echo(text, nl=False)
        return
    _write(path, text)
    _show(validated, tenant, path)
    print_notes(spec_notes(replace(validated, folder=loaded.folder), tenant))


def _on_terminal() -> bool:
    return sys.stdin.isatty()


def _free_path(loaded: Loaded, tenant: str) -> Path:
    from tenancy.rules.values import name_misfit

    if name_problem := name_misfit(tenant, vocabulary.TENANT_LENGTH):
        raise Violation("name-01", name_problem)
    path = loaded.folder / TENANTS_FOLDER / f"{tenant}.yaml"
    if os.path.lexists(path) or tenant in {other_tenant.tenant for other_tenant in loaded.tenants}:
        input_text = f"tenant {tenant}, which {loaded.environment.environment} already has"
        raise Violation("name-02", input_text, "edit its file, or choose another name")
    return path


def _schema(path: Path) -> str | None:
    for base in path.resolve().parents:
        if (base / SCHEMA).is_file():
            return os.path.relpath(base / SCHEMA, path.resolve().parent)
    return None


# From options to a document


def document_of(tenant: str, option_values: Mapping[str, Any]) -> Document:
    """The tenant's file as plain values; raises UsageError where an option has the wrong form."""
    document: Document = {
        "tenant": tenant,
        "title": option_values["title"],
        "team": option_values["team"] or tenant,
        "owner": {"name": option_values["owner"], "mail": option_values["mail"]},
        "department": option_values["department"],
        "cost-center": option_values["cost-center"],
        "tier": option_values["tier"],
        "namespaces": [_namespace(text) for text in option_values["namespaces"]],
        "people": [_person(text) for text in option_values["groups"]],
        "gpus": _shares(option_values),
        "storage": [_grant(text) for text in option_values["storage"]],
    }
    return {key: value for key, value in document.items() if value}


def _namespace(text: str) -> str | Document:
    name, equals, tier = text.partition("=")
    return {"name": name, "tier": tier} if equals else name


def _person(text: str) -> Document:
    # The name of a group may contain '=', the name of a role does not.
    group, equals, role = text.rpartition("=")
    if not equals or role not in [*Role]:
        raise _bad_option("--group", text, f"write --group NAME=ROLE with one of {', '.join(Role)}")
    return {"group": group, "role": role}


def _grant(text: str) -> Document:
    place, equals, access = text.rpartition("=")
    if not equals or "/" in access:
        place, access = text, ""
    bucket, slash, prefix = place.partition("/")
    if not slash or (access and access not in [*Access]):
        raise _bad_option("--storage", text, f"write BUCKET/PREFIX/=ACCESS with one of {', '.join(Access)}")
    return {"bucket": bucket, "prefix": prefix, **({"access": access} if access else {})}


def _shares(option_values: Mapping[str, Any]) -> dict[str, Document]:
    counts = {option: _counts(f"--{option}", option_values[f"{option}s"]) for option in ("gpu", "lend", "borrow")}
    shares: dict[str, Document] = {}
    for flavor in dict.fromkeys(flavor for option_counts in counts.values() for flavor in option_counts):
        guaranteed = counts["gpu"].get(flavor, 0)
        implied_preset = SharingPreset.LEND_AND_BORROW if flavor in counts["borrow"] else SharingPreset.LEND
        default_preset = implied_preset if flavor in {**counts["lend"], **counts["borrow"]} else SharingPreset.STRICT
        sharing = SharingPreset(option_values["sharing"] or default_preset)
        share: Document = {"guaranteed": guaranteed}
        if sharing is not SharingPreset.STRICT:
            share["sharing"] = sharing.value
        # Written even where sharing forbids it, so that the rule reports it and no option is dropped silently.
        for option, is_used in (("lend", sharing.lends), ("borrow", sharing.borrows)):
            if is_used or flavor in counts[option]:
                share[f"{option}ing-limit"] = counts[option].get(flavor, guaranteed)
        shares[flavor] = share
    return shares


def _counts(option: str, texts: Iterable[str]) -> dict[str, int]:
    counts_by_flavor: dict[str, int] = {}
    for text in texts:
        flavor, _, count = text.partition("=")
        if not flavor or not re.fullmatch("[0-9]{1,7}", count) or flavor in counts_by_flavor:
            raise _bad_option(option, text, f"write {option} FLAVOR=N, each flavor once")
        counts_by_flavor[flavor] = int(count)
    return counts_by_flavor


def _bad_option(option: str, text: str, change: str) -> click.UsageError:
    return click.UsageError(f"given {option} {text}; change: {change}")


# Questions


def _ask(loaded: Loaded, tenant: str, option_values: Document) -> None:
    """Ask for the values that no option gave."""
    environment = loaded.environment

    def ask(key: str, question: str, default: str | None = None, choices: Collection[str] = ()) -> None:
        if not option_values[key]:
            answer_type = click.Choice(list(choices)) if choices else _Answer(key)
            option_values[key] = click.prompt(
                question, type=answer_type, default=default, show_default=bool(default), err=True
            )

    ask("title", "Title, the display name (empty: none)", "")
    ask("team", "Team, for cost allocation", tenant)
    ask("owner", "Owner: the group or person responsible", f"{tenant}-leads")
    ask("mail", "Mail address for alerts and reports")
    ask("department", "Department", choices=environment.organisation.departments)
    ask("cost-center", "Cost center")
    ask("tier", "Tier", choices=environment.tiers)
    question = "Namespace, as NAME or NAME=TIER (empty: no more; default: main)"
    option_values["namespaces"] = option_values["namespaces"] or _ask_repeatedly(question, _namespace)
    roles = ", ".join(Role)
    option_values["groups"] = option_values["groups"] or _ask_repeatedly(
        f"Group, as NAME=ROLE with {roles} (empty: no more)", _person
    )
    if not (option_values["gpus"] or option_values["borrows"]):
        _ask_gpus(loaded, tenant, option_values)
    if environment.buckets and not option_values["storage"]:
        example = f"{next(iter(environment.buckets))}/teams/{tenant}/={Access.READ_WRITE}"
        option_values["storage"] = _ask_repeatedly(f"Prefix, like {example} (empty: no more)", _grant)


class _Answer(click.ParamType):
    """A text that the field accepts; a mistake is reported at once, not after the last question."""

    name = "text"

    def __init__(self, key: str) -> None:
        self.key = key

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from pydantic import ValidationError

        from tenancy.spec.reading.messages import located_mistakes

        document: Document = {"owner": {"name": "x", "mail": "x@bank.example"}, "team": "x", "cost-center": "x"}
        document |= {"tenant": "x", "department": "x", "tier": "x", "title": ""}
        if self.key in {"owner", "mail"}:
            document["owner"]["name" if self.key == "owner" else "mail"] = value
        else:
            document[self.key] = value
        try:
            Tenant.from_file(document)
        except ValidationError as error:
            self.fail("; ".join(str(mistake) for mistake, _ in located_mistakes(Tenant, error)), param, ctx)
        return value


def _ask_repeatedly(question: str, parse: Callable[[str], Any]) -> tuple[str, ...]:
    def checked_answer(answer: str) -> str:
        if answer:
            parse(answer)
        return answer

    answers: list[str] = []
    while text := click.prompt(question, default="", show_default=False, value_proc=checked_answer, err=True):
        answers.append(text)
    return tuple(answers)


def _ask_gpus(loaded: Loaded, tenant: str, option_values: Document) -> None:
    new_tenant = Tenant.model_validate(document_of(tenant, option_values))
    for flavor in loaded.environment.flavors:
        pools = loaded.environment.pools_by_flavor[flavor]
        if not any(pool.admits(tenant, new_tenant.tiers) for _, pool in pools):
            continue
        max_gpus = guarantee_left(loaded, new_tenant, flavor)
        question = f"{flavor} guaranteed ({max_gpus} left)"
        count = click.prompt(question, type=click.IntRange(0, max_gpus), default=0, err=True)
        borrow = 0
        if loaded.environment.has_queues and any(
            loaded.environment.tiers[tier].allow_borrowing for tier in new_tenant.tiers
        ):
            question = f"{flavor} to borrow, max, in addition to the guarantee"
            borrow = click.prompt(question, type=click.IntRange(min=0), default=0, err=True)
        option_values["gpus"] += (f"{flavor}={count}",) if count or borrow else ()
        option_values["borrows"] += (f"{flavor}={borrow}",) if borrow else ()


# Judging and writing


def _load_with_tenant(loaded: Loaded, path: Path, text: str) -> Loaded:
    """The environment with the new tenant; if it is not valid, exit code 2 and a message for every problem."""
    name = loaded.folder.resolve().name
    with tempfile.TemporaryDirectory(prefix="tenancy-new-") as scratch:
        trial_folder = Path(scratch, name)
        shutil.copytree(loaded.folder / TENANTS_FOLDER, trial_folder / TENANTS_FOLDER, symlinks=True)
        shutil.copy(loaded.folder / ENVIRONMENT_FILE, trial_folder)
        (trial_folder / TENANTS_FOLDER / path.name).write_text(text, "utf-8", errors="surrogateescape")
        try:
            return load(trial_folder)
        except SpecError as error:
            problems = [_with_real_path(problem, trial_folder, loaded.folder) for problem in error.problems]
    for problem in _with_guarantee_left(loaded, text, path, problems):
        click.echo(str(problem), err=True)
    count = len(problems)
    click.echo(f"tenancy: {count} problem{'s' * (count > 1)}; nothing was written", err=True)
    sys.exit(BAD_INPUT)


def _with_real_path(problem: Problem, trial: Path, folder: Path) -> Problem:
    return replace(problem, file=problem.file.replace(os.path.relpath(trial), os.path.relpath(folder), 1))


def _with_guarantee_left(loaded: Loaded, text: str, path: Path, problems: Sequence[Problem]) -> Iterator[Problem]:
    """Report an oversold flavor at the new tenant, with the number that is left, not at the largest holder."""
    from pydantic import ValidationError

    from tenancy.spec.reading.source import compose, find, values

    for problem in problems:
        flavor = problem.field.removeprefix("gpus.").removesuffix(".guaranteed")
        try:
            tenant = Tenant.from_file(values(compose(text))[0]) if problem.id == OVERSOLD_RULE else None
        except ValidationError:
            tenant = None
        if tenant is None or flavor not in tenant.gpus:
            yield problem
            continue
        max_gpus = guarantee_left(loaded, tenant, flavor)
        field_position = find(compose(text), ("gpus", flavor, "guaranteed")).value
        supply_advice = "raise nodes (nodes.min of an autoscaled pool)"
        nothing_left_advice = f"no {flavor} is left: lower the guarantee of another tenant, or {supply_advice}"
        change = f"ask for at most {max_gpus}, the number left, or {supply_advice}" if max_gpus else nothing_left_advice
        yield replace(
            problem, file=os.path.relpath(path), line=field_position.line, column=field_position.column, change=change
        )


def guarantee_left(loaded: Loaded, tenant: Tenant, flavor: str) -> int:
    """The max number of a flavor that a new tenant can be guaranteed, by the rule that would refuse more."""
    from tenancy.spec.checks.crossfile import check_with_environment
    from tenancy.spec.fields.shares import GpuShare

    def fits(count: int) -> bool:
        share = GpuShare.model_validate({"guaranteed": count})
        trial = tenant.model_copy(update={"gpus": {flavor: share}})
        return not any(
            m.id == OVERSOLD_RULE
            for _, m in check_with_environment(loaded.environment, [*loaded.tenants, trial], loaded.day)
        )

    environment = loaded.environment
    pools = environment.pools_by_flavor[flavor]
    low, high = 0, sum(environment.flavors_of(name)[flavor] * pool.nodes.min for name, pool in pools)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return low


def _write(path: Path, text: str) -> None:
    """Write the whole file or nothing, and never replace a file that was created in the meantime."""
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).chmod(0o644)
        path.hardlink_to(name)
    except FileExistsError:
        input_text = f"{path}, which another process has just created"
        fail(f"given {input_text}; change: edit it, or choose another name", BAD_INPUT)
    except OSError as error:
        fail(f"{path} cannot be written ({error.strerror}); nothing was written")
    finally:
        Path(name).unlink()


# What it will get


def _show(loaded: Loaded, name: str, path: Path) -> None:
    from tenancy.cli.tables import show

    environment = loaded.environment.environment
    click.echo(f"Written: {os.path.relpath(path)}\n")
    show("text", _tables(loaded, name), {})
    tenant = next(tenant for tenant in loaded.tenants if tenant.tenant == name)
    gpu = f" --gpu {next(iter(tenant.gpus))}=1" if tenant.gpus else ""
    click.echo(
        f"\nNext:\n"
        f"  git add {os.path.relpath(path)}     and open a pull request for approval\n"
        f"  tenancy up {environment}     after the merge: preview, then create what is listed above\n"
        f"  tenancy sample job {environment} --tenant {name}{gpu}     print a first job for its developers"
    )


def _tables(loaded: Loaded, name: str) -> list[Table]:
    from tenancy.output.tables import Table
    from tenancy.planning import make_plan
    from tenancy.planning.common.pools import pools_of
    from tenancy.planning.queueing.capacity import supply

    environment = loaded.environment
    tenant = next(tenant for tenant in loaded.tenants if tenant.tenant == name)
    plan = make_plan(loaded, loaded.day).tenant(name)
    columns = ("requests.cpu", "requests.memory", "pods", "requests.storage")
    spaces = Table(
        f"Namespaces of {name}",
        ("namespace", "tier", "pod security", "CPU", "memory", "pods", "volumes", "max GPUs"),
        [
            (
                space.name,
                space.meta.labels["tier"],
                space.meta.labels[vocabulary.PSA_ENFORCE],
                *(space.quota.hard[key] for key in columns),
                _gpus(space.quota.hard),
            )
            for space in plan.namespaces
        ],
    )
    gpus = Table(
        "GPUs",
        ("flavor", "guaranteed", "lends", "may borrow", "always on", "in pools"),
        [
            (
                flavor_supply.flavor,
                share.guaranteed,
                share.lends,
                share.borrows,
                share.borrowable,
                ", ".join(pools_of(environment, flavor_supply.flavor, name, tenant.tiers)),
            )
            for flavor_supply in supply(environment, loaded.tenants)
            for share in flavor_supply.tenants
            if share.tenant == name
        ],
    )
    people = Table(
        "Access",
        ("who", "role", "namespaces"),
        [(p.name, p.role.value, ", ".join(p.namespaces) or "every namespace") for p in tenant.people]
        or [("the platform group only", None, None)],
    )
    data = Table("Data", ("place", "access"), [(f"{g.bucket}/{g.prefix}", g.access.value) for g in tenant.storage])
    return [spaces, gpus, people, data]


def _gpus(hard: Mapping[str, str]) -> str | None:
    """GPUs and other devices that a quota allows."""
    domains = ("requests.nvidia.com/", "requests.vpc.amazonaws.com/")
    quota_texts = [f"{count} {key.removeprefix('requests.')}" for key, count in hard.items() if key.startswith(domains)]
    claim_texts = [f"{count} {key.partition('.')[0]}" for key, count in hard.items() if key.endswith(".k8s.io/devices")]
    return ", ".join(text for text in (*quota_texts, *claim_texts) if not text.startswith("0 ")) or None
