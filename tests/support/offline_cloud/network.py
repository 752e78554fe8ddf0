"""The cloud's own network: a bridge, its addresses, and no route to anywhere else."""

import http.server
import ssl
import subprocess
import threading
from pathlib import Path

BRIDGE = "cloud0"
PREFIX = 14
GATEWAY = "10.79.255.254"
"""The person's machine, and where AWS answers; 10.76.0.0/14 holds every region."""
METADATA = "169.254.169.254"
API_PORT = 5555
ENDPOINT = f"http://{GATEWAY}:{API_PORT}"
REGION_NETWORKS = {
    "us-east-1": "10.77.0.0/16",
    "us-west-2": "10.78.0.0/16",
    "eu-west-1": "10.79.0.0/16",
}
VPC = "offline-vpc"
"""The name of the network in every region."""
PROBED = ("8.8.8.8", "1.1.1.1")
"""SkyPilot takes the network for down unless one of these answers an HTTPS request."""


def make_network() -> None:
    """Give this namespace its bridge and its addresses."""
    ip("link", "set", "lo", "up")
    for address in PROBED:
        ip("addr", "add", f"{address}/32", "dev", "lo")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{GATEWAY}/{PREFIX}", "dev", BRIDGE)
    ip("addr", "add", f"{METADATA}/32", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")


def ip(*words: str) -> None:
    """Run `ip`, which must succeed."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def make_certificate(folder: Path) -> Path:
    """Return a certificate that names the probed addresses, made below `folder` with its key."""
    certificate = folder / "probe.pem"
    names = ",".join(f"IP:{address}" for address in PROBED)
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30"]
    request += ["-subj", "/CN=probe"]
    files = ["-addext", f"subjectAltName={names}", "-keyout", str(folder / "probe.key")]
    subprocess.run([*request, *files, "-out", str(certificate)], check=True, capture_output=True)
    return certificate


def answer_probes(certificate: Path) -> None:
    """Answer SkyPilot's question whether the network is up, in threads of their own."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_suffix(".key"))
    for address in PROBED:
        server = http.server.ThreadingHTTPServer((address, 443), _Up)
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()


class _Up(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
