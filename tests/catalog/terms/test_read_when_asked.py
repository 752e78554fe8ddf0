"""The tables of terms cost nothing until somebody asks for one of them."""

import subprocess
import sys

SHOW = """
from gpuplan.catalog.terms import commitments, controllers, interruptions, storage
tables = (commitments, controllers, interruptions, storage)
print([one._by_place.cache_info().misses for one in tables])
storage.storage_prices("aws", "us-east-1"), storage.storage_prices("gcp", "us-central1")
print([one._by_place.cache_info().misses for one in tables])
"""


def test_no_table_is_read_at_import_and_each_at_most_once() -> None:
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[0, 0, 0, 0]", "[0, 0, 0, 1]"]
