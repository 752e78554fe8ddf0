"""`python -m gpuplan` is the `gpuplan` command."""

from .cli.main import main

if __name__ == "__main__":
    main()
