"""Interruptions of spot machines: the shipped bands, as shares of a month."""

from pathlib import Path

import pytest

from gpuplan.catalog.terms.interruptions import interruption_of, read_interruptions

BANDS = {(0.0, 0.05), (0.05, 0.11), (0.1, 0.16), (0.15, 0.22), (0.2, 1.0)}


def test_a_row_says_its_band_as_shares_of_a_month() -> None:
    row = interruption_of("aws", "us-east-1", "p4d.24xlarge")
    assert row is not None
    assert (row.monthly_low, row.monthly_high, row.spot_saving) == (0.1, 0.16, 0.67)
    assert "Spot Advisor" in row.source


def test_what_no_table_says_is_unknown() -> None:
    assert interruption_of("aws", "us-east-1", "no-such-type") is None
    assert interruption_of("gcp", "us-central1", "a3-highgpu-8g") is None


def test_every_shipped_row_is_one_of_the_bands_and_stands_once() -> None:
    rows = read_interruptions(validate=True)
    assert {(row.monthly_low, row.monthly_high) for row in rows} == BANDS
    assert len({(row.provider, row.region, row.instance_type) for row in rows}) == len(rows) > 800
    assert all(row.spot_saving is None or -1 < row.spot_saving < 1 for row in rows)
    assert rows == read_interruptions()


def test_a_table_with_other_columns_is_refused(tmp_path: Path) -> None:
    table = tmp_path / "spot_interruption.csv"
    table.write_text("provider,hourly_rate\naws,0.1\n")
    with pytest.raises(ValueError, match="columns are"):
        read_interruptions(table)
