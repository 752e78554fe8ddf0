"""The guard: a small process on every node that starts a run, watches it, and knows when to end it.

    orders.py      what it holds the run to (guard.json)
    main.py        the loop
    watch.py       the thread that reads and writes, so that a stuck disk stops no clock
    folder.py      what it leaves in the folder of results
    timer.py       a process beside the guard that ends the machine when nothing else does
    decisions/     orders, account and observations → stop, kill, or nothing        (pure)
        spending.py    dollars and hours of every attempt, added up
        projection.py  the total again, from the first steps on the real machine
        verdicts.py    what a guard decides, and in which words
        handover.py    when a run on spot machines must move to on-demand ones
        session.py     one attempt, tick by tick
        limits.py      how long a machine may exist, and its set-up take
    node/          what is seen of the machine, and done to it                      (edges)
        readings.py    metrics, heartbeats, devices, the clock of the machine
        metadata.py    what the cloud tells the machine
        notice.py      that a spot machine is about to be taken away
        stage.py       how the machine was bought, and whether a task follows
        network.py     whether the network is the planned one
        processes.py   a process with all that it starts
        patience.py    what may never come back, called with a time limit
        command.py     what starts training, asked to stop and ended
        stuck.py       that not even a kill ends it: the guard's word to the timer

It runs with the Python of a node alone: the standard library of 3.8, nothing of gpuplan.
"""
