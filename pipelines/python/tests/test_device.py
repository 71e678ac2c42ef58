"""Batches on a GPU and in page-locked memory, on a driver of the host whose copies are late (`tests/fake_cuda`).

PyTorch finds no GPU there, so that tensors are read by DLPack's own structures. The fake's device memory is the host's:
what a copy has brought is read once the consumer's stream has been waited for.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import torch
from conftest import ROWS, Shop

import forebay

FAKE = os.environ.get("FOREBAY_FAKE_CUDA", "")

PROGRAM = """
import ctypes, gc, json, sys
import forebay

shop = json.loads(sys.argv[1])
cuda = ctypes.CDLL("libcuda.so")
HANDLE = ctypes.c_void_p


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("id", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Managed(ctypes.Structure):
    pass


Managed._fields_ = [("tensor", Tensor), ("owner", ctypes.c_void_p), ("deleter", ctypes.CFUNCTYPE(None, HANDLE))]


class Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("owner", ctypes.c_void_p),
        ("deleter", ctypes.CFUNCTYPE(None, HANDLE)), ("flags", ctypes.c_uint64), ("tensor", Tensor),
    ]


api = ctypes.pythonapi
api.PyCapsule_GetPointer.restype, api.PyCapsule_GetPointer.argtypes = HANDLE, [ctypes.py_object, ctypes.c_char_p]
api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Taken:
    \"\"\"A tensor as a consumer has it: the capsule is used up, and the deleter is called once.\"\"\"

    def __init__(self, part, versioned=False, **stream):
        more = {"max_version": (1, 0)} if versioned else {}
        capsule = part.__dlpack__(**stream, **more)
        name = b"dltensor_versioned" if versioned else b"dltensor"
        self.pointer = api.PyCapsule_GetPointer(capsule, name)
        # Names of capsules must live as long as the capsules.
        self.used = b"used_" + name
        api.PyCapsule_SetName(capsule, self.used)
        self.capsule = capsule
        self.managed = ctypes.cast(self.pointer, ctypes.POINTER(Versioned if versioned else Managed)).contents
        self.tensor = self.managed.tensor

    @property
    def shape(self):
        return [self.tensor.shape[axis] for axis in range(self.tensor.ndim)]

    def floats(self):
        count = 1
        for extent in self.shape:
            count *= extent
        return list((ctypes.c_float * count).from_address(self.tensor.data))

    def let_go(self):
        self.managed.deleter(self.pointer)


def stream():
    made = HANDLE()
    assert cuda.cuStreamCreate(ctypes.byref(made), 1) == 0
    return made.value


def synchronize(handle):
    assert cuda.cuStreamSynchronize(HANDLE(handle)) == 0


def loader(**more):
    more = {"device": "cuda", "format": "raw", **more}
    return forebay.Loader(shop["spec"], params=shop["params"], state=shop["state"], seed=3, **more)


def expected():
    batches = forebay.Loader(shop["spec"], params=shop["params"], state=shop["state"], seed=3, format="numpy")
    return [[float(value) for value in batch["dense"].ravel()] for batch in batches]


