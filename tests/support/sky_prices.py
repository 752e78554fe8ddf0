"""What SkyPilot says tasks cost: python sky_prices.py HOME, a task (YAML) a line of JSON on stdin.

Prints, for each task, a line of JSON: the price per hour of all nodes of what SkyPilot's optimizer
takes. In this process: no server, no account and no network. Which clouds are enabled is written
into SkyPilot's own state, as `sky check` would.
"""

import json
import os
import socket
import sys
from typing import Any, NoReturn


def _refused(*_: object) -> NoReturn:
    raise OSError("this process has no network")


def main(home: str) -> None:
    """Answer every task, in a home of its own."""
    os.environ |= {
        "HOME": home,
        "SKYPILOT_DISABLE_USAGE_COLLECTION": "1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    socket.socket.connect = socket.getaddrinfo = _refused
    import sky  # pyright: ignore[reportMissingImports]
    from sky import (  # pyright: ignore[reportMissingImports]
        global_user_state,
        skypilot_config,
    )
    from sky.check import _get_workspace_allowed_clouds  # pyright: ignore[reportMissingImports]
    from sky.clouds import cloud  # pyright: ignore[reportMissingImports]
    from sky.optimizer import Optimizer  # pyright: ignore[reportMissingImports]
    from sky.utils.registry import CLOUD_REGISTRY  # pyright: ignore[reportMissingImports]

    workspace = skypilot_config.get_active_workspace()
    enabled = [str(one) for one in CLOUD_REGISTRY.values() if str(one) not in ("Kubernetes", "SSH")]
    global_user_state.set_enabled_clouds(enabled, cloud.CloudCapability.COMPUTE, workspace)
    global_user_state.set_allowed_clouds(_get_workspace_allowed_clouds(workspace), workspace)
    for line in sys.stdin:
        print(json.dumps(_answer(sky, Optimizer, json.loads(line))), flush=True)


def _answer(sky: Any, optimizer: Any, config: dict[str, Any]) -> dict[str, Any]:
    try:
        task = sky.Task.from_yaml_config(config)
        with sky.Dag() as dag:
            dag.add(task)
        optimizer.optimize(dag, quiet=True)
        best = task.best_resources
        usd = best.get_cost(3600) * task.num_nodes
        return {"usd": usd, "took": f"{best.infra} {best.instance_type}"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}


if __name__ == "__main__":
    main(*sys.argv[1:])
