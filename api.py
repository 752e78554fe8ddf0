"""The use cases of gpuplan: typed values in, typed values out, nothing printed."""

__all__: list[str] = []
