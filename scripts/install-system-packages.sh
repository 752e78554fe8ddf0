#!/bin/sh
# Install the Debian packages that some tests use. Elsewhere, or when not root, it does nothing:
# tests that miss a package skip and say why.
set -eu

# util-linux: mount and setpriv, for the tests of a full disk and of a folder nobody may write to;
# unshare and nsenter, for the machines of the offline cloud. What follows it is for those too.
packages="util-linux openssh-server rsync sudo iproute2 curl procps openssl
rclone fuse3 cron"

if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "Not root on Debian: system packages left as they are." >&2
    exit 0
fi

missing=
for package in $packages; do
    if ! dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed'; then
        missing="$missing $package"
    fi
done
if [ -n "$missing" ]; then
    apt-get update -qq
    # shellcheck disable=SC2086
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing
fi
