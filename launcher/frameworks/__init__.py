"""The user's own training script under its own framework: launch lines, environment and configs.

    launch.launch(plan, command, framework, …)  →  FrameworkLaunch      what to run, as a value
    shell.node_script(launched)                 →  text                 to run on every node
    local.run(launched, folder=…)               →  exit code            on this machine, now

Only `local` touches the world. `types` has the values, `command` reads what the user typed, `facts`
says what the plan is; one file for each framework knows its line and its config.
"""
