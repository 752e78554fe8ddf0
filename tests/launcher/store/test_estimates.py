"""The store: what is kept comes back whole, many may write at once, a bad disk breaks nothing."""

import contextlib
import itertools
import multiprocessing
import re
import resource
import signal
import sqlite3
import stat
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from answers import make_estimate, make_plan, make_ranked_estimate

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.store.estimates import KEPT_PLANS, Store, StoreError
from gpuplan.launcher.store.migrations import MIGRATIONS, StoreTooNewError, migrate
from gpuplan.launcher.store.origin import Origin
from gpuplan.planner.plan.question import Question


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "folder" / "store.sqlite3")


def test_an_estimate_comes_back_as_it_was_kept(store: Store) -> None:
    estimate = make_ranked_estimate()
    store.keep(estimate, inputs_hash="a")
    assert store.estimates() == [estimate]


def test_an_estimate_without_a_plan_is_kept_too(store: Store) -> None:
    store.keep(make_estimate(), inputs_hash="a")
    assert store.estimates() == [make_estimate()]


def test_no_store_is_an_empty_store_and_reading_makes_none(store: Store) -> None:
    assert store.estimates() == []
    assert not store.path.exists()


def test_the_default_place_is_the_data_folder(gpuplan_home: Path) -> None:
    assert Store().path == gpuplan_home / "data" / "gpuplan.sqlite3"


def test_the_newest_estimate_comes_first(store: Store) -> None:
    older = make_estimate(generated_at="2026-11-19T10:00:00+00:00")
    newer = make_estimate(make_plan(), generated_at="2026-11-20T10:00:00+00:00")
    store.keep(newer, inputs_hash="newer")
    store.keep(older, inputs_hash="older")
    assert store.estimates() == [newer, older]
    assert store.estimates(limit=1) == [newer]


def test_the_same_question_is_kept_once_and_its_old_plans_go(store: Store) -> None:
    store.keep(make_estimate(make_plan(micro_batch=1), make_plan(2)), inputs_hash="a")
    store.keep(make_estimate(make_plan(micro_batch=2), make_plan(2)), inputs_hash="a")
    (kept,) = store.estimates()
    assert [plan.micro_batch for plan in kept.plans] == [2, 4]
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("SELECT count(*) FROM plans").fetchone() == (2,)


def test_a_plan_that_two_estimates_share_outlives_one_of_them(store: Store) -> None:
    shared = make_plan()
    store.keep(make_estimate(shared), inputs_hash="a")
    store.keep(make_estimate(shared), inputs_hash="b")
    store.keep(make_estimate(), inputs_hash="a")
    assert store.find_plan(shared.id).plan == shared


def test_only_the_first_hundred_plans_are_kept(store: Store) -> None:
    plans = [make_plan(position, micro_batch=position) for position in range(1, 131)]
    store.keep(make_estimate(*plans), inputs_hash="a")
    (kept,) = store.estimates()
    assert list(kept.plans) == plans[:KEPT_PLANS]


def test_a_plan_is_found_by_the_beginning_of_its_id(store: Store) -> None:
    estimate = make_ranked_estimate()
    store.keep(estimate, inputs_hash="a")
    wanted = estimate.plans[1]
    kept = store.find_plan(wanted.id[:5].upper())
    assert kept.plan == wanted
    assert kept.estimate == estimate.model_copy(update={"plans": (wanted,)})


def test_a_prefix_of_several_plans_names_them(store: Store) -> None:
    plans = [make_plan(position, micro_batch=position) for position in range(1, 100)]
    store.keep(make_estimate(*plans), inputs_hash="a")
    starts = [plan.id[:2] for plan in plans]
    shared = next(start for start in starts if starts.count(start) > 1)
    with pytest.raises(UsageError, match=f"Several plans begin with '{shared}'"):
        store.find_plan(shared)


@pytest.mark.parametrize("prefix", ["zzzz", "", "a", "%%", "__"])
def test_an_unknown_or_too_short_prefix_is_a_usage_error(store: Store, prefix: str) -> None:
    store.keep(make_ranked_estimate(), inputs_hash="a")
    with pytest.raises(UsageError):
        store.find_plan(prefix)


