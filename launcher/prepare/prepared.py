"""A launch that is ready: what is printed of it, what changes it later, and how it is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from ...catalog.errors import UsageError
from ...catalog.files import make_private
from ...catalog.frozen import FrozenModel, Usd
from ...catalog.types import Provider
from ...planner.cost.launch_cost import LaunchCost
from ...planner.plan.parts import SpotPriceRange
from ...planner.plan.plan import SCHEMA_VERSION, CostLine, Plan
from ..bundle import write_guard, write_job_folder, write_orders
from ..guard.orders import Orders
from ..labels import with_store
from ..runner.job import Job, write_atomically
from ..skypilot.interfaces import Interfaces
from ..skypilot.placement import Place
from ..skypilot.reservations import write_sky_config
from ..store.project_limits import LimitStanding, ProjectFile, warnings
from ..upload import Upload, keep_source
from .project import Project
from .request import LaunchRequest
from .task.task import Task


class LaunchAnswer(FrozenModel):
    """What `gpuplan launch --dryrun --format json` prints: the task, its line and its money."""

    schema_version: Literal["1.0"] = SCHEMA_VERSION
    run: str
    plan: str
    task: dict[str, Any]
    then: dict[str, Any] | None = None
    """The task that follows on on-demand machines, so that a deadline is met."""
    sky_config: dict[str, Any] | None = None
    """SkyPilot's configuration for this launch: reservations, network interfaces."""
    command: str
    usd_per_hour: Usd
    """All nodes."""
    usd_expected: Usd | None
    usd_worst: Usd | None
    cost_lines: tuple[CostLine, ...]
    notes: tuple[str, ...]
    idle_minutes: int | None = None
    """After how long SkyPilot tears down machines that are idle after the job, if no command does;
    None: it does not, and a command on this computer alone ends them."""
    upload_bytes: int | None = None
    """Of the code and files that travel to every node."""
    project: str | None = None
    """The project that it counts for."""
    limits: tuple[LimitStanding, ...] = ()
    """Of the project's file, with what this launch adds to each."""


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A launch that can be written."""

    run_id: str
    plan: Plan
    task: Task
    cost: LaunchCost
    by_hour: LaunchCost
    """The same without what is paid of a term unused: what its account counts."""
    places: tuple[Place, ...]
    fallback: tuple[Place, ...]
    """Where other machines are bought, so that spot machines do not cost the deadline."""
    job: Job | None
    """The job of gpuplan's runner; None where the user's own script is launched."""
    data: str | None
    """What it trains on, in words; None for a script of one's own."""
    folder: Path
    """Where `write` puts it."""
    request: LaunchRequest
    project: Project
    model: str | None
    """Its name."""
    parameters: int | None
    """Parameters of the model; None where the plan does not say."""
    workload: str | None
    """What tells it, with its params, from others; None where a script of one's own trains."""
    billing: Provider | None
    orders: Orders
    """What the guard on the nodes holds the first launch to."""
    notes: tuple[str, ...]
    upload: Upload
    """The code and files that travel to every node."""
    always: tuple[PurePosixPath, ...] = ()
    """Paths in that folder that travel whatever leaves them out."""
    project_file: ProjectFile | None = None
    """The project's file whose limits it obeys."""
    limits: tuple[LimitStanding, ...] = ()
    """Of that file, as they stood when they were last looked at."""
    moves: SpotPriceRange | None = None
    """How far the price of its spot machines moves; at worst it is at the top of that."""
    term: str | None = None
    """The term of years that is to be signed for it, in words; None where none is."""
    interfaces: Interfaces | None = None
    """Between nodes; None for one node, and where they are not known."""

    @property
    def all_places(self) -> tuple[Place, ...]:
        """Return all places, in the order in which the task tries them."""
        return (*self.places, *self.fallback)

    @property
    def is_managed(self) -> bool:
        """Return whether SkyPilot recovers and ends the job by itself."""
        return self.request.buys_spot(self.plan)

    @property
    def idle_minutes(self) -> int | None:
        """Return after how many idle minutes its machines go without a command; None: never."""
        return 0 if self.is_managed else self.task.idle_minutes

    @property
    def warnings(self) -> list[str]:
        """Return a sentence for every limit that is passed, or may be, and refuses nothing."""
        return warnings(self.limits)

    def answer(self) -> LaunchAnswer:
        """Return what is printed of it."""
        return LaunchAnswer(
            run=self.run_id,
            plan=self.plan.id,
            task=self.task.config,
            then=self.task.then,
            sky_config=self.task.sky_config,
            command=self.task.command,
            usd_per_hour=self.cost.usd_per_hour,
            usd_expected=self.cost.usd_expected,
            usd_worst=self.cost.usd_worst,
            cost_lines=self.cost.lines,
            notes=self.notes,
            idle_minutes=self.idle_minutes,
            upload_bytes=self.upload.size_bytes,
            project=self.project.name,
            limits=self.limits,
        )


def in_store(prepared: Prepared, store_id: str) -> Prepared:
    """Return a launch whose machines carry the id of the store that keeps it."""
    task = prepared.task
    then = None if task.then is None else with_store(task.then, store_id)
    task = replace(task, config=with_store(task.config, store_id), then=then)
    return replace(prepared, task=task)


def write(prepared: Prepared) -> Path:
    """Write what `sky launch` needs, and return the task's file.

    Raises:
        UsageError: the folder cannot be written.
    """
    path = prepared.folder / "task.yaml"
    try:
        make_private(prepared.folder.parent)
        make_private(prepared.folder)
        job = prepared.folder / "job"
        if prepared.job is not None:
            write_job_folder(job, prepared.job)
        write_guard(job)
        write_orders(job, prepared.orders)
        write_sky_config(prepared.folder, prepared.task.sky_config)
        keep_source(prepared.folder, prepared.project.workdir, prepared.always)
        write_atomically(path, prepared.task.yaml)
    except OSError as error:
        raise UsageError(
            f"{prepared.folder} cannot be written: {error.strerror or error}.",
            fix="run the command in a folder that you may write to.",
        ) from None
    return path
