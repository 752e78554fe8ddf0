"""Other forms of a model: a class, a config, a LightningModule, a file written for DeepView."""
