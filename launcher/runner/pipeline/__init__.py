"""Pipeline parallelism: schedule, where the model is cut, what flows between stages."""
