"""Transforms that learn, sort or gather, on data far larger than the memory that Forebay is given, and data of shapes
that fill memory: wide rows, large cells, large pages, large batches.

Each job of the first kind runs one step over `--times` the memory as Parquet, under `--memory`. Those of the second
kind have memory and data of their own, which need pyarrow and numpy. The promise is a peak of resident
memory of at most 1.3 x the limit + 150 MiB. A job ends well, or with the fault FB0301 where it is marked as one that
cannot fit; anything else, and a broken promise, gives the exit code 1. Where `--cgroup` names a cgroup of version 2
that may be written, each job runs in a child of it whose `memory.max` is the promise."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from measure import build, finish, generate, measured, size, summary, table, tail
from memory_shapes import SHAPES

# Bytes of a row as Parquet, measured on generated data.
ROW_BYTES = {"clicks": 69, "demand": 8}

AS_OF = "as_of_join: { with: rows, on: [store_id, item_id], time: date, columns: [qty], suffix: _before, exact: false }"

# The data, the step, and whether the result may be more than memory holds.
JOBS = {
    "vocabulary": ("clicks", "vocabulary: { columns: [c3, c4] }", True),
    "vocabulary_top_k": ("clicks", "vocabulary: { columns: [c3, c4], top_k: 1000 }", False),
    "ordinal": ("clicks", "ordinal: { columns: [c3] }", True),
    "one_hot": ("clicks", 'one_hot: { columns: [c3], top_k: 60000 } }, { filter: "f1 > 200"', False),
    "quantiles": ("clicks", "quantiles: { columns: [f5], exact: true }", True),
    "dedupe": ("clicks", "dedupe: {}", False),
    "aggregate": ("clicks", "aggregate: { by: [c3], compute: { rows: { count: label } } }", True),
    "as_of_join": ("demand", AS_OF, False),
    "rolling": ("demand", "rolling: { columns: [qty], compute: [mean, median], over: [7d, 28d], gap: 1d }", False),
    "pooled": ("demand", "pooled: { columns: [qty], compute: [mean], by: [item_id], over: [7d], gap: 1d }", True),
}

SPEC = """version: 1
name: memory
params: {{ in: {{ type: path }}, out: {{ type: path }} }}
sources: {{ rows: {{ parquet: {{ path: "${{in}}" }}{keys} }} }}
steps: {{ made: {{ from: rows, do: [{{ {step} }}] }} }}
sinks: {{ table: {{ from: made, parquet: {{ path: "${{out}}" }} }} }}
"""


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", default="256MiB", help="what Forebay may use [256MiB]")
    parser.add_argument("--times", type=float, default=10, help="times the memory, as Parquet [10]")
    parser.add_argument(
        "--jobs", default="sizes,shapes",
        help="names of jobs, `sizes` for those over large data, `shapes` for those over data of a shape [sizes,shapes]",
    )
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[all]")
    parser.add_argument("--cgroup", type=Path, help="a cgroup below which each job has one of its own")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    return parser.parse_args()


def within(cgroup, name, bytes_max, words):
    """The command, run in a cgroup of its own if there is one."""
    if cgroup is None:
        return words
    group = cgroup / f"forebay-{name}"
    group.mkdir(exist_ok=True)
    (group / "memory.max").write_text(str(bytes_max))
    return ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', group, *words]


def shape_data(job, out):
    """The data of a job, made in a process of its own unless they are there."""
    if not out.is_dir():
        made = out.with_name(f"{out.name}.tmp")
        shutil.rmtree(made, ignore_errors=True)
        subprocess.run([sys.executable, Path(__file__).with_name("memory_shapes.py"), job, made], check=True)
        made.rename(out)
    return out


class EndlessAnswer(BaseHTTPRequestHandler):
    """Answers every request with bytes that do not end."""

    def do_GET(self):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b" " * 65536)
        except OSError:
            pass  # The client has read enough.

    do_POST = do_PUT = do_PATCH = do_GET

    def log_message(self, *_):
        pass


def endless_service():
    """A service of this process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), EndlessAnswer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


