"""A tiny trainer: a line of metrics every step, a checkpoint when it is told to stop.

stand_in_trainer.py OUT [steps=N] [step_s=S] [ignore=1] [loss_bad_from=N] [checkpoint_s=S]
"""

import json
import signal
import sys
import time
from pathlib import Path

out = Path(sys.argv[1])
given = dict(word.split("=") for word in sys.argv[2:])
told = []


def stop(number, _frame):
    told.append(number)
    with (out / "signals").open("a") as stream:
        stream.write(f"{number}\n")


for one in (signal.SIGTERM, signal.SIGINT):
    signal.signal(one, signal.SIG_IGN if "ignore" in given else stop)
saved = out / "checkpoint.json"
step = json.loads(saved.read_text())["step"] if saved.exists() else 0
step_s = float(given.get("step_s", "0.05"))
(out / "began").write_text("")
while step < int(given.get("steps", "100000")) and not told:
    time.sleep(step_s)
    step += 1
    bad = step >= int(given.get("loss_bad_from", "1000000"))
    line = {"step": step, "step_time_s": step_s, "loss": None if bad else 1.0}
    with (out / "metrics.jsonl").open("a") as stream:
        stream.write(json.dumps(line) + "\n")
time.sleep(float(given.get("checkpoint_s", "0")))
saved.write_text(json.dumps({"step": step}))
