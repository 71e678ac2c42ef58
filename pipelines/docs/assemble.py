"""Puts the pages of the site together.

The guide and the reference are single files in the repository. The site has a page for each of their headings. Links
between files of the repository become links between pages; files that are no pages are shown as they are.
"""

import json
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

FENCE = re.compile(r"^\s*```")
HEADING = re.compile(r"^(#+) (.*)$")
LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
LANGUAGES = {".rs": "rust", ".py": "python", ".yaml": "yaml", ".json": "json"}

# Pages with a place in the navigation: their files in the repository, and their names on the site.
SINGLE_PAGES = {
    "pipelines/docs/index.md": "index.md",
    "pipelines/docs/install.md": "install.md",
    "pipelines/docs/tutorial.md": "tutorial.md",
    "pipelines/docs/glossary.md": "glossary.md",
    "pipelines/docs/troubleshooting.md": "troubleshooting.md",
    "pipelines/python/README.md": "python.md",
    "pipelines/airflow/README.md": "airflow.md",
    "pipelines/workers/README.md": "workers.md",
    "pipelines/workers/CLUSTERS.md": "clusters.md",
    "pipelines/monitoring/README.md": "monitoring.md",
    "engine/ARCHITECTURE.md": "architecture.md",
    "engine/CONTRIBUTING.md": "contributing.md",
}


def slug(title):
    """The anchor of a heading, as GitHub makes it."""
    letters = re.sub(r"[^\w\- ]", "", title.lower())
    return letters.strip().replace(" ", "-")


@dataclass
class Page:
    """A page of the site."""

    title: str
    source: Path
    lines: list = field(default_factory=list)


def lines_with_headings(text):
    """Lines, each with the level and the title of its heading where it is one outside of code."""
    inside = False
    for line in text.splitlines():
        if FENCE.match(line):
            inside = not inside
        heading = None if inside else HEADING.match(line)
        yield line, (len(heading[1]), heading[2]) if heading else None


def divided(source, prefix, levels, overview):
    """Pages of a file by name: a heading of `levels(section)` begins one."""
    pages = {f"{prefix}/index.md": Page(overview, source)}
    anchors = {}
    current = f"{prefix}/index.md"
    section = ""
    raised = 0
    for line, heading in lines_with_headings(source.read_text()):
        if heading:
            level, title = heading
            if level == 2:
                section = title
            depth = levels(section)
            if level <= depth and level > 1:
                folder = f"{prefix}/{slug(section)}" if level == 3 else prefix
                current = f"{folder}/{slug(title)}.md"
                pages[current] = Page(title, source)
                raised = level - 1
            anchors[slug(title)] = current
            if level > 1:
                line = "#" * max(level - raised, 1) + " " + title
        pages[current].lines.append(line)
    return pages, anchors


class Site:
    """Pages, and what the links of the repository lead to."""

    def __init__(self, root):
        self.root = root
        self.pages = {}
        # The page of each file, and of each heading of a file that is divided.
        self.files = {}
        self.anchors = {}
        # Pictures by their names on the site.
        self.images = {}

    def add_single(self, path, name):
        source = self.root / path
        text = source.read_text()
        title = next(title for _, heading in lines_with_headings(text) if heading for title in [heading[1]])
        self.pages[name] = Page(title, source, text.splitlines())
        self.files[source] = name

    def add_divided(self, path, prefix, levels, overview):
        source = self.root / path
        pages, anchors = divided(source, prefix, levels, overview)
        self.pages.update(pages)
        self.files[source] = f"{prefix}/index.md"
        self.anchors[source] = anchors

    def target(self, page, name, link):
        """The link of a page of the site for a link of the repository."""
        path, _, anchor = link.partition("#")
        file = (page.source.parent / path).resolve() if path else page.source
        if file in self.anchors:
            to = self.anchors[file].get(anchor, self.files[file])
        else:
            to = self.files.get(file) or self.add_file(file)
        if to is None:
            return None
        up = "../" * name.count("/")
        return f"{up}{to}" + (f"#{anchor}" if anchor else "")

    def add_file(self, file):
        """A page that shows a file of the repository; none of a folder and of what is no text."""
        if not file.is_file() or file.suffix == ".ipynb" or self.root not in file.parents:
            return None
        relative = file.relative_to(self.root)
        name = f"files/{relative}.md" if file.suffix != ".md" else f"files/{relative}"
        self.files[file] = name
        text = file.read_text()
        if file.suffix == ".md":
            lines = text.splitlines()
            self.pages[name] = Page(str(relative), file, lines)
        else:
            language = LANGUAGES.get(file.suffix, "text")
            lines = [f"# {relative}", "", f"```{language}", *text.splitlines(), "```"]
            self.pages[name] = Page(str(relative), file, lines)
        return name

    def rewritten(self, page, name):
        inside = False
        for line in page.lines:
            if FENCE.match(line):
                inside = not inside
            elif not inside:
                line = IMAGE.sub(lambda found: self.image(page, name, found), line)
                line = LINK.sub(lambda found: self.link(page, name, found), line)
            yield line

    def link(self, page, name, found):
        text, link = found[1], found[2]
        if "://" in link or link.startswith("mailto:"):
            return found[0]
        target = self.target(page, name, link)
        return f"[{text}]({target})" if target else text

    def image(self, page, name, found):
        source = (page.source.parent / found[2]).resolve()
        if "://" in found[2] or not source.is_file():
            return found[0]
        self.images[f"images/{source.name}"] = source
        up = "../" * name.count("/")
        return f"![{found[1]}]({up}images/{source.name})"

    def write(self, folder):
        written = set()
        # Links add pages.
        while waiting := [name for name in self.pages if name not in written]:
            for name in waiting:
                page = self.pages[name]
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                text = "\n".join(self.rewritten(page, name)) + "\n"
                path.write_text(with_drawings(text, name))
                written.add(name)
        for name, source in self.images.items():
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(source, folder / name)


