"""Mini-batches for training."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from . import _arguments, _forebay, _html
from ._arguments import Path, Workers
from ._commands import spec_source
from ._fault import SpecFault

if TYPE_CHECKING:
    from ._commands import Spec

Feature = str | Mapping[str, Any]
RANK_MAX = 2**32 - 1


def _torch(batch: _forebay.Batch) -> dict[str, Any]:
    from torch.utils.dlpack import from_dlpack

    return {name: from_dlpack(part) for name, part in batch.parts().items()}


def _numpy(batch: _forebay.Batch) -> dict[str, Any]:
    import numpy

    parts: dict[str, Any] = dict(batch.parts())
    return {name: numpy.from_dlpack(part) for name, part in parts.items()}


def _arrow(batch: _forebay.Batch) -> _forebay.Table:
    return batch.table()


def _raw(batch: _forebay.Batch) -> _forebay.Batch:
    return batch


_FORMS: dict[str, Callable[[_forebay.Batch], Any]] = {
    "torch": _torch,
    "numpy": _numpy,
    "arrow": _arrow,
    "raw": _raw,
}


def _current_device() -> int:
    """The GPU that PyTorch works on in this thread, where it works on any."""
    torch = sys.modules.get("torch")
    return torch.cuda.current_device() if torch is not None and torch.cuda.is_available() else 0


def _check_framework(format: str) -> None:
    """Fails before any work where batches would need a package that is not installed."""
    if format == "torch" and importlib.util.find_spec("torch") is None:
        raise SpecFault("FB0113", "PyTorch is not installed", 'install `torch`, or take `format="numpy"` or `"arrow"`')
    if format == "numpy" and importlib.util.find_spec("numpy") is None:
        raise SpecFault("FB0113", "NumPy is not installed", 'install `numpy`, or take `format="arrow"`')


def _check_torch(device: str) -> None:
    import torch

    if not torch.cuda.is_available():
        message = f"PyTorch cannot use `{device}`: `torch.cuda.is_available()` is false"
        raise SpecFault("FB0113", message, 'install PyTorch with CUDA, or take `format="raw"`')


def _ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """The rank and world size that were given, or those of torch.distributed where it is at work."""
    if rank is not None or world_size is not None:
        return rank or 0, world_size or 1
    distributed = sys.modules.get("torch.distributed")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    return 0, 1


class Loader:
    """Delivers the rows of a pipeline as mini-batches, shuffled globally, one epoch per iteration.

    >>> loader = Loader("clicks.yaml", split="train", batch_rows=4096)     # doctest: +SKIP
    >>> for batch in loader:                                               # doctest: +SKIP
    ...     loss = model(batch["dense"], batch["categorical"], batch["label"])

    ``spec`` is a spec, or the directory of an artifact together with ``sources``, which says where each
    source of its pipeline is. A spec must have been fitted or run with the same ``params`` and ``state``:
    an output that a run has written is read where it holds the rows, otherwise the sources are, and the
    steps are done on the way.

    ``mix`` delivers the rows of several steps or sources by weight: ``[{"from": "recent", "weight": 3},
    {"from": "old", "weight": 1}]`` gives three rows of the first for one of the second.

    ``series={"steps": 28, "within": "28d"}`` makes each row a sequence: the last 28 rows of its series up to
    it. ``dense``, ``categorical`` and ``mask`` then are rows x steps (x values), and the mask is 0 where a
    series has fewer.

    ``cache={"path": "/scratch/feed", "bytes_max": 10**11}`` keeps what is read of a remote store on a local
    disk, for all epochs after the first. Ranks on one machine may share it.

    ``workers=["host:port", ...]`` lets worker processes (``forebay worker``) read, decode and apply the steps,
    which leaves this machine to shuffle and fill batches: the same batches, from more cores than it has. They
    must see the same files and state directory. Their token is that of the variable ``FOREBAY_TOKEN``, else that
    of this user on this machine; for
    TLS give a dict: ``{"addresses": [...], "tls_ca": ..., "tls_cert": ..., "tls_key": ..., "token_file": ...}``.

    A batch is a dict of tensors ``dense`` (float32), ``categorical`` (int64), ``label``, ``weight`` and
    ``mask``, those that there are; ``format`` makes it numpy arrays, an Arrow table (``"arrow"``: anything
    that knows Arrow's C interface takes it), or the batch itself (``"raw"``). Tensors and arrays are no
    copies: they lie in a buffer of the loader, which is used again when the last of them is gone.

    ``device="cuda"`` (or ``"cuda:1"``, or a ``torch.device``) delivers tensors that lie on that GPU, as
    ``format="torch"`` or ``"raw"``. Batches go through page-locked memory, on a stream of their own, ``prefetch``
    of them ahead. PyTorch's current stream waits for them; a tensor is used on the stream that was current when its
    batch came, or on one that this stream waits for before the tensor goes. At most 64 batches more can be kept.
    ``pin_memory=True`` delivers tensors of the CPU in page-locked memory, which ``tensor.to("cuda",
    non_blocking=True)`` copies without waiting.

    The order of rows is a function of the data, ``seed`` and epoch, and of nothing else. ``rank`` and
    ``world_size`` (by default those of torch.distributed) choose which rows this process delivers; all
    ranks have equally many batches. :meth:`state_dict` tells where the loader stands, and any number of
    ranks can go on from there.

    The loader has threads of its own, so it needs no ``torch.utils.data.DataLoader`` around it, and it
    neither survives a fork nor can be pickled.

    spec: A :class:`Pipeline`, the path of a spec, or the directory of an artifact.
    params: Values of the spec's parameters by name, as in the run.
    sources: Where the sources of an artifact's pipeline are: paths by name.
    split: A part of the split, whose rows alone are delivered.
    mix: Several steps or sources by weight; see above.
    epoch_rows: Rows of an epoch of a ``mix``.
    dense: Columns of numbers: names, or mappings as in ``feed:``. Default: those of ``feed:``, else all numbers.
    categorical: Columns of ids. Default: those of ``feed:``, else those of vocabularies.
    label: The column that is predicted.
    weight: The column with the weight of each row.
    missing: What missing numbers become; without it, a missing number is a fault.
    missing_id: What missing ids become.
    dense_type: ``"f32"``, ``"f16"`` or ``"bf16"``.
    categorical_type: ``"i64"`` or ``"i32"``.
    non_finite: What becomes of values that are not finite: ``"fail"``, ``"skip"`` (the row) or ``"zero"``.
    batch_rows: Rows of a batch.
    last: What becomes of rows that do not fill a last step: ``"drop"``, ``"short"``, ``"pad"`` or ``"wrap"``.
    series: Makes each row a sequence; see above.
    cache: Keeps remote data on a local disk; see above.
    order: ``"shuffled"``, ``"sequential"`` or ``"time"``.
    window_rows: Rows that are shuffled at a time.
    seed: The seed of the order.
    rank: Which of the processes this is, from 0.
    world_size: How many processes there are.
    device: Where batches lie: ``"cpu"``, ``"cuda"``, ``"cuda:1"`` or a ``torch.device``.
    pin_memory: Whether tensors of the CPU lie in page-locked memory.
    prefetch: Batches that are copied ahead to a GPU.
    format: The form of batches: ``"torch"``, ``"numpy"``, ``"arrow"`` or ``"raw"``.
    epochs: After how many epochs the loader ends. Default: never.
    receipts: Whether batches prove which rows they hold.
    state: The state directory, a path or a URL. Default: that of the settings, else ``.forebay``.
    memory: Memory that the loader may use: bytes, or a size such as ``"4GiB"``. Default: half of the machine's.
    threads: Threads. Default: all of the machine's.
    workers: Addresses of workers, or a mapping; see above.
    """

    def __init__(
        self,
        spec: Spec,
        *,
        params: Mapping[str, object] | None = None,
        sources: Mapping[str, Path] | None = None,
        split: str | None = None,
        mix: Sequence[Mapping[str, Any]] | None = None,
        epoch_rows: int | None = None,
        dense: Sequence[Feature] | None = None,
        categorical: Sequence[Feature] | None = None,
        label: Feature | None = None,
        weight: Feature | None = None,
        missing: float | None = None,
        missing_id: int | None = None,
        dense_type: Literal["f32", "f16", "bf16"] | None = None,
        categorical_type: Literal["i64", "i32"] | None = None,
        non_finite: Literal["fail", "skip", "zero"] | None = None,
        batch_rows: int | None = None,
        last: Literal["drop", "short", "pad", "wrap"] | None = None,
        series: Mapping[str, Any] | None = None,
        cache: Mapping[str, Any] | None = None,
        order: Literal["shuffled", "sequential", "time"] | None = None,
        window_rows: int | None = None,
        seed: int = 0,
        rank: int | None = None,
        world_size: int | None = None,
        device: object = "cpu",
        pin_memory: bool = False,
        prefetch: int = 2,
        format: Literal["torch", "numpy", "arrow", "raw"] = "torch",
        epochs: int | None = None,
        receipts: bool = False,
        state: Path | None = None,
        memory: int | str | None = None,
        threads: int | None = None,
        workers: Workers | None = None,
    ) -> None:
        _arguments.choice("format", format, tuple(_FORMS))
        overlay = {
            "split": split,
            "mix": mix,
            "epoch_rows": _arguments.optional_count("epoch_rows", epoch_rows, 1),
            "dense": dense,
            "categorical": categorical,
            "label": label,
            "weight": weight,
            "missing": _arguments.number("missing", missing),
            "missing_id": missing_id,
            "dense_type": dense_type,
            "categorical_type": categorical_type,
            "non_finite": non_finite,
            "batch_rows": _arguments.optional_count("batch_rows", batch_rows, 1),
            "last": last,
            "series": _arguments.mapping("series", series),
            "cache": _arguments.mapping("cache", cache),
            "order": order,
            "window_rows": _arguments.optional_count("window_rows", window_rows, 1),
        }
        _check_framework(format)
        self._form = _FORMS[format]
        # `torch.device("cpu", 0)` is the same device.
        device = "cpu" if str(device) == "cpu:0" else str(device)
        self.rank, self.world_size = _ranks(rank, world_size)
        machine = _arguments.machine(state=state, memory=memory, threads=threads, workers=workers)
        source = spec_source(spec, params, machine)
        request = {
            "spec": source,
            "is_artifact": source["text"] is None and _is_artifact(source["file"]),
            "sources": _arguments.paths("sources", sources),
            "overlay": {name: _arguments.plain(name, value) for name, value in overlay.items() if value is not None},
            "machine": machine,
            "seed": _arguments.count("seed", seed, 0, 2**64 - 1),
            "rank": _arguments.count("rank", self.rank, 0, RANK_MAX),
            "world_size": _arguments.count("world_size", self.world_size, 1, RANK_MAX),
            "epochs": _arguments.optional_count("epochs", epochs, 1),
            "receipts": bool(receipts),
            "device": device,
            "format": format,
            "pin_memory": bool(pin_memory),
            "prefetch": _arguments.count("prefetch", prefetch),
            "current_device": 0 if device == "cpu" and not pin_memory else _current_device(),
        }
        self._loader = _forebay.Loader(_arguments.dumps(request))
        if device != "cpu" and format == "torch":
            _check_torch(device)
        if (poor := self._loader.poor_shuffle()) is not None:
            warnings.warn(poor, stacklevel=2)

    def __iter__(self) -> Iterator[Any]:
        """One epoch: the next one, or the rest of that in which :meth:`load_state_dict` left the loader. It ends
        earlier iterations: their next batch is a fault."""
        return self._batches(self._loader.begin())

    def _batches(self, iteration: int) -> Iterator[Any]:
        is_first = True
        while (batch := self._loader.next(iteration)) is not None:
            if is_first:
                for warning in self._loader.warnings():
                    warnings.warn(warning, stacklevel=2)
                is_first = False
            formed = self._form(batch)
            # The generator must not hold on to what the caller lets go.
            del batch
            yield formed
            del formed

    def __repr__(self) -> str:
        counts = [
            f"{part}: {len(names):,} column{'' if len(names) == 1 else 's'}" for part, names in self.columns.items()
        ]
        parts = ", ".join(counts)
        return f"<forebay.Loader {parts}; rank {self.rank} of {self.world_size}>"

    def _repr_html_(self) -> str:
        head = f"<p><b>forebay.Loader</b>: rank {self.rank} of {self.world_size}, {len(self):,} batches an epoch</p>"
        parts = [(part, f"{len(names):,}", ", ".join(names)) for part, names in self.columns.items()]
        return head + _html.table("parts of a batch", ["part", "columns", "names"], parts)

    def __len__(self) -> int:
        """Batches of a whole epoch, equally many on all ranks. An iteration that goes on from a state has fewer."""
        return self._loader.steps()

    @property
    def columns(self) -> dict[str, list[str]]:
        """The columns of each part of a batch."""
        return self._loader.columns()

    def set_epoch(self, epoch: int) -> None:
        """Lets the next iteration deliver this epoch.

        epoch: Its number, from 0.
        """
        self._loader.set_epoch(_arguments.count("epoch", epoch))

    def state_dict(self) -> dict[str, Any]:
        """Where the loader stands after the last batch: small, and the same on all ranks."""
        return {"version": 1, "cursor": self._loader.cursor()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on from a state of the same data, under any number of ranks. Its seed and order come with it.

        state: What :meth:`state_dict` gave.
        """
        version, cursor = state.get("version"), state.get("cursor")
        if version != 1:
            message = f"the state of a loader has version 1, not {version!r}"
            raise SpecFault(_arguments.BAD_VALUE, message, "load what `state_dict()` gave")
        if not isinstance(cursor, str):
            message = "the state of a loader has no cursor: it was saved before the first batch by an earlier version"
            raise SpecFault(_arguments.BAD_VALUE, message, "begin without it")
        self._loader.resume(cursor)

    def stats(self) -> dict[str, float]:
        """What the loader did since this was asked last: rows, bytes, ``starved_steps`` (batches that were not there
        when they were asked for), and who waited for whom; values that were not finite (``non_finite``) and rows that
        got mask 0 for it (``skipped_rows``), missing values that were filled (``filled``), and rows of sequences with
        the keys and the time of a row before them (``duplicates``), all of the rows that were read; with a GPU
        ``h2d_bytes`` and ``h2d_bytes_per_second``, the bytes that were copied to it."""
        return self._loader.stats()

    def close(self) -> None:
        """Stops the threads. :meth:`state_dict` still tells where the loader stood; it delivers nothing more."""
        self._loader.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a forebay.Loader cannot be pickled: it has threads of its own and needs no DataLoader workers; "
            "make it in the process that reads it, and move state_dict() between processes"
        )


def _is_artifact(spec: str) -> bool:
    return os.path.isfile(os.path.join(spec, "artifact.json")) or (
        spec.startswith("s3://") and not spec.endswith((".yaml", ".yml"))
    )
