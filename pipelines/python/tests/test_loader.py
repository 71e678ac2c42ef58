"""Batches: which rows, in which order, in whose memory."""

from __future__ import annotations

import gc
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from typing import Any

import numpy
import pyarrow
import pyarrow.parquet
import pytest
import torch
from conftest import ROWS, Shop, table

import forebay


def ids(batches: object) -> list[int]:
    """The second dense feature is the row's number."""
    return [int(row) for batch in batches for row in batch["dense"][:, 1].tolist()]  # type: ignore[attr-defined]


def test_an_epoch_has_every_row_once_in_another_order_each_time(shop: Shop) -> None:
    loader = shop.loader(seed=3)
    assert len(loader) == -(-ROWS // 128)
    first, second = ids(loader), ids(loader)
    assert sorted(first) == sorted(second) == list(range(ROWS))
    assert first != second and first != sorted(first)
    assert ids(shop.loader(seed=3)) == first
    loader.set_epoch(1)
    assert ids(loader) == second
    assert loader.columns == {"dense": ["price", "id"], "categorical": ["item"], "label": ["bought"]}


def test_tensors_have_types_shapes_and_values(shop: Shop) -> None:
    batch = next(iter(shop.loader(order="sequential")))
    source = table(ROWS)
    assert batch["dense"].dtype == torch.float32 and batch["dense"].shape == (128, 2)
    assert batch["categorical"].dtype == torch.int64 and batch["categorical"].shape == (128, 1)
    assert batch["label"].tolist() == source["bought"].to_pylist()[:128]
    assert batch["mask"].dtype == torch.uint8 and bool((batch["mask"] == 1).all())
    half = next(iter(shop.loader(order="sequential", dense_type="bf16", categorical_type="i32")))
    assert half["dense"].dtype == torch.bfloat16 and half["categorical"].dtype == torch.int32
    assert torch.equal(half["dense"][:, 0], batch["dense"][:, 0].to(torch.bfloat16))


def test_parts_of_the_split(shop: Shop) -> None:
    assert sorted(ids(shop.loader(split="train"))) == list(range(ROWS * 80 // 100))
    assert sorted(ids(shop.loader(split="validation"))) == list(range(ROWS * 80 // 100, ROWS))


def train(loader: Any, epochs: int, device: torch.device) -> tuple[list[float], list[torch.Tensor]]:
    """A loop as it is written for `torch.utils.data.DataLoader`."""
    sample = next(iter(loader))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(sample["dense"].shape[1], 4), torch.nn.ReLU(), torch.nn.Linear(4, 1))
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, epochs=epochs, steps_per_epoch=len(loader))
    losses = []
    for _ in range(epochs):
        model.train()
        for _, batch in enumerate(loader):
            batch = {name: part.to(device, non_blocking=True) for name, part in batch.items()}
            odds = model(batch["dense"] / 1000).squeeze(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(odds, batch["label"])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
    assert len(losses) == epochs * len(loader)
    return losses, [parameter.detach() for parameter in model.parameters()]


def test_a_part_that_is_not_there_is_answered_with_the_nearest(shop: Shop) -> None:
    forebay.run(shop.spec, shop.params, state=shop.state)
    with pytest.raises(forebay.SpecFault, match="the split has no part `trian`") as fault:
        shop.loader(split="trian")
    assert fault.value.hint == "did you mean `train`?"


def test_a_loop_for_any_data_loader_comes_to_the_same(shop: Shop) -> None:
    # The same rows in the same order, once as a dataset of PyTorch.
    whole = next(iter(shop.loader(order="sequential", batch_rows=ROWS)))
    rows = [{"dense": dense, "label": label} for dense, label in zip(whole["dense"], whole["label"], strict=True)]
    device = torch.device("cpu")
    expected_losses, expected = train(torch.utils.data.DataLoader(rows, batch_size=128), 2, device)
    losses, ours = train(shop.loader(order="sequential"), 2, device)
    assert losses == expected_losses
    assert all(torch.equal(one, other) for one, other in zip(ours, expected, strict=True))


def test_an_artifact_is_applied_to_other_files(shop: Shop) -> None:
    loader = forebay.Loader(
        shop.artifact,
        sources={"shop": shop.root / "data"},
        state=shop.root / "other",
        dense=["price", "id"],
        label="bought",
        last="short",
        order="sequential",
        batch_rows=128,
    )
    ours, theirs = list(loader), list(shop.loader(order="sequential"))
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        assert all(torch.equal(one[name], other[name]) for name in other)


def test_a_state_goes_on_in_another_world(shop: Shop) -> None:
    loader = shop.loader(seed=1)
    whole = ids(loader)
    loader = shop.loader(seed=1)
    iterator = iter(loader)
    begun = [next(iterator) for _ in range(7)]
    state = pickle.loads(pickle.dumps(loader.state_dict()))
    assert len(state["cursor"]) < 4096
    rest: list[int] = []
    for rank in range(3):
        other = shop.loader(seed=1, rank=rank, world_size=3)
        other.load_state_dict(state)
        rest += ids(other)
    assert ids(begun) == whole[: 7 * 128]
    assert sorted(rest) == sorted(whole[7 * 128 :])
    # And afterwards comes the next epoch, whole.
    assert sorted(ids(other)) != sorted(rest)
    # A state brings its own order with it.
    again = shop.loader(seed=99)
    again.load_state_dict(state)
    assert ids(again) == whole[7 * 128 :]
    assert sorted(ids(again)) == list(range(ROWS))


def test_tensors_keep_their_rows_as_long_as_they_live(shop: Shop) -> None:
    kept = list(shop.loader(seed=2))
    assert sorted(ids(kept)) == list(range(ROWS))
    again = ids(shop.loader(seed=2))
    assert ids(kept) == again
    # Where the caller keeps no batches, the same few slots are reused.
    places = set()
    loader = shop.loader(seed=2)
    for _ in range(4):
        for batch in loader:
            places.add(batch["dense"].data_ptr())
            del batch
    assert len(places) < 16
    one = next(iter(shop.loader(seed=2)))["dense"]
    gc.collect()
    assert [int(row) for row in one[:, 1].tolist()] == again[:128]


def test_memory_stays_flat_while_batches_are_kept_and_let_go(shop: Shop) -> None:
    loader = shop.loader(seed=2)
    places = set()
    for _ in range(5):
        kept = list(loader)
        del kept
    for batch in loader:
        places.add(batch["dense"].data_ptr())
        del batch
    assert len(places) < 16


def test_other_forms(shop: Shop) -> None:
    tensors = next(iter(shop.loader(order="sequential")))
    arrays = next(iter(shop.loader(order="sequential", format="numpy")))
    assert all(numpy.array_equal(arrays[name], tensors[name].numpy()) for name in tensors)
    rows = pyarrow.table(next(iter(shop.loader(order="sequential", format="arrow"))))
    assert rows.column_names == ["price", "id", "item", "bought"]
    assert rows["id"].to_pylist() == list(range(128))
    raw = next(iter(shop.loader(order="sequential", format="raw", receipts=True)))
    assert (raw.epoch, raw.step, raw.rows, len(raw)) == (0, 0, 128, 128)
    assert raw.receipt[0] == 128
    with pytest.raises(ValueError, match="`format` is 'jax'"):
        shop.loader(format="jax")


def test_sequences_end_at_their_row(shop: Shop) -> None:
    steps = 4
    series = {"steps": steps, "keys": ["item"], "time": "id", "within": "60t"}
    loader = shop.loader(series=series, dense=["id"])
    items = table(ROWS)["item"].to_pylist()
    before: dict[str, list[int]] = {}
    expected = {}
    for row, item in enumerate(items):
        history = before.setdefault(item, [])
        history.append(row)
        expected[row] = [one for one in history[-steps:] if one >= row - 60]
    seen = set()
    for batch in loader:
        dense, mask = batch["dense"], batch["mask"]
        assert dense.shape == (len(batch["label"]), steps, 1) and mask.shape == dense.shape[:2]
        for numbers, kept in zip(dense[:, :, 0].tolist(), mask.tolist(), strict=True):
            steps_there = [number for number, there in zip(numbers, kept, strict=True) if there]
            # A sequence ends with its own row.
            row = int(steps_there[-1])
            assert kept == sorted(kept) and steps_there == expected[row]
            seen.add(row)
    assert len(seen) == ROWS
    with pytest.raises(forebay.Fault, match="sequences are no table"):
        next(iter(shop.loader(series=series, format="arrow")))


def test_receipts_of_ranks_add_up(shop: Shop) -> None:
    def receipt(**more: object) -> int:
        return sum(batch.receipt[1] for batch in shop.loader(format="raw", receipts=True, **more)) % 2**64

    whole = receipt()
    assert sum(receipt(rank=rank, world_size=4) for rank in range(4)) % 2**64 == whole
    assert receipt(seed=1) != whole


def test_faults_have_codes_and_hints(shop: Shop) -> None:
    with pytest.raises(forebay.SpecFault) as wrong:
        shop.loader(dense=["prise"])
    assert wrong.value.code == "FB0107" and "did you mean `price`?" in str(wrong.value)
    with pytest.raises(forebay.SpecFault, match="rank 2 is outside a world of 2"):
        shop.loader(rank=2, world_size=2)
    with pytest.raises(forebay.Fault, match="the spec cannot be read"):
        forebay.Loader("nowhere.yaml")
    with pytest.raises(forebay.ResourceFault, match="more than the limit of"):
        forebay.Loader("/dev/zero")
    with pytest.raises(forebay.SpecFault, match="a spec of at most"):
        forebay.Pipeline.open("/dev/zero").to_yaml()
    with pytest.raises(forebay.Fault) as unfitted:
        forebay.Loader(shop.spec, params=shop.params | {"out": shop.root / "none"}, state=shop.root / "empty")
    assert unfitted.value.code == "FB0402" and "forebay fit" in (unfitted.value.hint or "")
    other = shop.loader(split="train")
    next(iter(other))
    with pytest.raises(forebay.DataFault) as strange:
        shop.loader().load_state_dict(other.state_dict())
    assert strange.value.code == "FB0215"
    with pytest.raises(forebay.DataFault, match="this is no cursor of a feed"):
        shop.loader().load_state_dict({"version": 1, "cursor": "{}"})
    with pytest.raises(ValueError, match="has version 1, not 2"):
        shop.loader().load_state_dict({"version": 2})


def test_an_epoch_without_a_batch_is_refused(shop: Shop) -> None:
    with pytest.raises(forebay.DataFault, match="no batch is delivered") as unfilled:
        shop.loader(batch_rows=ROWS + 1, last="drop")
    assert unfilled.value.code == "FB0204" and "last: short" in (unfilled.value.hint or "")
    with pytest.raises(forebay.DataFault, match="for each of 4 consumers"):
        shop.loader(batch_rows=ROWS // 2, last="drop", rank=1, world_size=4)
    assert len(list(shop.loader(batch_rows=ROWS + 1, last="pad"))) == 1


def test_values_that_are_not_finite(shop: Shop, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("bad")
    values = [0.0, float("nan"), 2.0, float("inf")] * 8
    pyarrow.parquet.write_table(pyarrow.table({"x": values, "y": [1.0] * 32}), root / "bad.parquet")
    spec = root / "bad.yaml"
    spec.write_text(f'version: 1\nname: bad\nsources:\n  rows: {{ parquet: {{ path: "{root}/bad.parquet" }} }}\n')
    more: dict[str, object] = {
        "label": "y",
        "order": "sequential",
        "batch_rows": 32,
        "epochs": 1,
        "state": root / "state",
    }
    with pytest.raises(forebay.DataFault) as fault:
        next(iter(forebay.Loader(spec, **more)))  # type: ignore[arg-type]
    assert fault.value.code == "FB0205" and fault.value.column == "x" and fault.value.rows[:2] == [1, 3]
    zero = forebay.Loader(spec, non_finite="zero", **more)  # type: ignore[arg-type]
    assert next(iter(zero))["dense"][:4, 0].tolist() == [0, 0, 2, 0]
    skip = forebay.Loader(spec, non_finite="skip", **more)  # type: ignore[arg-type]
    assert next(iter(skip))["mask"][:4].tolist() == [1, 0, 1, 0]
    assert skip.stats()["non_finite"] == 16


def test_a_copy_of_the_label_is_told(tmp_path: pathlib.Path) -> None:
    values = [float(row % 7) for row in range(64)]
    pyarrow.parquet.write_table(pyarrow.table({"x": values, "z": values[::-1], "y": values}), tmp_path / "a.parquet")
    spec = tmp_path / "copy.yaml"
    spec.write_text(f'version: 1\nname: copy\nsources:\n  rows: {{ parquet: {{ path: "{tmp_path}/a.parquet" }} }}\n')
    more: dict[str, Any] = {"label": "y", "batch_rows": 32, "epochs": 2, "state": tmp_path / "state"}
    loader = forebay.Loader(spec, dense=["x", "z"], **more)
    with pytest.warns(UserWarning, match="`x` of the feed equals the label `y`") as told:
        assert sum(1 for _ in loader) == 2
    assert len(told) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sum(1 for _ in loader) == 2
        assert sum(1 for _ in forebay.Loader(spec, dense=["z"], **more)) == 2


def test_forks_and_pickles_are_refused(shop: Shop) -> None:
    loader = shop.loader()
    next(iter(loader))
    with pytest.raises(TypeError, match="needs no DataLoader workers"):
        pickle.dumps(loader)
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            loader.state_dict()
            next(iter(loader))
            os.write(writer, b"delivered")
        except RuntimeError as error:
            os.write(writer, str(error).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert b"made before a fork" in os.read(reader, 1000)


def test_a_forked_child_ends_as_it_should(shop: Shop) -> None:
    program = textwrap.dedent(f"""
        import os, sys, forebay
        loader = forebay.Loader({str(shop.spec)!r}, params={ ({k: str(v) for k, v in shop.params.items()})!r},
                                state={str(shop.state)!r})
        batch = next(iter(loader))
        del batch
        child = os.fork()
        if child == 0:
            sys.exit(7)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), sum(1 for _ in loader) > 0)
    """)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.stdout == "7 True\n", done.stderr


def test_other_threads_work_while_the_loader_waits(shop: Shop) -> None:
    loader = shop.loader()
    counted = 0
    over = threading.Event()

    def count() -> None:
        nonlocal counted
        while not over.is_set():
            counted += 1

    counter = threading.Thread(target=count)
    counter.start()
    for _ in range(3):
        assert sum(len(batch["label"]) for batch in loader) == ROWS
    over.set()
    counter.join()
    assert counted > 0


def test_ctrl_c_ends_a_wait(shop: Shop) -> None:
    # Epoch after epoch without end.
    program = textwrap.dedent(f"""
        import signal, sys, forebay
        # Processes in the background of a shell ignore interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        loader = forebay.Loader({str(shop.spec)!r}, params={ ({k: str(v) for k, v in shop.params.items()})!r},
                                state={str(shop.state)!r}, last="wrap")
        told = False
        try:
            while True:
                for batch in loader:
                    # Not before PyTorch is imported, which may swallow an interrupt.
                    told = told or print("ready", flush=True) is None
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGINT)
    assert child.communicate(timeout=60)[0] == "interrupted\n"
    assert child.returncode == 0


def test_one_iteration_at_a_time(shop: Shop) -> None:
    loader = shop.loader(seed=3)
    first = iter(loader)
    next(first)
    # A nested loop, and `zip(loader, loader)`: the outer one must not end as if its epoch were over.
    assert sorted(ids(loader)) == list(range(ROWS))
    with pytest.raises(forebay.SpecFault, match="another one over the same loader has begun"):
        next(first)
    with pytest.raises(forebay.SpecFault, match="another one over the same loader has begun"):
        list(zip(loader, loader, strict=True))
    # A state that is loaded, and an epoch that is set, end an iteration as well.
    state = loader.state_dict()
    for move in (lambda: loader.load_state_dict(state), lambda: loader.set_epoch(7)):
        second = iter(loader)
        next(second)
        move()
        with pytest.raises(forebay.SpecFault, match="this iteration is over"):
            next(second)
    # An iteration that has come to its end stays there, and one that was left is no obstacle.
    whole = iter(loader)
    assert sorted(ids(whole)) == list(range(ROWS))
    assert sorted(ids(loader)) == list(range(ROWS)) and list(whole) == []


def test_a_closed_loader_delivers_nothing_and_tells_where_it_stood(shop: Shop) -> None:
    whole = ids(shop.loader(seed=3))
    with shop.loader(seed=3) as loader:
        iterator = iter(loader)
        begun = [next(iterator) for _ in range(5)]
    for use in (lambda: next(iterator), lambda: iter(loader), lambda: len(loader), lambda: loader.set_epoch(1)):
        with pytest.raises(forebay.SpecFault, match="the loader is closed"):
            use()
    state = loader.state_dict()
    with pytest.raises(forebay.SpecFault, match="the loader is closed"):
        loader.load_state_dict(state)
    loader.close()
    again = shop.loader()
    again.load_state_dict(state)
    assert ids(begun) + ids(again) == whole


def test_a_state_before_the_first_batch_holds_data_and_order(shop: Shop) -> None:
    state = shop.loader(seed=3).state_dict()
    with pytest.raises(forebay.DataFault) as strange:
        shop.loader(split="train").load_state_dict(state)
    assert strange.value.code == "FB0215"
    again = shop.loader(seed=99)
    again.load_state_dict(state)
    assert ids(again) == ids(shop.loader(seed=3))
    with pytest.raises(ValueError, match="begin without it"):
        again.load_state_dict({"version": 1, "cursor": None})


def test_a_shuffle_that_mixes_too_little_is_told(shop: Shop, tmp_path: pathlib.Path) -> None:
    """Of two files of text, each of which can only be read from its beginning."""
    rows = 100_000
    for number in range(2):
        file = tmp_path / f"{number}.csv"
        file.write_text("id\n" + "".join(f"{number * rows + row}\n" for row in range(rows)))
    spec = tmp_path / "text.yaml"
    spec.write_text(f'version: 1\nname: text\nsources:\n  rows: {{ csv: {{ path: "{tmp_path}/*.csv" }} }}\n')
    more: dict[str, Any] = {"dense": ["id"], "state": tmp_path / "state"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        shop.loader(window_rows=16)
        forebay.Loader(spec, order="sequential", **more)
        forebay.Loader(spec, window_rows=2 * rows, **more)
        with pytest.raises(UserWarning, match=r"0\.\d\d of a true permutation.*raise `window_rows`"):
            forebay.Loader(spec, window_rows=16, **more)


def test_a_window_smaller_than_a_row_group_mixes_row_groups(tmp_path: pathlib.Path) -> None:
    rows, group = 500_000, 100_000
    ids = numpy.arange(rows, dtype=numpy.int32)
    pyarrow.parquet.write_table(pyarrow.table({"id": ids}), tmp_path / "rows.parquet", row_group_size=group)
    spec = tmp_path / "rows.yaml"
    spec.write_text(f'version: 1\nname: rows\nsources:\n  rows: {{ parquet: {{ path: "{tmp_path}/rows.parquet" }} }}\n')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = forebay.Loader(
            spec, dense=["id"], window_rows=20_000, last="short", format="numpy", state=tmp_path / "state"
        )
    batches = [batch["dense"][:, 0].astype(numpy.int64) for batch in loader]
    assert all(len(numpy.unique(batch // group)) == rows // group for batch in batches)
    order = numpy.concatenate(batches)
    assert (numpy.sort(order) == ids).all()
    assert abs(numpy.corrcoef(order, ids)[0, 1]) < 0.2
