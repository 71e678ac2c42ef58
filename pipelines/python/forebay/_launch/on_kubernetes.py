"""Workers as the pods of a job of Kubernetes."""

from __future__ import annotations

import json
import logging
import math
import os
import re
import secrets as random_secrets
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any

from .. import _arguments
from . import node
from .launcher import Launcher, Program, failed
from .node import WorkerState

log = logging.getLogger("forebay.launch")

PORT = 7400
#: Seconds between two questions to the cluster, and for which it may leave them without an answer.
LOOK_S = 2.0
SILENCE_S = 60.0
#: Seconds that `kubectl` may take; its own limit holds for each of its requests.
KUBECTL_S = 60.0
#: Memory of a worker where none is named: a pod needs a limit.
MEMORY = "4GiB"
#: Resident memory of a worker: so many times its `--memory`, and so many bytes.
RESIDENT_RATIO = 1.3
RESIDENT_BYTES = 150 << 20
UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
UNITS |= {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
UNITS |= {"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40}
#: The label of all objects of a run.
LABEL = "forebay-run"
FOLDER = "/forebay-credentials"
#: What a pod runs. Its input stays open, for the worker ends with it. A worker that leaves with its node has done its
#: work, but the job has not: a pod that succeeds would have no successor.
SCRIPT = f"""trap : TERM
"$@" < <(cat {FOLDER}/line; exec sleep infinity)
code=$?
exit $((code == 0 ? 75 : code))
"""


class KubernetesLauncher(Launcher):
    """A job whose pods are workers. Kubernetes starts a pod again elsewhere when its node goes."""

    cluster = "Kubernetes"
    wanted: int

    def __init__(
        self,
        workers: int,
        threads: int,
        *,
        image: str,
        memory: int | str | None,
        namespace: str | None,
        context: str | None,
        secrets: Sequence[str],
        volumes: Mapping[str, str],
        pod: Mapping[str, Any] | None,
        hours: int,
        program: Program,
    ) -> None:
        super().__init__(threads=threads, memory=MEMORY if memory is None else memory, program=program)
        self.wanted = _arguments.count("workers", workers, 1, 2**16)
        self.image = image
        self.namespace = namespace
        self.context = context
        self.secrets = [str(name) for name in secrets]
        self.volumes = {str(path): str(claim) for path, claim in volumes.items()}
        _arguments.mapping("pod", pod)
        self.pod = dict(pod or {})
        self.hours = _arguments.count("hours", hours, 1, 24 * 366)
        self.limit_mib = resident_mib(self.memory or MEMORY)
        self.name = ""
        self.states: list[WorkerState] = []
        self.logs: dict[str, list[str]] = {}
        self.reasons: set[str] = set()
        self.failure: str | None = None
        self.looked_at = self.answered_at = 0.0

    def start(self, credentials: str) -> None:
        self.name = f"forebay-{random_secrets.token_hex(4)}"
        self.states, self.logs, self.reasons, self.failure = [], {}, set(), None
        self.looked_at, self.answered_at = 0.0, time.monotonic()
        job = json.loads(self._kubectl("create", "--filename=-", "--output=json", document=self.job()))
        self._kubectl("create", "--filename=-", document=self.secret(credentials, job["metadata"]["uid"]))

    def job(self) -> dict[str, Any]:
        """The job of the workers."""
        rules = [
            # Another pod would end in the same way.
            {"action": "FailJob", "onExitCodes": {"containerName": "worker", "operator": "In", "values": [64, 78]}},
            {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        ]
        spec = {
            "parallelism": self.wanted,
            "completions": self.wanted,
            "backoffLimit": max(6, 3 * self.wanted),
            "activeDeadlineSeconds": self.hours * 3600,
            "ttlSecondsAfterFinished": 3600,
            "podFailurePolicy": {"rules": rules},
            "template": {"metadata": {"labels": {LABEL: self.name}}, "spec": self.pod_spec()},
        }
        metadata: dict[str, Any] = {"name": self.name, "labels": {LABEL: self.name}}
        owner = {"name": os.environ.get("POD_NAME"), "uid": os.environ.get("POD_UID")}
        if all(owner.values()):
            # Where the run is a pod, its workers go with it, even if it is killed.
            metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", **owner}]
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}

    def pod_spec(self) -> dict[str, Any]:
        """The pod of a worker."""
        words = [*(self.program or ("forebay",)), "worker", "--attached", "--credentials-stdin"]
        words += [f"--listen=0.0.0.0:{PORT}", f"--threads={self.threads}", f"--memory={self.memory}"]
        memory = f"{self.limit_mib}Mi"
        claims = [{"name": f"volume-{at}", "mountPath": path} for at, path in enumerate(self.volumes)]
        container = {
            "name": "worker",
            "image": self.image,
            "args": ["bash", "-c", SCRIPT, "bash", *words],
            "ports": [{"containerPort": PORT}],
            "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 2},
            # Storage is each worker's own affair: credentials never travel with plans.
            "envFrom": [{"secretRef": {"name": name}} for name in self.secrets],
            "resources": {"requests": {"cpu": str(self.threads), "memory": memory}, "limits": {"memory": memory}},
            "securityContext": {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            },
            "volumeMounts": [
                {"name": "credentials", "mountPath": FOLDER, "readOnly": True},
                {"name": "scratch", "mountPath": "/tmp"},
                *claims,
            ],
        }
        return {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 20,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": 10001,
                "runAsGroup": 10001,
                "fsGroup": 10001,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            "containers": [container],
            "volumes": [
                {"name": "credentials", "secret": {"secretName": self.name, "defaultMode": 0o440}},
                {"name": "scratch", "emptyDir": {}},
                *(
                    {"name": f"volume-{at}", "persistentVolumeClaim": {"claimName": claim}}
                    for at, claim in enumerate(self.volumes.values())
                ),
            ],
            **self.pod,
        }

    def secret(self, credentials: str, job_uid: str) -> dict[str, Any]:
        """The credentials of the run, which go with the job."""
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": self.name, "uid": job_uid}
        metadata = {"name": self.name, "labels": {LABEL: self.name}, "ownerReferences": [owner]}
        return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"line": credentials}}

    def _kubectl(self, *words: str, document: dict[str, Any] | None = None) -> str:
        command = ["kubectl", "--request-timeout=20s"]
        if self.context is not None:
            command.append(f"--context={self.context}")
        if self.namespace is not None:
            command.append(f"--namespace={self.namespace}")
        text = None if document is None else json.dumps(document)
        try:
            done = subprocess.run(
                [*command, *words], input=text, capture_output=True, text=True, check=False, timeout=KUBECTL_S
            )
        except subprocess.TimeoutExpired:
            raise failed(self.cluster, f"`kubectl {words[0]}` did not end within {KUBECTL_S:.0f} s") from None
        except FileNotFoundError:
            hint = "install it where the run is, with access to the cluster"
            raise failed(self.cluster, "there is no program `kubectl` here", hint) from None
        if done.returncode != 0:
            raise failed(self.cluster, f"`kubectl {words[0]}` failed: {done.stderr.strip()}")
        return done.stdout

    def workers(self) -> list[WorkerState]:
        now = time.monotonic()
        if now - self.looked_at < LOOK_S:
            return self.states
        self.looked_at = now
        try:
            answer = self._kubectl("get", "jobs,pods", f"--selector={LABEL}={self.name}", "--output=json")
        except Exception:
            # A server that is being replaced is away for a moment.
            if now - self.answered_at > SILENCE_S:
                raise
            return self.states
        self.answered_at = now
        self._take(json.loads(answer)["items"])
        return self.states

    def _take(self, items: list[dict[str, Any]]) -> None:
        pods = sorted((item for item in items if item["kind"] == "Pod"), key=pod_name)
        jobs = [item for item in items if item["kind"] == "Job"]
        self.failure = job_failure(jobs[0]) if jobs else "its job was deleted"
        states = [pod_state(pod) for pod in pods]
        for pod, state in zip(pods, states, strict=True):
            if state.exit is not None:
                state.log = self._log(state) + state.log
            elif state.address is None:
                self._say_why(state.name, pod)
        # Each pod that ends has a successor, which may not be there yet.
        missing = self.wanted - sum(state.exit is None for state in states)
        if self.failure is None:
            states += [WorkerState("a pod to come")] * missing
        self.states = states

    def _log(self, state: WorkerState) -> list[str]:
        if state.name not in self.logs:
            try:
                text = self._kubectl("logs", state.name, f"--tail={node.LOG_LINES}")
            except Exception as error:
                text = str(error)
            self.logs[state.name] = text.splitlines()
        return self.logs[state.name]

    def _say_why(self, name: str, pod: dict[str, Any]) -> None:
        """Warns once of what keeps a pod from starting."""
        reason = waiting_reason(pod)
        if reason is not None and reason not in self.reasons:
            self.reasons.add(reason)
            log.warning("%s: the pod %s waits: %s", self.cluster, name, reason)

    def end(self) -> str | None:
        return self.failure

    def stop(self) -> None:
        if self.name:
            # The secret goes with the job; it is named where the job could not be made.
            objects = [f"job/{self.name}", f"secret/{self.name}"]
            try:
                self._kubectl("delete", *objects, "--ignore-not-found", "--wait=false")
            except Exception as error:
                # The run has its result by now; the job ends after its hours in any case.
                log.warning("%s could not be deleted: %s", " and ".join(objects), error)
        self.name, self.states = "", []


