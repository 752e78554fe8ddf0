"""Print what the standard library of this interpreter holds, for `tests/launcher/guard`.

`after_python38.json` is what a new Python has beside 3.8. It is made again with

    python3.8 tests/support/python_names.py > old.json
    python3.13 tests/support/python_names.py > new.json
    python tests/support/python_names.py old.json new.json > \
        tests/launcher/guard/after_python38.json

It is written so that both understand it.
"""

import importlib
import inspect
import json
import sys
from pathlib import Path

MODULES = [
    "builtins",
    "collections",
    "collections.abc",
    "contextlib",
    "ctypes",
    "dataclasses",
    "http.client",
    "itertools",
    "json",
    "math",
    "os",
    "pathlib",
    "shutil",
    "signal",
    "statistics",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
    "types",
    "typing",
    "urllib.error",
    "urllib.request",
]


def main(files):
    """Return the names of this interpreter, or those of the second file beside the first."""
    if not files:
        return names()
    old, new = (json.loads(Path(path).read_text(encoding="utf-8")) for path in files)
    return {kind: beside(kind, old[kind], new[kind]) for kind in new}


def names():
    """Return every module's names, all attributes of its classes, and parameters of its calls."""
    modules, attributes, calls = {}, set(), {}
    for name in MODULES:
        module = importlib.import_module(name)
        modules[name] = sorted(dir(module))
        for key, value in list(vars(module).items()):
            if callable(value):
                note(calls, key, value)
            if inspect.isclass(value):
                attributes.update(dir(value))
                for member in dir(value):
                    note(calls, member, getattr(value, member, None))
    return {
        "modules": modules,
        "attributes": {"any class": sorted(attributes)},
        "calls": {key: sorted(found) for key, found in calls.items()},
    }


def note(calls, name, value):
    """Keep the names of what a call takes, where the interpreter can tell."""
    try:
        parameters = inspect.signature(value).parameters
    except (TypeError, ValueError):
        return
    calls.setdefault(name, set()).update(parameters)


def beside(kind, old, new):
    """Return the names that only the new one has; modules without any stay, as looked at."""
    both = {key: set(new[key]) - set(old[key]) for key in sorted(new) if key in old}
    found = {
        key: sorted(name for name in more if not name.startswith("_")) for key, more in both.items()
    }
    return {key: more for key, more in found.items() if more or kind == "modules"}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1:]), indent=1))
