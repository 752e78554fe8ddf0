"""A network that is not the planned one is named by the guard, and not called slow."""

import json
import sys
from pathlib import Path

import pytest
from guards import Node, make_orders, told

from gpuplan.launcher.guard.node.network import (
    NETWORK_FILE,
    NetworkSeen,
    count_interfaces,
    read_network,
    shortfall,
)
from gpuplan.launcher.guard.orders import NetworkOrders, Orders, OrdersError, ProjectionOrders

PLANNED = NetworkOrders(interfaces=32, bytes_per_s=360e9)
TRAINS = """
import json, os, pathlib, time
out = pathlib.Path(os.environ["GPUPLAN_OUT"])
(out / "network.json").write_text(json.dumps({json}))
for step in range(1, 1000):
    with (out / "metrics.jsonl").open("a") as stream:
        stream.write(json.dumps({{"step": step, "step_time_s": 1.0, "loss": 1.0}}) + "\\n")
    time.sleep(0.05)
"""


def test_interfaces_are_entries_of_a_folder(tmp_path: Path) -> None:
    assert count_interfaces(tmp_path / "none") == 0
    for name in ("rdmap79s0", "rdmap80s0"):
        (tmp_path / name).mkdir()
    assert count_interfaces(tmp_path) == 2


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (NetworkSeen(), None),
        (NetworkSeen(interfaces=32, bytes_per_s=200e9), None),
        (NetworkSeen(interfaces=16), None),
        (NetworkSeen(interfaces=1), "this node has 1 of 32 interfaces"),
        (
            NetworkSeen(bytes_per_s=10e9, over="Socket"),
            "an all-reduce reaches 10 of 360 GB/s over Socket",
        ),
    ],
)
def test_less_than_half_of_the_plan_is_another_network(seen: NetworkSeen, said: str | None) -> None:
    found = shortfall(PLANNED, seen)
    assert (found is None) == (said is None)
    assert said is None or said in (found or "")
    assert shortfall(None, seen) is None and shortfall(NetworkOrders(), seen) is None


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"all_reduce_bytes_per_s": "fast", "over": 3}'])
def test_what_cannot_be_read_is_not_known(tmp_path: Path, text: str) -> None:
    (tmp_path / NETWORK_FILE).write_text(text)
    assert read_network(tmp_path, 4) == NetworkSeen(interfaces=4)


def test_orders_with_a_network_come_back_and_are_checked() -> None:
    orders = make_orders(network=PLANNED)
    assert Orders.from_json(orders.to_json()) == orders
    with pytest.raises(OrdersError):
        Orders.from_json(make_orders(network=NetworkOrders(interfaces=-1)).to_json())


@pytest.mark.parametrize(("reached", "why"), [(10e9, "network"), (300e9, "projection")])
def test_the_verdict_on_slow_steps_has_their_cause(
    tmp_path: Path, reached: float, why: str
) -> None:
    node = Node(tmp_path)
    projection = ProjectionOrders(
        total_steps=1000, expected_usd=1.0, low_usd=0.5, high_usd=2.0, steps=3, settled=1
    )
    node.orders(projection=projection, network=NetworkOrders(bytes_per_s=360e9))
    said = {"all_reduce_bytes_per_s": reached, "over": "Socket"}
    done = node.run(sys.executable, "-c", TRAINS.format(json=said))

    last = told(done.stdout)
    assert (done.returncode, last["verdict"]["why"]) == (4, why)
    assert ("10 of 360 GB/s over Socket" in last["verdict"]["text"]) == (why == "network")
    assert (node.state["network"] is not None) == (why == "network")


def test_a_node_says_at_its_start_that_interfaces_are_missing(tmp_path: Path) -> None:
    node = Node(tmp_path)
    # More than any machine has: a script of one's own gets no more than this look.
    node.orders(network=NetworkOrders(interfaces=100_000))
    done = node.run("true", rank=1)
    assert "of 100000 interfaces" in done.stdout.splitlines()[0]
    assert done.returncode == 0


def test_what_an_earlier_attempt_measured_does_not_count(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (node.out / NETWORK_FILE).write_text(json.dumps({"all_reduce_bytes_per_s": 1.0}))
    node.orders(network=NetworkOrders(bytes_per_s=360e9))
    done = node.run("true")
    assert told(done.stdout)["network"] is None
