"""A process of a job ends as an interpreter does, as far as anybody can see."""

import subprocess
import sys

PROGRAM = """
import atexit, threading, time
from gpuplan.launcher.runner.processes.ending import end_at_once

def work():
    time.sleep(0.2)
    print("a thread has ended")

class Left:
    def __del__(self):
        print("taken apart")

left = Left()
atexit.register(print, "registered for the exit")
threading.Thread(target=work).start()
print("said", end=" ")
end_at_once(3)
"""


def test_threads_end_and_what_is_registered_runs_and_all_is_said() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == "said a thread has ended\nregistered for the exit\n"
