"""A project file → what its experiments cost: read, estimated, ready for `planner/budget`."""
