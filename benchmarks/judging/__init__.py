"""How `make accuracy` judges: groups and targets, causes, known truths, plots and the page."""
