"""What is seen of a launch: its record beside the engine, the clouds and this machine."""
