"""What a LightningModule counts and evaluates as under Lightning's own Trainer."""
