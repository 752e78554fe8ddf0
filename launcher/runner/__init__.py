"""The runner: executes one plan exactly, on one process or on thousands, wherever torch runs.

It is carried to the instances and needs only Python and torch: nothing here imports pydantic,
numpy or the rest of gpuplan, but `catalog/errors.py`, `planner/runnable.py` and the few files of
`profiles/` that load a model file. `launcher/bundle.py` copies exactly those.

    job.py          what is to be run: the job folder, read and checked
    processes.py    this process among the others: rank, device, groups, mesh
    parallel.py     the model as the layout says: DDP, FSDP, HSDP, ZeRO, tensor parallel
    pipeline.py     stages of a model whose blocks repeat
    numerics.py     precision: 16-bit layers, autocast, loss scale, gradient norm
    data.py         batches: sharded data set or synthetic, exact to resume
    training.py     one step
    loop.py         all steps: checkpoints, signals, metrics, failures
    checkpoint.py   never lose work
    metrics.py      what is said while it runs; record.py what remains
    main.py         the entry of every process
"""