"""


def on_driver(shop: Shop, tmp_path: pathlib.Path, program: str, **environment: str) -> str:
    """Runs a program with the fake driver in sight; what the driver has seen must be right."""
    if not FAKE:
        pytest.skip("no fake driver: `pipelines/python/test` builds one")
    libraries = tmp_path / "libraries"
    libraries.mkdir(exist_ok=True)
    (libraries / "libcuda.so").unlink(missing_ok=True)
    (libraries / "libcuda.so").symlink_to(FAKE)
    where = {"spec": str(shop.spec), "state": str(shop.state), "params": {k: str(v) for k, v in shop.params.items()}}
    report = tmp_path / "report"
    environment = {
        "LD_LIBRARY_PATH": str(libraries),
        "FAKE_CUDA_REPORT": str(report),
        "FAKE_CUDA_DELAY_US": "2000",
        **environment,
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM + textwrap.dedent(program), json.dumps(where)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    seen = report.read_text().splitlines() if report.exists() else []
    assert [line for line in seen if line.startswith("violation")] == []
    return done.stdout


@pytest.mark.parametrize("stream", ["handle", "None", "1", "2", "-1"])
def test_the_consumers_stream_waits_for_the_copy(shop: Shop, tmp_path: pathlib.Path, stream: str) -> None:
    program = f"""
    mine = {"stream()" if stream == "handle" else stream}
    seen = []
    for number, batch in enumerate(loader()):
        part = batch.parts()["dense"]
        assert part.__dlpack_device__() == (2, 0)
        given = {{}} if mine is None else {{"stream": mine}}
        tensor = Taken(part, versioned=number % 2 == 1, **given)
        assert (tensor.tensor.kind, tensor.tensor.id, tensor.shape) == (2, 0, [len(batch), 2])
        # After -1 nothing is to be waited for.
        if mine != -1:
            synchronize(mine or 0)
        seen.append(tensor.floats())
        tensor.let_go()
    assert seen == expected()
    """
    on_driver(shop, tmp_path, program)


def test_a_slot_is_not_written_before_the_consumers_work_is_done(shop: Shop, tmp_path: pathlib.Path) -> None:
    # The consumer queues a copy of each batch on its stream and lets the tensor go at once, as a training loop does.
    program = """
    mine = stream()
    bytes_max = 128 * 2 * 4
    kept = []
    for batch in loader(prefetch=1):
        tensor = Taken(batch.parts()["dense"], stream=mine)
        length = 4 * tensor.shape[0] * 2
        target = HANDLE()
        assert cuda.cuMemHostAlloc(ctypes.byref(target), length, 0) == 0
        assert cuda.cuMemcpyDtoHAsync_v2(target, HANDLE(tensor.tensor.data), ctypes.c_size_t(length), HANDLE(mine)) == 0
        kept.append((target.value, length // 4))
        tensor.let_go()
        del batch, tensor
    synchronize(mine)
    assert [list((ctypes.c_float * count).from_address(start)) for start, count in kept] == expected()
    """
    for seed in range(3):
        on_driver(shop, tmp_path, program, FAKE_CUDA_SEED=str(seed))


def test_slots_are_few_and_come_back_when_tensors_go(shop: Shop, tmp_path: pathlib.Path) -> None:
    program = """
    places = set()
    one = loader(prefetch=2)
    for epoch in range(4):
        for batch in one:
            tensor = Taken(batch.parts()["dense"])
            places.add(tensor.tensor.data)
            del batch
            tensor.let_go()
    assert len(places) <= 4, places
    stats = one.stats()
    assert stats["steps"] == 4 * len(one) and stats["h2d_bytes"] >= stats["bytes"] > 0, stats
    assert stats["h2d_bytes_per_second"] > 0 and 0 <= stats["starved_steps"] <= stats["steps"], stats
    # Tensors that are kept keep their slots, and the loader takes others.
    held = list(loader())
    assert len({batch.parts()["dense"].__dlpack_device__() for batch in held}) == 1
    tensors = [Taken(batch.parts()["dense"]) for batch in held]
    del held
    synchronize(0)
    assert [tensor.floats() for tensor in tensors] == expected()
    assert len({tensor.tensor.data for tensor in tensors}) == len(tensors)
    for tensor in tensors:
        tensor.let_go()
    # Memory is bounded all the same.
    many, kept = loader(batch_rows=16), []
    try:
        kept.extend(many)
        raise AssertionError("the memory of the GPU has no bound")
    except forebay.ResourceFault as fault:
        assert "held by the consumer" in str(fault) and "clone" in fault.hint, fault
    """
    on_driver(shop, tmp_path, program)


def counts(tmp_path: pathlib.Path) -> dict[str, int]:
    """What the driver counted, when the last context went."""
    lines = (tmp_path / "report").read_text().splitlines()
    return {word: int(number) for word, number in (line.split()[1:] for line in lines if line.startswith("count: "))}


@pytest.mark.parametrize("prefetch", [1, 4])
def test_memory_on_the_device_is_what_prefetch_needs(shop: Shop, tmp_path: pathlib.Path, prefetch: int) -> None:
    # A slot holds two dense values, an id, a label and a mask byte of each row; each part begins at 256 bytes.
    slot_bytes = sum(-(-128 * bytes // 256) * 256 for bytes in (2 * 4, 8, 4, 1))
    program = f"""
    one = loader(prefetch={prefetch})
    for batch in one:
        tensor = Taken(batch.parts()["dense"])
        del batch
        tensor.let_go()
    stats = one.stats()
    # Batches that were copied ahead of the end belong to the next epoch.
    copied = stats["h2d_bytes"] / {slot_bytes}
    assert len(one) <= copied <= len(one) + {prefetch}, stats
    assert 0 < stats["h2d_bytes_per_second"] <= stats["h2d_bytes"] / stats["seconds"] * 1.001, stats
    assert stats["steps"] == len(one) and 0 <= stats["starved_steps"] <= len(one), stats
    again = one.stats()
    assert again["steps"] == again["h2d_bytes"] == again["starved_steps"] == 0, again
    """
    on_driver(shop, tmp_path, program, FAKE_CUDA_MEMORY=str((prefetch + 2) * slot_bytes))
    seen = counts(tmp_path)
    assert seen["copy_to_device_pinned"] >= -(-ROWS // 128) and "copy_to_device_pageable" not in seen
    refused = """
    try:
        for batch in loader(prefetch=%d):
            pass
        raise AssertionError("there was memory")
    except forebay.ResourceFault as fault:
        assert "GPU" in str(fault), fault
    """
    on_driver(shop, tmp_path, refused % prefetch, FAKE_CUDA_MEMORY=str(slot_bytes - 1))


def test_states_tell_what_was_delivered_not_what_was_copied_ahead(shop: Shop, tmp_path: pathlib.Path) -> None:
    program = """
    first = loader(prefetch=4)
    iterator = iter(first)
    def dense(batch):
        tensor = Taken(batch.parts()["dense"])
        synchronize(0)
        floats = tensor.floats()
        tensor.let_go()
        return floats
    begun = [dense(next(iterator)) for _ in range(5)]
    again = loader(device="cuda:0")
    again.load_state_dict(first.state_dict())
    assert begun + [dense(batch) for batch in again] == expected()
    # The epoch ends where it ends, though batches of the next one are on their way.
    assert sum(len(batch) for batch in again) == %d
    first.close()
    capsule = next(iter(again)).parts()["dense"].__dlpack__()
    del capsule, again
    gc.collect()
    """
    on_driver(shop, tmp_path, program % ROWS)


def test_streams_and_devices_that_are_not_there(shop: Shop, tmp_path: pathlib.Path) -> None:
    program = """
    part = next(iter(loader())).parts()["dense"]
    for wrong in (0, -2):
        try:
            part.__dlpack__(stream=wrong)
            raise AssertionError(wrong)
        except ValueError as error:
            assert "is no CUDA stream" in str(error)
    for wrong in ({"dl_device": (1, 0)}, {"copy": True}):
        try:
            part.__dlpack__(**wrong)
            raise AssertionError(wrong)
        except BufferError:
            pass
    assert part.__dlpack__(dl_device=(2, 0)) is not None
    try:
        loader(device="cuda:1")
        raise AssertionError("there is one device")
    except forebay.SpecFault as fault:
        assert "does not have: Fake GPU 0" in str(fault), fault
    try:
        loader(format="torch")
        raise AssertionError("PyTorch has no GPU")
    except forebay.SpecFault as fault:
        assert "torch.cuda.is_available()" in str(fault), fault
    """
    on_driver(shop, tmp_path, program)


def test_a_second_device_and_the_context_of_the_caller(shop: Shop, tmp_path: pathlib.Path) -> None:
    program = """
    def current():
        context = HANDLE()
        cuda.cuCtxGetCurrent(ctypes.byref(context))
        return context.value
    one = HANDLE()
    cuda.cuDevicePrimaryCtxRetain(ctypes.byref(one), 0)
    cuda.cuCtxSetCurrent(one)
    for batch in loader(device="cuda:1"):
        tensor = Taken(batch.parts()["dense"])
        assert tensor.tensor.id == 1 and current() == one.value
        del batch
        tensor.let_go()
        assert current() == one.value
    """
    on_driver(shop, tmp_path, program, FAKE_CUDA_DEVICES="2")


def test_a_device_that_is_lost_is_a_fault(shop: Shop, tmp_path: pathlib.Path) -> None:
    program = """
    try:
        for batch in loader():
            pass
        raise AssertionError("the device was not lost")
    except forebay.ExternalFault as fault:
        assert "GPU" in str(fault), fault
    """
    on_driver(shop, tmp_path, program, FAKE_CUDA_FAULT="lost:40")
    on_driver(
        shop,
        tmp_path,
        """
    try:
        next(iter(loader()))
        raise AssertionError("there was memory")
    except forebay.ResourceFault as fault:
        assert "GPU" in str(fault) and "nvidia-smi" in fault.hint, fault
    """,
        FAKE_CUDA_MEMORY="1000",
    )


def test_page_locked_tensors_of_the_cpu(shop: Shop, tmp_path: pathlib.Path) -> None:
    # The consumer copies on a stream of its own, which the loader does not know, and lets the tensors go.
    program = """
    mine = stream()
    bytes_max = 1 << 20
    target = HANDLE()
    assert cuda.cuMemAlloc_v2(ctypes.byref(target), ctypes.c_size_t(bytes_max)) == 0
    seen, at = [], 0
    for batch in loader(device="cpu", pin_memory=True):
        part = batch.parts()["dense"]
        assert part.__dlpack_device__() == (1, 0)
        tensor = Taken(part)
        length = 4 * tensor.shape[0] * 2
        copied = cuda.cuMemcpyHtoDAsync_v2(
            HANDLE(target.value + at), HANDLE(tensor.tensor.data), ctypes.c_size_t(length), HANDLE(mine)
        )
        assert copied == 0
        seen.append((target.value + at, length // 4))
        at += length
        del batch, part
        tensor.let_go()
    synchronize(mine)
    assert [list((ctypes.c_float * count).from_address(start)) for start, count in seen] == expected()
    """
    on_driver(shop, tmp_path, program)
    seen = counts(tmp_path)
    assert seen["copy_to_device_pinned"] == -(-ROWS // 128) and "copy_to_device_pageable" not in seen
    # Without it, they lie in memory that the driver does not know.
    # The driver writes what it counted when a context goes, of which there is none without a loader that uses it.
    pageable = "    one = next(iter(loader()))\n" + program.replace("pin_memory=True", "pin_memory=False") + "del one\n"
    on_driver(shop, tmp_path, pageable)
    assert counts(tmp_path)["copy_to_device_pageable"] == -(-ROWS // 128)


def test_without_a_gpu_there_is_a_fault_at_once(shop: Shop) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    for more in ({"device": "cuda"}, {"device": torch.device("cuda", 1)}, {"pin_memory": True}):
        with pytest.raises(forebay.SpecFault, match="asks for a GPU that this machine does not have: no driver found"):
            shop.loader(**more)
    with pytest.raises(forebay.SpecFault, match="`gpu9` is not a device"):
        shop.loader(device="gpu9")
    for format in ("numpy", "arrow"):
        with pytest.raises(forebay.SpecFault, match="lies in the CPU's memory"):
            shop.loader(device="cuda", format=format)
    with pytest.raises(forebay.SpecFault, match="`pin_memory` is for tensors of the CPU"):
        shop.loader(device="cuda", pin_memory=True)
    with pytest.raises(forebay.SpecFault, match="`prefetch` is 0"):
        shop.loader(prefetch=0)
    for device in ("meta", "cuda:", "cuda:-1", "", None):
        with pytest.raises(forebay.SpecFault, match="is not a device"):
            shop.loader(device=device)
    for device in (torch.device("cpu"), torch.device("cpu", 0)):
        assert next(iter(shop.loader(device=device)))["dense"].device.type == "cpu"


def test_libraries_beside_pytorch_are_found_in_an_environment_that_is_not_active(tmp_path: pathlib.Path) -> None:
    if not FAKE:
        pytest.skip("no fake driver: `pipelines/python/test` builds one")
    beside = tmp_path / "prefix" / "lib" / "python3.12" / "site-packages" / "nvidia" / "cu13" / "lib"
    beside.mkdir(parents=True)
    # The loader knows a library that is loaded by the name that the library gives itself.
    named = ["-Wl,-soname,libcublas.so.13", "-Wl,--no-as-needed", FAKE, f"-Wl,-rpath,{pathlib.Path(FAKE).parent}"]
    subprocess.run(["cc", "-shared", "-o", beside / "libcublas.so.13", *named], check=True)
    program = """
    import sys
    sys.prefix = sys.argv[1]
    import forebay
    sys.exit(forebay._forebay.main(["forebay", "doctor"]))
    """
    nowhere = dict.fromkeys(
        ["CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "CONDA_PREFIX", "HOME"], str(tmp_path / "nowhere")
    )
    told = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path / "prefix")],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env=os.environ | nowhere,
    ).stdout
    (line,) = [line for line in told.splitlines() if line.startswith("cuBLAS")]
    assert line.endswith("libfake_cuda.so"), told
