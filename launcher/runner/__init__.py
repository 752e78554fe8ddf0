"""The runner: executes one plan exactly, on one process or on thousands, wherever torch runs.

It is carried to the instances and needs only Python and torch: nothing here imports pydantic,
numpy or the rest of gpuplan, but the few files that `launcher/bundle.py` names and copies: errors
and units, what is runnable, and what loads a model file.

    job.py          what is to be run: the job folder, read and checked
    main.py         the entry of every process
    agent.py        the processes of one machine, started and watched
    processes.py    this process among the others: rank, device, groups, mesh
    build.py        the model, its optimizer and its data, put together
    numerics.py     precision: 16-bit layers, autocast, loss scale, gradient norm
    training.py     one step
    loss_weights.py   which part of a step's loss each micro-batch is
    training_options.py   what is asked of training beside the plan
    schedule.py     learning rates: the file's own, or a warm-up and a decay
    evaluation.py   numbers over an own data set while a run trains
    own_state.py    what the user's file keeps in checkpoints
    outcome.py      how a run went
    not_finite.py   a loss or weights that are no numbers, and how often a run goes back
    loop.py         all steps: checkpoints, signals, metrics, failures
    control.py      what all processes agree on after every step
    stopping.py     signals, and what else ends a run early
    input/          which samples a rank takes, and the batches made of them
    parallel/       the model as the layout says: DDP, FSDP, HSDP, ZeRO, tensor parallel
    pipeline/       stages of a model whose blocks repeat
    checkpoint/     never lose work
    weights/        pretrained weights, read into any layout and written from checkpoints
    reporting/      what is said while it runs, and what remains
"""
