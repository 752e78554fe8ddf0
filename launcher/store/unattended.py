"""What becomes of an open launch when no command is here to end it."""

from __future__ import annotations

from ..task_file import NO_AUTODOWN
from .launch_record import LaunchRecord


def unattended_line(record: LaunchRecord) -> str | None:
    """Return what an open launch loses, or goes on to cost, that no command follows; or None."""
    if not record.is_open or record.managed:
        return None
    if is_ended_here_alone(record):
        usd_per_hour = max(one.usd_per_hour for one in record.places) * record.nodes
        cloud = record.places[0].infra.partition("/")[0]
        return (
            f"SkyPilot ends no machines on {cloud} by itself: those of {record.run} cost"
            f" ${usd_per_hour:,.2f} an hour, after its job too, until a command here ends them"
            f" (`gpuplan logs -f {record.run}` follows it, `gpuplan status` ends what is done)."
        )
    if record.fetch is None:
        return None
    minutes = record.idle_minutes
    after = "" if minutes is None else f" {minutes} minutes after its job"
    return (
        f"The results of {record.run} are on its machines alone, and are deleted with them{after}"
        f" unless a command brings them before (`gpuplan logs -f {record.run}` follows it,"
        " `gpuplan status` brings what is done): this computer must not sleep then."
    )


def is_ended_here_alone(record: LaunchRecord) -> bool:
    """Return whether nothing but a command of this computer ends the machines of a launch."""
    clouds = {one.infra.partition("/")[0] for one in record.places}
    return not record.managed and not clouds.isdisjoint(NO_AUTODOWN)
