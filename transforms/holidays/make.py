"""Writes `holidays.txt.zz`, the public holidays of countries that `calendar` knows, from the package `holidays`.

    pip install holidays==0.109 && python make.py

The file is text, compressed by zlib. First come the names of holidays, one a line, and an empty line. Then two lines for
each country or subdivision: its code (`DE`, `DE-BE`) with the first and the last year, and its holidays. A holiday is
the days since the one before (the first: since 1970-01-01), `:`, the number of its name from 0, and `e` where its date is
an estimate. A subdivision has only the holidays that its country does not have; `-` marks those that it lacks.
"""

import datetime
import pathlib
import zlib

import holidays

FIRST_YEAR = 1990
LAST_YEAR = 2040
EPOCH = datetime.date(1970, 1, 1)
ESTIMATED = " (estimated)"


def calendar(country, subdivision=None):
    """The holidays of a country, by day, and the years for which they are known."""
    kind = getattr(holidays, country)
    language = "en_US" if "en_US" in (kind.supported_languages or ()) else None
    first = max(FIRST_YEAR, kind.start_year)
    last = min(LAST_YEAR, kind.end_year)
    if first > last:
        return None
    found = kind(years=range(first, last + 1), subdiv=subdivision, language=language)
    days = {}
    for day, name in found.items():
        if not first <= day.year <= last:
            continue
        parts = sorted(set(name.split("; ")))
        estimated = all(part.endswith(ESTIMATED) for part in parts)
        name = "; ".join(part.removesuffix(ESTIMATED) for part in parts)
        days[(day - EPOCH).days] = (name, estimated)
    return first, last, days


class Writer:
    def __init__(self):
        self.names = {}
        self.lines = []

    def number(self, name):
        return self.names.setdefault(name, len(self.names))

    def add(self, code, first, last, entries):
        """Entries are (day, name, estimated), or (day, None, False) for a holiday that is not one."""
        before = 0
        words = []
        for day, name, estimated in sorted(entries, key=lambda entry: entry[0]):
            word = "-" if name is None else f"{self.number(name)}{'e' if estimated else ''}"
            words.append(f"{day - before}:{word}")
            before = day
        self.lines.append(f"{code} {first} {last}")
        self.lines.append(" ".join(words))

    def text(self):
        return "\n".join([*self.names, "", *self.lines]) + "\n"


def main():
    writer = Writer()
    for country, subdivisions in sorted(holidays.list_supported_countries(include_aliases=False).items()):
        national = calendar(country)
        if national is None:
            continue
        first, last, days = national
        writer.add(country, first, last, [(day, *entry) for day, entry in days.items()])
        for subdivision in subdivisions:
            own = calendar(country, subdivision)
            if own is None:
                continue
            entries = [(day, *entry) for day, entry in own[2].items() if days.get(day) != entry]
            entries += [(day, None, False) for day in days if day not in own[2]]
            if entries:
                writer.add(f"{country}-{subdivision}".upper(), own[0], own[1], entries)
            else:
                writer.add(f"{country}-{subdivision}".upper(), own[0], own[1], [])
    path = pathlib.Path(__file__).with_name("holidays.txt.zz")
    path.write_bytes(zlib.compress(writer.text().encode(), 9))
    print(f"{len(writer.names)} names, {len(writer.lines) // 2} calendars, {path.stat().st_size} bytes")


if __name__ == "__main__":
    main()
