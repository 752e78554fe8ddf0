"""What becomes of an open launch when no command is here to end it."""

from __future__ import annotations

from .launch_record import LaunchRecord


def unattended_line(record: LaunchRecord) -> str | None:
    """Return what is lost of an open launch that no command follows; None where nothing is."""
    if not record.is_open or record.managed or record.fetch is None:
        return None
    minutes = record.idle_minutes
    after = "" if minutes is None else f" {minutes} minutes after its job"
    return (
        f"The results of {record.run} are on its machines alone, and are deleted with them{after}"
        f" unless a command brings them before (`gpuplan logs -f {record.run}` follows it,"
        " `gpuplan status` brings what is done): this computer must not sleep then."
    )
