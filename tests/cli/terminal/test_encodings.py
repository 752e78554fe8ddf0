"""A terminal whose encoding lacks our signs gets others, and never a failure of gpuplan."""

import io
import sys

import pytest

from gpuplan.cli.terminal.encodings import print_in_any_encoding

SIGNS = "≈2  $60–80  ≥ 3 × 4 · 100 % → █▏░ …"  # noqa: RUF001


@pytest.mark.parametrize(
    ("encoding", "shown"),
    [
        ("utf-8", SIGNS),
        ("latin-1", "~2  $60-80  >= 3 × 4 · 100 % -> ### ..."),  # noqa: RUF001
        ("ascii", "~2  $60-80  >= 3 x 4 , 100 % -> ### ..."),
        ("cp1252", "~2  $60–80  >= 3 × 4 · 100 % -> ### …"),  # noqa: RUF001
    ],
)
def test_signs_that_an_encoding_lacks_are_others(
    monkeypatch: pytest.MonkeyPatch, encoding: str, shown: str
) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding=encoding)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", None)  # As `2>&-` leaves it.
    print_in_any_encoding()
    stream.write(SIGNS)
    stream.flush()
    assert written.getvalue().decode(encoding) == shown


def test_none_of_them_is_the_sign_for_what_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    stream = io.TextIOWrapper(written, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    print_in_any_encoding()
    stream.write("模型")
    stream.flush()
    assert written.getvalue() == b"__"
