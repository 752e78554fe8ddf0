"""Close a launch whose SkyPilot is gone for good, so that nobody can say what became of it.

Only on the user's word, who looked in the cloud. It ends no machine and claims that none ended:
what it cost is at least what was seen, and limits go on counting its worst case.
"""

from __future__ import annotations

from datetime import datetime

from ...catalog.errors import UsageError
from ..store.accounting import committed_usd
from ..store.launch_record import LaunchRecord
from .context import LaunchContext
from .engine import EngineError, NoEngineError
from .machines import advance
from .observing.by_hand import where_to_look
from .observing.elsewhere import ElsewhereError
from .observing.launching_process import is_alive
from .observing.observe import observe

UNKNOWN_WHY = (
    "closed by hand, as the SkyPilot that was asked for it is gone: what became of its machines,"
    " and what they cost since they were last seen, is not known"
)


def close_without_engine(context: LaunchContext, record: LaunchRecord) -> LaunchRecord | None:
    """Return a launch, closed without asking anybody; None where its SkyPilot can be asked.

    Raises:
        UsageError: the command that launched it still runs here.
        EngineError: its SkyPilot answers with an error, or its cloud lists machines of it.
        OvertakenError: another command has ended it, or launched it again.
    """
    record = context.ledger.get(record.run)
    if not record.is_open:
        return record
    try:
        observe(record, context.engine)
    except (ElsewhereError, NoEngineError):
        pass
    else:
        return None
    _refuse_while_launched(record)
    look = where_to_look(record)
    listed = context.listed(record)
    if listed:
        raise EngineError(
            f"{record.run} has machines that AWS lists: {', '.join(listed)}. It stays open while"
            " they are there",
            fix="end them, then try again: \n  " + "\n  ".join(look),
        )
    for line in look:
        context.tell(line)
    closed = advance(
        context, record, lambda one: _closed(context, one), what=UNKNOWN_WHY, open_only=True
    )
    usd = committed_usd(closed, now=context.now_of(closed))
    context.tell(
        f"Nothing was ended. Limits count ${usd:,.2f} for it; `gpuplan reconcile` still names its"
        " machines where a cloud lists them."
    )
    return closed


def _refuse_while_launched(record: LaunchRecord) -> None:
    """Refuse to close a launch of which a command here may still ask for machines, or follow them.

    Raises:
        UsageError: there is one.
    """
    if not is_alive(record):
        return
    raise UsageError(
        f"The command that launched {record.run} still runs here (process {record.pid}): it may"
        " reach the SkyPilot that it asked, start machines, or follow its job.",
        fix=f"end it with Ctrl-C where it runs, or with `kill {record.pid}`; then try again.",
    )


def _closed(context: LaunchContext, record: LaunchRecord) -> LaunchRecord:
    now = context.now_of(record)
    last = record.last
    if last is not None:
        seen_at = min(now, max(last.asked_at, _last_seen(context, record)))
        facts = {"ended_at": max(now, last.asked_at), "outcome": "lost", "unknown_from": seen_at}
        record = record.with_last(**facts)
    return record.model_copy(update={"state": "ended", "outcome": "lost", "why": UNKNOWN_WHY})


def _last_seen(context: LaunchContext, record: LaunchRecord) -> datetime:
    """Return when a command last wrote down what it saw of a launch."""
    return max((at for at, _ in context.ledger.events(record.run)), default=record.created_at)
