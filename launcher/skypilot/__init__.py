"""Everything that talks to SkyPilot, and gpuplan's prices in its form."""
