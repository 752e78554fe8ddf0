"""What a job pays for beside its machines: disks, data, traffic, a controller, an idle tail."""