def keep_some(path: Path, name: str) -> None:
    for index in range(5):
        estimate = make_estimate(*(make_plan(n, micro_batch=n) for n in range(1, 21)))
        Store(path).keep(estimate, inputs_hash=f"{name}{index}")


def test_processes_that_write_at_once_lose_nothing(store: Store) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=keep_some, args=(store.path, name)) for name in "abcd"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    assert [len(estimate.plans) for estimate in store.estimates()] == [20] * 20


def keep_and_say(path: Path, said: Connection, life: int) -> None:
    """Keep estimates for ever, and say of each when it is kept."""
    for index in itertools.count():
        name = f"{life}.{index}"
        plans = [make_plan(n, micro_batch=n) for n in range(1, 21)]
        Store(path).keep(make_estimate(*plans), inputs_hash=name)
        said.send(name)


def test_a_writer_that_is_killed_loses_nothing_that_it_said_was_kept(store: Store) -> None:
    context = multiprocessing.get_context("fork")
    kept: list[str] = []
    for life in range(5):
        heard, said = context.Pipe(duplex=False)
        writer = context.Process(target=keep_and_say, args=(store.path, said, life))
        writer.start()
        said.close()
        kept.append(heard.recv())
        # Somewhere within a later write: each life ends at another moment of it.
        heard.poll(0.003 * life)
        writer.kill()
        writer.join()
        with contextlib.suppress(EOFError):
            while True:
                kept.append(heard.recv())
    found = store.estimates(limit=10_000)
    assert len(found) >= len(kept) >= 5
    assert {len(estimate.plans) for estimate in found} == {20}, "whole, or not at all"
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        hashes = {name for (name,) in connection.execute("SELECT inputs_hash FROM estimates")}
    assert set(kept) <= hashes


def test_a_folder_that_cannot_be_made_is_a_store_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(StoreError, match="cannot be used"):
        Store(tmp_path / "file" / "store.sqlite3").keep(make_estimate(), inputs_hash="a")


def test_a_full_disk_is_a_store_error_and_keeps_what_was_there(store: Store) -> None:
    store.keep(make_estimate(make_plan()), inputs_hash="before")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (store.path.stat().st_size, limits[1]))
    try:
        with pytest.raises(StoreError, match="cannot be used"):
            plans = [make_plan(position, micro_batch=position) for position in range(1, 101)]
            store.keep(make_estimate(*plans), inputs_hash="after")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert store.estimates() == [make_estimate(make_plan())]


def test_a_file_that_is_no_store_is_a_store_error(store: Store) -> None:
    store.path.parent.mkdir()
    store.path.write_text("this is not a database " * 100)
    with pytest.raises(StoreError, match="not a database") as caught:
        store.estimates()
    assert "Move this damaged file away" in str(caught.value)


