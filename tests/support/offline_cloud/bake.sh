#!/bin/sh
# Makes the home of an image, in a mount namespace of its own: bake.sh HOME USER-ID RUNTIME…
# IMAGE is the folder of the image, LAUNCHER the Python whose pip installs, PYTHON the machines'.
set -eu
home="$1" user="$2"
shift 2

mount --make-rprivate /
mount -t tmpfs tmpfs /home
mkdir "$home"
mount --bind "$IMAGE/home" "$home"
runtime="$home/skypilot-runtime"
pip() {
    "$LAUNCHER" -m pip --disable-pip-version-check --python "$@"
}

"$PYTHON" -m venv --without-pip "$runtime"
pip "$runtime/bin/python" install -qq -c "$CONSTRAINTS" "$@"
# Every machine gets SkyPilot itself from the person's machine.
pip "$runtime/bin/python" uninstall -qq -y skypilot
"$PYTHON" -m venv --without-pip --system-site-packages "$home/sky-user-env"
pip "$home/sky-user-env/bin/python" install -qq pip
pip "$runtime/bin/python" download -qq -c "$CONSTRAINTS" -d "$home/.wheels" \
    torch numpy setuptools wheel pip

install -D "$runtime/bin/uv" "$home/.local/bin/uv"
install -D -m 644 "$IMAGE/uv.toml" "$home/.config/uv/uv.toml"
install -D -m 644 "$IMAGE/pip.conf" "$home/.config/pip/pip.conf"
install -D -m 600 "$IMAGE/aws.conf" "$home/.aws/config"
cp -a /etc/skel/. "$home"
chown -R "$user:$user" "$home"

# What uv unpacks here once, every environment of a machine links to.
setpriv --reuid "$user" --regid "$user" --clear-groups \
    env -i HOME="$home" PYTHON="$PYTHON" PATH="$home/.local/bin:/usr/bin:/bin" sh -eu <<'WARM'
cd
uv venv -q --python "$PYTHON" warm
VIRTUAL_ENV="$HOME/warm" uv pip install -q torch numpy
rm -r warm
WARM
