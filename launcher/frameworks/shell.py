"""The script that every node runs: what only the node knows is read there, all else is quoted.

SkyPilot sets SKYPILOT_NODE_RANK and SKYPILOT_NODE_IPS on each node; elsewhere NODE_RANK and
NODE_IPS say the same. It needs a POSIX shell and nothing of gpuplan.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from .types import FrameworkLaunch, Way
from .words import Fact, Word

DEFAULT_PORT = 29500

# Numbers are put in for @nodes@, @per_node@ and @port@; $node_ips ends up with one address a line.
ONE_NODE = """\
node_rank=0
node_ips=127.0.0.1"""
MANY_NODES = r"""
node_rank="${SKYPILOT_NODE_RANK:-${NODE_RANK:?set it to the rank of this node, from 0}}"
node_ips="${SKYPILOT_NODE_IPS:-${NODE_IPS:?set it to the addresses of all nodes}}"
node_ips="$(printf '%s\n' "$node_ips" | tr -s ' ,\t' '\n\n\n' | sed '/^$/d')"
if [ "$(printf '%s\n' "$node_ips" | wc -l)" -ne @nodes@ ]; then
    echo 'This launch is for @nodes@ nodes, and the addresses are of another number.' >&2
    exit 2
fi"""
MEETING = r"""
main_address="$(printf '%s\n' "$node_ips" | head -n 1)"
port="${MASTER_PORT:-@port@}" """.rstrip()
DERIVED = {
    Fact.HOST_SLOTS: r"""printf '%s\n' "$node_ips" | sed 's/$/:@per_node@/' | paste -sd , -""",
    Fact.HOSTFILE: r"""printf '%s\n' "$node_ips" | sed 's/$/ slots=@per_node@/'""",
    Fact.WORKERS: r"""printf '%s\n' "$node_ips" | sed "s/.*/\"&:$port\"/" | paste -sd , -""",
}
"""How a node works a fact out from the addresses."""


def node_script(launch: FrameworkLaunch, *, before: str = "") -> str:
    """Return the script for every node; it writes the files that come with the launch itself.

    Args:
        launch: what is started.
        before: shell text before the line that starts it, such as a program that starts another.
    """
    job = launch.job
    lines = [
        "#!/bin/sh",
        f"# {launch.framework} on {job.nodes} x {job.per_node}: run this on every node.",
        "set -eu",
        *_who_and_where(launch),
        *_files(launch),
        *(f"export {name}={shell_word(word)}" for name, word in launch.environment.items()),
    ]
    if launch.first_node_only and job.nodes > 1:
        lines.append('if [ "$node_rank" -ne 0 ]; then exit 0; fi')
    return "\n".join([*lines, *_start(launch.ways, before), ""])


def shell_line(way: Way) -> str:
    """Return the line that starts a job, with everything quoted that is not a fact."""
    return " ".join(shell_word(word) for word in (*way.program.command, *way.arguments))


def shell_word(word: Word) -> str:
    """Return one word as a shell reads it back: text as it is, facts by their variable."""
    if isinstance(word, Fact):
        return "python3" if word is Fact.PYTHON else f'"${word.value}"'
    if isinstance(word, str):
        return shlex.quote(word)
    return "".join(map(shell_word, word)) or "''"


def facts_in(words: Iterable[Word]) -> Iterator[Fact]:
    """Yield the facts that words are made of."""
    for word in words:
        if isinstance(word, Fact):
            yield word
        elif isinstance(word, tuple):
            yield from facts_in(word)


def _who_and_where(launch: FrameworkLaunch) -> Iterator[str]:
    numbers = {
        "@nodes@": launch.job.nodes,
        "@per_node@": launch.job.per_node,
        "@port@": DEFAULT_PORT,
    }
    used = set(facts_in(_words(launch)))
    texts = [ONE_NODE if launch.job.nodes == 1 else MANY_NODES, MEETING]
    texts += [f'{fact}="$({how})"' for fact, how in DERIVED.items() if fact in used]
    for text in texts:
        for name, number in numbers.items():
            text = text.replace(name, str(number))
        yield text.strip()


def _words(launch: FrameworkLaunch) -> Iterator[Word]:
    yield from launch.environment.values()
    yield from launch.files.values()
    for way in launch.ways:
        yield from way.arguments


def _files(launch: FrameworkLaunch) -> Iterator[str]:
    if not launch.files:
        return
    yield 'config="${GPUPLAN_CONFIG_DIR:-$(mktemp -d)}"'
    yield 'mkdir -p "$config"'
    for name, text in launch.files.items():
        yield f'printf %s {shell_word(text)} >"$config"/{shlex.quote(name)}'


def _start(ways: tuple[Way, ...], before: str) -> Iterator[str]:
    *others, last = ways
    for way in others:
        program = shlex.quote(way.program.command[0])
        yield f"if command -v {program} >/dev/null 2>&1; then"
        yield f"    exec {before}{shell_line(way)}"
        yield "fi"
    yield f"exec {before}{shell_line(last)}"
