"""The model that is traced: built on the device, with an optimizer and its gradients."""
