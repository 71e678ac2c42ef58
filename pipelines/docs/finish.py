"""Makes the built site independent of servers: pages load nothing from elsewhere, and search works opened from disk."""

import os
import shutil
import sys
from pathlib import Path

# The generator loads this script from a server, for search in pages that are opened from disk. npm: iframe-worker 1.0.4.
SHIM_URL = "https://unpkg.com/iframe-worker/shim"
SHIM = "assets/javascripts/iframe-worker.js"


def main():
    here, site = (Path(path).resolve() for path in sys.argv[1:3])
    shutil.copy(here / "vendor/iframe-worker.js", site / SHIM)
    shutil.copy(here / "vendor/iframe-worker.LICENSE", site / "assets/javascripts")
    # A page for servers alone: its links begin at their root.
    (site / "404.html").unlink(missing_ok=True)
    for page in site.rglob("*.html"):
        text = page.read_text()
        local = os.path.relpath(site / SHIM, page.parent)
        page.write_text(text.replace(SHIM_URL, local))


if __name__ == "__main__":
    main()
