"""A run in trackers that people look at: TensorBoard, MLflow, Weights & Biases."""
