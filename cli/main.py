"""The `gpuplan` command: each subcommand lives in its own module, imported only when it is used."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gc
import os
import sys
import threading
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

import click

from ..catalog.errors import GpuplanError
from ..catalog.version import VERSION
from .exit_codes import EXIT_INTERRUPTED
from .terminal.encodings import print_in_any_encoding

COMMANDS: dict[str, str] = {
    "estimate": "Say what training a model needs, takes and costs on every accelerator.",
    "fits": "Say whether a training step fits in the memory of an accelerator.",
    "advise": "Say what to change of how a model is trained today, and what that saves.",
    "plans": "List the stored estimates and their plans.",
    "show": "Show a stored plan in full, and where each number comes from.",
    "report": "Write the budget of a project: by month, with ranges, limits and funding.",
    "ui": "Show estimates, plans, reports and launches as pages in a browser, read-only.",
    "diff": "Say what changed between two budgets, why, and by how much.",
    "run": "Train the model on this machine, by a plan or by what the file itself asks.",
    "launch": "Run a plan on machines that SkyPilot rents, with a guard on the cost.",
    "export": "Write a plan as a file of SkyPilot, torchrun, DeepSpeed or accelerate.",
    "export-weights": "Write the weights of a run as safetensors or a Hugging Face folder.",
    "status": "Show what every open launch is doing and what it has cost.",
    "logs": "Show what the job of a launch prints.",
    "stop": "Stop a launch after a checkpoint, and tear down its machines.",
    "down": "Tear down the machines of a launch now.",
    "resume": "Continue a launch from its newest checkpoint.",
    "history": "List every launch with its outcome and cost.",
    "reconcile": "Find orphaned machines (no open launch owns them), and tear them down.",
    "check": "Show in which of your clouds and clusters machines can be rented.",
    "actuals": "Show what a run took beside what its plan predicted.",
    "gpus": "List the accelerators with their peaks and lowest prices, or one in full.",
    "offers": "List what the clouds sell, filtered and sorted by price.",
    "prices": "Refresh prices from the clouds, compare them, see them over time.",
    "capacity": "Say where your account can start machines: zones, quota, reservations.",
    "profile": "Show what one training step of a model computes and keeps in memory.",
    "doctor": "Show what works with gpuplan on this machine, and how to fix the rest.",
    "init": "Write a model file to start from, or one around a class that you have.",
    "validate": "Predict recorded runs and show how far off the predictions are.",
    "calibrate": "Measure the kernels of a device, for estimates that use its own curves.",
    "config": "Store defaults for options, so that you need not type them again.",
    "completion": "Print the completion script of a shell.",
}
"""Command name → one line of help. `cli/commands/<name>.py` holds it as `command`."""

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports one only when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the command names in the order they are meant to be read."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command, or None if there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f".commands.{cmd_name.replace('-', '_')}", __package__)
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command; an unknown one is answered with the closest names."""
        from ..catalog.errors import did_you_mean
        from .options.other_names import command_elsewhere

        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            known = f"{did_you_mean(name, COMMANDS)} Commands: {', '.join(COMMANDS)}."
            raise click.UsageError(
                f"There is no command {name!r}.{command_elsewhere(name) or known}", ctx
            )
        resolved_name, command, rest = super().resolve_command(ctx, args)
        if resolved_name is not None and command is not None:
            from .options.settings import defaults

            ctx.default_map = {resolved_name: defaults(command)}
        return resolved_name, command, rest

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="gpuplan", message="%(prog)s %(version)s")
def cli() -> None:
    """Say what training your PyTorch model needs, takes and costs, before you rent a GPU.

    Start with:  gpuplan estimate model.py --tokens 10B
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with the code that docs/json.md lists."""
    # A command lives for seconds; garbage collection would take a tenth of an estimate, which makes
    # up to 140,000 objects that stay, and hardly any garbage.
    gc.set_threshold(300_000, 50, 50)
    print_in_any_encoding()
    code = run(args)
    if args is None and "sky" in sys.modules:
        _leave(code)
    gc.freeze()  # What lives to the end need not be searched for garbage again.
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """End the process without the interpreter's teardown of SkyPilot (most of a second).

    Threads are joined and atexit handlers run; the operating system closes the files.
    """
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # As it is where the shell closed it (`>&-`).
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
    os._exit(code)


def run(args: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; the only place that prints an error."""
    stdout = sys.stdout
    try:
        code = _invoke(args)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever reads our stdout (`| head`) has had enough: no error of ours.
        _drop_output()
        return 0
    except SystemExit:
        # click leaves so when the reader is gone, and has then replaced stdout; else it has
        # completed a word for the shell.
        if sys.stdout is stdout:
            raise
        _drop_output()
        return 0
    except OSError as error:
        if error.errno not in DISK_FULL:
            return _failed_call(error, args)
        _drop_output()
        where = f" writing {error.filename}" if error.filename else ""
        click.echo(f"Error: the disk is full{where}.\nTo fix: free some space.", err=True)
        return 1
    return code


def _invoke(args: Sequence[str] | None) -> int:
    given = None if args is None else list(args)
    try:
        code = cli.main(args=given, prog_name="gpuplan", standalone_mode=False)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted; nothing was left half-written.", err=True)
        return EXIT_INTERRUPTED
    except GpuplanError as error:
        click.echo(f"Error: {error}", err=True)
        return error.exit_code
    except OSError:
        raise
    except Exception as error:
        return _own_fault(error, verbose=_is_verbose(given))
    return code if isinstance(code, int) else 0


def _failed_call(error: OSError, args: Sequence[str] | None) -> int:
    """Print what the system refused, where nothing that is nearer to it did."""
    try:
        os.getcwd()
    except OSError:
        click.echo(
            "Error: the folder where this is run is not there any more.\n"
            "To fix: change to one that is, as with `cd ..`.",
            err=True,
        )
        return 2
    return _own_fault(error, verbose=_is_verbose(args))


def _is_verbose(args: Sequence[str] | None) -> bool:
    return bool({"-v", "--verbose"} & {*(args or sys.argv[1:])})


def _own_fault(error: Exception, *, verbose: bool) -> int:
    """Print an unexpected error as one message; the traceback only with -v."""
    if verbose:
        traceback.print_exception(error)
    click.echo(
        f"Error: gpuplan itself failed: {type(error).__name__}: {error}\n"
        "To fix: this is a fault of gpuplan; report it with what the same command prints with -v.",
        err=True,
    )
    return 1


def _drop_output() -> None:
    """Send what is still buffered for stdout nowhere, or Python fails on it while it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
