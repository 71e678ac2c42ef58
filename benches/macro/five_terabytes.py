"""Terabytes in an object store that takes the disk of a few files.

The store is macro/object_server.py over hard links: `--objects` names for `--templates` files. Its rows are known in
closed form: each number is uniform over 0 .. rows - 1 of the templates together, each word equally frequent. A fit learns
mean, variance, quantiles and a vocabulary under `--memory`. After `--seconds` it is killed, and the same command goes on
for a tenth of that time. A fit that ends is compared with the closed forms. The exit code is 1 if a run fails, a figure is
wrong, or resident memory exceeds 1.3 x the limit + 150 MiB."""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from measure import build, finish, size, tail

HERE = Path(__file__).resolve().parent
COLUMNS = 8  # Numbers of a row, eight bytes each.
WORDS = 1000
GROUP_ROWS = 1_000_000
SHIFT = 1_000_000  # Between the values of two columns.
QUANTILES, EPSILON = 10, 0.01

SPEC = """
version: 1
name: terabytes
params: {{ data: {{ type: path }} }}
sources:
  history: {{ parquet: {{ path: "${{data}}" }} }}
steps:
  features:
    from: history
    do:
      - bucketize: {{ columns: [x0], q: {quantiles}, epsilon: {epsilon}, suffix: _bucket }}
      - standardize: {{ columns: [{numbers}] }}
      - vocabulary: {{ columns: [word] }}
"""


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/five_terabytes", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=int, default=7812, help="a multiple of the templates [7812]")
    parser.add_argument("--rows", type=int, default=10_000_000, help="of an object; a multiple of 1000 [10000000: 640 MB]")
    parser.add_argument("--templates", type=int, default=4, help="files on disk [4]")
    parser.add_argument("--seconds", type=float, default=3600, help="until the kill [3600]")
    parser.add_argument("--memory", default="1GiB", help="what Forebay may use [1GiB]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="[all]")
    parser.add_argument("--latency", type=float, default=0, help="milliseconds before the first byte [0]")
    parser.add_argument("--bandwidth", type=float, default=0, help="MB/s of a connection; 0: no limit [0]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--work", type=Path, help="the directory of the files [a temporary one]")
    options = parser.parse_args()
    if options.objects % options.templates or options.rows % WORDS:
        sys.exit("--objects is a multiple of --templates, and --rows of 1000")
    return options


def write_template(path, number, options):
    """The rows `number`, `number + templates`, ... of all."""
    # Only the writer needs them.
    import numpy
    import pyarrow
    import pyarrow.parquet

    names = [f"x{column}" for column in range(COLUMNS)]
    schema = pyarrow.schema([(name, pyarrow.float64()) for name in names] + [("word", pyarrow.string())])
    words = pyarrow.array([f"word{word:03}" for word in range(WORDS)])
    writing = {"compression": "none", "use_dictionary": ["word"]}
    with pyarrow.parquet.ParquetWriter(path, schema, **writing) as writer:
        for first in range(0, options.rows, GROUP_ROWS):
            rows = numpy.arange(first, min(first + GROUP_ROWS, options.rows), dtype=numpy.int64)
            values = (rows * options.templates + number).astype(numpy.float64)
            arrays = [pyarrow.array(values + column * SHIFT) for column in range(COLUMNS)]
            arrays.append(words.take(pyarrow.array(rows % WORDS)))
            writer.write_table(pyarrow.table(arrays, schema=schema))


def fill(bucket, options):
    """Names for all objects; gives their bytes."""
    templates = []
    for number in range(options.templates):
        templates.append(bucket.parent.parent / f"template-{number}.parquet")
        write_template(templates[-1], number, options)
    for number in range(options.objects):
        os.link(templates[number % options.templates], bucket / f"part-{number:05}.parquet")
    return sum(path.stat().st_size for path in templates) * (options.objects // options.templates)


def run_for(words, seconds, log, env):
    """Runs a command, kills it after some seconds; gives its exit code, the seconds it took and its peak in MiB."""
    with open(log, "wb") as out:
        begin = time.monotonic()
        child = subprocess.Popen([str(word) for word in words], stdout=out, stderr=subprocess.STDOUT, env=env)
        while (ended := os.wait4(child.pid, os.WNOHANG))[0] == 0:
            if time.monotonic() - begin >= seconds:
                os.kill(child.pid, signal.SIGKILL)
                ended = os.wait4(child.pid, 0)
                break
            time.sleep(0.05)
    child.returncode = os.waitstatus_to_exitcode(ended[1])
    return child.returncode, time.monotonic() - begin, ended[2].ru_maxrss / 1024


def events(log):
    """The events of a run by their names; of each the last one."""
    found = {}
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            found[event["event"]] = event
    return found


def wrong_figures(forebay, artifact, options):
    """What an artifact learned that is not what the rows are."""
    text = subprocess.run([forebay, "show", artifact, "--rows", "100000"], capture_output=True, text=True, check=True).stdout
    total = options.rows * options.templates
    problems = []
    for column in range(COLUMNS):
        line = re.search(rf"moments of x{column}\n(.*)", text)
        figures = dict(re.findall(r"(count|mean|var) ([0-9.e+-]+)", line[1] if line else ""))
        expected = {"count": options.rows * options.objects, "mean": (total - 1) / 2 + column * SHIFT}
        expected["var"] = (total**2 - 1) / 12
        for name, value in expected.items():
            if abs(float(figures.get(name, "nan")) / value - 1) > 1e-12 or name not in figures:
                problems.append(f"{name} of x{column} is {figures.get(name)}, not {value}")
    counts = re.findall(r"word\d{3} +(\d+)", text)
    if counts != [str(options.rows // WORDS * options.objects)] * WORDS:
        problems.append(f"the vocabulary has {len(counts)} words, and counts such as {counts[:3]}")
    problems += wrong_quantiles(text, total)
    return problems


def wrong_quantiles(text, total):
    """Boundaries that are farther than epsilon from their rank: a value is its own rank."""
    found = re.search(r"quantiles of x0.*\n +boundary\n((?: +[0-9.e+]+\n)+)", text)
    boundaries = [float(number) for number in found[1].split()] if found else []
    if len(boundaries) != QUANTILES - 1:
        return [f"there are {len(boundaries)} boundaries"]
    expected = [total * (at + 1) / QUANTILES for at in range(QUANTILES - 1)]
    pairs = zip(boundaries, expected)
    return [f"a boundary is {got}, not about {value}" for got, value in pairs if abs(got - value) > EPSILON * total + 1]


def main():
    options = arguments()
    forebay = build(options.forebay)
    promise = 1.3 * size(options.memory) / (1 << 20) + 150
    if options.work:
        options.work.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="forebay-terabytes-", dir=options.work))
    bucket = scratch / "store" / "lake"
    bucket.mkdir(parents=True)
    problems = []
    server = None
    try:
        stored = fill(bucket, options)
        print(f"{options.objects} objects, {stored / 1e12:.3f} TB, of {options.templates} files")
        spec = scratch / "terabytes.yaml"
        numbers = ", ".join(f"x{column}" for column in range(COLUMNS))
        spec.write_text(SPEC.format(numbers=numbers, quantiles=QUANTILES, epsilon=EPSILON))
        words = [sys.executable, HERE / "object_server.py", scratch / "store"]
        words += [f"--latency={options.latency}", f"--bandwidth={options.bandwidth}"]
        server = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True)
        endpoint = server.stdout.readline().strip()
        keys = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
        env = {**os.environ, **keys, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
        fit = [forebay, "fit", spec, "--param", "data=s3://lake/", "--state", scratch / "state", "--json"]
        fit += ["--memory", options.memory, "--threads", options.threads]
        for name, seconds in (("first", options.seconds), ("resumed", options.seconds / 10)):
            with urllib.request.urlopen(f"{endpoint}/-/reset", b""):
                pass
            log = scratch / f"{name}.log"
            code, wall, peak = run_for(fit, seconds, log, env)
            with urllib.request.urlopen(f"{endpoint}/-/counts") as answer:
                sent = json.load(answer)["bytes_sent"]
            said = events(log)
            todo = said.get("pass_reads", {})
            committed = f", {1 - todo['bytes'] / todo['of']:.1%} was there" if todo.get("of") else ""
            print(f"{name}: {sent / 1e9:.1f} GB in {wall:.1f} s, {sent / wall / 1e6:.0f} MB/s, {sent / stored:.2%} of all"
                  f"{committed}; peak {peak:.0f} MiB of {promise:.0f}")
            if peak > promise:
                problems.append(f"{name}: a peak of {peak:.0f} MiB, promised were {promise:.0f} MiB")
            if code == 0:
                problems += wrong_figures(forebay, said["summary"]["artifact_path"], options)
                print("the fit ended; its figures were compared with the closed forms")
                break
            if code != -signal.SIGKILL:
                problems.append(f"{name} ended with {code}:\n{tail(log)}")
    finally:
        if server is not None:
            server.terminate()
            server.wait()
        shutil.rmtree(scratch, ignore_errors=True)
    finish(problems)


if __name__ == "__main__":
    main()
