"""The `gpuplan` command, and `python -m gpuplan`."""

import signal


def main() -> None:
    """Run the command line.

    While it is still imported, Ctrl-C ends the process as the system does: the traceback of an
    import helps nobody.
    """
    is_handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_handled:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from .cli.main import main as begin

    if is_handled:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    begin()


if __name__ == "__main__":
    main()
