"""What the user typed stays what they typed: no shell on the way gets to see into it."""

import shlex
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.frameworks.command import parse_command
from gpuplan.launcher.frameworks.launch import launch
from gpuplan.launcher.frameworks.shell import node_script, shell_line
from gpuplan.launcher.frameworks.types import FRAMEWORKS

WORD = st.text(
    st.one_of(
        st.sampled_from("$`\"'\\;&|<>(){}*?!#~ \n\t=-%^é"),
        st.characters(exclude_categories=["Cs"], exclude_characters="\0"),
    ),
    max_size=20,
)
NASTY = ("$(touch x)", "`id`", "a;b", "'", '"', "a b", "\n", "*", "$HOME", "", "-n", "%s", "{x}")


@given(st.lists(WORD, max_size=5), st.sampled_from(FRAMEWORKS))
def test_words_come_back_from_the_line_that_starts_them(words: list[str], framework: str) -> None:
    launched = launch(None, shlex.join(["go to.py", *words]), framework)
    for way in launched.ways:
        assert shlex.split(shell_line(way))[-len(words) - 1 :] == ["go to.py", *words]


@settings(max_examples=25, deadline=None)
@given(st.lists(WORD, max_size=5))
def test_words_come_back_from_a_real_shell(words: list[str]) -> None:
    assert printed(words) == words


def test_metacharacters_come_back_from_a_real_shell() -> None:
    assert printed(list(NASTY)) == list(NASTY)


def printed(words: list[str]) -> list[str]:
    """Return what a program of the node script is given, told by printf itself."""
    script = node_script(launch(None, shlex.join(["printf", "%s\\0", "", *words]), "none"))
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert done.stdout.endswith(b"\0")
    return done.stdout.decode().split("\0")[1:-1]


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("''", "empty"),
        ("train.py --name 'a", "leaves a quote open"),
        ("LR=1 train.py", "only a shell understands"),
        ("-m", "no module"),
        ("--lr 1 train.py", "starts with an option"),
        ("train.py \0", "NUL"),
    ],
)
def test_a_command_that_cannot_be_read_is_refused(command: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        parse_command(command)
    assert refused.value.fix


def test_pieces_of_shell_are_data_and_it_says_so() -> None:
    launched = launch(None, "train.py && rm -rf data", "torchrun")
    assert shell_line(launched.ways[0]).endswith("train.py '&&' rm -rf data")
    assert any("&& is given to train.py" in note for note in launched.notes)
    assert launch(None, "bash -c 'a && b'", "none").notes == launch(None, "bash", "none").notes
