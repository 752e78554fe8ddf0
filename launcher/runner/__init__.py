"""The runner: executes one plan exactly, on one process or on thousands, wherever torch runs.

It is carried to the instances and needs only Python and torch: nothing here imports pydantic,
numpy or the rest of gpuplan, but the few files that `launcher/bundle.py` names and copies: errors
and units, what is runnable, and what loads a model file.

    main.py         the entry of every process
    agent.py        the processes of one machine, started and watched
    job.py          what is to be run: the job folder, read and checked
    training_options.py   what is asked of training beside the plan
    build.py        the model, its optimizer and its data, put together
    loop.py         all steps: checkpoints, signals, metrics, failures
    processes/      this process among the others, what they agree on, how they stop and end
    input/          which samples a rank takes, and the batches made of them
    parallel/       the model as the layout says: DDP, FSDP, HSDP, ZeRO, tensor parallel
    pipeline/       stages of a model whose blocks repeat
    training/       one step: gradients, precision, learning rates, losses that are no numbers
    lightning/      what a LightningModule counts and evaluates as under its own Trainer
    evaluation/     numbers over an own data set while a run trains, and samples to look at
    checkpoint/     never lose work; what the user's file keeps in checkpoints
    weights/        pretrained weights, read into any layout and written from checkpoints
    reporting/      what is said while it runs, and what remains
"""
