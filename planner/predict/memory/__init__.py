"""What a setup holds on the device: its peak, and what the allocator keeps beside it."""
