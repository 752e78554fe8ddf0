"""A launch from request to final cost.

    transitions.py   its steps: begin, ask, attend, settle, end
    resume.py        what other commands do with it: look, stop, take down, launch again
    following.py     to its end, through connections that break off
    engine.py        what is asked of SkyPilot; context.py: of the rest of the world
    observing/       its record beside the engine, the clouds and this machine
    job/             what a job that has ended leaves
    reconcile/       all launches beside all machines

Any later command continues one that was interrupted.
"""
