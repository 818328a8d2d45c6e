"""Checkpoints of a run on disk, from which the same simulation continues after an interruption."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tenancy.catalog import versions
from tenancy.lab.layout import LabError, write
from tenancy.planning import make_plan
from tenancy.simulation.events import Event, EventKind, Run
from tenancy.simulation.objects import cluster_objects, kueue_values
from tenancy.simulation.trace import Job
from tenancy.spec.loader import Loaded

FORMAT_VERSION = 3
"""Version of the format, to be increased when it changes: a checkpoint of another version is not read."""
Checkpoint = dict[str, Any]


class SimulationBusy(LabError):
    """Another run of the same simulation is writing checkpoints."""


class Store:
    """The last checkpoint of one simulation, in a file that is replaced atomically, or in memory without a folder."""

    def __init__(self, folder: Path | None = None, name: str = "") -> None:
        self._file = folder / f"{name}.json" if folder else None
        self._cluster_record = folder / f"{name}.lab" if folder else None
        self._lock = folder / f"{name}.lock" if folder else None
        self._memory: str | None = None

    def read(self) -> Checkpoint | None:
        """The last checkpoint, or None; a file that is damaged or of another version counts as none."""
        try:
            text = self._file.read_text("utf-8") if self._file else self._memory
            content = json.loads(text) if text else None
        except (OSError, ValueError):
            return None
        return content if isinstance(content, dict) and content.get("form") == FORMAT_VERSION else None

    def save(self, checkpoint: Checkpoint) -> None:
        """Replace the stored checkpoint by this one."""
        text = json.dumps({"form": FORMAT_VERSION, **checkpoint})
        if self._file is None:
            self._memory = text
        else:
            write(self._file, text)

    def delete(self) -> None:
        """Delete the checkpoint: the next run starts at hour 0."""
        self._memory = None
        if self._file:
            self._file.unlink(missing_ok=True)

    @contextmanager
    def hold_lock(self) -> Generator[None]:
        """Lock the checkpoint, because two runs that write one file would mix their decisions."""
        if self._lock is None:
            yield
            return
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                running_simulation = f"a simulation that runs already ({self._lock} is locked)"
                change = "wait until it has ended, or name another folder with --checkpoints"
                raise SimulationBusy(
                    f"given {running_simulation}; rule: one run writes a checkpoint; change: {change}"
                ) from None
            yield

    def leftover_cluster(self) -> Path | None:
        """The cluster folder of a run that was killed before it could clean up."""
        try:
            return Path(self._cluster_record.read_text("utf-8")) if self._cluster_record else None
        except OSError:
            return None

    def record_cluster(self, folder: Path | None) -> None:
        """Record the folder of the run's cluster; None after its deletion."""
        if self._cluster_record:
            if folder is None:
                self._cluster_record.unlink(missing_ok=True)
            else:
                write(self._cluster_record, str(folder))


def name_of(loaded: Loaded, jobs: Sequence[Job], window: int, start: str = "") -> str:
    """Key of a simulation, equal for two runs with the same queues, work, first day and Kueue."""
    versions_used = (versions.CHARTS["kueue"].version, FORMAT_VERSION)
    queues = list(cluster_objects(make_plan(loaded, loaded.day)))
    # What the clock decides by besides the queues.
    environment = loaded.environment
    times = [tenant.model_dump(mode="json") for tenant in loaded.tenants] if environment.has_clock else []
    times += (
        [environment.model_dump(mode="json", include={"queues", "prices", "tiers"})] if environment.has_clock else []
    )
    content = [versions_used, start, times, queues, kueue_values(loaded), window, [asdict(j) for j in jobs]]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return f"{loaded.environment.environment}-{digest[:16]}"


def events_as_rows(events: Sequence[Event]) -> list[list[Any]]:
    """Events as lists, for JSON."""
    return [[e.time, e.kind, e.job, e.pool, e.text, e.lost_seconds, e.preemptor, e.returned_seconds] for e in events]


def events_of(checkpoint: Checkpoint) -> list[Event]:
    """The events of a checkpoint."""
    return [Event(time, EventKind(kind), *fields) for time, kind, *fields in checkpoint["events"]]


def run_of(checkpoint: Checkpoint) -> Run:
    """The run up to the checkpoint."""
    return Run(tuple(events_of(checkpoint)), checkpoint["seconds"], checkpoint["looks"], checkpoint["latest"])
