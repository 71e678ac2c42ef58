"""Windows: Forebay alone, where it is hard."""

import shutil
from pathlib import Path

from measure import generate, measured, size, summary, table, tail, warm
from out_of_core import missing
from windows_peers import forebay, history, made

HEAD = ("", "rows", "wall s", "CPU s", "spilled MiB", "peak MiB")
# Five times the series of the history that is compared, so that there is something to keep for each.
SERIES = 152_450


def run(options, scratch, name, spec, data, rows, keep=False):
    """Runs a spec; gives its cost, what it wrote, a line of the table, and what went wrong."""
    out = scratch / name.replace(" ", "-").replace(",", "")
    out.mkdir()
    warm(sorted(data.glob("**/*.parquet")))
    cost = measured(forebay(options, spec, data, out), out / "log")
    said = summary(out / "log")
    wrong = None
    if cost.code != 0:
        wrong = f"{name} ended with {cost.code}:\n{tail(out / 'log')}"
    elif (problem := missing(said, rows)) is not None:
        wrong = f"{name}: {problem}"
    written = Path(said["outputs"][0]["data"]) if said.get("outputs") else None
    spilled = said.get("spilled_bytes", 0) / (1 << 20)
    line = (name, f"{rows:,}", f"{cost.wall:.1f}", f"{cost.cpu:.1f}", f"{spilled:.0f}", f"{cost.peak:.0f}")
    print(f"{name}: {cost.wall:.1f} s wall, {cost.cpu:.1f} s CPU, {cost.peak:.0f} MiB", flush=True)
    if not keep:
        shutil.rmtree(out)
    return cost, written, line, wrong


def told(options, lines, wrong):
    print(f"\n`forebay run` under --memory {options.memory}, {options.threads} threads")
    table([HEAD, *lines])
    for problem in filter(None, wrong):
        print(f"FAILED  {problem}")
    return not any(wrong)


def floor(options, scratch):
    """The job, and what reading and writing cost without it."""
    data, rows = history(options), options.rows
    plain = run(options, scratch, "read and write the history", "windows_floor", data, rows)
    job = run(options, scratch, "windows", "windows", data, rows, keep=True)
    runs = [plain, job]
    if job[1]:
        runs.append(run(options, scratch, "read and write the output", "windows_floor", job[1], rows))
    ok = told(options, [its[2] for its in runs], [its[3] for its in runs])
    if ok:
        print(f"CPU: windows / its floor = {job[0].cpu / runs[2][0].cpu:.2f}")
    return ok


def out_of_core(options, scratch):
    """Far more rows than memory."""
    home = options.home / f"demand-{options.rows}-{SERIES}"
    data = generate(options.forebay, "demand", options.rows, home, "--series", str(SERIES))
    cost, _, line, wrong = run(options, scratch, "out of core", "windows", data, options.rows)
    promise = 1.3 * size(options.memory) / (1 << 20) + 150
    if cost.peak > promise:
        wrong = wrong or f"a peak of {cost.peak:.0f} MiB, promised were {promise:.0f} MiB"
    return told(options, [line], [wrong])


def skew(options, scratch):
    """Uneven series, each beside even ones with rows on the same days."""
    runs, ratios = [], []
    for order in ("", "_shuffled"):
        for uneven in ("half", "many"):
            pair = []
            for what in (f"{uneven}_even{order}", f"{uneven}{order}"):
                data = made(options, what, options.rows)
                pair.append(run(options, scratch, what.replace("_", ", "), "windows", data, options.rows))
            runs += pair
            ratios.append(f"{uneven}{order}: {pair[1][0].cpu / pair[0][0].cpu:.2f} of the even CPU, "
                          f"{pair[1][0].wall / pair[0][0].wall:.2f} of the wall")
    ok = told(options, [its[2] for its in runs], [its[3] for its in runs])
    print("\n".join(ratios))
    return ok
