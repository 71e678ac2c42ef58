"""Runs on real clusters, each of several processes of this machine, also while a node is killed.

Ray, Dask, Spark and Slurm are large, and are not among the packages of the tests. `pipelines/python/test-clusters`
installs those of PyPI, and runs these tests with 13 kills for each cluster. With them installed:

    FOREBAY_CLUSTERS=ray,dask,spark,slurm python -m pytest tests/test_clusters.py -s

Spark needs Java 17; Slurm needs Debian's packages slurmctld, slurmd, slurm-client and munge, and root. FOREBAY_KILLS
is the number of kills for each cluster (default 1), FOREBAY_CLUSTER_ROWS that of rows (default 2000000).
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from test_launch import digest

import forebay

CLUSTERS = ["ray", "dask", "spark", "slurm"]
WANTED = [name for name in os.environ.get("FOREBAY_CLUSTERS", "").split(",") if name]
KILLS = int(os.environ.get("FOREBAY_KILLS", "1"))
ROWS = int(os.environ.get("FOREBAY_CLUSTER_ROWS", "2000000"))

SPEC = """
version: 1
name: demand
params:
  data: { type: path }
  out: { type: path }
sources:
  demand: { parquet: { path: "${data}" }, time: date, keys: [store_id, item_id] }
steps:
  features:
    from: demand
    fit_on: train
    do:
      - filter: "qty IS NOT NULL"
      - lag: { columns: [qty], by: [7d, 28d] }
      - rolling: { columns: [qty], compute: [mean, std], over: [7d, 28d], gap: 1d }
      - standardize: { columns: [price, qty_mean_28d] }
      - vocabulary: { columns: [item_id, store_id], min_count: 5, oov_buckets: 1 }
split:
  train: "date <  DATE '2016-04-25'"
  validation: "date >= DATE '2016-04-25'"
sinks:
  table: { from: features, parquet: { path: "${out}" } }
"""

SLURM_CONF = """
ClusterName=lab
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort=26817
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool-%n
SlurmctldPidFile={root}/ctld.pid
SlurmdPidFile={root}/%n.pid
SlurmdLogFile={root}/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=20
KillWait=5
NodeName=n[1-4] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[27001-27004] CPUs=2 RealMemory=1000
PartitionName=main Nodes=n[1-4] Default=YES MaxTime=INFINITE State=UP
"""

#: A cluster: makes a launcher, and kills a node (and lets another one come where the cluster does not do that).
Case = tuple[Callable[[], forebay.Launcher], Callable[[], None]]


@contextlib.contextmanager
def ray_cluster(_: pathlib.Path) -> Iterator[Case]:
    ray = importlib.import_module("ray")
    utils = importlib.import_module("ray.cluster_utils")
    cluster = utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    nodes = [cluster.add_node(num_cpus=2) for _ in range(2)]
    ray.init(address=cluster.address, log_to_driver=False)

    def launcher() -> forebay.Launcher:
        # A node starts in the main thread alone.
        while len(nodes) < 2:
            nodes.append(cluster.add_node(num_cpus=2))
        return forebay.ray(workers=2, threads=1, memory="512MiB")

    def kill() -> None:
        # Its worker starts again on the other node.
        cluster.remove_node(nodes.pop(0), allow_graceful=False)

    try:
        yield launcher, kill
    finally:
        ray.shutdown()
        cluster.shutdown()


@contextlib.contextmanager
def dask_cluster(_: pathlib.Path) -> Iterator[Case]:
    distributed = importlib.import_module("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": True, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:

        def kill() -> None:
            pids = client.run(os.getpid)
            os.kill(next(iter(pids.values())), signal.SIGKILL)

        yield lambda: forebay.dask(client, memory="512MiB"), kill


@contextlib.contextmanager
def spark_cluster(_: pathlib.Path) -> Iterator[Case]:
    sql = importlib.import_module("pyspark.sql")
    builder = sql.SparkSession.builder.master("local-cluster[2,1,1024]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    application = f"--app-id {spark.sparkContext.applicationId}"

    def kill() -> None:
        words = "CoarseGrainedExecutorBackend"
        executors = [pid for pid, command in processes("cmdline") if words in command and application in command]
        os.kill(max(executors), signal.SIGKILL)

    try:
        yield lambda: forebay.spark(spark, memory="512MiB"), kill
    finally:
        spark.stop()


@contextlib.contextmanager
def slurm_cluster(root: pathlib.Path) -> Iterator[Case]:
    conf = root / "slurm.conf"
    conf.write_text(SLURM_CONF.format(root=root))
    for name in ["state", "spool-n1", "spool-n2", "spool-n3", "spool-n4"]:
        (root / name).mkdir()
    daemons: dict[str, subprocess.Popen[bytes]] = {}

    def start(name: str, *words: str) -> None:
        with open(root / f"{name}.out", "ab") as out:
            daemons[name] = subprocess.Popen(words, stdout=out, stderr=out, start_new_session=True)

    if not pathlib.Path("/run/munge/munge.socket.2").exists():
        subprocess.run(["install", "-d", "-o", "munge", "-m", "755", "/run/munge"], check=True)
        start("munged", "su", "-s", "/bin/sh", "munge", "-c", "exec munged --foreground")
    start("slurmctld", "slurmctld", "-D", "-f", str(conf))
    for node in ["n1", "n2", "n3", "n4"]:
        start(node, "slurmd", "-D", "-N", node, "-f", str(conf))
    os.environ["SLURM_CONF"] = str(conf)
    wait_until(lambda: "idle" in subprocess.run(["sinfo", "-h", "-t", "idle"], capture_output=True, text=True).stdout)

    def kill() -> None:
        # A node is its daemon, the daemon of the step, and what runs in it.
        of_node = [pid for pid, words in processes("environ") if "SLURMD_NODENAME=n1" in words.split()]
        step = [pid for pid, words in processes("cmdline") if words.startswith("slurmstepd") and children(pid, of_node)]
        daemons["n1"].kill()
        for pid in [*step, *of_node]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        daemons["n1"].wait()
        start("n1", "slurmd", "-D", "-N", "n1", "-f", str(conf))

    try:
        yield lambda: forebay.slurm(nodes=2, partition="main", threads=1, memory="512MiB"), kill
    finally:
        for daemon in daemons.values():
            daemon.terminate()
        for daemon in daemons.values():
            daemon.wait()


def processes(file: str) -> Iterator[tuple[int, str]]:
    """The processes of this machine, with their command lines or environments."""
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            text = (folder / file).read_bytes().replace(b"\0", b" ").decode(errors="replace")
            yield int(folder.name), text


def children(parent: int, pids: list[int]) -> bool:
    """Whether one of some processes is a child of another one."""
    for pid in pids:
        with contextlib.suppress(OSError):
            if f"\nPPid:\t{parent}\n" in pathlib.Path(f"/proc/{pid}/status").read_text():
                return True
    return False


def wait_until(there: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for a daemon."""
    until = time.monotonic() + seconds
    while not there():
        assert time.monotonic() < until
        time.sleep(0.2)


