"""Reads traces: files in the columns of this program, and those of public traces.

Sources of the names: Alibaba cluster-trace-gpu-v2020 (`pai_task_table`: without a header; `plan_gpu` in hundredths of a
GPU for each instance; times in seconds) and v2023 (`openb_pod_list_*.csv`), SenseTime Helios and Acme
(`cluster_log.csv`, `trace_*.csv`), Microsoft Philly (`cluster_job_log`, which is JSON).
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.files import TRACES, read_file
from tenancy.planning.common.pools import pools_of
from tenancy.simulation.trace import Job, Trace, per_node, pods_of
from tenancy.simulation.trace_values import NO_TIME, after_blanks, delimiter_of, moment_in, number_in, philly_seconds
from tenancy.spec.fields.tenant import Namespace, Tenant
from tenancy.spec.loader import Loaded
from tenancy.spec.reading.mistakes import nearest
from tenancy.spec.reading.problems import Problem, SpecError

MAX_PROBLEMS = 50
LONGEST = 366 * 86400
"""Max seconds of a trace and of a job; public traces cover months. A larger number is in another unit."""
MAX_GPUS = 1_000_000
MILLISECONDS = 1e11
"""Numbers above this are not seconds: as seconds since 1970 it is the year 5138."""

ALIASES = {
    "submit": ("submit", "submit_time", "submitted_time", "creation_time", "start_time"),
    "tenant": ("tenant", "vc", "user", "group"),
    "namespace": ("namespace",),
    "flavor": ("flavor",),
    "gpus": ("gpus", "gpu_num", "plan_gpu", "num_gpus", "num_gpu"),
    "gpus-per-pod": ("gpus-per-pod", "gpus_per_pod"),
    "duration": ("duration", "run_time", "runtime"),
    "tier": ("tier", "priority"),
    "name": ("name", "job_name", "job_id", "jobid"),
    "checkpoint": ("checkpoint",),
    "queue": ("queue",),
    "busy": ("busy",),
}
"""Columns and their names in other traces; the first that exists is used."""
SPANS = (("start_time", "end_time"), ("scheduled_time", "deletion_time"))
"""Columns of start and end, used if no column has the duration."""
PAI_TASKS = "job_name task_name inst_num status start_time end_time plan_cpu plan_mem plan_gpu gpu_type".split()
KNOWN_COLUMNS = frozenset(name for names in ALIASES.values() for name in names)
OWN_COLUMNS = tuple(names[0] for names in ALIASES.values() if names[0] != "queue")


def read(path: Path, loaded: Loaded, mapped: Mapping[str, str] | None = None) -> Trace:
    """The jobs of a file; raises SpecError with every mistake in it.

    `mapped` has the tenant of names in the file; other names are assigned to tenants by their hash, with a note.
    """
    return _TraceReader(path, loaded, mapped or {}).read()


class _TraceReader:
    def __init__(self, path: Path, loaded: Loaded, mapped: Mapping[str, str]) -> None:
        self.path, self.environment = path, loaded.environment
        self._tenants = {tenant.tenant: tenant for tenant in loaded.tenants if tenant.gpus}
        self._mapping = mapped
        self._problems: list[Problem] = []
        self._notes: dict[str, None] = {}
        self._hashed_names: set[str] = set()
        self._used_mappings: set[str] = set()
        """Names of the file that are in `mapped`."""
        self._omitted = 0
        self._has_dates = False
        self._is_json = False
        """Whether the file is JSON, so that columns of a row are not columns of the file."""
        self._columns: dict[str, int] = {}

    def read(self) -> Trace:
        for name, tenant in self._mapping.items():
            if tenant not in self._tenants:
                self._problem(
                    1,
                    1,
                    "--map-user",
                    f"{name}={tenant}",
                    "a name is mapped to a tenant with GPUs",
                    self._tenant_hint(tenant),
                )
        rows = list(self._rows())
        drafts = [(number, row, draft) for number, row in rows if (draft := self._draft(number, row)) is not None]
        begin = self._begin([draft.submit for _, _, draft in drafts])
        for number, row, draft in drafts:
            self._check_bounds(number, row, draft.submit - begin)
        if self._problems:
            raise SpecError(self._problems)
        jobs = [_job(draft, begin) for _, _, draft in drafts]
        jobs.sort(key=lambda job: job.submit)
        if not jobs:
            self._problem(1, 1, "", "no job that asks for a GPU", "a trace has jobs", "write one line for each")
            raise SpecError(self._problems)
        if self._omitted:
            self._note(f"{self._omitted} lines left out: they ask for no GPU or ran for no time")
        if unused := sorted(set(self._mapping) - self._used_mappings):
            self._note(f"--map-user has names that are not in the file: {', '.join(unused)}")
        if self._hashed_names:
            self._note(
                f"{len(self._hashed_names)} names of the file are no tenants: each is mapped to a tenant by hash (see "
                "--map-user)"
            )
        return Trace(tuple(jobs), tuple(self._notes))

    def _begin(self, times: Sequence[float]) -> float:
        """Times as seconds from the start; if they are dates, the first is the start."""
        earliest = min(times, default=0.0)
        if self._has_dates or earliest <= LONGEST:
            return earliest if self._has_dates else 0.0
        self._note("times of submission are seconds since 1970: the first is the start")
        return earliest

    def _check_bounds(self, line: int, row: list[str], submit: float) -> None:
        if not 0 <= submit <= LONGEST:
            rule = "from the start of the trace, and within a year of it"
            change = "write all times the same way, and fewer of them"
            self._cell_problem(line, row, "submit", repr(self._cell(row, "submit")), rule, change)

    # Rows

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        try:
            text = read_file(self.path, TRACES).decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            self._problem(1, 1, "", str(reason), "a trace is a CSV file", "name a file that can be read")
            return
        if text.lstrip()[:1] == "[":
            yield from self._philly(text)
            return
        reader = csv.reader(io.StringIO(text), delimiter=delimiter_of(text))
        try:
            first_row = next(reader, None)
            if first_row is None or not any(cell.strip() for cell in first_row):
                self._problem(
                    1, 1, "", "an empty file", "the first line names the columns", f"write {','.join(OWN_COLUMNS)}"
                )
                return
            header = [cell.strip().lower() for cell in first_row]
            if len(first_row) == len(PAI_TASKS) and not KNOWN_COLUMNS & set(header):
                self._note("no header and ten columns: read as pai_task_table of Alibaba's trace of 2020")
                self._name(PAI_TASKS)
                yield reader.line_num, first_row
            else:
                self._name(header)
            if self._problems:
                return
            for row in reader:
                if any(cell.strip() for cell in row[len(first_row) :]):
                    cell_count, rule = f"{len(row)} cells", f"{len(first_row)}, as the first line has"
                    self._problem(reader.line_num, 1, "", cell_count, rule, "quote what holds a comma")
                elif any(cell.strip() for cell in row):
                    yield reader.line_num, row
        except csv.Error as error:
            self._problem(reader.line_num, 1, "", str(error), "a trace is a CSV file", "mend the line")

    def _philly(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """Microsoft's trace: a list of jobs with their attempts."""
        self._is_json = True
        self._note("Philly: a job's time is that of all of its attempts, its GPUs those of the last one")
        self._name(["submitted_time", "vc", "jobid", "gpu_num", "duration"])
        for line, job in self._list_items(text):
            try:
                tries = [(philly_seconds(a["start_time"], a["end_time"]), a) for a in job["attempts"] or ()]
                timed_attempts = [(seconds, attempt) for seconds, attempt in tries if seconds is not None]
                if not timed_attempts or job["submitted_time"] in NO_TIME:
                    self._omitted += 1
                    continue
                gpus = sum(len(machine["gpus"]) for machine in timed_attempts[-1][1]["detail"])
                duration = sum(seconds for seconds, _ in timed_attempts)
                # In the order of the columns above.
                values = (job["submitted_time"], job["vc"] or "", job["jobid"], gpus, duration)
            except (KeyError, TypeError) as error:
                error_text = f"no {error}" if isinstance(error, KeyError) else str(error)
                rule = "a job has submitted_time, vc, jobid and attempts, each with start_time, end_time and detail"
                self._problem(line, 1, "", error_text, rule, "mend it")
                continue
            yield line, [str(value) for value in values]

    def _list_items(self, text: str) -> Iterator[tuple[int, Any]]:
        """Items of a JSON list, each with the line on which it begins."""
        decoder, line, newline_position = json.JSONDecoder(), 1, 0
        position = text.index("[") + 1
        try:
            while True:
                position = after_blanks(text, position)
                if text[position : position + 1] == "]" and not newline_position:
                    return
                line, newline_position = line + text.count("\n", newline_position, position), position
                item, position = decoder.raw_decode(text, position)
                yield line, item
                position = after_blanks(text, position)
                if text[position : position + 1] == "]":
                    return
                if text[position : position + 1] != ",":
                    raise json.JSONDecodeError("no comma", text, position)
                position += 1
        except (json.JSONDecodeError, RecursionError) as error:
            place = (error.lineno, error.colno) if isinstance(error, json.JSONDecodeError) else (line, 1)
            self._problem(*place, "", "no list of jobs", "a JSON trace is Philly's cluster_job_log", "mend it")

    def _name(self, header: Sequence[str]) -> None:
        positions = {name: position for position, name in enumerate(header)}
        self._columns = {
            column: positions[next(name for name in names if name in positions)]
            for column, names in ALIASES.items()
            if any(name in positions for name in names)
        }
        self._positions = positions
        for name in dict.fromkeys(header):
            if name in KNOWN_COLUMNS and header.count(name) > 1:
                self._problem(1, 1, name, f"{header.count(name)} columns", "each column once", "rename the others")
        self._has_dates = "submit" not in positions
        if "queue" in self._columns and "submit_time" in positions:
            # A column of Slurm in Helios and Acme: waiting time or partition.
            del self._columns["queue"]
        if (
            "submit" in self._columns
            and "start_time" in positions
            and not {"submit", "submit_time", "submitted_time", "creation_time"} & set(positions)
        ):
            self._note("no time of submission in the file: jobs are submitted when they started")
        if "task_name" in positions:
            self._note("a line is a task: tasks of one job are submitted and start independently")
        if "gpu_milli" in positions:
            self._note("gpu_milli: a part of a GPU counts as a whole one")
        if "tenant" not in self._columns and "name" in self._columns:
            self._columns["tenant"] = self._columns["name"]
            self._note("no tenant, vc or user in the file: jobs go to tenants by the hash of their names")
        for column in ("submit", "tenant", "gpus", "duration"):
            if column in self._columns or (
                column == "duration" and any(set(names) <= set(positions) for names in SPANS)
            ):
                continue
            change = f"add it, or call one {' or '.join(ALIASES[column][1:])}"
            self._problem(
                1,
                1,
                column,
                "no such column",
                f"a trace has {', '.join(('submit', 'tenant', 'gpus', 'duration'))}",
                change,
            )

    # One job

    def _draft(self, line: int, row: list[str]) -> _Draft | None:
        if len(self._problems) > MAX_PROBLEMS:
            return None
        problem_count = len(self._problems)
        submit = self._time(line, row, "submit")
        gpus = self._gpus(line, row)
        duration = self._duration(line, row)
        if len(self._problems) > problem_count:
            return None
        if submit is None or not gpus or not duration:
            self._omitted += 1
            return None
        placed = self._place(line, row)
        if placed is None:
            return None
        tenant, namespace, flavor, tier = placed
        node = per_node(self.environment, flavor)
        gpus_per_pod = self._number(line, row, "gpus-per-pod") or pods_of(gpus, node)
        if gpus_per_pod > node or gpus % gpus_per_pod:
            rule = f"pods of one size, each on one node, which has {node} {flavor}"
            self._cell_problem(
                line,
                row,
                "gpus-per-pod",
                f"{gpus_per_pod} of {gpus}",
                rule,
                f"write {pods_of(gpus, node)}, or leave it out",
            )
        checkpoint = self._number(line, row, "checkpoint")
        busy = self._busy(line, row, duration)
        name = self._cell(row, "name") or f"{tenant.tenant}-{line:04d}"
        queue = self._cell(row, "queue") or None
        if queue not in {None, vocabulary.DEFAULT_QUEUE, *namespace.queues}:
            queue_hint = f"use default{''.join(f' or {q}' for q in namespace.queues)}"
            self._cell_problem(
                line, row, "queue", repr(queue), f"a queue of {tenant.tenant}'s namespace {namespace.name}", queue_hint
            )
        if len(self._problems) > problem_count:
            return None
        return _Draft(
            name,
            submit,
            tenant.tenant,
            namespace.name,
            flavor,
            gpus,
            gpus_per_pod,
            duration,
            tier,
            checkpoint,
            queue,
            busy,
        )

    def _place(self, line: int, row: list[str]) -> tuple[Tenant, Namespace, str, str] | None:
        tenant = self._tenant(line, row)
        if tenant is None:
            return None
        flavor = self._cell(row, "flavor") or next(iter(tenant.gpus))
        if flavor not in tenant.gpus:
            hint = f"use {' or '.join(tenant.gpus)}"
            self._cell_problem(
                line, row, "flavor", repr(flavor), f"a flavor of which {tenant.tenant} has a share", hint
            )
            return None
        tier = self._cell(row, "tier")
        if tier and tier not in self.environment.tiers:
            self._cell_problem(
                line, row, "tier", repr(tier), "a tier of the environment", f"use {' or '.join(self.environment.tiers)}"
            )
            return None
        requested_namespace = self._cell(row, "namespace")
        candidates = [
            namespace_spec for namespace_spec in tenant.namespaces if requested_namespace in {"", namespace_spec.name}
        ]
        if not candidates:
            hint = f"use {' or '.join(namespace_spec.name for namespace_spec in tenant.namespaces)}"
            self._cell_problem(
                line, row, "namespace", repr(requested_namespace), f"a namespace of {tenant.tenant}", hint
            )
            return None
        admitted_namespaces = [
            p for p in candidates if pools_of(self.environment, flavor, tenant.tenant, frozenset({tenant.tier_of(p)}))
        ]
        if not admitted_namespaces:
            pool_request = f"{flavor} for {', '.join(p.name for p in candidates)} of {tenant.tenant}"
            column = "namespace" if requested_namespace else "flavor"
            self._cell_problem(
                line,
                row,
                column,
                pool_request,
                "a pool admits the namespace's tier",
                "name another namespace or flavor",
            )
            return None
        tier_namespaces = [
            namespace_spec for namespace_spec in admitted_namespaces if tenant.tier_of(namespace_spec) == tier
        ]
        namespace = (tier_namespaces or admitted_namespaces)[0]
        ceiling = self.environment.tiers[tenant.tier_of(namespace)].priority
        if tier and self.environment.tiers[tier].priority > ceiling:
            rule = f"no tier above {namespace.name}'s own, {tenant.tier_of(namespace)}"
            self._cell_problem(line, row, "tier", tier, rule, "lower it")
            return None
        return tenant, namespace, flavor, tier or tenant.tier_of(namespace)

    def _tenant(self, line: int, row: list[str]) -> Tenant | None:
        name = self._cell(row, "tenant")
        if name in self._mapping:
            self._used_mappings.add(name)
            return self._tenants[self._mapping[name]]
        if name in self._tenants:
            return self._tenants[name]
        is_tenant_column = self._columns["tenant"] == self._positions.get("tenant")
        if is_tenant_column or not name or not self._tenants:
            self._cell_problem(line, row, "tenant", repr(name), "a tenant that has GPUs", self._tenant_hint(name))
            return None
        self._hashed_names.add(name)
        number = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big")
        return self._tenants[sorted(self._tenants)[number % len(self._tenants)]]

    def _tenant_hint(self, name: str) -> str:
        return f"use {' or '.join(nearest(name, self._tenants) or sorted(self._tenants))}"

    def _cell(self, row: list[str], column: str) -> str:
        position = self._columns.get(column)
        return row[position].strip() if position is not None and position < len(row) else ""

    def _gpus(self, line: int, row: list[str]) -> int | None:
        text = self._cell(row, "gpus")
        if not text:
            return None
        number = number_in(text)
        if self._columns["gpus"] == self._positions.get("plan_gpu"):
            # Hundredths of a GPU for each instance; a part of a GPU counts as one, because devices are not shared here.
            position = self._positions.get("inst_num")
            instances = (
                number_in(row[position]) if position is not None and position < len(row) and row[position] else 1
            )
            if instances is None or not 0 <= instances <= MAX_GPUS:
                self._cell_problem(
                    line, row, "gpus", f"inst_num {row[position or 0]!r}", "a number of instances", "mend it"
                )
                return None
            if number is not None:
                self._note("plan_gpu is in hundredths, and a part of a GPU counts as a whole one")
                number = math.ceil(number / 100) * instances
        if number is None or not 0 <= number <= MAX_GPUS or number != int(number):
            self._cell_problem(line, row, "gpus", repr(text), f"a whole number up to {MAX_GPUS}", "write it like 8")
            return None
        return int(number)

    def _duration(self, line: int, row: list[str]) -> int | None:
        if "submit_time" in self._positions and (seconds := self._run_seconds(row)):
            # The duration in Acme's cluster Kalos is measured from the submission.
            written_duration = number_in(self._cell(row, "duration"))
            if written_duration is not None and abs(written_duration - seconds) > 1:
                self._note("duration is not end_time minus start_time in this file: the latter is what counts")
            return self._span_seconds(line, seconds)
        if text := self._cell(row, "duration"):
            number = number_in(text)
            if number is None or not 0 <= number <= LONGEST:
                self._cell_problem(
                    line, row, "duration", repr(text), "seconds, of a year at most", "write it like 3600"
                )
                return None
            return math.ceil(number)
        if "duration" in self._columns:
            return None
        return self._span_seconds(line, self._run_seconds(row))

    def _run_seconds(self, row: list[str]) -> float | None:
        """Seconds from its start to its end, where the file has both."""
        for names in SPANS:
            if set(names) <= set(self._positions):
                start, end = (
                    moment_in(row[self._positions[name]]) if self._positions[name] < len(row) else None
                    for name in names
                )
                return None if start is None or end is None or end <= start else end - start
        return None

    def _span_seconds(self, line: int, seconds: float | None) -> int | None:
        if seconds is None:
            return None
        if seconds > LONGEST:
            rule = "a job runs a year at most"
            self._problem(line, 1, "duration", f"{seconds:.0f} s from start to end", rule, "write both the same way")
        return math.ceil(seconds)

    def _time(self, line: int, row: list[str], column: str) -> float | None:
        text = self._cell(row, column)
        if not text:
            return None
        number, moment = number_in(text), moment_in(text)
        if number is not None and number > MILLISECONDS:
            self._cell_problem(line, row, column, repr(text), "seconds", "divide milliseconds by 1000")
            return None
        self._has_dates |= number is None
        if moment is None:
            self._cell_problem(
                line,
                row,
                column,
                repr(text),
                "seconds from the start, or a time",
                "write it like 3600 or 2026-01-31T08:00:00",
            )
        return moment

    def _number(self, line: int, row: list[str], column: str) -> int | None:
        text = self._cell(row, column)
        if not text:
            return None
        if not text.isascii() or not text.isdigit() or len(text) > 9 or int(text) < 1:
            self._cell_problem(
                line, row, column, repr(text), "a whole number above 0, of nine digits at most", "write it like 8"
            )
            return None
        return int(text)

    def _busy(self, line: int, row: list[str], duration: int) -> int | None:
        text = self._cell(row, "busy")
        if not text:
            return None
        number = number_in(text)
        if number is None or not 0 <= number <= duration:
            rule = f"seconds of the run time, from 0 to {duration}"
            self._cell_problem(line, row, "busy", repr(text), rule, "write when its GPUs become idle, or leave it out")
            return None
        return math.ceil(number)

    # Messages

    def _note(self, text: str) -> None:
        self._notes[text] = None

    def _cell_problem(self, line: int, row: list[str], column: str, value: str, rule: str, change: str) -> None:
        position = self._columns.get(column, 0)
        at = 1 if self._is_json else 1 + sum(len(cell) + 1 for cell in row[:position])
        self._problem(line, at, column, value, rule, change)

    def _problem(self, line: int, position: int, column: str, value: str, rule: str, change: str) -> None:
        if len(self._problems) == MAX_PROBLEMS:
            position, column, value, rule = 1, "", "more mistakes", f"{MAX_PROBLEMS} are named at a time"
            change = "mend these first"
        elif len(self._problems) > MAX_PROBLEMS:
            return
        self._problems.append(Problem(str(self.path), line, position, column, value, rule, change))


@dataclass(frozen=True, slots=True)
class _Draft:
    name: str
    submit: float
    tenant: str
    namespace: str
    flavor: str
    gpus: int
    gpus_per_pod: int
    duration: int
    tier: str
    checkpoint: int | None
    queue: str | None
    busy: int | None


def _job(draft: _Draft, begin: float) -> Job:
    values: dict[str, Any] = {job_field.name: getattr(draft, job_field.name) for job_field in fields(Job)}
    values["submit"] = round(draft.submit - begin)
    return Job(**values)