def test_a_store_that_is_held_sends_nobody_to_another_one(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another store no limit counts the launches of this one."""
    store.keep(make_estimate(), inputs_hash="a")
    monkeypatch.setattr("gpuplan.launcher.store.estimates.LOCK_TIMEOUT_S", 0.01)
    with contextlib.closing(sqlite3.connect(store.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreError, match="another command has held it") as said:
            store.estimates()
    assert "again when that command has ended" in (said.value.fix or "")
    assert "GPUPLAN_HOME" not in (said.value.fix or "")


def test_a_store_that_may_only_be_read_is_read(store: Store) -> None:
    estimate = make_ranked_estimate()
    store.keep(estimate, inputs_hash="a")
    with sqlite3.connect(store.path) as writer:
        # Another process holds the write lock: a reader must not need it.
        writer.execute("BEGIN IMMEDIATE")
        assert store.estimates() == [estimate]


def test_a_store_of_a_later_version_is_refused(store: Store) -> None:
    store.keep(make_estimate(), inputs_hash="a")
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE schema_version SET version = 99")
    with pytest.raises(StoreTooNewError, match="version 99"):
        store.estimates()


def test_migrations_run_in_order_and_once(tmp_path: Path, monkeypatch) -> None:
    ran: list[str] = []
    connection = sqlite3.connect(tmp_path / "store.sqlite3")
    migrate(connection)
    later = (lambda _: ran.append("second"), lambda _: ran.append("third"))
    monkeypatch.setattr("gpuplan.launcher.store.migrations.MIGRATIONS", (*MIGRATIONS, *later))
    for _ in range(2):
        migrate(connection)
    assert ran == ["second", "third"]
    version = connection.execute("SELECT version FROM schema_version").fetchall()
    assert version == [(len(MIGRATIONS) + 2,)]


def test_a_failed_migration_leaves_the_store_as_it_was(store: Store, monkeypatch) -> None:
    store.keep(make_ranked_estimate(), inputs_hash="a")

    def half_a_change(connection: sqlite3.Connection) -> None:
        connection.execute("DROP TABLE plans")
        connection.execute("SELECT * FROM nowhere")

    with monkeypatch.context() as patched:
        patched.setattr(
            "gpuplan.launcher.store.migrations.MIGRATIONS", (*MIGRATIONS, half_a_change)
        )
        with pytest.raises(StoreError):
            store.estimates()
    assert store.estimates() == [make_ranked_estimate()]


def test_a_store_has_one_id_of_its_own_for_ever(tmp_path: Path) -> None:
    first, second = Store(tmp_path / "a.sqlite3"), Store(tmp_path / "b.sqlite3")
    assert first.known_id() is None
    assert not first.path.exists(), "asking makes no store"
    assert first.id() == first.id() == first.known_id() == Store(first.path).id()
    assert first.id() != second.id()
    assert re.fullmatch("[0-9a-f]{16}", first.id()), "a label of every cloud takes it"


def test_what_cannot_be_read_is_left_out_and_asking_again_repairs_it(store: Store) -> None:
    kept = make_estimate(make_plan(), make_plan(2, micro_batch=2))
    other = make_estimate(make_plan(micro_batch=3), generated_at="2026-11-21T10:00:00+00:00")
    store.keep(kept, inputs_hash="a")
    store.keep(other, inputs_hash="b")
    broken = kept.plans[0].id
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE plans SET content = '{broken' WHERE id = ?", (broken,))
        connection.execute("UPDATE estimates SET facts = '{}' WHERE inputs_hash = 'b'")
    left_out: list[StoreError] = []
    (read,) = store.estimates(leave_out=left_out.append)
    assert read.plans == kept.plans[1:]
    an_estimate, a_plan = (str(error) for error in left_out)
    assert "2026-11-21T10:00:00+00:00" in an_estimate and "gpuplan estimate" in an_estimate
    assert f"The kept plan {broken} cannot be read" in a_plan
    with pytest.raises(StoreError, match=broken):
        store.find_plan(broken)
    store.keep(kept, inputs_hash="c")
    store.keep(other, inputs_hash="b")
    assert [one.plans for one in store.estimates()] == [other.plans, kept.plans, kept.plans]
    assert store.find_plan(broken).plan == kept.plans[0]


def test_a_launch_of_an_estimate_that_cannot_be_read_is_refused(store: Store) -> None:
    plan = make_plan()
    origin = Origin(folder="/here", spec_json="{}", files_hash="f", question=Question())
    store.keep(make_estimate(plan), inputs_hash="a", origin=origin)
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE plans SET content = '{}'")
    with pytest.raises(StoreError, match=f"The kept plan {plan.id} cannot be read"):
        store.newest_of(Path(origin.folder))


def test_nobody_else_reads_a_store(tmp_path: Path, require) -> None:
    require("posix", "permissions are those of POSIX")
    new = Store(tmp_path / "new" / "gpuplan.sqlite3")
    new.keep(make_estimate(make_plan()), inputs_hash="a")
    assert stat.S_IMODE(new.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(new.path.parent.stat().st_mode) == 0o700
    new.path.chmod(0o644)
    assert len(new.estimates()) == 1
    assert stat.S_IMODE(new.path.stat().st_mode) == 0o600
    # A folder that a team writes to keeps its group's rights.
    new.path.parent.chmod(0o2775)
    new.path.chmod(0o664)
    assert len(new.estimates()) == 1
    assert stat.S_IMODE(new.path.stat().st_mode) == 0o660


def test_a_store_in_a_folder_that_may_not_be_entered_is_an_error_and_no_traceback(
    home_without_privileges: Path,
) -> None:
    folder = home_without_privileges / "closed"
    folder.mkdir()
    folder.chmod(0)
    with pytest.raises(StoreError, match="cannot be used: .*Permission denied"):
        Store(folder / "gpuplan.sqlite3").estimates()