MAKERS = {"ray": ray_cluster, "dask": dask_cluster, "spark": spark_cluster, "slurm": slurm_cluster}


class Demand:
    """A history, and runs of it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        (root / "demand.yaml").write_text(SPEC)
        words = ["generate", "demand", "--rows", str(ROWS), "--series", str(ROWS // 200), "--period", "day"]
        words += ["--out", str(root / "data")]
        subprocess.run([sys.executable, "-m", "forebay", *words], check=True, capture_output=True)

    def run(self, name: str, **options: Any) -> tuple[tuple[str, str], float]:
        """Runs, and gives the id of the artifact with the digest of the rows, and the seconds."""
        params = {"data": self.root / "data", "out": self.root / name}
        begin = time.monotonic()
        spec = self.root / "demand.yaml"
        summary = forebay.run(spec, params, state=self.root / f"state-{name}", memory="1GiB", **options)
        seconds = time.monotonic() - begin
        return (summary["artifact"], digest(self.root / name)), seconds


@pytest.fixture(scope="module")
def demand(tmp_path_factory: pytest.TempPathFactory) -> Demand | None:
    return Demand(tmp_path_factory.mktemp("clusters")) if WANTED else None


@pytest.mark.parametrize("name", CLUSTERS)
def test_a_cluster(name: str, demand: Demand | None, tmp_path: pathlib.Path) -> None:
    if name not in WANTED or demand is None:
        print(f"not run on {name}: set FOREBAY_CLUSTERS={name}, and install it")
        return
    expected, alone_s = demand.run(f"{name}-alone", threads=2)
    _, single_s = demand.run(f"{name}-single", threads=1)
    with MAKERS[name](tmp_path) as (launcher, kill):
        result, calm_s = demand.run(f"{name}-calm", threads=1, on=launcher())
        assert result == expected
        print(f"\n{name}: one process {alone_s:.1f} s on 2 threads, {single_s:.1f} s on 1; 2 workers {calm_s:.1f} s")
        for number in range(KILLS):
            # Moments from the beginning to near the end of the run.
            after_s = calm_s * (number + 0.5) / KILLS * 0.9
            assert demand_killed(demand, f"{name}-kill-{number}", launcher(), kill, after_s) == expected
        print(f"{name}: {KILLS} kills, the same artifact and the same SHA-256")


def demand_killed(
    demand: Demand, out: str, launcher: forebay.Launcher, kill: Callable[[], None], after_s: float
) -> tuple[str, str]:
    """Runs, and kills a node some time after the first worker has joined."""
    lost: list[str] = []
    joined: list[str] = []
    timer = threading.Timer(after_s, kill)

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "worker_lost":
            lost.append(event["why"])
        if event["event"] == "worker_joined":
            joined.append(event["worker"])
            if len(joined) == 1:
                timer.start()

    result, seconds = demand.run(out, threads=1, on=launcher, progress=hear)
    timer.cancel()
    timer.join()
    print(f"{out}: killed after {after_s:.1f} of {seconds:.1f} s, joined: {len(joined)}, lost: {lost}")
    return result
