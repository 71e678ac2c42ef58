"""Whether Forebay's windows agree with pandas, DuckDB and coreforecast on real data.

Forebay computes every window of specs/agreement_flights.yaml (departures and delays by carrier and
origin per hour, with missing hours and missing delays) and of specs/agreement_m4.yaml (the hourly
series of the M4 competition). Peers compute the same from the same columns. For each function the
table has the largest difference, relative to the value (or to 1, where values come near 0 by
cancelling: sums, means, skewness; to a tenth of the deviation for slopes). Missing values must be
missing on both sides. More than 1e-9 anywhere, other missing values, or a column that no
peer computes, and the exit code is 1."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from measure import REPO, build, table

TOLERANCE = 1e-9


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/agreement", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="holds flights/, weather/ and m4/ [$FOREBAY_SHARED_DATA, ../shared/data]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--only", choices=["flights", "m4"], help="one of the data sets [both]")
    return parser.parse_args()


def features(forebay, name, data, scratch):
    """Runs a spec; gives the files that it wrote."""
    out = scratch / name
    command = [forebay, "run", Path(__file__).parents[1] / "specs" / f"agreement_{name}.yaml", "--json"]
    command += [f"--param=data={data}", f"--param=out={out}", f"--state={scratch / 'state'}"]
    ran = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True)
    if ran.returncode != 0:
        sys.exit(f"{name}: Forebay has failed\n{ran.stdout[-2000:]}")
    return out


def difference(ours, theirs, scale):
    """The largest difference and how many values are missing on one side only."""
    import numpy

    ours, theirs = numpy.asarray(ours, float), numpy.asarray(theirs, float)
    both = ~numpy.isnan(ours) & ~numpy.isnan(theirs)
    missing = int((numpy.isnan(ours) != numpy.isnan(theirs)).sum())
    a, b = ours[both], theirs[both]
    size = numpy.maximum(numpy.abs(a), numpy.abs(b))
    if scale is not None:
        size = numpy.maximum(size, numpy.broadcast_to(scale, ours.shape)[both])
    with numpy.errstate(invalid="ignore", divide="ignore"):
        relative = numpy.where(a == b, 0.0, numpy.abs(a - b) / size)
    return (float(relative.max()) if len(relative) else 0.0), missing, int(both.sum())


def compare(name, module, path, data):
    import pandas

    ours = pandas.read_parquet(path)
    rows, failed = [("", "peer", "values", "largest difference", "missing on one side")], 0
    ours = ours.sort_values(module.ORDER, kind="stable").reset_index(drop=True)
    seen = set(module.ORDER) | set(module.GIVEN)
    for column, peer, theirs, scale in module.answers(ours, data):
        seen.add(column)
        worst, missing, values = difference(ours[column], theirs, scale)
        over = worst > TOLERANCE or missing > 0 or values == 0
        failed += over
        rows.append((column, peer, f"{values:,}", f"{worst:.1e}", f"{missing}{'  DISAGREES' if over else ''}"))
    for column in sorted(set(ours.columns) - seen):
        failed += 1
        rows.append((column, "no peer", "", "", "DISAGREES"))
    print(f"\n{name}: {len(ours):,} rows")
    table(rows)
    return failed


def main():
    options = arguments()
    data = options.data or Path(os.environ.get("FOREBAY_SHARED_DATA", REPO.parent / "shared" / "data"))
    if not (data / "m4").exists():
        sys.exit(f"there is no data in {data}: give --data")
    import agreement_flights
    import agreement_m4

    modules = {"flights": agreement_flights, "m4": agreement_m4}
    forebay, failed = build(options.forebay), 0
    scratch = Path(tempfile.mkdtemp(prefix="forebay-agreement-"))
    try:
        for name in [options.only] if options.only else modules:
            failed += compare(name, modules[name], features(forebay, name, data.resolve(), scratch), data)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\n{failed} columns disagree" if failed else "\nall agree")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
