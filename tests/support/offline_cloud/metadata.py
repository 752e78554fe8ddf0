"""What a machine may ask about itself: version 2 of EC2's instance metadata, as far as it is used.

SkyPilot takes a machine down from within by the credentials found here and by no others.
"""

import datetime
import http.server
import json
import threading
from collections.abc import Callable, Mapping

from offline_cloud.network import GATEWAY, METADATA

ROLE = "skypilot-v1"
LIFETIME = datetime.timedelta(hours=6)
NOTICE = datetime.timedelta(minutes=2)


def serve_metadata(
    machine_at: Callable[[str], tuple[str, str] | None], warned: Mapping[str, datetime.datetime]
) -> None:
    """Answer machines, in a thread of its own.

    Args:
        machine_at: the id and the market of the machine with a private address; None where there
            is none.
        warned: when spot machines were given notice, by id.
    """

    class Metadata(http.server.BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self._answer("a-token")

        def do_GET(self) -> None:
            asker = str(self.client_address[0])
            machine = None if asker == GATEWAY else machine_at(asker)
            path = self.path.rstrip("/")
            if machine is None:
                self.send_error(404)
            elif path.endswith("/meta-data/instance-id"):
                self._answer(machine[0])
            elif path.endswith("/meta-data/instance-life-cycle"):
                self._answer(machine[1])
            elif path.endswith("/meta-data/spot/instance-action") and machine[0] in warned:
                ends = warned[machine[0]] + NOTICE
                action = {"action": "terminate", "time": f"{ends:%Y-%m-%dT%H:%M:%SZ}"}
                self._answer(json.dumps(action))
            elif path.endswith("/iam/security-credentials"):
                self._answer(ROLE)
            elif path.endswith(f"/iam/security-credentials/{ROLE}"):
                self._answer(json.dumps(_credentials()))
            else:
                self.send_error(404)

        def _answer(self, text: str) -> None:
            self.send_response(200)
            self.send_header("X-aws-ec2-metadata-token-ttl-seconds", "21600")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = http.server.ThreadingHTTPServer((METADATA, 80), Metadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _credentials() -> dict[str, str]:
    now = datetime.datetime.now(datetime.UTC)
    return {
        "Code": "Success",
        "Type": "AWS-HMAC",
        "AccessKeyId": "testing",
        "SecretAccessKey": "testing",
        "Token": "testing",
        "LastUpdated": f"{now:%Y-%m-%dT%H:%M:%SZ}",
        "Expiration": f"{now + LIFETIME:%Y-%m-%dT%H:%M:%SZ}",
    }
