"""The guard: a small process on every node that starts a run, watches it, and knows when to end it.

    orders.py      what it holds the run to (guard.json)
    spending.py    dollars and hours of every attempt, added up
    projection.py  the total again, from the first steps on the real machine
    verdicts.py    what a guard decides, and in which words
    handover.py    when a run on spot machines must move to on-demand ones
    session.py     orders, account and observations → stop, kill, or nothing        (all pure)
    readings.py    metrics, heartbeats, devices, the clock of the machine           (edges)
    metadata.py    what the cloud tells the machine                                (edge)
    notice.py      that a spot machine is about to be taken away                   (edge)
    stage.py       how the machine was bought, and whether a task follows           (edge)
    folder.py      what it leaves in the folder of results
    processes.py   a process with all that it starts
    command.py     what starts training, asked to stop and ended
    watch.py       the thread that reads and writes, so that a stuck disk stops no clock
    main.py        the loop
    limits.py      how long a machine may exist, and its set-up take                (pure)
    timer.py       a process beside the guard that ends the machine when nothing else does

It runs with the Python of a node alone: the standard library of 3.8, nothing of gpuplan.
"""
