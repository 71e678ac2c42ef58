"""Runs on clusters: a launcher starts workers there for a run, and ends them with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .launcher import Launcher, Program
from .node import WorkerState
from .on_dask import DaskLauncher
from .on_kubernetes import KubernetesLauncher
from .on_ray import RayLauncher
from .on_slurm import SlurmLauncher
from .on_spark import SparkLauncher

__all__ = ["Launcher", "WorkerState", "dask", "kubernetes", "ray", "slurm", "spark"]


def ray(
    workers: int = 2,
    threads: int = 1,
    *,
    address: str | None = None,
    memory: int | str | None = None,
    program: Program = None,
    ship: bool = False,
    **options: Any,
) -> Launcher:
    """Workers on a cluster of Ray, for ``run(on=...)``: actors that hold a worker process each.

    Ray places them, as far as it has CPUs for them; others start when nodes join. An actor whose node goes starts again
    elsewhere. The run connects to Ray if the program has not done so.

    workers: How many.
    threads: The threads of each, and the CPUs that Ray counts for it.
    address: The cluster, such as ``"ray://head:10001"``. Default: that of ``ray.init()``.
    memory: Memory that each worker may use: bytes, or a size such as ``"4GiB"``. Default: half of its machine's.
    program: The program on the nodes, where they have neither the Python package nor ``forebay`` on the path.
    ship: Whether nodes that have no program get the package of this process, once each; their Python must be able to
        import it.
    options: More options of the actors, such as ``resources={"big": 1}``.
    """
    return RayLauncher(workers, threads, address=address, memory=memory, program=program, options=options, ship=ship)


def dask(
    client: Any,
    threads: int | None = None,
    *,
    memory: int | str | None = None,
    program: Program = None,
    ship: bool = False,
) -> Launcher:
    """Workers on a cluster of Dask, for ``run(on=...)``: a worker process beside each worker of Dask, also beside those
    that join during the run.

    client: The ``distributed.Client``.
    threads: The threads of each worker. Default: those of its Dask worker.
    memory: Memory that each worker may use: bytes, or a size such as ``"4GiB"``. Default: half of its machine's.
    program: The program on the nodes, where they have neither the Python package nor ``forebay`` on the path.
    ship: Whether nodes that have no program get the package of this process, once each; their Python must be able to
        import it.
    """
    return DaskLauncher(client, threads=threads, memory=memory, program=program, ship=ship)


def spark(
    session: Any,
    workers: int | None = None,
    threads: int | None = None,
    *,
    memory: int | str | None = None,
    program: Program = None,
    ship: bool = False,
) -> Launcher:
    """Workers on a cluster of Spark, for ``run(on=...)``: a job with a task for each worker process.

    A task whose executor goes starts again elsewhere. The executors must reach the driver, and it them. Spark
    Connect has no jobs of this kind.

    session: The ``SparkSession``.
    workers: How many. Default: as many as the executors have room for now.
    threads: The threads of each. Default: ``spark.task.cpus``.
    memory: Memory that each worker may use: bytes, or a size such as ``"4GiB"``. Default: half of its machine's. Spark
        does not count it: leave room beside the executors' own.
    program: The program on the nodes, where they have neither the Python package nor ``forebay`` on the path.
    ship: Whether nodes that have no program get the package of this process, once each; their Python must be able to
        import it.
    """
    return SparkLauncher(session, workers, threads=threads, memory=memory, program=program, ship=ship)


def slurm(
    nodes: int = 2,
    *,
    partition: str | None = None,
    threads: int | None = None,
    memory: int | str | None = None,
    options: Sequence[str] = (),
    program: Program = None,
) -> Launcher:
    """Workers on a cluster of Slurm, for ``run(on=...)``: ``srun`` starts a worker process on each node, in a job of
    its own, or in the allocation of ``salloc`` or ``sbatch`` around the run.

    nodes: How many.
    partition: The partition. Default: that of the cluster.
    threads: The threads of each worker, and the CPUs that Slurm counts for it. Default: all of the machine's.
    memory: Memory that each worker may use: bytes, or a size such as ``"4GiB"``. Default: half of its machine's.
    options: More options of ``srun``, such as ``["--time=2:00:00", "--account=lab"]``.
    program: The program on the nodes. Default: the Python of this process with its package, at the same path.
    """
    return SlurmLauncher(
        nodes, partition=partition, threads=threads, memory=memory, options=list(options), program=program
    )


def kubernetes(
    workers: int = 2,
    threads: int = 1,
    *,
    image: str,
    memory: int | str | None = None,
    namespace: str | None = None,
    context: str | None = None,
    secrets: Sequence[str] = (),
    volumes: Mapping[str, str] | None = None,
    pod: Mapping[str, Any] | None = None,
    hours: int = 24,
    program: Program = None,
) -> Launcher:
    """Workers on a cluster of Kubernetes, for ``run(on=...)``: the pods of a job, which ``kubectl`` makes.

    The run must reach the pods at their addresses: it is a pod itself, or the networks are connected. A pod whose node
    goes starts again elsewhere.

    workers: How many.
    threads: The threads of each, and the CPUs that its pod requests.
    image: An image with ``forebay`` and ``bash``, such as that of ``pipelines/Dockerfile``.
    memory: Memory that each worker may use: bytes, or a size such as ``"8GiB"``. Default: 4 GiB. The limit of a pod is
        1.3 times this and 150 MiB.
    namespace: The namespace. Default: that of the context.
    context: One of the clusters of ``kubectl``. Default: its current one.
    secrets: Secrets whose entries the workers have as variables: credentials of the storage.
    volumes: Claims of volumes by the path at which pods see them: ``{"/lake": "lake-claim"}``.
    pod: More fields of the pods' spec, such as ``{"nodeSelector": {"pool": "big"}}``; they take the place of those that
        are there.
    hours: Hours after which the pods end in any case, should the process of the run be killed.
    program: The program in the image, and its first arguments.
    """
    return KubernetesLauncher(
        workers,
        threads,
        image=image,
        memory=memory,
        namespace=namespace,
        context=context,
        secrets=secrets,
        volumes=volumes or {},
        pod=pod,
        hours=hours,
        program=program,
    )
