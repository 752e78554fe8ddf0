"""SkyPilot, the engine: the one file that asks it for machines. `sky` is imported on first use.

Facts about SkyPilot 0.14 that this rests on: every call returns a request's id and the result is
fetched with it; `launch` does not raise when the job fails; a cluster that went by itself is known
to be gone only after its status was refreshed.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import yaml

from ..lifecycle.engine import (
    Cluster,
    EngineError,
    EngineJob,
    EngineRequest,
    JobStatus,
    NoEngineError,
    Past,
)
from ..store.launch_record import EngineAddress
from . import home, over_ssh
from .address import address_here
from .errors import NothingThereError, explained, understood
from .reservations import read_sky_config
from .rows import (
    JOB_CODE,
    cluster_of,
    is_launch,
    job_of,
    managed_jobs_of,
    past_of,
    request_of,
    submitted,
)

INSTALL = (
    'install it with `pip install "gpuplan[sky]"` and the extra of your cloud, as'
    ' `pip install "skypilot[aws]"`.'
)


class SkyEngine:
    """SkyPilot as it is installed here, with the server that the user uses."""

    @cached_property
    def _sky(self) -> Any:
        home.enter()
        try:
            sky: Any = import_module("sky")
            import_module("sky.jobs")
        except ImportError as error:
            raise NoEngineError(
                f"SkyPilot is not installed here ({error}), and it is what rents machines.",
                fix=INSTALL,
            ) from None
        return sky

    def ready(self) -> None:
        """Do nothing, if SkyPilot is installed."""
        _ = self._sky

    def address(self) -> EngineAddress:
        """Return which SkyPilot is asked from here, without asking it."""
        _ = self._sky  # Imported first, so that GPUPLAN_SKY_HOME holds for what follows.
        return address_here()

    def launch(self, task: Path, cluster: str, secrets: Mapping[str, str]) -> str:
        """Ask for machines and a job on them; return the request's id at once."""
        with self._explained(), self._configured(task):
            return str(self._sky.launch(self._task(task, secrets), cluster_name=cluster))

    def wait_launched(self, request_id: str, out: TextIO | None) -> int:
        """Wait until the job is submitted; return its id."""
        with self._explained():
            job_id, _ = self._sky.stream_and_get(request_id, output_stream=out or io.StringIO())
        return submitted(job_id)

    def requests(self, cluster: str) -> list[EngineRequest]:
        """Return the launches of a name that were asked for, newest first."""
        with self._explained():
            found = self._sky.api_status(all_status=True, limit=None)
        with understood():
            # A managed job has no cluster of its own yet, but its name is in what was asked.
            rows = [one for one in found if is_launch(one.name) and cluster in one.request_body]
            requests = [request_of(one) for one in rows]
        return sorted(requests, key=lambda one: one.asked_at, reverse=True)

    def cancel_request(self, request_id: str) -> None:
        """End a request that still runs; nothing if it does not."""
        with self._explained():
            self._sky.get(self._sky.api_cancel([request_id], silent=True))

    def cluster(self, name: str, *, refresh: bool = True) -> Cluster | None:
        """Return a cluster as the cloud has it now; None where it is gone."""
        found = self._status([name], refresh=refresh)
        return found[0] if found else None

    def clusters(self) -> list[Cluster]:
        """Return all clusters of this user, asking the clouds."""
        return self._status(None, refresh=True)

    def past(self, name: str) -> list[Past]:
        """Return the clusters of a name that are gone, newest first, of the last 30 days."""
        with self._explained():
            rows = self._sky.get(self._sky.cost_report())
        with understood():
            found = [past_of(row) for row in rows if row["name"] == name and row["status"] is None]
        return sorted((one for one in found if one), key=lambda one: one.ended_at, reverse=True)

    def jobs(self, cluster: str) -> list[EngineJob]:
        """Return the jobs of a cluster, newest first."""
        with self._explained():
            rows = self._sky.get(self._sky.queue(cluster, all_users=True))
        with understood():
            jobs = [job_of(row) for row in rows]
        return sorted(jobs, key=lambda job: job.job_id, reverse=True)

    def tail(
        self, cluster: str, job_id: int, out: TextIO, *, follow: bool, lines: int = 0
    ) -> JobStatus | None:
        """Write the log of a job; return how it has ended."""
        with self._explained():
            code = self._sky.tail_logs(
                cluster, job_id, follow=follow, tail=lines, output_stream=out
            )
        return JOB_CODE.get(code) if isinstance(code, int) else None

    def execute(self, cluster: str, command: str) -> None:
        """Run a shell command on the first node, beside the job."""
        # A job of its own would wait behind those of SkyPilot, on machines that are busy.
        self._make_reachable(cluster)
        over_ssh.tell(cluster, command)

    def copy_back(self, cluster: str, source: str, target: Path) -> bool:
        """Bring what is in a folder of the first node into a local one; return whether it is there.

        Raises:
            LostMachineError: the connection broke off.
            EngineError: it could not be brought.
        """
        try:
            target.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EngineError(
                f"The results cannot be brought to {target}: {error.strerror}.",
                fix="the machines are still there: make that folder writable and try again, or"
                f" take the results with `rsync -a {cluster}:{source}/ FOLDER/`.",
            ) from None
        self._make_reachable(cluster)
        return over_ssh.bring(cluster, source, target)

    def cancel(self, cluster: str, job_id: int) -> None:
        """End a job."""
        with self._explained():
            self._sky.get(self._sky.cancel(cluster, job_ids=[job_id]))

    def down(self, cluster: str) -> None:
        """Tear down all machines of a cluster; nothing if it is gone."""
        with self._explained():
            try:
                self._sky.get(self._sky.down(cluster))
            except self._sky.exceptions.ClusterDoesNotExist:
                return

    def launch_managed(self, task: Path, name: str, secrets: Mapping[str, str]) -> str:
        """Ask for a job that SkyPilot recovers by itself; return the request's id at once."""
        with self._explained():
            return str(self._sky.jobs.launch(self._tasks(task, secrets), name=name))

    def wait_managed(self, request_id: str, out: TextIO | None) -> int:
        """Wait until such a job is submitted; return its id."""
        with self._explained():
            job_ids, _ = self._sky.stream_and_get(request_id, output_stream=out or io.StringIO())
        return submitted(job_ids[0] if isinstance(job_ids, list) and job_ids else job_ids)

    def managed_jobs(self) -> list[EngineJob]:
        """Return the jobs that SkyPilot recovers by itself, newest first."""
        try:
            with self._explained():
                rows, *_ = self._sky.get(self._sky.jobs.queue_v2(refresh=True))
        except NothingThereError:  # Its controller cannot be started, as there is none.
            return []
        with understood():
            return managed_jobs_of(rows)

    def tail_managed(self, job_id: int, out: TextIO, *, follow: bool, lines: int = 0) -> None:
        """Write the log of such a job."""
        with self._explained():
            self._sky.jobs.tail_logs(
                job_id=job_id, follow=follow, tail=lines or None, output_stream=out
            )

    def cancel_managed(self, job_id: int, *, gracefully: bool) -> None:
        """End such a job and its machines."""
        with self._explained():
            request = self._sky.jobs.cancel(job_ids=[job_id], graceful=gracefully)
            self._sky.get(request)

    def _make_reachable(self, cluster: str) -> None:
        """Let `ssh CLUSTER` reach its first node from this machine."""
        sky_command: Any = import_module("sky.client.cli.command")
        with self._explained():
            # SkyPilot's own way to make that work; its SDK has none.
            sky_command._get_cluster_records_and_set_ssh_config([cluster])

    def _task(self, path: Path, secrets: Mapping[str, str]) -> Any:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        # Given with the file: one that has no value as it is read is looked for on the server.
        return self._sky.Task.from_yaml_config(
            config, secrets_overrides=list(secrets.items()) or None
        )

    def _tasks(self, path: Path, secrets: Mapping[str, str]) -> Any:
        """Return the tasks of a file, one after the other."""
        dag_utils: Any = import_module("sky.utils.dag_utils")
        return dag_utils.load_chain_dag_from_yaml_str(
            path.read_text(encoding="utf-8"), secrets_overrides=list(secrets.items()) or None
        )

    def _status(self, names: list[str] | None, *, refresh: bool) -> list[Cluster]:
        modes = self._sky.StatusRefreshMode
        mode = modes.FORCE if refresh else modes.NONE
        with self._explained():
            rows = self._sky.get(self._sky.status(names, refresh=mode))
        with understood():
            return [cluster_of(row) for row in rows]

    def _configured(self, task: Path) -> AbstractContextManager[None]:
        """Return SkyPilot with the configuration beside a task's file: reservations to start in."""
        config = read_sky_config(task)
        if config is None:
            return nullcontext()
        sky_config: Any = import_module("sky.skypilot_config")
        # As `sky launch --config FILE` does, for this request alone: it goes to the server with it.
        whole = sky_config.overlay_skypilot_config(
            original_config=sky_config.to_dict(), override_configs=config
        )
        return sky_config.replace_skypilot_config_in_process(whole)

    def _explained(self) -> AbstractContextManager[None]:
        return explained(self._sky.exceptions)