def resident_mib(memory: str) -> int:
    """The limit of a pod, in MiB, for a worker with this much memory."""
    size = re.fullmatch(r"\s*([0-9.]+)\s*([a-zA-Z]*)\s*", memory)
    if size is None or size[2].lower() not in UNITS or size[1].count(".") > 1 or size[1] == ".":
        raise _arguments.wrong("memory", memory, "a size such as 512MiB or 4GiB")
    bytes_of_worker = float(size[1]) * UNITS[size[2].lower()]
    return math.ceil((RESIDENT_RATIO * bytes_of_worker + RESIDENT_BYTES) / (1 << 20))


def pod_name(pod: dict[str, Any]) -> str:
    """The name of a pod."""
    return str(pod["metadata"]["name"])


def pod_state(pod: dict[str, Any]) -> WorkerState:
    """A pod as a worker, without its log."""
    status = pod.get("status", {})
    state = WorkerState(pod_name(pod))
    containers = status.get("containerStatuses") or [{}]
    terminated = containers[0].get("state", {}).get("terminated")
    if terminated is not None:
        state.exit = int(terminated["exitCode"])
        if terminated.get("reason") == "OOMKilled":
            state.log = ["the pod was killed: it had more memory than its limit"]
    elif status.get("phase") == "Failed":
        # It was evicted, or never started.
        state.exit = 1
        state.log = [status.get("message") or status.get("reason") or "the pod failed"]
    elif is_true(status, "Ready") and status.get("podIP"):
        host = status["podIP"]
        state.address = f"[{host}]:{PORT}" if ":" in host else f"{host}:{PORT}"
    return state


def is_true(status: dict[str, Any], kind: str) -> bool:
    """Whether a condition holds."""
    return any(found["type"] == kind and found["status"] == "True" for found in status.get("conditions") or [])


def waiting_reason(pod: dict[str, Any]) -> str | None:
    """What keeps a pod from starting, where it is more than time."""
    status = pod.get("status", {})
    for condition in status.get("conditions") or []:
        if condition.get("reason") == "Unschedulable":
            return str(condition.get("message", "no node has room for it"))
    for container in status.get("containerStatuses") or []:
        waiting = container.get("state", {}).get("waiting", {})
        if waiting.get("reason") not in (None, "ContainerCreating", "PodInitializing"):
            return f"{waiting['reason']} {waiting.get('message', '')}".strip()
    return None


def job_failure(job: dict[str, Any]) -> str | None:
    """Why a job has failed, if it has."""
    for condition in job.get("status", {}).get("conditions") or []:
        if condition["type"] in ("Failed", "FailureTarget") and condition["status"] == "True":
            return f"{condition.get('reason', 'the job failed')}: {condition.get('message', '')}"
    return None
