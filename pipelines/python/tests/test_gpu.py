"""Batches on a real GPU, read by PyTorch, and trainings there. Where PyTorch sees no GPU there is nothing to test here:
`test_device.py` has a driver of the host."""

from __future__ import annotations

import pathlib
import signal
import subprocess
import sys

import numpy
import pytest
import torch
from conftest import SPEC, Shop

import forebay

Batches = list[dict[str, torch.Tensor]]

# A kernel that keeps a stream busy for some milliseconds.
BUSY_CYCLES = 5_000_000

EPOCHS = 200

NET = f"""
  net:
    from: features
    train:
      path: "${{out}}-net"
      model: mlp
      loss: logistic
      hidden: [64, 32]
      label: bought
      embeddings: {{ item: 8 }}
      batch_rows: 64
      epochs: {EPOCHS}
      checkpoint_steps: 100
      device: cuda
feed:"""


def equal(found: Batches, expected: Batches) -> None:
    assert len(found) == len(expected) > 0
    for step, (one, other) in enumerate(zip(found, expected, strict=True)):
        assert one.keys() == other.keys()
        for name, tensor in one.items():
            assert torch.equal(tensor.cpu(), other[name]), (step, name)


def train(shop: Shop, place: pathlib.Path, *, killed_after: int | None = None) -> bytes:
    """Trains in a program of its own, which is killed once it has told of so many epochs. The weights."""
    place.mkdir(exist_ok=True)
    spec = place / "trained.yaml"
    spec.write_text(SPEC.replace("\nfeed:", NET))
    command = [sys.executable, "-m", "forebay", "run", str(spec), "--state", str(place / "state"), "--json"]
    command += ["--param", f"data={shop.params['data']}", "--param", f"out={place / 'out'}"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        told, last = 0, ""
        for last in program.stdout:
            told += '"event":"training_epoch"' in last
            if told == killed_after:
                program.kill()
    if killed_after is not None:
        assert program.returncode == -signal.SIGKILL and told < EPOCHS, last
        return b""
    assert program.returncode == 0, last
    model = (place / "out-net" / "model.safetensors").read_bytes()
    # The header, whose length comes first, names the files that were read.
    return model[8 + int.from_bytes(model[:8], "little") :]


if torch.cuda.is_available():

    @pytest.mark.parametrize("prefetch", [1, 2, 8])
    @pytest.mark.parametrize("dense_type", ["f32", "f16", "bf16"])
    def test_batches_are_those_of_the_processor(shop: Shop, prefetch: int, dense_type: str) -> None:
        expected = list(shop.loader(seed=5, dense_type=dense_type))
        found = list(shop.loader(seed=5, dense_type=dense_type, device="cuda", prefetch=prefetch))
        assert {tensor.device.type for batch in found for tensor in batch.values()} == {"cuda"}
        equal(found, expected)

    @pytest.mark.parametrize("own_stream", [False, True])
    def test_a_late_consumer_reads_its_batch_and_not_the_next(shop: Shop, own_stream: bool) -> None:
        expected = list(shop.loader(seed=6))
        stream = torch.cuda.Stream() if own_stream else torch.cuda.current_stream()
        copies: Batches = []
        with torch.cuda.stream(stream):
            for batch in shop.loader(seed=6, device="cuda", prefetch=1):
                torch.cuda._sleep(BUSY_CYCLES)
                copies.append({name: tensor.clone() for name, tensor in batch.items()})
        torch.cuda.synchronize()
        equal(copies, expected)

    def test_page_locked_batches_are_copied_before_they_are_written_again(shop: Shop) -> None:
        expected = list(shop.loader(seed=7))
        copies: Batches = []
        for batch in shop.loader(seed=7, pin_memory=True):
            assert all(tensor.is_pinned() for tensor in batch.values())
            torch.cuda._sleep(BUSY_CYCLES)
            copies.append({name: tensor.to("cuda", non_blocking=True) for name, tensor in batch.items()})
        torch.cuda.synchronize()
        equal(copies, expected)

    def test_a_loader_goes_on_from_a_state(shop: Shop) -> None:
        first = shop.loader(seed=8, device="cuda", prefetch=4)
        batches = iter(first)
        begun = [next(batches) for _ in range(7)]
        second = shop.loader(seed=8, device="cuda")
        second.load_state_dict(first.state_dict())
        equal([*begun, *second], list(shop.loader(seed=8)))

    def test_a_step_is_the_same_on_batches_of_either_device(shop: Shop) -> None:
        expected = [batch["dense"].cuda().square().sum() for batch in shop.loader(seed=9)]
        found = [batch["dense"].square().sum() for batch in shop.loader(seed=9, device=torch.device("cuda", 0))]
        assert torch.equal(torch.stack(found), torch.stack(expected))

    def test_a_device_that_is_not_there_is_a_fault(shop: Shop) -> None:
        with pytest.raises(forebay.SpecFault, match="does not have"):
            shop.loader(device=f"cuda:{torch.cuda.device_count()}")

    def test_trainings_give_the_same_bytes_when_they_are_repeated_or_killed(shop: Shop, tmp_path: pathlib.Path) -> None:
        once = train(shop, tmp_path / "once")
        assert train(shop, tmp_path / "again") == once
        train(shop, tmp_path / "killed", killed_after=9)
        assert train(shop, tmp_path / "killed") == once

    @pytest.mark.parametrize("library", ["cupy", "jax"])
    def test_other_libraries_take_parts_of_a_raw_batch(shop: Shop, library: str) -> None:
        taken = pytest.importorskip(library)
        from_dlpack = taken.from_dlpack if library == "cupy" else taken.dlpack.from_dlpack
        expected = list(shop.loader(seed=10))
        for batch, other in zip(shop.loader(seed=10, device="cuda", format="raw"), expected, strict=True):
            for name, part in batch.parts().items():
                array = from_dlpack(part)
                host = taken.asnumpy(array) if library == "cupy" else numpy.asarray(array)
                assert numpy.array_equal(host, other[name].numpy()), name
