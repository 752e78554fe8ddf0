"""Reports of kept plans."""

import pytest
from answers import make_ranked_estimate

from gpuplan import api
from gpuplan.catalog.errors import UsageError
from gpuplan.launcher.store.estimates import Store


def test_a_plan_that_is_given_twice_is_refused_also_by_the_beginning_of_its_id() -> None:
    Store().keep(make_ranked_estimate(), inputs_hash="a")
    first, second = (plan.id for plan in api.kept_estimates()[0].plans[:2])
    assert len(api.report_of_plans([first, second]).experiments) == 2
    with pytest.raises(UsageError, match=f"Plan {first} is given twice"):
        api.report_of_plans([first, second, first[:8]])
