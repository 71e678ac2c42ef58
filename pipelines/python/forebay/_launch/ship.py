"""The Python package as bytes, for nodes that have no program."""

from __future__ import annotations

import hashlib
import io
import pathlib
import zipfile

from .node import START

START_TEXT = b"import runpy\n\nrunpy.run_module('forebay', run_name='__main__', alter_sys=True)\n"


def package_archive(root: pathlib.Path) -> tuple[bytes, str]:
    """The package at a folder as a zip file, and its digest: equal packages give equal bytes."""
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and "__pycache__" not in path.parts]
    out = io.BytesIO()
    # The compiled half is most of it: compressing it takes longer than sending it.
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(START), START_TEXT)
        for path in files:
            # The time of an entry is a fixed one.
            archive.writestr(zipfile.ZipInfo(root.name + "/" + path.relative_to(root).as_posix()), path.read_bytes())
    packed = out.getvalue()
    return packed, hashlib.sha256(packed).hexdigest()[:32]


def this_package() -> tuple[bytes, str]:
    """The package of this process."""
    return package_archive(pathlib.Path(__file__).resolve().parent.parent)
