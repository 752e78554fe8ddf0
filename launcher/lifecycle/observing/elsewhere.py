"""Whether a launch was asked of another SkyPilot than the one that is reached from here.

What another SkyPilot does not know is not gone: a shell without GPUPLAN_SKY_HOME, as that of cron,
or with another server, reaches one that has never heard of the machines.
"""

from __future__ import annotations

from pathlib import Path

from ...store.launch_record import EngineAddress, LaunchRecord
from ..engine import Engine, EngineError


class ElsewhereError(EngineError):
    """The SkyPilot that is reached from here is not the one that was asked for the machines."""

    exit_code = 2


def refuse_elsewhere(record: LaunchRecord, engine: Engine, *, is_known: bool) -> None:
    """Do nothing, if what is reached from here was asked for a launch, or knows it all the same.

    Args:
        record: the launch; one that does not keep whom it asked is taken as it is.
        engine: what is reached from here.
        is_known: whether that has its machines, its job or its request.

    Raises:
        ElsewhereError: it is another one, and nothing that it does not know is gone.
    """
    last = record.last
    if last is None or is_known or not is_elsewhere(record, engine):
        return
    asked, here = last.engine, engine.address()
    assert asked is not None and here is not None
    if any(one.ended_at >= last.asked_at for one in engine.past(record.cluster)):
        return  # Its address has changed: it had these machines.
    raise ElsewhereError(
        f"It was asked of {_named(asked)}, and {_named(here)} is reached from here, which knows"
        f" nothing of it: it is left as it is. Ask that SkyPilot: {_how(asked, here, record)}"
        f"{_or_close(record)}",
        fix="do so; nothing was changed. Only the SkyPilot that was asked for machines knows what"
        " became of them.",
    )


def is_elsewhere(record: LaunchRecord, engine: Engine) -> bool:
    """Return whether the newest attempt is known to be of another engine than is reached here.

    One that the user closed as that engine is gone is nobody's any more.
    """
    if record.is_unknown:
        return False
    asked = None if record.last is None else record.last.engine
    here = None if asked is None else engine.address()
    return asked is not None and here is not None and _differ(asked, here)


def _differ(asked: EngineAddress, here: EngineAddress) -> bool:
    pairs = [(asked.home, here.home), (asked.user, here.user)]
    if None in pairs[0]:  # On this machine the folder tells them apart, by whatever name and port.
        pairs.append((asked.server, here.server))
    return any(None not in pair and pair[0] != pair[1] for pair in pairs)


def _named(address: EngineAddress) -> str:
    parts = [f"the SkyPilot at {address.server or 'an unknown server'}"]
    if address.home is not None:
        parts.append(f"with its state in {Path(address.home) / '.sky'}")
    if address.user is not None:
        parts.append(f"as its user {address.user}")
    return " ".join(parts)


def _how(asked: EngineAddress, here: EngineAddress, record: LaunchRecord) -> str:
    """Return what to run, with the variables that lead to the SkyPilot that was asked."""
    command = f"gpuplan status {record.run}"
    if asked.server is None:
        told = f"`{command}`"
    elif asked.home is None:
        told = f"`env -u GPUPLAN_SKY_HOME SKYPILOT_API_SERVER_ENDPOINT={asked.server} {command}`"
    elif asked.home == str(Path.home()):
        told = f"`env -u GPUPLAN_SKY_HOME -u SKYPILOT_API_SERVER_ENDPOINT {command}`"
    else:
        told = f"`GPUPLAN_SKY_HOME={asked.home} {command}`"
    if asked.user is not None and asked.user != here.user:
        told += f", where SkyPilot's user is {asked.user} (~/.sky/user_hash)"
    return told


def _or_close(record: LaunchRecord) -> str:
    """Return what closes a launch whose SkyPilot will never answer again."""
    if not record.is_open:
        return ""
    return (
        ". If it is gone for good, look for the machines in the console of their cloud; then"
        f" `gpuplan down {record.run} --skypilot-is-gone` closes the launch"
    )