def run_shape(forebay, job, options, scratch, wrong):
    """Runs a job on data of its shape. Returns its line of the table."""
    shape = SHAPES[job]
    out, log = scratch / job, scratch / f"{job}.log"
    out.mkdir()
    (out / "in").symlink_to(shape_data(job, (options.work or scratch).resolve() / f"data-{shape.data.__name__}"))
    spec = shape.spec
    for name in ("in", "out"):
        spec = spec.replace(f"path: {name} ", f"path: {out / name} ").replace(f"path: {name},", f"path: {out / name},")
    (out / "job.yaml").write_text(spec)
    # Each process has its part of the memory, and the peak is that of the largest.
    promise = 1.3 * size(shape.memory) / shape.processes + (150 << 20)
    words = [forebay, shape.command, out / "job.yaml"]
    if shape.command == "run":
        words += ["--state", out / "state", "--memory", shape.memory, "--threads", options.threads, *shape.words]
    server = endless_service() if shape.services else None
    url = f"http://127.0.0.1:{server.server_port}" if server else ""
    cost = measured(within(options.cgroup, job, int(promise) * shape.processes, words), log, {name: url for name in shape.services})
    if server:
        server.shutdown()
    text = log.read_text(errors="replace")
    fault = shape.fault or ("FB0301" if shape.may_refuse else "")
    refused = cost.code != 0 and fault and fault in text
    if not refused and (cost.code != 0 or shape.fault):
        wrong.append(f"{job} ended with {cost.code}:\n{tail(log)}")
    most = promise / (1 << 20)
    if cost.peak > most:
        wrong.append(f"{job}: a peak of {cost.peak:.0f} MiB, promised were {most:.0f} MiB")
    shutil.rmtree(out, ignore_errors=True)
    said = "BROKEN" if cost.peak > most else "refused" if refused else "kept"
    return (job, shape.memory, f"{cost.wall:.1f}", f"{cost.cpu:.1f}", f"{cost.peak:.0f}", f"{most:.0f}", said)


def main():
    options = arguments()
    memory = size(options.memory)
    groups = {"sizes": list(JOBS), "shapes": list(SHAPES)}
    jobs = [job for name in options.jobs.split(",") for job in groups.get(name, [name])]
    if unknown := set(jobs) - JOBS.keys() - SHAPES.keys():
        sys.exit(f"there is no job {', '.join(sorted(unknown))}")
    forebay = build(options.forebay)
    promise = 1.3 * memory + (150 << 20)
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-memory-", dir=options.work))
    lines = [("", "rows", "Parquet MiB", "wall s", "CPU s", "spilled MiB", "peak MiB", "promise MiB", "")]
    shapes = [("", "--memory", "wall s", "CPU s", "peak MiB", "promise MiB", "")]
    wrong = []
    try:
        for job in jobs:
            if job in SHAPES:
                shapes.append(run_shape(forebay, job, options, scratch, wrong))
                continue
            what, step, may_refuse = JOBS[job]
            rows = int(memory * options.times) // ROW_BYTES[what]
            data = generate(forebay, what, rows, (options.work or scratch) / f"{what}-{rows}")
            bytes_read = sum(file.stat().st_size for file in data.glob("*.parquet"))
            out, log, spec = scratch / job, scratch / f"{job}.log", scratch / f"{job}.yaml"
            spec.write_text(SPEC.format(step=step, keys=", time: date, keys: [store_id, item_id]" if what == "demand" else ""))
            words = [forebay, "run", spec, "--allow-empty", "--param", f"in={data.resolve()}", "--param", f"out={out / 'out'}"]
            words += ["--state", out / "state", "--memory", options.memory, "--threads", options.threads, "--json"]
            cost = measured(within(options.cgroup, job, int(promise), words), log)
            refused = may_refuse and "FB0301" in log.read_text()
            if cost.code != 0 and not refused:
                wrong.append(f"{job} ended with {cost.code}:\n{tail(log)}")
            peak, most = cost.peak, promise / (1 << 20)
            if peak > most:
                wrong.append(f"{job}: a peak of {peak:.0f} MiB, promised were {most:.0f} MiB")
            spilled = 0 if cost.code else summary(log).get("spilled_bytes", 0) / (1 << 20)
            said = "BROKEN" if peak > most else "refused" if refused else "kept"
            lines.append((job, f"{rows:,}", f"{bytes_read / (1 << 20):.0f}", f"{cost.wall:.1f}", f"{cost.cpu:.1f}",
                          f"{spilled:.0f}", f"{peak:.0f}", f"{most:.0f}", said))
            shutil.rmtree(out, ignore_errors=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"\n`forebay run` under --memory {options.memory}, {options.threads} threads")
    table(lines)
    print(f"\n`forebay run` on data of a shape, {options.threads} threads")
    table(shapes)
    finish(wrong)


if __name__ == "__main__":
    main()
