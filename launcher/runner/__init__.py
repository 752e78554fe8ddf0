"""The runner: executes one plan exactly, on one process or on thousands, wherever torch runs.

It is carried to the instances and needs only Python and torch: nothing here imports pydantic,
numpy or the rest of gpuplan, but the few files that `launcher/bundle.py` names and copies: errors
and units, what is runnable, and what loads a model file.

    job.py          what is to be run: the job folder, read and checked
    processes.py    this process among the others: rank, device, groups, mesh
    parallel.py     the model as the layout says: DDP, FSDP, HSDP, ZeRO, tensor parallel
    pipeline.py     stages of a model whose blocks repeat
    numerics.py     precision: 16-bit layers, autocast, loss scale, gradient norm
    initial.py      the first weights; staged.py the same for stages
    samples.py      which samples a rank takes; data.py the batches made of them
    training.py     one step
    loop.py         all steps: checkpoints, signals, metrics, failures
    control.py      what all processes agree on after every step
    checkpoint.py   never lose work
    metrics.py      what is said while it runs, by report.py; record.py what remains
    agent.py        the processes of one machine, started and watched
    main.py         the entry of every process
"""
