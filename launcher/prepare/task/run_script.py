"""What every node of a launch runs: the framework's own script, guarded. Pure."""

from __future__ import annotations

from ...bundle import GUARD, ORDERS_FILE
from ...frameworks.shell import node_script
from ...frameworks.types import FrameworkLaunch
from ...labels import slug
from ...task_file import JOB_FOLDER, OUT_FOLDER, UPLOAD_MARK, WORKDIR
from ..request import OUTPUTS, LaunchRequest
from .node_setup import ACTIVATE

GUARDED = f'python3 -E -S "$HOME/{JOB_FOLDER}/{GUARD}" "$HOME/{JOB_FOLDER}/{ORDERS_FILE}" -- '
"""Stands before what starts training. With nothing of the project on its path: -E, -S."""
OWN_SHELL = "# A shell of its own: SkyPilot adds lines that wait for uploads to a bucket.\n("
UPLOAD_WAIT_S = 3600
"""How long the machines stay for what is still to be uploaded when the run has ended."""


def run_script(launched: FrameworkLaunch, request: LaunchRequest, run_id: str) -> str:
    """Return what every node runs: the framework's own script, guarded, in the environment.

    It runs in a shell of its own: SkyPilot adds lines that wait until a bucket has everything, and
    they must be reached however the script ends.
    """
    _, *rest = node_script(launched, before=GUARDED).splitlines()
    lines = [OWN_SHELL, f'cd "$HOME/{WORKDIR}"', ACTIVATE, *_out_lines(request, run_id)]
    if request.command is None:
        lines.append(f'export PYTHONPATH="$HOME/{JOB_FOLDER}${{PYTHONPATH:+:$PYTHONPATH}}"')
    uploads = upload_lines(UPLOAD_WAIT_S) if request.outputs is not None else []
    return "\n".join([*lines, *rest, ")", *uploads, ""])


def upload_lines(wait_s: float) -> list[str]:
    """Return the lines that end SkyPilot's wait for uploads, which has no end of its own.

    They follow the run, whose guard has ended; what comes after them is SkyPilot's. The loop
    holds no pipe open, and goes when its shell does.

    Args:
        wait_s: how long SkyPilot may wait.
    """
    return [
        "gpuplan_code=$?",
        "(",
        "    # Since the start of the machine, which no clock that is set changes.",
        "    up() { cut -d . -f 1 /proc/uptime; }",
        "    ends=$(($(up) + " + f"{wait_s:.0f}))",
        "    while kill -0 $$; do",
        '        if [ "$(up)" -ge "$ends" ]; then',
        f'            echo "{UPLOAD_MARK} {wait_s / 60:.0f} minutes" >/proc/$$/fd/1',
        "            kill -9 $$",
        "        fi",
        "        sleep 1",
        "    done",
        ") </dev/null >/dev/null 2>&1 &",
        "(exit $gpuplan_code)",
    ]


def _out_lines(request: LaunchRequest, run_id: str) -> list[str]:
    """Return the lines that name and make the folder of results."""
    lines = []
    out = '"$HOME/' + OUT_FOLDER + '"' if request.fetch else out_dir(request, run_id)
    if request.shared is not None:
        # Made here it would be a folder of this node alone, and go with it.
        said = f"There is no folder {request.shared} on this node; give --shared one that is."
        lines = [
            f"if [ ! -d {request.shared} ]; then",
            f"    echo '{said}' >&2",
            "    exit 2",
            "fi",
        ]
    return [*lines, f"export GPUPLAN_OUT={out}", 'mkdir -p "$GPUPLAN_OUT"']


def out_dir(request: LaunchRequest, run_id: str) -> str:
    """Return the folder of results, absolute or seen from the working directory of a node."""
    if request.shared is not None:
        return f"{request.shared}/{slug(run_id)}"
    if request.outputs is None:
        return f"../{OUT_FOLDER}"
    return "/".join(part for part in (OUTPUTS, request.outputs.folder, slug(run_id)) if part)
