#!/usr/bin/env bash
# Checks the spec, runs its tests and the pipeline, and compares its features with expected/features.csv. After a change
# that is meant, `./test --accept` writes the features there.
set -euo pipefail
cd "$(dirname "$0")"
forebay=${FOREBAY_BIN:-forebay}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$forebay" fmt --check NAME.yaml
"$forebay" check NAME.yaml >/dev/null
"$forebay" test NAME.yaml
"$forebay" run NAME.yaml --quiet --state "$work/state" --param "out=$work/out"
"$forebay" preview NAME.yaml features --where "CONDITION" --rows 100 --format csv >"$work/features.csv"
if [[ ${1:-} == --accept ]]; then
  cp "$work/features.csv" expected/features.csv
fi
diff expected/features.csv "$work/features.csv"
echo "NAME: all features as expected"
