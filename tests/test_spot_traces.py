"""What `benchmarks/evaluation/spot_traces.py` reads from traces whose hazards are known."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))  # As `make accuracy` runs.
spot_traces = importlib.import_module("evaluation.spot_traces")


def a_trace(*runs: tuple[int, int], name: str = "zones/a_v100_1.json") -> Any:
    """Return a trace with a sample every six minutes."""
    return spot_traces.Trace(name=name, gap_s=360.0, runs=runs)


def test_machines_that_go_together_have_the_hazard_of_one() -> None:
    trace = a_trace((4, 100), (0, 10), (4, 100), (0, 10), (4, 100))
    assert spot_traces.of_one_per_hour(trace) == pytest.approx(8 / 120)
    assert len(trace.stops(4)) / trace.hours(4) == pytest.approx(2 / 30)
    assert "| 1.00 | 0.25 |" in spot_traces.hazard_row(trace)


def test_machines_that_go_one_by_one_have_n_times_the_hazard() -> None:
    trace = a_trace(*((4, 100), (3, 1)) * 20, (4, 100))
    one = spot_traces.of_one_per_hour(trace)
    assert len(trace.stops(4)) / trace.hours(4) == pytest.approx(4 * one, rel=0.05)


def test_zones_that_stop_at_one_moment_are_seen_to() -> None:
    runs = ((1, 500), (0, 5), (1, 700), (0, 5), (1, 900))
    together = [a_trace(*runs), a_trace(*runs, name="zones/b_v100_1.json")]
    assert "| 4 | 100% |" in spot_traces.zones_row("zones", together)
    apart = [a_trace(*runs), a_trace((1, 300), (0, 5), (1, 1800), name="zones/b_v100_1.json")]
    assert "| 3 | 0% |" in spot_traces.zones_row("zones", apart)


def test_the_tables_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [
        {"trace": "four/a_v100_1.json", "gap_seconds": 300, "run_lengths": [[4, 900], [0, 20]]},
        {"trace": "one/a_v100_1.json", "gap_seconds": 300, "run_lengths": [[1, 900], [0, 20]]},
        {"trace": "one/b_v100_1.json", "gap_seconds": 300, "run_lengths": [[1, 700], [0, 220]]},
    ]
    file = tmp_path / "traces.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["spot_traces", str(file)])
    spot_traces.main()
    printed = capsys.readouterr().out
    assert "| four/a_v100_1 | 4 | 0.013 | 0.05 | 0.013 | 1.00 | 0.25 |" in printed
    assert "| one v100_1 (2) | 2 | 0% | 0% |" in printed
