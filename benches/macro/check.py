"""Whether contenders agree.

- Counts, nulls, min and max are equal; means and variances within 1e-9, relative, though the data
  is float32: everyone sums in doubles. After log1p, which rounds to float32, within 1e-6.
- A median may come from a sample: half of the values lie below it, give or take 1 %.
- Vocabularies: the same tokens with the same counts (size and a hash over all pairs that does not
  depend on their order; the top tokens are shown where they differ), and counts fall from id to id.
- Written ids: tokens of equal counts may swap ids, which changes no count of any id. So rows,
  nulls, sums of ids and of their squares, and unknowns are equal for every column, and products
  with other columns for those whose counts all differ.
- Written numbers: mean 0 and variance 1 within 1e-4; where medians are equal, the sum of products
  with ids agrees within 1e-5 a row."""

import json
import math
import sys
from pathlib import Path

import duckdb
from shared import MIN_COUNT, NUMBERS, TOKENS

RANK_ERROR = 0.01
DB = duckdb.connect()


def quoted(path):
    return "'" + str(path).replace("'", "''") + "'"


def parquet(paths):
    return f"read_parquet([{', '.join(map(quoted, paths))}])"


def one(query):
    DB.execute(query)
    return dict(zip([column[0] for column in DB.description], DB.fetchone()))


def number(value):
    return float(value) if isinstance(value, str) else value


def of_vocabulary(relation):
    """Size, hash and top of a relation of (token, count), in the order of ids."""
    of = f"(SELECT token, count::BIGINT AS count, row_number() OVER () AS id FROM {relation})"
    found = one(
        f"""SELECT count(*) AS size, sum(count)::VARCHAR AS total, sum(hash(token, count))::VARCHAR AS hash,
                   coalesce(bool_and(falls), true) AS falls, count(DISTINCT count) = count(*) AS no_ties
            FROM (SELECT *, count <= lag(count, 1, count) OVER (ORDER BY id) AS falls FROM {of})"""
    )
    found["top"] = DB.execute(f"SELECT token, count FROM {of} ORDER BY count DESC, token LIMIT 5").fetchall()
    return found


def of_peer(path):
    path = Path(path)
    learned = json.loads((path / "learned.json").read_text())
    return learned, {c: of_vocabulary(parquet([path / "vocabulary" / f"{c}.parquet"])) for c in TOKENS}


def of_forebay(path, job):
    path = Path(path)
    learned, vocabularies = {f: {} for f in NUMBERS}, {}
    for finding in json.loads((path / "artifact.json").read_text())["findings"]:
        kind, column = finding["analyzer"], finding["columns"][0]
        values = {name: of["values"] for name, of in (finding.get("table") or {}).items()}
        if kind == "moments":
            moments = {name: number(of[0]) for name, of in values.items()}
            learned[column].update(moments if job == "fit" else {"scaled": moments})
        elif kind in ("quantiles", "exact_quantiles"):
            learned[column]["median"] = number(values["value"][0])
        elif kind == "vocabulary" and finding.get("file"):
            vocabularies[column] = of_vocabulary(parquet([path / finding["file"]]))
        elif kind == "vocabulary":
            pairs = [f"({quoted(t)}, {n})" for t, n in zip(values["token"], values["count"])]
            listed = f"(VALUES {', '.join(pairs)}) AS v(token, count)" if pairs else "(SELECT '' AS token, 0 AS count LIMIT 0)"
            vocabularies[column] = of_vocabulary(listed)
    return learned, vocabularies


def of_output(data, vocabularies):
    asked = ["count(*) AS rows", "sum(label) AS label"]
    for f in NUMBERS:
        asked += [f"count({f}) AS {f}_count", f"avg({f}::DOUBLE) AS {f}_mean", f"var_pop({f}::DOUBLE) AS {f}_var"]
        asked.append(f"sum({f}::DOUBLE * (1 + c9)) AS {f}_product")
    for c in TOKENS:
        unknown = vocabularies[c]["size"]
        asked += [f"count({c}) AS {c}_count", f"sum({c}::HUGEINT)::VARCHAR AS {c}_sum"]
        asked += [f"sum({c}::HUGEINT * {c})::VARCHAR AS {c}_squares", f"count_if({c} = {unknown}) AS {c}_unknown"]
        asked.append(f"sum({c}::HUGEINT * (1 + label))::VARCHAR AS {c}_product")
    return one(f"SELECT {', '.join(asked)} FROM {parquet([Path(data) / '**' / '*.parquet'])}")


def digest(job, name, files, learned, data, out):
    """What a contender learned and wrote, in few words."""
    statistics, vocabularies = of_forebay(learned, job) if name == "forebay" else of_peer(learned)
    output = of_output(data, vocabularies) if job == "run" else None
    found = {"files": json.loads(files), "statistics": statistics, "vocabularies": vocabularies, "output": output}
    Path(out).write_text(json.dumps(found))
    return True


