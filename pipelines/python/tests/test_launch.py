"""Runs on clusters, with clusters that are processes of this machine; `test_clusters.py` has the real ones."""

from __future__ import annotations

import hashlib
import inspect
import io
import json
import logging
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from types import ModuleType, SimpleNamespace
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from conftest import SPEC, table

import forebay
from forebay._launch import follow, node, on_dask, on_kubernetes, ship
from forebay._launch.node import NodeWorker, WorkerStart, WorkerState
from forebay._launch.of_text import launcher_of
from forebay._launch.on_dask import LeasedWorker
from forebay._launch.on_slurm import SlurmLauncher, numbers

#: What stands for Slurm: `srun` runs a task for each node on this machine, and shows the lines as Slurm does.
SRUN = """#!{python}
import os, subprocess, sys, threading
words = sys.argv[1:]
at = words.index("sh")
count = int([word for word in words[:at] if word.startswith("--ntasks=")][0].partition("=")[2])
assert "--input=all" in words and "--label" in words and "--partition=main" in words
lock = threading.Lock()
def show(stream, number, out):
    for line in stream:
        with lock:
            out.write(f"{{number}}: {{line}}")
            out.flush()
tasks = []
for number in range(count):
    names = dict(SLURMD_NODENAME=f"n{{number}}", SLURM_JOB_ID="7", SLURM_STEP_ID="0")
    task = subprocess.Popen(words[at:], env=os.environ | names, text=True, stdin=-1, stdout=-1, stderr=-1)
    for stream, out in ((task.stdout, sys.stdout), (task.stderr, sys.stderr)):
        threading.Thread(target=show, args=(stream, number, out)).start()
    tasks.append(task)
for line in sys.stdin:
    for task in tasks:
        task.stdin.write(line)
        task.stdin.flush()
for task in tasks:
    task.stdin.close()
    task.wait()
"""
#: What stands for Kubernetes: `kubectl` starts the pods of a job when its secret is there, each with an address of its
#: own on this machine.
KUBECTL = """#!{python}
import json, os, pathlib, signal, subprocess, sys
home = pathlib.Path(__file__).parent
words = [word for word in sys.argv[1:] if not word.startswith("--")]
def read(name):
    return (home / name).read_text() if (home / name).exists() else ""
if words[0] == "create":
    document = json.load(sys.stdin)
    (home / document["kind"]).write_text(json.dumps(document))
    if document["kind"] == "Job":
        print(json.dumps(document | {{"metadata": document["metadata"] | {{"uid": "u1"}}}}))
    else:
        assert document["metadata"]["ownerReferences"][0]["uid"] == "u1"
        (home / "line").write_text(document["stringData"]["line"])
        job = json.loads(read("Job"))["spec"]
        (container,) = job["template"]["spec"]["containers"]
        for number in range(job["parallelism"]):
            host = f"127.0.0.{{number + 2}}"
            args = [arg.replace("/forebay-credentials", str(home)) for arg in container["args"]]
            args = [arg.replace("0.0.0.0", host) for arg in args]
            shell = 'out=$1; shift; "$@" > "$out" 2>&1; echo $? > "$out.exit"'
            command = ["sh", "-c", shell, "sh", str(home / f"pod-{{number}}"), *args]
            nothing = subprocess.DEVNULL
            pod = subprocess.Popen(command, start_new_session=True, stdin=nothing, stdout=nothing, stderr=nothing)
            (home / f"pid-{{number}}").write_text(str(pod.pid))
elif words[0] == "get":
    items = [json.loads(read("Job"))]
    for path in sorted(home.glob("pid-*")):
        number = path.name[4:]
        exit = read(f"pod-{{number}}.exit")
        state = {{"terminated": {{"exitCode": int(exit)}}}} if exit else {{"running": {{}}}}
        ready = "listening at" in read(f"pod-{{number}}")
        status = {{"podIP": f"127.0.0.{{int(number) + 2}}", "containerStatuses": [{{"state": state}}]}}
        status["conditions"] = [{{"type": "Ready", "status": str(ready)}}]
        items.append({{"kind": "Pod", "metadata": {{"name": f"pod-{{number}}"}}, "status": status}})
    if all("terminated" in pod["status"]["containerStatuses"][0]["state"] for pod in items[1:]) and items[1:]:
        end = {{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "no pod is left"}}
        items[0]["status"] = {{"conditions": [end]}}
    print(json.dumps({{"items": items}}))
elif words[0] == "logs":
    print(read(words[1]))
elif words[0] == "delete":
    for path in home.glob("pid-*"):
        try:
            os.killpg(int(path.read_text()), signal.SIGKILL)
        except ProcessLookupError:
            pass
    (home / "deleted").write_text(" ".join(words))
"""
SCONTROL = "#!/bin/sh\necho NodeName=$3 NodeAddr=127.0.0.1 State=IDLE\n"

