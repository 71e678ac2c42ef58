"""Two processes under DistributedDataParallel: every row of an epoch once, also after a resume."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

from conftest import ROWS, Shop

PROGRAM = """
import json, os, pathlib, sys
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import forebay

rank, world, steps, root = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), pathlib.Path(sys.argv[4])
shop = json.loads(sys.argv[5])
dist.init_process_group("gloo", init_method=f"file://{root}/meet-{steps}-{world}", rank=rank, world_size=world)
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
loader = forebay.Loader(shop["spec"], params=shop["params"], state=shop["state"], seed=5, batch_rows=64, last="pad")
assert (loader.rank, loader.world_size) == (rank, world)
checkpoint = root / "checkpoint.pt"
if checkpoint.exists():
    saved = torch.load(checkpoint, weights_only=True)
    model.load_state_dict(saved["model"])
    loader.load_state_dict(saved["loader"])
seen = []
for step, batch in enumerate(loader):
    mask = batch["mask"].bool()
    loss = ((model(batch["dense"][:, :1])[:, 0] - batch["label"]) ** 2 * mask).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    seen += [int(row) for row in batch["dense"][mask][:, 1].tolist()]
    if step + 1 == steps:
        if rank == 0:
            torch.save({"model": model.state_dict(), "loader": loader.state_dict()}, checkpoint)
        break
weights = [parameter.detach().tolist() for parameter in model.module.parameters()]
(root / f"seen-{steps}-{rank}.json").write_text(json.dumps({"seen": seen, "weights": weights}))
dist.barrier()
dist.destroy_process_group()
# Threads of the group outlive it: one that frees its last work while the interpreter ends aborts the process.
del loader
os._exit(0)
"""


def train(shop: Shop, root: pathlib.Path, world: int, steps: int) -> list[list[int]]:
    """Trains in some processes; gives the rows that each saw."""
    where = {"spec": str(shop.spec), "state": str(shop.state), "params": {k: str(v) for k, v in shop.params.items()}}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(rank), str(world), str(steps), str(root), json.dumps(where)]
        )
        for rank in range(world)
    ]
    assert [process.wait(timeout=300) for process in ranks] == [0] * world
    told = [json.loads((root / f"seen-{steps}-{rank}.json").read_text()) for rank in range(world)]
    assert all(rank["weights"] == told[0]["weights"] for rank in told), "gradients were not shared"
    return [rank["seen"] for rank in told]


def test_two_processes_see_every_row_once_and_go_on(shop: Shop, tmp_path: pathlib.Path) -> None:
    # Eleven steps, then the rest of the epoch from the checkpoint.
    before = train(shop, tmp_path, world=2, steps=11)
    assert [len(rows) for rows in before] == [11 * 64] * 2
    after = train(shop, tmp_path, world=2, steps=10_000)
    rows = [row for rank in before + after for row in rank]
    assert sorted(rows) == list(range(ROWS))


def test_a_whole_epoch_is_the_same_rows_in_any_world(shop: Shop, tmp_path: pathlib.Path) -> None:
    both = train(shop, tmp_path, world=2, steps=10_000)
    assert sorted(both[0] + both[1]) == list(range(ROWS))
    assert not set(both[0]) & set(both[1])