def with_drawings(text, name):
    """The drawing of the guide: a picture needs no script from elsewhere."""
    up = "../" * name.count("/")
    picture = f"![The way of the data]({up}flow.svg)"
    return re.sub(r"```mermaid\nflowchart LR\n  spec.*?```", picture, text, flags=re.DOTALL)


def listed(pages, prefix):
    return [{page.title: name} for name, page in pages.items() if name.startswith(prefix)]


def navigation(site):
    pages = site.pages
    guide = [{"Overview": "guide/index.md"}, *listed(pages, "guide/")[1:]]
    reference = [{"Overview": "reference/index.md"}]
    for section in ("Transforms", "Sources", "Sinks"):
        head = f"reference/{section.lower()}"
        reference.append({section: [{"All": f"{head}.md"}, *listed(pages, f"{head}/")]})
    top = [name for name in pages if name.startswith("reference/") and name.count("/") == 1]
    sections = ("reference/index.md", "reference/transforms.md", "reference/sources.md", "reference/sinks.md")
    reference += [{pages[name].title: name} for name in top if name not in sections]
    coming = [{page.title.removeprefix("Coming from "): name} for name, page in pages.items() if "coming-from/" in name]
    gallery = [{page.title: name} for name, page in pages.items() if name.startswith("gallery/")]
    return [
        {"Home": "index.md"},
        {"Installation": "install.md"},
        {"Tutorial": "tutorial.md"},
        {"Gallery": gallery},
        {"Guide": guide},
        {"Coming from": coming},
        {"Reference": reference},
        {
            "Beside it": [
                {"Python": "python.md"},
                {"Airflow": "airflow.md"},
                {"Workers": "workers.md"},
                {"Clusters": "clusters.md"},
                {"Monitoring": "monitoring.md"},
                {"Architecture": "architecture.md"},
                {"Contributing": "contributing.md"},
            ]
        },
        {"Help": [{"Glossary": "glossary.md"}, {"Troubleshooting": "troubleshooting.md"}]},
    ]


def toml(value):
    """A value of the navigation in TOML, which has JSON's lists and texts."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {toml(inner)}" for key, inner in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value)


def main():
    root, work = (Path(path).resolve() for path in sys.argv[1:3])
    here = root / "pipelines/docs"
    shutil.rmtree(work, ignore_errors=True)
    site = Site(root)
    for path, name in SINGLE_PAGES.items():
        site.add_single(path, name)
    for folder in ("gallery", "coming-from"):
        for path in sorted((here / folder).glob("*.md"), key=lambda path: (path.stem != "index", path.stem)):
            site.add_single(path.relative_to(root), f"{folder}/{path.name}")
    site.add_divided("pipelines/GUIDE.md", "guide", lambda section: 2, "Guide")
    by_kind = {"Transforms", "Sources", "Sinks"}
    site.add_divided("pipelines/REFERENCE.md", "reference", lambda section: 3 if section in by_kind else 2, "Reference")
    site.write(work / "pages")
    for name in ("flow.svg", "extra.css"):
        shutil.copy(here / name, work / "pages" / name)
    config = (here / "zensical.toml").read_text()
    (work / "zensical.toml").write_text(f"{config.rstrip()}\n".replace("nav = []", f"nav = {toml(navigation(site))}"))


if __name__ == "__main__":
    main()