MODULE = (sys.executable, "-m", "forebay")


class Processes(forebay.Launcher):
    """Workers as processes of this one: a cluster that a test can look into."""

    cluster = "these processes"

    def __init__(self, count: int, program: Any = MODULE, memory: str = "256MiB", restarts: bool = True) -> None:
        super().__init__(threads=1, memory=memory, program=program)
        self.wanted = count
        self.restarts = restarts
        self.running: list[NodeWorker] = []
        self.stopped = 0
        self.replaced = threading.Event()

    def start(self, credentials: str) -> None:
        self.begin = self.worker_start(credentials)
        self.running = [NodeWorker(self.begin, "127.0.0.1", f"process {n}") for n in range(self.wanted or 0)]

    def workers(self) -> list[WorkerState]:
        return [worker.state() for worker in self.running]

    def restart(self, worker: WorkerState) -> bool:
        if self.restarts:
            numbers = [number for number, running in enumerate(self.running) if running.name == worker.name]
            self.running[numbers[0]] = NodeWorker(self.begin, "127.0.0.1", f"{worker.name}, again")
            self.replaced.set()
        return self.restarts

    def stop(self) -> None:
        self.stopped += 1
        for worker in self.running:
            worker.stop()


class Shop:
    """A small history in several files, and runs of it."""

    def __init__(self, root: pathlib.Path) -> None:
        self.root = root
        self.spec = root / "shop.yaml"
        self.spec.write_text(SPEC)
        (root / "data").mkdir()
        rows = table(20_000)
        for number in range(10):
            pyarrow.parquet.write_table(rows.slice(number * 2000, 2000), root / "data" / f"{number}.parquet")

    def run(self, name: str, **options: Any) -> tuple[str, str]:
        """Runs, and gives the id of the artifact and the digest of the rows."""
        params = {"data": self.root / "data", "out": self.root / name}
        # The limit counts what other tests have left in this process.
        summary = forebay.run(self.spec, params, state=self.root / f"state-{name}", memory="4GiB", threads=1, **options)
        return summary["artifact"], digest(self.root / name)


def digest(out: pathlib.Path) -> str:
    """The digest of the rows of an output, whatever its files are."""
    rows = forebay.dataset(out).to_pyarrow().combine_chunks()
    stream = io.BytesIO()
    with pyarrow.ipc.new_stream(stream, rows.schema) as writer:
        writer.write_table(rows)
    return hashlib.sha256(stream.getvalue()).hexdigest()


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Shop:
    return Shop(tmp_path_factory.mktemp("launched"))


@pytest.fixture(scope="module")
def expected(shop: Shop) -> tuple[str, str]:
    return shop.run("alone")


@pytest.fixture
def small_spans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOREBAY_RANGE_BYTES", "2000")


