#!/usr/bin/env bash
# Runs a script of this directory with the Python that has the peers, which is set up when it is missing.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
benches="$(dirname "$here")"
venv="$benches/.venv"
script="$here/$1.py"
shift
# Help needs no installation where this Python can import what the script does.
case " $* " in *" -h "* | *" --help "*)
    if python3 -c 'import numpy, pandas, pyarrow' 2>/dev/null; then
        exec python3 "$script" "$@"
    fi
    ;;
esac
if ! cmp -s "$benches/requirements.lock" "$venv/.installed"; then
    python3 -m venv "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes \
        -r "$benches/requirements.lock"
    cp "$benches/requirements.lock" "$venv/.installed"
fi
export PYTHONDONTWRITEBYTECODE=1
exec "$venv/bin/python" "$script" "$@"
