"""The memory of a step that stores nothing, for tests of its kernels alone."""

from gpuplan.profiles.profile import MemoryStream


def no_storages(end_tick: int = 1) -> MemoryStream:
    """Return a stream of a step that ends at this tick."""
    return MemoryStream(
        birth_tick=[],
        death_tick=[],
        bytes_base=[],
        bytes_per_sample=[],
        category=[],
        instance=[],
        end_tick=end_tick,
    )
