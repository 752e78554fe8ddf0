#!/bin/sh
# Install what `make test-report` needs beside Python packages: Chromium and LibreOffice Calc as
# Debian packages, where root may, and axe-core, which checks pages for accessibility, into .cache.
# What cannot be installed is named; the tests then fail and say so.
set -eu
cd "$(dirname "$0")/.."

missing=
if ! [ -e "${CHROMIUM:-/usr/bin/chromium}" ]; then
    missing="$missing chromium"
fi
if ! command -v soffice >/dev/null; then
    missing="$missing libreoffice-calc"
fi
if [ -n "$missing" ]; then
    if [ "$(id -u)" -eq 0 ] && command -v apt-get >/dev/null; then
        apt-get update -qq
        # shellcheck disable=SC2086
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            $missing fonts-liberation fonts-dejavu-core
    else
        echo "Not root on Debian: install these yourself:$missing" >&2
    fi
fi

# Mozilla Public License 2.0: https://github.com/dequelabs/axe-core
version=4.14.1
folder=.cache/axe-core
if [ "$(cat "$folder/version" 2>/dev/null)" != "$version" ]; then
    if ! command -v npm >/dev/null; then
        echo "npm is missing: put axe.min.js of axe-core $version into $folder yourself." >&2
        exit 0
    fi
    rm -rf "$folder"
    mkdir -p "$folder"
    npm pack --silent --pack-destination "$folder" "axe-core@$version" >/dev/null
    tar -xzf "$folder/axe-core-$version.tgz" -C "$folder" --strip-components=1 package/axe.min.js
    rm "$folder/axe-core-$version.tgz"
    printf '%s\n' "$version" >"$folder/version"
fi