@pytest.fixture
def fake_slurm(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in (("srun", SRUN.format(python=sys.executable)), ("scontrol", SCONTROL)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def fake_kubernetes(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    (tmp_path / "kubectl").write_text(KUBECTL.format(python=sys.executable))
    (tmp_path / "kubectl").chmod(0o755)
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setattr(on_kubernetes, "PORT", free.getsockname()[1])
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    return tmp_path


def test_a_run_on_a_cluster_has_the_same_bits(shop: Shop, expected: tuple[str, str], small_spans: None) -> None:
    launcher = Processes(2)
    joined: list[str] = []

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "worker_joined":
            joined.append(event["worker"])

    assert shop.run("two", on=launcher, progress=hear) == expected
    assert len(set(joined)) == 2 and launcher.stopped == 1
    assert all(worker.process.returncode == 0 for worker in launcher.running)
    # A launcher serves one run after the other.
    assert shop.run("again", on=launcher) == expected and launcher.stopped == 2


def test_a_worker_that_is_killed_is_replaced(
    shop: Shop, expected: tuple[str, str], small_spans: None, caplog: pytest.LogCaptureFixture
) -> None:
    launcher = Processes(2)
    joined: list[str] = []

    def hear(event: dict[str, Any]) -> None:
        if event["event"] != "worker_joined":
            return
        joined.append(event["worker"])
        if len(joined) == 2:
            killed = launcher.running[0]
            killed.process.send_signal(signal.SIGKILL)
            killed.process.wait()
            launcher.replaced.wait(timeout=60)

    with caplog.at_level(logging.WARNING, logger="forebay.launch"):
        assert shop.run("killed", on=launcher, progress=hear) == expected
    assert "the worker process 0 was ended by signal 9" in caplog.text and launcher.replaced.is_set()


def test_a_fault_shows_how_workers_failed(shop: Shop) -> None:
    """No worker can start: the run ends at once, with the words of the workers."""
    words = "import sys; sys.stdin.readline(); sys.exit('no licence for this node')"
    launcher = Processes(2, program=(sys.executable, "-c", words), restarts=False)
    with pytest.raises(forebay.ExternalFault) as fault:
        shop.run("failed", on=launcher)
    assert fault.value.code == "FB0501"
    text = str(fault.value)
    assert "the worker process 0 ended with exit code 1\n  no licence for this node" in text
    assert "process 1" in text and launcher.stopped == 1


def test_what_a_worker_refuses_is_shown(shop: Shop) -> None:
    with pytest.raises(forebay.Fault) as fault:
        shop.run("refused", on=Processes(1, memory="1KiB", restarts=False))
    assert "ended with exit code" in str(fault.value) and "memory" in str(fault.value)


def test_workers_end_with_a_run_that_fails(shop: Shop) -> None:
    launcher = Processes(1)
    with pytest.raises(forebay.Fault):
        forebay.run(shop.root / "nowhere.yaml", state=shop.root / "state-nowhere", on=launcher)
    assert launcher.stopped == 1 and launcher.running[0].process.poll() is not None


@pytest.mark.usefixtures("fake_slurm", "small_spans")
def test_slurm_by_the_words_of_srun(shop: Shop, expected: tuple[str, str]) -> None:
    assert shop.run("slurm", on=forebay.slurm(nodes=2, partition="main", threads=1, memory="256MiB")) == expected


@pytest.mark.usefixtures("fake_slurm", "small_spans")
def test_the_program_launches_too(shop: Shop, expected: tuple[str, str]) -> None:
    """`forebay run --on`: credentials and addresses go between two processes."""
    on = "slurm?nodes=2&partition=main&threads=1&memory=256MiB"
    params = [f"--param=data={shop.root / 'data'}", f"--param=out={shop.root / 'program'}"]
    words = [*MODULE, "run", str(shop.spec), *params, f"--state={shop.root / 'state-program'}", "--on", on, "--json"]
    done = subprocess.run([*words, "--threads=1", "--memory=1GiB"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert expected[0] in done.stdout and done.stdout.count('"worker_joined"') == 2
    assert digest(shop.root / "program") == expected[1]


@pytest.mark.usefixtures("small_spans")
def test_kubernetes_by_the_words_of_kubectl(
    shop: Shop, expected: tuple[str, str], fake_kubernetes: pathlib.Path
) -> None:
    joined: list[str] = []

    def hear(event: dict[str, Any]) -> None:
        if event["event"] == "worker_joined":
            joined.append(event["worker"])

    launcher = forebay.kubernetes(workers=2, image="forebay:test", memory="256MiB", program=MODULE)
    assert shop.run("kubernetes", on=launcher, progress=hear) == expected
    assert sorted(joined) == [f"127.0.0.{number}:{on_kubernetes.PORT}" for number in (2, 3)]
    job = json.loads((fake_kubernetes / "Job").read_text())["metadata"]["name"]
    assert (fake_kubernetes / "deleted").read_text() == f"delete job/{job} secret/{job}"


@pytest.mark.usefixtures("fake_kubernetes")
def test_a_pod_that_fails_is_shown(shop: Shop) -> None:
    """Where Kubernetes gives the job up, the fault has its reason and the words of the workers."""
    words = (sys.executable, "-c", "import sys; sys.exit('no licence for this node')")
    with pytest.raises(forebay.ExternalFault) as fault:
        shop.run("failed-pods", on=forebay.kubernetes(image="forebay:test", program=words))
    assert "Kubernetes: BackoffLimitExceeded: no pod is left" in str(fault.value)
    assert "the worker pod-0 ended with exit code 1\n  no licence for this node" in str(fault.value)


@pytest.mark.parametrize(
    ("status", "state", "reason"),
    [
        ({"phase": "Pending"}, WorkerState("p"), None),
        (
            {
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0 of 3"}
                ]
            },
            WorkerState("p"),
            "0 of 3",
        ),
        (
            {"containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no image"}}}]},
            WorkerState("p"),
            "ImagePullBackOff no image",
        ),
        ({"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "False"}]}, WorkerState("p"), None),
        (
            {"podIP": "10.0.0.7", "conditions": [{"type": "Ready", "status": "True"}]},
            WorkerState("p", "10.0.0.7:7400"),
            None,
        ),
        (
            {"podIP": "fd00::7", "conditions": [{"type": "Ready", "status": "True"}]},
            WorkerState("p", "[fd00::7]:7400"),
            None,
        ),
        (
            {"phase": "Failed", "message": "evicted: low on disk"},
            WorkerState("p", None, 1, ["evicted: low on disk"]),
            None,
        ),
        (
            {"containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}]},
            WorkerState("p", None, 137, ["the pod was killed: it had more memory than its limit"]),
            None,
        ),
    ],
)
def test_a_pod_as_a_worker(status: dict[str, Any], state: WorkerState, reason: str | None) -> None:
    pod = {"kind": "Pod", "metadata": {"name": "p"}, "status": status}
    assert on_kubernetes.pod_state(pod) == state
    assert on_kubernetes.waiting_reason(pod) == reason


@pytest.mark.parametrize(("memory", "limit"), [("4GiB", 5475), ("512 MiB", 816), ("1000000000", 1390)])
def test_the_limit_of_a_pod(memory: str, limit: int) -> None:
    assert on_kubernetes.resident_mib(memory) == limit


def test_the_job_of_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAME", "driver")
    monkeypatch.setenv("POD_UID", "u7")
    text = "kubernetes?workers=4&threads=2&image=forebay:0.1.0&secret=lake&volume=/lake:claim&hours=2&memory=4GiB"
    launcher = launcher_of(text)
    assert isinstance(launcher, on_kubernetes.KubernetesLauncher)
    job = launcher.job()
    assert job["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", "name": "driver", "uid": "u7"}]
    assert (job["spec"]["parallelism"], job["spec"]["activeDeadlineSeconds"]) == (4, 7200)
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"] == {"requests": {"cpu": "2", "memory": "5475Mi"}, "limits": {"memory": "5475Mi"}}
    assert container["envFrom"] == [{"secretRef": {"name": "lake"}}]
    assert pod["volumes"][-1] == {"name": "volume-0", "persistentVolumeClaim": {"claimName": "claim"}}
    assert container["volumeMounts"][-1] == {"name": "volume-0", "mountPath": "/lake"}
    # Each rule of the policy has the fields that older servers demand.
    assert job["spec"]["podFailurePolicy"]["rules"][1]["onPodConditions"][0]["status"] == "True"


@pytest.mark.usefixtures("fake_slurm")
def test_signals_to_the_group_are_for_the_run(tmp_path: pathlib.Path) -> None:
    """The launcher of the program goes on at SIGTERM, since the run does, and ends with its input."""
    script = tmp_path / "worker"
    script.write_text("#!/bin/sh\necho listening at 0.0.0.0:7\ncat > /dev/null\n")
    script.chmod(0o755)
    request = {"on": f"slurm?nodes=1&partition=main&program={script}", "credentials": "line\n"}
    words = [sys.executable, "-m", "forebay._launch"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as launcher:
        assert launcher.stdin is not None and launcher.stdout is not None
        launcher.stdin.write(json.dumps(request) + "\n")
        launcher.stdin.flush()
        assert json.loads(launcher.stdout.readline()) == {"addresses": ["127.0.0.1:7"]}
        launcher.send_signal(signal.SIGTERM)
        with pytest.raises(subprocess.TimeoutExpired):
            launcher.wait(timeout=0.5)
        launcher.stdin.close()
        assert launcher.wait(timeout=60) == 0


def test_the_lines_of_srun() -> None:
    launcher = SlurmLauncher(3, partition=None, threads=1, memory=None, options=["--time=5"], program=None)
    assert "--time=5" in launcher.command() and "--partition" not in " ".join(launcher.command())
    for line in [
        "0: node n1 7.0",
        "2: node n3 7.0",
        "0: warning: the disk is nearly full",
        "srun: error: n3: task 2: Killed",
        "srun: error: n[1-2]: tasks 0-1: Exited with exit code 78",
        "srun: Job step aborted",
    ]:
        launcher._hear(line)
    ends = {state.name: (state.exit, state.log) for state in launcher.workers()}
    assert ends == {
        "n1 of Slurm": (78, ["warning: the disk is nearly full", "Exited with exit code 78"]),
        "task 1 of Slurm": (78, ["Exited with exit code 78"]),
        "n3 of Slurm": (-9, ["Killed"]),
    }
    assert launcher.step == "7.0" and numbers("0,2-4") == [0, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("ray", {"cluster": "Ray", "address": "auto", "wanted": 2, "threads": 1}),
        (
            "ray://head:10001?workers=16&threads=4&memory=4GiB",
            {"address": "ray://head:10001", "wanted": 16, "threads": 4, "memory": "4GiB"},
        ),
        ("slurm?nodes=4&partition=main&option=--time=5&option=--qos=high", {"wanted": 4, "partition": "main"}),
        ("slurm?option=--time=5&option=--qos=high", {"options": ["--time=5", "--qos=high"], "program": None}),
        ("ray?ship=true", {"ship": True}),
        ("slurm?program=/opt/forebay", {"program": ("/opt/forebay",)}),
    ],
)
def test_a_launcher_by_text(text: str, fields: dict[str, Any]) -> None:
    launcher = launcher_of(text)
    assert {name: getattr(launcher, name) for name in fields} == fields


@pytest.mark.parametrize(
    ("on", "text"),
    [
        ("nomad", "`nomad` names no cluster"),
        ("kubernetes", "`kubernetes` has no image"),
        ("kubernetes://host?image=i", "`kubernetes://host` names no cluster"),
        ("kubernetes?image=i&volume=lake", "`volume=lake` is no path and claim"),
        ("kubernetes?image=i&memory=much", "`memory` is 'much', not a size"),
        ("ray://head:10001?nodes=4", "there is no option `nodes`"),
        ("slurm?nodes=many", "many"),
        ("ray?ship=1", "`1` is neither `true` nor `false`"),
        ("ray?ship=true&program=/opt/forebay", "`ship` and `program` exclude each other"),
        ("slurm?nodes=2&nodes=3", "`nodes` is given twice"),
        ("slurm://head", "`slurm://head` names no cluster"),
        (3, "`on` is 3, not a launcher"),
    ],
)
def test_wrong_words(shop: Shop, on: Any, text: str) -> None:
    with pytest.raises(forebay.SpecFault) as fault:
        shop.run("wrong", on=on)
    assert text in str(fault.value)


def test_a_launcher_beside_workers_is_refused(shop: Shop) -> None:
    with pytest.raises(forebay.SpecFault, match="`workers` or `local_workers`"):
        shop.run("both", on=Processes(1), local_workers=1)


@pytest.mark.parametrize(
    ("module", "launcher"),
    [
        ("ray", lambda: forebay.ray()),
        ("distributed", lambda: forebay.dask(None)),
        ("pyspark", lambda: forebay.spark(None)),
    ],
)
def test_a_library_that_is_missing_is_named(
    shop: Shop, monkeypatch: pytest.MonkeyPatch, module: str, launcher: Any
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(forebay.SpecFault, match=rf"`{module}` cannot be imported(.|\n)*pip install"):
        shop.run("missing", on=launcher())


def test_slurm_without_srun(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(forebay.ExternalFault, match="no program `srun`"):
        shop.run("no-slurm", on=forebay.slurm())


def test_a_leased_worker_ends_when_its_launcher_is_silent() -> None:
    """What stands beside a Dask worker does not outlive a run whose process was killed."""
    start = WorkerStart((sys.executable, "-c", "import sys; sys.stdin.read()"), (), "")
    worker = LeasedWorker(start, "127.0.0.1", "n1", lease_s=0.5)
    assert worker.state().exit is None
    assert worker.process.wait(timeout=30) == 0


class FakeDask:
    """What stands for a client of Dask: functions run in this process, with what stands for the workers of Dask."""

    def __init__(self, count: int) -> None:
        self.nodes = {f"tcp://n{number}": self.node(f"tcp://n{number}") for number in range(count)}

    def node(self, address: str) -> Any:
        return SimpleNamespace(ip="127.0.0.1", address=address, state=SimpleNamespace(nthreads=1))

    def run_on_scheduler(self, function: Any) -> Any:
        return function(SimpleNamespace(workers=self.nodes))

    def run(self, function: Any, *args: Any, workers: Any = None, on_error: str = "raise") -> dict[str, Any]:
        answers: dict[str, Any] = {}
        takes_node = "dask_worker" in inspect.signature(function).parameters
        for address in list(self.nodes) if workers is None else workers:
            try:
                if address not in self.nodes:
                    raise OSError(f"{address} is gone")
                named = {"dask_worker": self.nodes[address]} if takes_node else {}
                answers[address] = function(*args, **named)
            except Exception as error:
                if on_error == "raise":
                    raise
                if on_error == "return":
                    answers[address] = error
        return answers


@pytest.fixture
def fake_dask(monkeypatch: pytest.MonkeyPatch) -> FakeDask:
    monkeypatch.setitem(sys.modules, "distributed", ModuleType("distributed"))
    pickles = ModuleType("cloudpickle")
    pickles.register_pickle_by_value = lambda module: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cloudpickle", pickles)
    return FakeDask(2)


@pytest.mark.usefixtures("small_spans")
def test_dask_by_the_words_of_its_client(shop: Shop, expected: tuple[str, str], fake_dask: FakeDask) -> None:
    """Workers stand beside those of Dask, of which one leaves and another one joins."""
    joined: list[str] = []
    gone: list[Any] = []

    def hear(event: dict[str, Any]) -> None:
        if event["event"] != "worker_joined":
            return
        joined.append(event["worker"])
        if len(joined) == 2:
            fake_dask.nodes["tcp://n2"] = fake_dask.node("tcp://n2")
            gone.append(fake_dask.nodes.pop("tcp://n0"))
            (worker,) = vars(gone[0])["_forebay_workers"].values()
            worker.process.kill()

    assert shop.run("dask", on=forebay.dask(fake_dask, program=MODULE, memory="256MiB"), progress=hear) == expected
    assert len(gone) == 1
    assert not any(vars(dask_worker).get("_forebay_workers") for dask_worker in fake_dask.nodes.values())


@pytest.mark.usefixtures("small_spans")
def test_nodes_without_a_program_get_it_once(
    shop: Shop,
    expected: tuple[str, str],
    fake_dask: FakeDask,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "forebay").mkdir()
    (tmp_path / "forebay" / "__init__.py").write_text("")
    archive, digest = ship.package_archive(tmp_path / "forebay")
    monkeypatch.setattr(ship, "this_package", lambda: (archive, digest))
    installs: list[str] = []

    def find_program(shipped: str | None) -> tuple[str, ...]:
        if shipped is None or not node.shipped_folder(shipped).is_dir():
            raise FileNotFoundError("no program")
        return MODULE

    def run(function: Any, *args: Any, **named: Any) -> dict[str, Any]:
        if function is on_dask.install_package:
            installs.extend(named["workers"])
        return FakeDask.run(fake_dask, function, *args, **named)

    monkeypatch.setattr(node, "find_program", find_program)
    monkeypatch.setattr(fake_dask, "run", run)
    assert shop.run("shipped", on=forebay.dask(fake_dask, ship=True, memory="256MiB")) == expected
    assert sorted(installs) == ["tcp://n0", "tcp://n1"]
    with pytest.raises(forebay.Fault, match="no program"):
        shop.run("not-shipped", on=forebay.dask(fake_dask, memory="256MiB"))


def test_a_package_that_is_shipped_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    root = tmp_path / "forebay"
    (root / "__pycache__").mkdir(parents=True)
    (root / "__pycache__" / "old.pyc").write_text("")
    (root / "__init__.py").write_text("")
    (root / "__main__.py").write_text("import sys\nprint('listening at here:1', flush=True)\nsys.stdin.read()\n")
    archive, digest = ship.package_archive(root)
    assert ship.package_archive(root) == (archive, digest)
    node.install(archive, digest)
    # The second worker of a node finds it there.
    node.install(b"not read", digest)
    assert sorted(path.name for path in node.shipped_folder(digest).rglob("*")) == [
        "__init__.py",
        "__main__.py",
        "forebay",
        "start.py",
    ]
    monkeypatch.setattr(node.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(node.shutil, "which", lambda name: None)
    program = node.find_program(digest)
    monkeypatch.undo()
    worker = NodeWorker(WorkerStart(program, (), ""), "127.0.0.1", "n1")
    deadline = time.monotonic() + 30
    while worker.state().address is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert worker.state().address == "here:1" and worker.stop().exit == 0


def test_a_folder_of_others_is_not_used(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = node.shipped_folder("d1").parent
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(PermissionError, match="remove it"):
        node.install(b"", "d1")


def test_ends_in_words() -> None:
    log = [f"line {number}" for number in range(30)]
    shown = follow.failure(WorkerState("n1", exit=-9, log=log)).splitlines()
    assert shown[0] == "the worker n1 was ended by signal 9" and shown[-1] == "  line 29"
    assert len(shown) == follow.LINES_SHOWN + 1
