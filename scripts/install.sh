#!/bin/sh
# Install gpuplan into .venv:  sh scripts/install.sh base|dev
# or, with what `make test-report` drives a browser with, there too:  sh scripts/install.sh report
# or, with the trackers and data set libraries that a run may use, there too:  ... install.sh extras
# or, with the libraries that launch training, into .venv-frameworks:  sh scripts/install.sh frameworks
# or, with SkyPilot and moto, into .venv-sky:  sh scripts/install.sh sky
# or, with the client libraries of the clouds, into .venv-clouds:  sh scripts/install.sh clouds
# or, with what published image models are traced with, into .venv-published: ... install.sh published
# or, with libraries of models, into .venv-compatibility:  sh scripts/install.sh compatibility
# or the newest release of everything, torch as pip brings it, into .venv-newest: ... install.sh newest
# Does nothing, and needs no network, when the environment already holds what pyproject.toml and
# the constraints ask for. PYTHON picks the interpreter, PIP_ARGS adds options to pip.
set -eu
cd "$(dirname "$0")/.."

want="${1:?say what to install: base, dev, report, extras, frameworks, sky, clouds, published, compatibility or newest}"
venv=.venv
constraints=constraints.txt
package=.
libraries=
# pip compiles modules one after the other, and all of them: half of the time that it takes.
compile=--no-compile
case "$want" in
    dev)
        package='.[dev]'
        ;;
    report)
        package='.[dev]'
        libraries=playwright
        ;;
    extras)
        package='.[dev,tensorboard,wandb,mlflow]'
        libraries='datasets torchdata webdataset'
        ;;
    frameworks)
        venv=.venv-frameworks
        libraries='accelerate deepspeed lightning pytest pytest-timeout transformers'
        ;;
    sky)
        venv=.venv-sky
        constraints=constraints-sky.txt
        compile=--compile
        libraries='skypilot[aws] moto[server,ec2,iam,sts,s3] hypothesis pytest pytest-timeout'
        ;;
    clouds)
        venv=.venv-clouds
        constraints=constraints-clouds.txt
        package='.[aws,gcp,azure,sellers]'
        libraries='moto[ec2,iam] hypothesis pytest pytest-timeout'
        ;;
    published)
        venv=.venv-published
        constraints=constraints-published.txt
        libraries='diffusers timm torchvision'
        ;;
    compatibility)
        venv=.venv-compatibility
        constraints=constraints-compatibility.txt
        libraries='diffusers lightning monai open_clip_torch peft segmentation-models-pytorch timm'
        libraries="$libraries torch_geometric torchvision transformers einops scipy"
        ;;
    newest)
        venv=.venv-newest
        constraints=/dev/null
        package='.[dev]'
        ;;
esac

# Print the first interpreter that is new enough and can make a virtual environment.
find_python() {
    for candidate in "${PYTHON:-python3}" python3.11 python3.12 python3.13 python3.14 python; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' \
            >/dev/null 2>&1; then
            command -v "$candidate"
            return
        fi
        if [ -n "${PYTHON:-}" ]; then
            break
        fi
    done
    found="$("${PYTHON:-python3}" --version 2>&1 | head -n 1)" || true
    echo "gpuplan needs Python 3.11 or newer with venv; ${PYTHON:-python3} is: $found." >&2
    echo "To fix: install one (on Debian: apt-get install python3 python3-venv)," \
        "or name it: make PYTHON=/path/to/python3.12 ..." >&2
    return 1
}

# What the environment was made from: it moves with none of these, so a change makes it stale.
python="$(find_python)"
made_from="$("$python" --version) in $(pwd -P)"
asked_for="$(cat pyproject.toml "$constraints" | cksum) ${PIP_ARGS:-}"

if [ "$(cat "$venv/made-from" 2>/dev/null)" != "$made_from" ]; then
    echo "Making $venv with $("$python" --version)" >&2
    rm -rf "$venv"
    "$python" -m venv "$venv"
    printf '%s\n' "$made_from" >"$venv/made-from"
fi

# `dev` holds everything that `base` does, `report` and `extras` everything that `dev` does.
case "$want" in
    report | extras) holders=$want ;;
    *) holders="$want dev report extras" ;;
esac
for holder in $holders; do
    if [ "$(cat "$venv/installed-$holder" 2>/dev/null)" = "$asked_for" ]; then
        exit 0
    fi
done

echo "Installing gpuplan ($want) into $venv; the first time this downloads torch" >&2
rm -f "$venv"/installed-*
# PIP_ARGS and libraries are lists of words, and no word of them is a pattern.
set -f
# shellcheck disable=SC2086
"$venv/bin/python" -m pip install -qq --disable-pip-version-check \
    "$compile" -c "$constraints" ${PIP_ARGS:-} $libraries -e "$package"
if [ "$compile" = --no-compile ]; then
    # What each process of a trace or a run imports; the rest is compiled when it is first imported.
    packages="$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
    "$venv/bin/python" -m compileall -q -j 0 "$packages/numpy" "$packages/sympy" "$packages/torch" \
        >/dev/null || true # Some files of a package are for other versions of Python.
fi

# A build of torchvision for CUDA beside one of torch for CPUs; of the same kind, it does nothing.
case " $libraries " in
    *" torchvision "*)
        "$venv/bin/python" scripts/torchvision_operators.py
        ;;
esac

# The AWS command is a script of the old kind, whose first line does not bear a space.
script="$venv/bin/aws"
if [ -f "$script" ] && head -n 1 "$script" | grep -q '^#!.* '; then
    {
        printf '#!/bin/sh\n'
        printf "'''exec' \"%s\" \"\$0\" \"\$@\"\n' '''\n" "$(pwd -P)/$venv/bin/python"
        tail -n +2 "$script"
    } >"$script.whole"
    chmod 755 "$script.whole"
    mv "$script.whole" "$script"
fi
printf '%s\n' "$asked_for" >"$venv/installed-$want"