def truth(files):
    """The statistics of other files than everyone read, for who read those."""
    log, statistics = parquet(files), {}
    for f in NUMBERS:
        statistics[f] = one(
            f"""SELECT count({f}) AS count, count(*) - count({f}) AS nulls, avg({f}::DOUBLE) AS mean,
                       var_pop({f}::DOUBLE) AS var, min({f}) AS min, max({f}) AS max FROM {log}"""
        )
    counted = "(SELECT {0} AS token, count(*) AS count FROM {1} WHERE {0} IS NOT NULL GROUP BY 1 HAVING count(*) >= {2})"
    vocabularies = {c: of_vocabulary(counted.format(c, log, MIN_COUNT)) for c in TOKENS}
    return {"files": files, "statistics": statistics, "vocabularies": vocabularies, "output": None}


def near(a, b, tolerance):
    if a is None or b is None:
        return a is b
    return math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance * 1e-3)


def compare(job, files, *named):
    found = {name: json.loads(Path(path).read_text()) for name, path in (word.split("=", 1) for word in named)}
    files = json.loads(files)
    wrong = []

    def expect(ok, name, what):
        if not ok:
            wrong.append(f"{name}: {what}")

    whole = [name for name in ("polars", "duckdb", *found) if name in found and found[name]["files"] == files]
    reference = whole[0] if whole else None
    apart = 0
    for name, its in found.items():
        for c, vocabulary in its["vocabularies"].items():
            expect(vocabulary["falls"], name, f"counts of {c} are not in order")
        if name == reference:
            continue
        if its["files"] == files:
            other = found[reference]
        else:
            other = truth(its["files"])
        apart += 1
        agree(job, name, its, other, expect)
    medians(found, files, expect)
    for line in wrong:
        print(f"DISAGREES  {line}")
    if not wrong:
        what = "statistics, vocabularies" + (", written rows" if job == "run" else "")
        print(f"{job}: {', '.join(found)} agree ({what})" if apart else f"{job}: nothing to compare")
    return not wrong


def agree(job, name, its, other, expect):
    for f in NUMBERS:
        mine, theirs = its["statistics"][f], other["statistics"][f]
        if job == "fit":
            for what in ("count", "nulls", "min", "max"):
                expect(mine[what] == theirs[what], name, f"{what} of {f}: {mine[what]}, not {theirs[what]}")
            for what in ("mean", "var"):
                expect(near(mine[what], theirs[what], 1e-9), name, f"{what} of {f}: {mine[what]}, not {theirs[what]}")
        elif mine["median"] == theirs["median"]:
            for what in ("mean", "var"):
                a, b = mine["scaled"][what], theirs["scaled"][what]
                expect(near(a, b, 1e-6), name, f"{what} of {f} after log1p: {a}, not {b}")
    for c in TOKENS:
        mine, theirs = its["vocabularies"].get(c), other["vocabularies"][c]
        same = mine and all(mine[what] == theirs[what] for what in ("size", "total", "hash"))
        expect(same, name, f"vocabulary of {c}: {mine}, not {theirs}")
    if job != "run":
        return
    mine, theirs = its["output"], other["output"]
    rows = theirs["rows"]
    for what in ("rows", "label"):
        expect(mine[what] == theirs[what], name, f"{what}: {mine[what]}, not {theirs[what]}")
    for f in NUMBERS:
        expect(mine[f"{f}_count"] == theirs[f"{f}_count"], name, f"written nulls of {f}")
        expect(abs(mine[f"{f}_mean"]) < 1e-4, name, f"written mean of {f}: {mine[f'{f}_mean']}")
        expect(abs(mine[f"{f}_var"] - 1) < 1e-4, name, f"written variance of {f}: {mine[f'{f}_var']}")
        if its["statistics"][f]["median"] == other["statistics"][f]["median"] and other["vocabularies"]["c9"]["no_ties"]:
            a, b = mine[f"{f}_product"], theirs[f"{f}_product"]
            expect(abs(a - b) <= 1e-5 * rows, name, f"products of {f} and c9: {a}, not {b}")
    for c in TOKENS:
        sums = ["count", "sum", "squares", "unknown"] + ["product"] * other["vocabularies"][c]["no_ties"]
        for what in sums:
            a, b = mine[f"{c}_{what}"], theirs[f"{c}_{what}"]
            expect(a == b, name, f"written {what} of {c}: {a}, not {b}")


def medians(found, files, expect):
    asked = {}
    for name, its in found.items():
        for f in NUMBERS:
            if (median := its["statistics"][f].get("median")) is not None:
                asked[f"{name} {f}"] = (
                    f"count_if({f}::DOUBLE < {median!r}::DOUBLE) / count({f})",
                    f"count_if({f}::DOUBLE <= {median!r}::DOUBLE) / count({f})",
                )
    if not asked:
        return
    columns = ", ".join(f'[{low}, {high}] AS "{key}"' for key, (low, high) in asked.items())
    for key, (low, high) in one(f"SELECT {columns} FROM {parquet(files)}").items():
        name, f = key.split(" ")
        ok = low <= 0.5 + RANK_ERROR and high >= 0.5 - RANK_ERROR
        expect(ok, name, f"the median of {f} has {low:.4f} of the values below it and {high:.4f} up to it")


def rows(*lists):
    for files in lists:
        print(one(f"SELECT count(*) AS rows FROM {parquet(json.loads(files))}")["rows"])
    return True


if __name__ == "__main__":
    verb, *words = sys.argv[1:]
    sys.exit(0 if {"digest": digest, "compare": compare, "rows": rows}[verb](*words) else 1)
