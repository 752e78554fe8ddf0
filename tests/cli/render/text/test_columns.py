"""Items packed into lines of a width."""

import pytest

from gpuplan.cli.render.text.columns import packed, wrapped_options


@pytest.mark.parametrize("separator", [" · ", "; ", ", "])
def test_a_line_keeps_to_its_width_with_what_ends_it(separator: str) -> None:
    items = ["a" * size for size in (4, 5, 3, 9, 1, 2)]
    for width in range(11, 32):
        lines = packed(items, width=width, indent=1, separator=separator)
        assert max(map(len, lines)) <= width
        whole = separator.join(items).replace(" ", "")
        kept = separator.strip().join(line.strip().rstrip(separator) for line in lines)
        assert kept.replace(" ", "") == whole


def test_the_last_item_needs_no_room_behind_it() -> None:
    assert packed(["abc", "de"], width=7, indent=0, separator="; ") == ["abc; de"]


def test_options_stay_whole_and_a_shell_reads_their_lines_as_one() -> None:
    options = "--provider verda --instance '8x A100 SXM 80GB' --nodes 1 --layout dp8 --compile"
    lines = wrapped_options(options, 50)
    assert max(map(len, lines)) <= 50
    assert all(line.endswith(" \\") for line in lines[:-1])
    assert "".join(line.removesuffix("\\") for line in lines) == options
    assert wrapped_options(options, 100) == [options]
