"""Several stores and people on one account: each ends its own machines alone."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from fake_engine import Clock, FakeEngine
from launch_records import RUN, launched, make_context, make_record

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.labels import this_user
from gpuplan.launcher.lifecycle.engine import EngineError
from gpuplan.launcher.lifecycle.reconcile.reconcile import (
    Discrepancy,
    LabelledMachine,
    Listing,
    Skipped,
    reconcile,
    take_down,
)
from gpuplan.launcher.lifecycle.resume import reconcile_run
from gpuplan.launcher.lifecycle.transitions import LaunchContext, ask, begin, end, wait_started
from gpuplan.launcher.store.spending_limits import SpendingLimits

BOBS = "bert-20261122-130000-0d0d0d"


@dataclass
class Account:
    """A cloud account: every machine in it, whoever launched it."""

    machines: list[LabelledMachine] = field(default_factory=list)

    def add(self, instance_id: str, labels: dict[str, str], *, region: str = "us-east-1") -> None:
        self.machines.append(
            LabelledMachine(
                cloud="aws",
                region=region,
                instance_id=instance_id,
                instance_type="p4d.24xlarge",
                run=labels["gpuplan-run"],
                launched_at=None,
                store_id=labels.get("gpuplan-store"),
                owner=labels.get("gpuplan-owner"),
            )
        )

    def listing(self) -> Listing:
        return Listing(instances=tuple(self.machines), clouds=("aws",))

    def terminate(self, machines: Sequence[LabelledMachine]) -> None:
        self.machines = [one for one in self.machines if one not in machines]

    def ids(self) -> list[str]:
        return [one.instance_id for one in self.machines]


@dataclass
class Person:
    """Somebody with a laptop: a store and a SkyPilot of their own."""

    name: str
    context: LaunchContext
    engine: FakeEngine
    account: Account

    def launch(self, folder: Path, instance_id: str, *, run: str) -> None:
        """Launch a run whose machines are in the account."""
        record = make_record(folder, self.engine.clock, run=run, owner=self.name)
        begun = ask(self.context, begin(self.context, record, SpendingLimits(), spot=False))
        wait_started(self.context, begun)
        self.account.add(instance_id, self.engine.tasks[-1]["resources"]["labels"])

    def lose(self, run: str) -> None:
        """Let SkyPilot forget the machines of a run, which go on in the account."""
        record = self.context.ledger.get(run)
        self.engine.take_machines(record.cluster)
        reconcile_run(self.context, record)

    def found(self) -> list[Discrepancy]:
        return reconcile(self.context, instances=self.account.listing, owner=self.name)

    def end_all(self, *, confirmed: bool = False) -> None:
        """End whatever may be ended."""
        for one in self.found():
            if one.is_orphan or (confirmed and one.kind == "unattributed"):
                take_down(self.context, one, terminate=self.account.terminate, confirmed=confirmed)


@pytest.fixture
def account() -> Account:
    return Account()


def person(tmp_path: Path, account: Account, name: str) -> Person:
    engine = FakeEngine(Clock())
    home = tmp_path / name
    home.mkdir()
    return Person(name, make_context(home, engine), engine, account)


@pytest.fixture
def ann(tmp_path: Path, account: Account) -> Person:
    return person(tmp_path, account, "ann")


@pytest.fixture
def bob(tmp_path: Path, account: Account) -> Person:
    return person(tmp_path, account, "bob")


def kinds(found: Sequence[Discrepancy]) -> list[tuple[str, str | None]]:
    return [(one.kind, one.run) for one in found]


def test_two_stores_on_one_account_end_their_own_machines_alone(
    tmp_path: Path, account: Account, ann: Person, bob: Person
) -> None:
    ann.launch(tmp_path, "i-ann", run=RUN)
    bob.launch(tmp_path, "i-bob", run=BOBS)
    assert kinds(ann.found()) == [("running", RUN), ("others", BOBS)]
    ann.end_all(confirmed=True)
    assert account.ids() == ["i-ann", "i-bob"]

    bob.lose(BOBS)
    assert kinds(ann.found()) == [("running", RUN), ("others", BOBS)]
    ann.end_all(confirmed=True)
    assert account.ids() == ["i-ann", "i-bob"], "nor where its own store has lost sight of it"
    assert kinds(bob.found()) == [("orphan-instance", BOBS), ("others", RUN)]
    bob.end_all()
    assert account.ids() == ["i-ann"]


def test_machines_of_others_are_listed_with_whose_they_are(
    tmp_path: Path, ann: Person, bob: Person
) -> None:
    bob.launch(tmp_path, "i-bob", run=BOBS)
    (theirs,) = ann.found()
    store_id = bob.context.ledger.store_id()
    assert theirs.text.endswith(f"launched by bob from another store ({store_id})")
    assert (theirs.owner, theirs.store_id) == ("bob", store_id)
    with pytest.raises(UsageError, match="not this store's to end"):
        take_down(ann.context, theirs, terminate=lambda _: pytest.fail("ended"), confirmed=True)


def test_one_person_with_two_stores_ends_those_of_the_one_that_launched_them(
    tmp_path: Path, account: Account, ann: Person
) -> None:
    ann.launch(tmp_path, "i-ann", run=RUN)
    engine = FakeEngine(Clock())
    laptop = Person("ann", make_context(tmp_path / "laptop", engine), engine, account)
    assert laptop.context.ledger.known_store_id() is None
    assert kinds(laptop.found()) == [("others", RUN)]
    laptop.end_all(confirmed=True)
    assert account.ids() == ["i-ann"]


def test_an_owner_of_the_same_store_ends_only_their_own(
    tmp_path: Path, account: Account, ann: Person
) -> None:
    ann.launch(tmp_path, "i-ann", run=RUN)
    ann.lose(RUN)
    ann.name = "bob"
    (theirs,) = ann.found()
    assert theirs.kind == "others"
    assert "launched by ann; if that is you, give --owner ann" in theirs.text
    ann.name = "ann"
    ann.end_all()
    assert account.ids() == []


@pytest.mark.parametrize(
    ("user", "named", "kind"),
    [
        (this_user(), None, "orphan-cluster"),
        ("somebody-else", None, "others"),
        (None, None, "others"),
        (this_user(), "bob", "others"),
        (this_user(), "team-vision", "orphan-cluster"),
    ],
)
def test_what_this_user_launched_for_another_owner_is_their_own(
    tmp_path: Path, ann: Person, user: str | None, named: str | None, kind: str
) -> None:
    record = make_record(tmp_path, ann.engine.clock, owner="team-vision", user=user)
    end(ann.context, launched(ann.context, record), "failed", "closed by mistake")
    (found,) = reconcile(ann.context, owner=named)
    assert found.kind == kind


def test_machines_without_a_store_are_ended_only_when_a_person_says_so(
    account: Account, ann: Person
) -> None:
    account.add("i-old", {"gpuplan-run": "old-1", "gpuplan-owner": "ann"})
    account.add("i-bobs", {"gpuplan-run": "old-2", "gpuplan-owner": "bob"})
    old, bobs = ann.found()
    assert (old.kind, bobs.kind) == ("unattributed", "others")
    assert old.by_hand == ("aws ec2 terminate-instances --region us-east-1 --instance-ids i-old",)
    ann.end_all()
    with pytest.raises(UsageError, match="by hand: aws ec2 terminate-instances"):
        take_down(ann.context, old, terminate=account.terminate)
    assert account.ids() == ["i-old", "i-bobs"]
    ann.end_all(confirmed=True)
    assert account.ids() == ["i-bobs"]


def test_a_run_that_a_copied_store_does_not_know_is_not_its_own(
    account: Account, ann: Person
) -> None:
    labels = {"gpuplan-store": ann.context.ledger.store_id(), "gpuplan-owner": "ann"}
    account.add("i-elsewhere", {"gpuplan-run": "later-1", **labels})
    (found,) = ann.found()
    assert (found.kind, "copied or restored" in found.text) == ("unattributed", True)


def test_clusters_that_a_shared_skypilot_knows_are_told_apart_too(
    tmp_path: Path, ann: Person
) -> None:
    ours = {"store_id": ann.context.ledger.store_id(), "owner": "ann"}
    ann.launch(tmp_path, "i-ann", run=RUN)
    ann.lose(RUN)
    ann.account.machines.clear()
    ann.engine.add_stray(ann.context.ledger.get(RUN).cluster, RUN, **ours)
    ann.engine.add_stray("gp-bert-0d0d0d", BOBS, store_id="7b", owner="bob")
    ann.engine.add_stray("gp-old-0000ff", "old-20261101-100000-0000ff", owner="ann")
    ann.engine.add_stray("my-own-cluster", None)
    found = {one.cluster: one for one in ann.found()}
    assert {name: one.kind for name, one in found.items()} == {
        "gp-net-a1b2c3": "orphan-cluster",
        "gp-bert-0d0d0d": "others",
        "gp-old-0000ff": "unattributed",
    }
    assert found["gp-old-0000ff"].by_hand == ("sky down gp-old-0000ff",)
    ann.end_all()
    assert sorted(ann.engine.live()) == ["gp-bert-0d0d0d", "gp-old-0000ff", "my-own-cluster"]


def test_a_cluster_of_this_store_without_its_label_names_the_command_that_ends_it(
    tmp_path: Path, ann: Person
) -> None:
    ann.launch(tmp_path, "i-ann", run=RUN)
    ann.lose(RUN)
    ann.account.machines.clear()
    ann.engine.add_stray(ann.context.ledger.get(RUN).cluster, RUN, owner="ann")
    (old,) = ann.found()
    assert (old.kind, old.by_hand) == ("unattributed", (f"gpuplan down {RUN}",))


def test_regions_that_were_not_looked_at_are_named(ann: Person) -> None:
    skipped = Skipped(cloud="aws", regions=("af-south-1", "me-south-1"), why="not enabled")
    (line,) = reconcile(ann.context, instances=lambda: Listing(skipped=(skipped,)))
    assert line.kind == "skipped"
    assert line.text == "not looked at: aws/af-south-1, aws/me-south-1: not enabled"


def test_a_region_or_a_cloud_that_gives_no_answer_keeps_nothing_else_from_being_found(
    tmp_path: Path, ann: Person
) -> None:
    ann.launch(tmp_path, "i-1", run=RUN)
    ann.lose(RUN)
    failed = Skipped(cloud="aws", regions=("eu-west-1",), why="Rate exceeded")
    listing = replace(ann.account.listing(), failed=(failed,), clouds=("aws",))
    orphan, line = reconcile(ann.context, instances=lambda: listing, owner="ann")
    assert (orphan.kind, orphan.run) == ("orphan-instance", RUN)
    # Machines may be there: not for information alone.
    assert (line.kind, line.text) == ("unknown", "not looked at: aws/eu-west-1: Rate exceeded")

    def refuses() -> Listing:
        raise EngineError("AWS refused in each of the 2 regions.", fix="look at the key.")

    found = reconcile(ann.context, instances=refuses, owner="ann")
    text = "machines beside SkyPilot's could not be listed: AWS refused in each of the 2 regions."
    assert ("unknown", text) in [(one.kind, one.text) for one in found]


def test_clouds_that_only_skypilot_is_asked_about_are_named(tmp_path: Path, ann: Person) -> None:
    ann.launch(tmp_path, "i-1", run=RUN)
    (_, line) = reconcile(ann.context, instances=Listing)
    assert line.kind == "skipped"
    assert line.text == (
        "not looked at beside SkyPilot: aws, where launches of this store ran: machines that"
        " SkyPilot has forgotten are in the provider's console (aws is asked with boto3 and"
        ' credentials: `pip install "gpuplan[aws]"`)'
    )
    (_,) = reconcile(ann.context, instances=lambda: Listing(clouds=("aws",)))
    ann.context.ledger.update(
        RUN, lambda one: one.with_last(infra="gcp/us-central1/us-central1-a"), what="elsewhere"
    )
    (_, line) = reconcile(ann.context, instances=lambda: Listing(clouds=("aws",)))
    assert line.text.startswith("not looked at beside SkyPilot: gcp, where launches of this store")
    assert "boto3" not in line.text


def test_the_controller_of_managed_jobs_is_named_and_never_ended(ann: Person) -> None:
    ann.engine.add_stray("sky-jobs-controller-5a6b7c8d", None)
    (line,) = ann.found()
    assert (line.kind, line.is_orphan) == ("controller", False)
    assert line.text == (
        "1 x p4d.24xlarge in aws/us-east-1/us-east-1a, $36.00 an hour: SkyPilot's controller of"
        " managed jobs, which launches share; when no managed job is left,"
        " `sky down sky-jobs-controller-5a6b7c8d` ends it"
    )
    ann.end_all()
    assert ann.engine.live() == ["sky-jobs-controller-5a6b7c8d"]
    name = "sky-jobs-controller-5a6b7c8d"
    ann.engine._clusters[name] = replace(ann.engine._clusters[name], status="stopped")
    (line,) = ann.found()
    assert "it is stopped, and its disk is billed" in line.text
    assert line.usd_per_hour is None and "an hour" not in line.text


@pytest.mark.parametrize(
    ("region", "kind", "said"),
    [
        ("us-west-2", "unattributed", "trains in aws/us-east-1"),
        ("us-east-1", "unknown", "2 machines in aws/us-east-1 carry its label, and it has 1"),
    ],
)
def test_a_machine_that_a_start_elsewhere_left_is_not_hidden_by_the_run_that_trains(
    tmp_path: Path, ann: Person, region: str, kind: str, said: str
) -> None:
    ann.launch(tmp_path, "i-ann", run=RUN)
    assert [one.kind for one in ann.found()] == ["running"]
    ann.account.add("i-left", ann.engine.tasks[-1]["resources"]["labels"], region=region)
    _, found = ann.found()
    assert (found.kind, found.run) == (kind, RUN)
    assert said in found.text
    assert "i-left" in f"{found.by_hand} {found.text}"
    ann.end_all()
    assert ann.account.ids() == ["i-ann", "i-left"], "-y ends nothing beside a run that trains"
    if kind == "unattributed":
        ann.end_all(confirmed=True)
        assert ann.account.ids() == ["i-ann"]
    assert ann.engine.live() == [ann.context.ledger.get(RUN).cluster]


def test_machines_of_a_run_that_is_being_started_are_not_counted(
    tmp_path: Path, ann: Person
) -> None:
    record = make_record(tmp_path, ann.engine.clock, owner="ann")
    ask(ann.context, begin(ann.context, record, SpendingLimits(), spot=False))
    for region in ("us-east-1", "us-west-2"):
        labels = ann.engine.tasks[-1]["resources"]["labels"]
        ann.account.add(f"i-{region}", labels, region=region)
    assert [one.kind for one in ann.found()] == ["running"]
