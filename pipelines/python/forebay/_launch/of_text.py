"""Launchers by text, as ``--on`` has them: the cluster, and options after a question mark."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from typing import Any

from .._fault import SpecFault
from .launcher import BAD_ARGUMENT, Launcher, library
from .on_dask import DaskLauncher
from .on_kubernetes import KubernetesLauncher
from .on_ray import RayLauncher
from .on_slurm import SlurmLauncher
from .on_spark import SparkLauncher


def flag(text: str) -> bool:
    """`true` or `false`."""
    if text not in ("true", "false"):
        raise ValueError(f"`{text}` is neither `true` nor `false`")
    return text == "true"


#: Options of each cluster, and what their texts become.
OPTIONS: dict[str, dict[str, Callable[[str], object]]] = {
    "ray": {"workers": int, "threads": int, "memory": str, "program": str, "ship": flag},
    "dask": {"threads": int, "memory": str, "program": str, "ship": flag},
    "spark": {"workers": int, "threads": int, "memory": str, "program": str, "ship": flag},
    "slurm": {"nodes": int, "partition": str, "threads": int, "memory": str, "program": str, "option": str},
    "kubernetes": {
        "workers": int,
        "threads": int,
        "memory": str,
        "image": str,
        "namespace": str,
        "context": str,
        "secret": str,
        "volume": str,
        "hours": int,
        "program": str,
    },
}
#: Options that may come several times, and the arguments that have all of them.
LISTS = {"option": "options", "secret": "secrets", "volume": "volumes"}
EXAMPLES = (
    "`ray://head:10001?workers=16`, `dask://host:8786`, `spark://host:7077?workers=16`, `slurm?nodes=4` or "
    "`kubernetes?workers=4&image=IMAGE`"
)


def launcher_of(text: str) -> Launcher:
    """The launcher of a text such as ``ray://head:10001?workers=16&threads=4``."""
    place, _, query = text.partition("?")
    cluster = place.partition(":")[0]
    if cluster not in OPTIONS:
        raise SpecFault(BAD_ARGUMENT, f"`{text}` names no cluster", f"write {EXAMPLES}")
    try:
        options = read_options(query, OPTIONS[cluster])
    except ValueError as error:
        known = ", ".join(OPTIONS[cluster])
        raise SpecFault(BAD_ARGUMENT, f"`{text}`: {error}", f"options of `{cluster}` are {known}") from None
    return MAKERS[cluster](place, options)


def read_options(query: str, known: dict[str, Callable[[str], object]]) -> dict[str, Any]:
    """Options by name; those that may come several times are lists."""
    options: dict[str, Any] = {}
    for name, text in urllib.parse.parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query)):
        if name not in known:
            raise ValueError(f"there is no option `{name}`")
        if name in LISTS:
            options.setdefault(LISTS[name], []).append(text)
        elif name in options:
            raise ValueError(f"`{name}` is given twice")
        else:
            options[name] = known[name](text)
    return options


def ray_of(place: str, options: dict[str, Any]) -> Launcher:
    """``ray`` is the cluster of this machine or of ``RAY_ADDRESS``; ``ray://host:port`` another one."""
    defaults: dict[str, Any] = {
        "address": "auto" if place == "ray" else place,
        "memory": None,
        "program": None,
        "options": {},
    }
    return RayLauncher(**{"workers": 2, "threads": 1, **defaults, **options})


def dask_of(place: str, options: dict[str, Any]) -> Launcher:
    """``dask://host:port`` is the address of a scheduler."""
    distributed = library("distributed", "Dask", 'pip install "distributed"')
    client = distributed.Client(place.replace("dask://", "tcp://", 1))
    return DaskLauncher(client, **{"threads": None, "memory": None, "program": None, **options})


def spark_of(place: str, options: dict[str, Any]) -> Launcher:
    """``spark`` is the master of the configuration of Spark; ``spark://host:port`` and others are masters."""
    sql = library("pyspark.sql", "Spark", 'pip install "pyspark"')
    builder = sql.SparkSession.builder.appName("forebay")
    session = (builder if place == "spark" else builder.master(place)).getOrCreate()
    return SparkLauncher(session, **{"workers": None, "threads": None, "memory": None, "program": None, **options})


def slurm_of(place: str, options: dict[str, Any]) -> Launcher:
    """``slurm`` is the cluster that ``srun`` knows."""
    if place != "slurm":
        raise SpecFault(BAD_ARGUMENT, f"`{place}` names no cluster", "write `slurm?nodes=4&partition=main`")
    defaults: dict[str, Any] = {"partition": None, "threads": None, "memory": None, "options": [], "program": None}
    return SlurmLauncher(**{"nodes": 2, **defaults, **options})


def kubernetes_of(place: str, options: dict[str, Any]) -> Launcher:
    """``kubernetes`` is the cluster that ``kubectl`` knows."""
    if place != "kubernetes":
        hint = "write `kubernetes?workers=4&image=IMAGE`; `context=` names one of several clusters"
        raise SpecFault(BAD_ARGUMENT, f"`{place}` names no cluster", hint)
    if "image" not in options:
        raise SpecFault(BAD_ARGUMENT, "`kubernetes` has no image", "write `kubernetes?workers=4&image=IMAGE`")
    volumes = {}
    for text in options.pop("volumes", []):
        path, _, claim = text.partition(":")
        if not path.startswith("/") or not claim:
            raise SpecFault(BAD_ARGUMENT, f"`volume={text}` is no path and claim", "write `volume=/lake:CLAIM`")
        volumes[path] = claim
    defaults: dict[str, Any] = {
        "workers": 2,
        "threads": 1,
        "memory": None,
        "namespace": None,
        "context": None,
        "secrets": [],
        "pod": None,
        "hours": 24,
        "program": None,
    }
    return KubernetesLauncher(volumes=volumes, **{**defaults, **options})


MAKERS = {"ray": ray_of, "dask": dask_of, "spark": spark_of, "slurm": slurm_of, "kubernetes": kubernetes_of}
