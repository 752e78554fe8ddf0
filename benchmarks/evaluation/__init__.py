"""How `make accuracy` evaluates predictions: groups, targets, causes, known truths, plots, page."""
