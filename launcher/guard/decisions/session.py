"""One attempt, decided tick by tick: what is seen goes in, what is to be done comes out. Pure."""

from __future__ import annotations

from dataclasses import replace

from ..node.notice import Notice
from ..orders import Orders
from . import verdicts
from .handover import hand_over
from .projection import Projected, project
from .spending import Account
from .verdicts import Reading, Verdict

ASK, KILL, LEAVE = "ask", "kill", "leave"
LEAVE_AFTER_S = 60.0
"""From SIGKILL until a command that has not ended is left: the kernel frees a large memory in
seconds, and what waits for a device that does not answer never ends."""


class Session:
    """What a guard has decided so far."""

    def __init__(self, orders: Orders, account: Account, *, lag_s: float = 0.0) -> None:
        """Begin an attempt.

        Args:
            orders: what it is held to.
            account: what it has cost.
            lag_s: how much later than the first node this one acts on a limit, so that the first
                one's reason is the one that is told.
        """
        self._orders = orders
        self._account = account
        self._lag_s = lag_s
        self._kill_at_s: float | None = None
        self._leave_at_s: float | None = None
        self.verdict: Verdict | None = None
        self.projection: Projected | None = None

    def tick(
        self,
        *,
        paid_s: float,
        running_s: float,
        reading: Reading,
        stop_asked: bool = False,
        signal_number: int | None = None,
        notice: Notice | None = None,
    ) -> str | None:
        """Return ASK once when the command is to stop, KILL when it has not; else None.

        LEAVE when it has not ended even so.

        Args:
            paid_s: since the attempt began to cost.
            running_s: since the command was started.
            reading: what was seen of it.
            stop_asked: whether the user wants it to stop.
            signal_number: of a signal that came from outside.
            notice: of the cloud, that this machine is to go. A limit that is reached comes first:
                after a notice the run would go on.
        """
        if self.verdict is None:
            if signal_number is not None:
                self.verdict = verdicts.signalled(signal_number)
            elif stop_asked:
                self.verdict = verdicts.asked()
            else:
                self.verdict = self._judged(paid_s, running_s, reading)
                if self.verdict is None and notice is not None:
                    self.verdict = verdicts.noticed(notice)
            if self.verdict is None:
                return None
            self._kill_at_s = running_s + verdicts.grace_s(self._orders, reading, self.verdict)
            return ASK
        if self._kill_at_s is not None and running_s >= self._kill_at_s:
            self._kill_at_s = None
            self._leave_at_s = running_s + LEAVE_AFTER_S
            self.verdict = replace(
                self.verdict,
                text=f"{self.verdict.text} It did not stop in time and was killed: what it had not"
                " saved is lost.",
            )
            return KILL
        if self._leave_at_s is not None and running_s >= self._leave_at_s:
            self._leave_at_s = None
            self.verdict = replace(
                self.verdict,
                text=f"{self.verdict.text} It does not end even so: it waits for a device or a disk"
                " that does not answer. The timer ends this machine; `gpuplan down` does so now.",
            )
            return LEAVE
        return None

    def ended(
        self,
        code: int,
        *,
        paid_s: float,
        reading: Reading,
        loss_is_bad: bool,
        stopped_elsewhere: bool = False,
    ) -> Verdict:
        """Return why the attempt is over, now that its command has ended.

        Args:
            code: negative: the number of the signal that ended it.
            paid_s: since the attempt began to cost.
            reading: the last.
            loss_is_bad: whether the command left that its loss is no number.
            stopped_elsewhere: whether it left that another node stopped it.
        """
        if self.verdict is not None:
            return self.verdict
        if code == 0 and stopped_elsewhere:
            self.verdict = verdicts.stopped_elsewhere()
            return self.verdict
        bad = loss_is_bad or reading.loss_bad_since_s is not None
        self.verdict = verdicts.ended(code, loss_is_bad=bad)
        if code == 0 and self._orders.smoke:
            self._project(paid_s, reading, least=1)
            few = "It ended before a step could be timed."
            text = few if self.projection is None else self.projection.text
            self.verdict = Verdict("smoke", text, 0)
        return self.verdict

    def _judged(self, paid_s: float, running_s: float, reading: Reading) -> Verdict | None:
        held_s = max(0.0, paid_s - self._lag_s)
        now_s = self._account.began_at_s + held_s
        verdict = verdicts.over_limit(
            self._orders, self._account, reading, paid_s=held_s, now_s=now_s
        ) or hand_over(self._orders, reading, now_s=now_s)
        if verdict is not None:
            return verdict
        wanted = self._orders.projection
        if wanted is not None and self.projection is None:
            self._project(paid_s, reading, least=wanted.steps)
            if self.projection is not None:
                verdict = verdicts.projected(self._orders, self.projection, reading)
        return verdict or verdicts.unhealthy(self._orders, reading, running_s=running_s)

    def _project(self, paid_s: float, reading: Reading, *, least: int) -> None:
        enough = reading.settled >= least and reading.step is not None and reading.times_s
        if self._orders.projection is None or self.projection is not None or not enough:
            return
        assert reading.step is not None
        self.projection = project(
            self._orders,
            self._account,
            paid_s=paid_s,
            step=reading.step,
            trained=reading.trained,
            times_s=reading.times_s,
        )
