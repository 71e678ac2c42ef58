"""Fails if a page of the site leads to a file or to an anchor that is not there, or loads something from elsewhere."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Links(HTMLParser):
    """The links of a page, its anchors, and what it loads."""

    def __init__(self):
        super().__init__()
        self.links = []
        self.loaded = []
        self.anchors = set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        if "id" in values:
            self.anchors.add(values["id"])
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
        if tag == "link" and values.get("rel") in ("stylesheet", "icon"):
            self.loaded.append(values["href"])
        if tag in ("script", "img") and values.get("src"):
            self.loaded.append(values["src"])


def read(path):
    links = Links()
    links.feed(path.read_text())
    return links


def main():
    site = Path(sys.argv[1]).resolve()
    pages = {path: read(path) for path in site.rglob("*.html")}
    faults = []
    checked = 0
    for path, page in pages.items():
        shown = path.relative_to(site)
        for link in page.loaded:
            if urlsplit(link).scheme or link.startswith("//"):
                faults.append(f"{shown} loads {link}")
            elif not (path.parent / unquote(urlsplit(link).path)).resolve().is_file():
                faults.append(f"{shown} loads {link}, which is not there")
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            checked += 1
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target = target / "index.html"
            if target in pages:
                if parts.fragment and unquote(parts.fragment) not in pages[target].anchors:
                    faults.append(f"{shown}: {link} has no such anchor")
            elif not target.is_file():
                faults.append(f"{shown}: {link} is not there")
    print(f"{len(pages)} pages, {checked} links, {len(faults)} wrong")
    print("\n".join(faults[:50]))
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
