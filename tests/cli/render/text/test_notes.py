"""Notes that say the same of several lines of a file are said once."""

import pytest

from gpuplan.cli.render.text.notes import joined_notes

CHECKS = "checks values and stops the step where the check fails: the trace takes it as passed"


def lines(*numbers: int, file: str = "model.py", text: str = CHECKS) -> list[str]:
    return [f"{file}:{number} {text}" for number in numbers]


@pytest.mark.parametrize(
    ("notes", "said"),
    [
        ([], []),
        (lines(7), [f"model.py:7 {CHECKS}"]),
        (lines(7, 7), [f"model.py:7 {CHECKS}"]),
        (lines(7, 9), [f"model.py:7 and :9 each {CHECKS}"]),
        (lines(7, 9, 12), [f"model.py:7, :9 and :12 each {CHECKS}"]),
        (lines(1, 2, 3, 4, 5), [f"model.py:1, :2, :3, :4 and 1 other line each {CHECKS}"]),
        (lines(*range(1, 9)), [f"model.py:1, :2, :3, :4 and 4 other lines each {CHECKS}"]),
        (
            [*lines(7), *lines(3, 4, file="layers/block.py")],
            [f"model.py:7, layers/block.py:3 and :4 each {CHECKS}"],
        ),
    ],
)
def test_what_several_lines_do_is_said_once(notes: list[str], said: list[str]) -> None:
    assert joined_notes(notes) == said


MASK = "t5 gives attention a mask, which rules the flash kernel out: what runs instead {}. Do so: b"


@pytest.mark.parametrize(
    ("consequences", "said"),
    [
        (["is slower, and reads it"], "is slower, and reads it"),
        (["writes scores", "is slower"], "writes scores, or is slower"),
    ],
)
def test_what_one_cause_leads_to_is_said_in_one_note(consequences: list[str], said: str) -> None:
    notes = [MASK.format(one) for one in consequences]
    assert joined_notes(["first", *notes, "last"]) == ["first", MASK.format(said), "last"]
    other = MASK.format("is slower").replace("Do so", "Do not")
    assert joined_notes([*notes, other]) == [MASK.format(said), other]


def test_other_notes_stay_as_they_are_and_where_they_are() -> None:
    other = "assumed: model.py:31 finds 50% (--assume-size)"
    option = "--assume-true model.py:5 changed nothing: no such value is read at that line"
    asks = lines(8, text="asks whether values are finite: the trace takes them to be")
    notes = ["one", *lines(7), other, *asks, *lines(9), option]
    joined = f"model.py:7 and :9 each {CHECKS}"
    assert joined_notes(notes) == ["one", joined, other, *asks, option]
