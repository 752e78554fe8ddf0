"""What every machine boots from: its /etc, and a home with what SkyPilot's own images hold.

    etc/    accounts, sudo, ssh and certificates; nothing else of this machine's
    home/   of `ubuntu`: uv, SkyPilot's runtime with ray, wheels of torch and what it needs

Machines have no network, so packages come from those wheels: uv and pip are told so. Making an
image takes two minutes and a network, and 2.5 GB below CACHE; it is made once for each content.
"""

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from offline_cloud import machine_accounts

PROGRAMS = (
    "unshare",
    "nsenter",
    "setpriv",
    "ip",
    "sshd",
    "ssh",
    "rsync",
    "sudo",
    "openssl",
    "curl",
    "ps",
    "rclone",
    "fusermount3",
    "cron",
)
CACHE = Path("/var/tmp/gpuplan-offline-cloud")
ROOT = Path(__file__).parents[3]
BAKE = Path(__file__).with_name("bake.sh")
CONSTRAINTS = ROOT / "constraints-sky.txt"
PYTHON = Path("/usr/bin/python3.11")
"""One that every user may run, and no newer: SkyPilot's ray has no wheel for 3.12."""
UNUSED_S = 7 * 86400
"""After which an image that no cloud was started from goes."""
USER_ID = 4242
HOME = "/home/ubuntu"
RUNTIME = ("setuptools<70", "wheel", "pip", "uv", "ray[default]==2.9.3", "skypilot[aws,remote]")
ETC = (
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "fuse.conf",
    "host.conf",
    "inputrc",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "localtime",
    "login.defs",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "pam.conf",
    "pam.d",
    "profile",
    "profile.d",
    "protocols",
    "python3",
    "python3.11",
    "security",
    "services",
    "shells",
    "skel",
    "ssl",
    "terminfo",
)
UV_SETTINGS = f"""\
no-index = true
find-links = ["{HOME}/.wheels"]
python-downloads = "never"
link-mode = "symlink"  # An environment with torch in it costs a second, and no disk.
"""
PIP_SETTINGS = f"[global]\nno-index = true\nfind-links = {HOME}/.wheels\n"


def missing() -> str | None:
    """Return why no cloud can be run here; None where it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "it needs root on Linux"
    if not PYTHON.exists():
        return f"it needs {PYTHON}, for machines"
    path = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
    absent = [program for program in PROGRAMS if shutil.which(program, path=path) is None]
    if absent:
        return f"it needs {', '.join(absent)}: sh scripts/install-system-packages.sh"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True
    )
    return f"no namespaces here: {tried.stderr.strip()}" if tried.returncode else None


def image(endpoint: str) -> Path:
    """Return the folder of the image, which is made where it is not there yet.

    Args:
        endpoint: of AWS, as machines reach it.
    """
    folder = CACHE / f"image-{_content(endpoint)}"
    with _alone():
        if not folder.exists():
            _bake(folder, endpoint)
        os.utime(folder)
    return folder


def _content(endpoint: str) -> str:
    """Return a name for everything that an image is made from."""
    files = [BAKE, Path(machine_accounts.__file__), CONSTRAINTS]
    version = subprocess.run([PYTHON, "--version"], capture_output=True, check=True).stdout
    # Accounts and what is in /etc come with these programs.
    told = f"{PROGRAMS} {RUNTIME} {ETC} {UV_SETTINGS} {PIP_SETTINGS} {USER_ID} {HOME} {endpoint}"
    text = b"".join([*(file.read_bytes() for file in files), version, told.encode()])
    return hashlib.sha256(text).hexdigest()[:16]


def _bake(folder: Path, endpoint: str) -> None:
    print(f"Making the machines' image {folder}; this takes two minutes", file=sys.stderr)
    new = folder.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    (new / "home").mkdir(parents=True)
    (new / "uv.toml").write_text(UV_SETTINGS)
    (new / "pip.conf").write_text(PIP_SETTINGS)
    (new / "aws.conf").write_text(f"[default]\nregion = us-east-1\nendpoint_url = {endpoint}\n")
    _write_etc(new / "etc")
    told = {"IMAGE": str(new), "LAUNCHER": sys.executable, "PYTHON": str(PYTHON)}
    subprocess.run(
        ["unshare", "--mount", str(BAKE), HOME, str(USER_ID), *RUNTIME],
        env={**os.environ, **told, "CONSTRAINTS": str(CONSTRAINTS)},
        check=True,
    )
    new.rename(folder)
    for old in CACHE.glob("image-*"):
        if time.time() - old.stat().st_mtime > UNUSED_S:
            shutil.rmtree(old, ignore_errors=True)


def _write_etc(etc: Path) -> None:
    etc.mkdir()
    for name in ETC:
        source = Path("/etc") / name
        if source.exists():
            subprocess.run(["cp", "-a", str(source), str(etc)], check=True)
    (etc / "ssh").mkdir()
    (etc / "resolv.conf").write_text("")
    (etc / "environment").write_text("")
    machine_accounts.write_accounts(etc, USER_ID, HOME)


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    import fcntl  # Not on Windows, where this file is read and no cloud is run.

    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
