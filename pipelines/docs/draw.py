"""Draws the pipelines of the gallery: `python3 pipelines/docs/draw.py PROGRAM` writes a picture beside each page.

A page's files are written and its commands are run in a directory of their own; the picture is the graph of the page
that `forebay report` makes of its spec.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

BLOCK = re.compile(r"(?:<!-- ([^\n]*) -->\n)?```(\w*)\n(.*?)```", re.DOTALL)
GRAPH = re.compile(r"<svg.*?</svg>", re.DOTALL)


def drawn(program, page):
    """The graph of the spec with the most sinks; none where the page has no spec."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        (path / "bin").mkdir()
        (path / "bin/forebay").symlink_to(program)
        environment = {**os.environ, "PATH": f"{path / 'bin'}:{os.environ['PATH']}"}
        specs = []
        for mark, language, text in BLOCK.findall(page.read_text()):
            if mark.startswith("file: "):
                (path / mark[6:]).write_text(text)
                if mark.endswith(".yaml"):
                    specs.append((text.count("  from:") + text.count("{ from:"), mark[6:]))
            elif language == "sh" and not mark.startswith("exit code"):
                subprocess.run(["bash", "-ec", text], cwd=path, env=environment, check=True, capture_output=True)
        if not specs:
            return None
        command = ["forebay", "report", max(specs)[1], "page.html"]
        subprocess.run(command, cwd=path, env=environment, check=True, capture_output=True)
        return GRAPH.search((path / "page.html").read_text())[0]


def main():
    program = Path(sys.argv[1]).resolve()
    for page in sorted((Path(__file__).parent / "gallery").glob("*.md")):
        # The picture of a pipeline in Rust stays: the program does not know its steps.
        picture = None if page.stem == "index" else drawn(program, page)
        if picture:
            page.with_suffix(".svg").write_text(picture + "\n")
            print(page.stem)


if __name__ == "__main__":
    main()
