"""From a plan and a project to the exact task, its worst-case cost, or a refusal. Rents nothing."""
