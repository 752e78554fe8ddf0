"""What a machine's cloud tells it about itself: the metadata services of AWS, Google and Azure.

Addresses and headers are those of the providers' documentation. The two variables are those by
which the providers' own libraries are told of another address.
"""

from __future__ import annotations

import os
import urllib.request
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Not at run time: Python 3.8 cannot subscript it.
    Ask = Callable[[str, str, Mapping[str, str]], str]
    """From method, URL and headers to what the service answers."""

METADATA = "http://169.254.169.254"
WITHIN_S = 3.0
AT_MOST_BYTES = 100_000


def told(cloud: str, path: str, ask: Ask | None = None) -> str:
    """Return what the service of a cloud answers for a path.

    Args:
        cloud: `aws` (version 2 of its service, which wants a token first), `gcp` or `azure`.
        path: behind the part that all paths share: `/meta-data/…`, `/instance/…`.
        ask: does the request.

    Raises:
        OSError, ValueError, http.client.HTTPException: there is no answer, such as on a machine of
            another cloud; a KeyError for a cloud without a service.
    """
    ask = ask or request
    if cloud == "aws":
        base = os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or METADATA
        latest = f"{base.rstrip('/')}/latest"
        ttl = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
        token = ask("PUT", f"{latest}/api/token", ttl)
        return ask("GET", f"{latest}{path}", {"X-aws-ec2-metadata-token": token})
    if cloud == "gcp":
        host = os.environ.get("GCE_METADATA_HOST")
        base = f"http://{host}" if host else METADATA
        return ask("GET", f"{base}/computeMetadata/v1{path}", {"Metadata-Flavor": "Google"})
    if cloud == "azure":
        return ask("GET", f"{METADATA}/metadata{path}", {"Metadata": "true"})
    raise KeyError(cloud)


def request(method: str, url: str, headers: Mapping[str, str]) -> str:
    """Return what a machine's own service answers.

    Raises:
        OSError, ValueError, http.client.HTTPException: there is no answer.
    """
    asked = urllib.request.Request(url, headers=dict(headers), method=method)
    # A proxy would answer for itself.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(asked, timeout=WITHIN_S) as answer:
        return answer.read(AT_MOST_BYTES).decode().strip()
