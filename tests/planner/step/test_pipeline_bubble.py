"""How long pipeline stages wait for each other."""

import numpy as np
import pytest

from gpuplan.planner.step.pipeline_bubble import bubble_s


@pytest.mark.parametrize(("pipeline", "virtual"), [(4, 1), (4, 2), (8, 3)])
def test_the_bubble_of_equal_stages(pipeline: int, virtual: int) -> None:
    """Narayanan et al. 2021, section 2.2: (p - 1) / v stages."""
    others_s = np.array([pipeline - 1.0])
    assert bubble_s(others_s, np.array(virtual)).item() == pytest.approx((pipeline - 1) / virtual)
