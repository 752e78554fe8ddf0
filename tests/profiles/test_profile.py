"""A Profile as a person sees it."""

from pathlib import Path

from gpuplan import api

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_a_profile_is_one_line_where_it_is_printed() -> None:
    """All its kernels and storages were printed in a notebook: megabytes."""
    params = {"layers": 1, "hidden": 64, "heads": 2, "seq_len": 32, "vocab": 128}
    profile = api.profile(EXAMPLES / "gpt2.py", params=params)
    said = str(profile)
    assert said.startswith("Profile of gpt2: ") and " parameters, " in said
    assert "FLOPs a sample, optimizer adamw, traced in fp32" in said
    assert repr(profile) == f"<{said}>" and "\n" not in said
