"""The offline cloud by hand: scripts/offline-cloud start|run|machines|terminate|fail|stop."""

import argparse
import json
import os
import sys
import time
from pathlib import Path

from offline_cloud.cloud import Cloud, stop
from offline_cloud.image import CACHE, missing


def main() -> int:
    """Do what the command line says and return the exit status."""
    parser = argparse.ArgumentParser(prog="offline-cloud", description=__doc__)
    parser.add_argument("--name", default="by-hand", help="of the cloud, where several run")
    actions = parser.add_subparsers(dest="action", required=True)
    actions.add_parser("start", help="start a cloud with an empty account")
    actions.add_parser("stop", help="end it and remove its folder")
    actions.add_parser("machines", help="list every machine there ever was")
    run = actions.add_parser("run", help="run a command inside, in this folder")
    run.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND…")
    end = actions.add_parser("terminate", help="end a cluster's machines behind SkyPilot's back")
    end.add_argument("cluster")
    fail = actions.add_parser("fail", help="refuse machines from now on")
    fail.add_argument("rules", nargs="*", help='{"code": "InsufficientInstanceCapacity", …}')
    given = parser.parse_args()
    reason = missing()
    if reason is not None:
        print(f"No cloud can be run here: {reason}.", file=sys.stderr)
        return 1
    folder = CACHE / "clouds" / given.name
    if given.action == "start":
        cloud = Cloud.start(given.name)
        print(f"Started in {folder}; its machines see {cloud.shared} at /shared.")
    elif given.action == "stop":
        stop(folder)
    else:
        return _use(Cloud(folder), given)
    return 0


def _use(cloud: Cloud, given: argparse.Namespace) -> int:
    if given.action == "run":
        words = cloud.command(given.words, Path.cwd())
        terminal = {name: os.environ[name] for name in ("TERM", "COLUMNS") if name in os.environ}
        os.execvpe(words[0], words, cloud.environment(**terminal))
    elif given.action == "machines":
        for one in cloud.instances():
            tags = " ".join(f"{name}={value}" for name, value in one.tags.items())
            ran = f"{one.billed_s(time.time()):.1f} s"
            print(one.id, one.state, one.type, one.zone, one.market, one.address, ran, tags)
    elif given.action == "terminate":
        print(*(one.id for one in cloud.terminate(given.cluster)), sep="\n")
    else:
        cloud.fail(*(json.loads(rule) for rule in given.rules))
    return 0


if __name__ == "__main__":
    sys.exit(main())
