"""What earlier guards left cannot be read: then all since the request counts, and no less."""

from pathlib import Path

import pytest
from guards import HOUR_S, NOW_S, make_orders

from gpuplan.launcher.guard import main as guard_main
from gpuplan.launcher.guard.decisions.spending import Attempt, open_account
from gpuplan.launcher.guard.folder import ATTEMPTS_FILE, STATE_FILE, read_attempts, write_attempts
from gpuplan.launcher.guard.main import Guard

AWAY_S = 3 * HOUR_S
"""From the request until the third machine came up."""


def own(attempt: int, *, hours: float) -> Attempt:
    """Return an attempt of this launch, of a dollar a second."""
    began_at_s = NOW_S + (attempt - 1) * HOUR_S
    return Attempt(
        attempt=attempt,
        requested_at_s=NOW_S,
        began_at_s=began_at_s,
        seen_at_s=began_at_s + hours * HOUR_S,
        usd=hours * HOUR_S,
    )


def a_folder(out: Path) -> None:
    (out / ATTEMPTS_FILE).mkdir()


def a_torn_line(out: Path) -> None:
    write_attempts(out, [own(1, hours=0.9), own(2, hours=0.9)])
    text = (out / ATTEMPTS_FILE).read_text()
    (out / ATTEMPTS_FILE).write_text(text.replace('"usd"', '"us', 1))


def a_torn_state(out: Path) -> None:
    write_attempts(out, [own(1, hours=0.9)])
    (out / STATE_FILE).write_text('{"attempt": 2, "usd": 324')


@pytest.mark.parametrize("damage", [a_folder, a_torn_line, a_torn_state])
@pytest.mark.parametrize("limit", [{"max_cost_usd": 2 * HOUR_S}, {"max_hours": 2.0}])
def test_a_preempted_run_does_not_get_its_whole_limit_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys, damage, limit: dict[str, float]
) -> None:
    damage(tmp_path)
    monkeypatch.setattr(guard_main, "boot_s", lambda: NOW_S + AWAY_S)
    guard = Guard(
        make_orders(**limit),
        ["touch", str(tmp_path / "began")],
        tmp_path,
        wall_clock=lambda: NOW_S + AWAY_S + 60,
    )
    assert guard.run() == 4
    assert not (tmp_path / "began").exists(), "there was nothing left to start with"
    assert "counts since it was asked for" in capsys.readouterr().out


def test_what_the_store_knows_of_earlier_launches_still_counts() -> None:
    orders = make_orders(spent_before_usd=50.0)
    found = [own(1, hours=0.5)]
    account = open_account(orders, found, boot_s=NOW_S + AWAY_S, now_s=NOW_S + AWAY_S, whole=False)
    assert (account.before_usd, account.began_at_s, account.attempt) == (50.0, NOW_S, 2)


def test_an_older_line_without_a_step_is_not_damaged(tmp_path: Path) -> None:
    values = own(1, hours=1.0).to_dict()
    del values["step"], values["verdict"]
    write_attempts(tmp_path, [])
    (tmp_path / STATE_FILE).write_text(f"{values}".replace("'", '"') + "\n")
    assert len(read_attempts(tmp_path)) == 1
