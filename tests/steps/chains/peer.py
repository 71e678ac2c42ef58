#!/usr/bin/env python3
"""Checks the interpreter of random chains against pandas and scikit-learn, transform by transform.

    FOREBAY_CHAINS=400 FOREBAY_CHAINS_STEPS=/tmp/steps.jsonl \\
        cargo test -p forebay --test forebay steps::chains::steps_for_peers -- --ignored
    pip install pandas scikit-learn
    python tests/steps/chains/peer.py /tmp/steps.jsonl

Prints for each transform how many uses were compared and how many have no peer here. Exits with 1 where
a value differs.
"""

import collections
import json
import sys

import numpy as np
import pandas as pd
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, OrdinalEncoder, RobustScaler

TICKS = {"w": 7 * 86_400, "d": 86_400, "h": 3_600, "m": 60, "s": 1, "ms": 1e-3}


class NoPeer(Exception):
    """The peers do not have it, or define it in another way."""


class Table:
    def __init__(self, data):
        self.kinds = dict(data["columns"])
        self.names = [name for name, _ in data["columns"]]
        self.rows = data["rows"]
        self.fitted = np.array(data["fitted"], dtype=bool)

    def column(self, name):
        at = self.names.index(name)
        return [row[at] for row in self.rows]

    def doubles(self, name):
        """The column as doubles, missing ones as NaN."""
        kind = self.kinds[name]
        if kind not in ("F32", "F64", "Bool") and not kind.startswith("Int"):
            raise NoPeer(f"numbers of {kind}")
        return np.array([np.nan if value is None else float(value) for value in self.column(name)])

    def nulls(self, name):
        return np.array([value is None for value in self.column(name)], dtype=bool)

    def frame(self, names):
        """Columns whose values pandas keeps apart as we do: nulls as None."""
        return pd.DataFrame({name: pd.Series(self.column(name), dtype=object) for name in names})

    def times(self, name):
        kind, ticks = self.kinds[name], self.column(name)
        units = {"Date": "D", "Time(Second)": "s", "Time(Millisecond)": "ms", "Time(Microsecond)": "us"}
        units["Time(Nanosecond)"] = "ns"
        if kind not in units:
            raise NoPeer(f"times of {kind}")
        return pd.Series(np.array(ticks, dtype="int64").view(f"datetime64[{units[kind]}]").astype("datetime64[ns]"))


def close(found, wanted, single):
    """Whether doubles agree; missing ones are equal."""
    found, wanted = np.asarray(found, dtype=float), np.asarray(wanted, dtype=float)
    if found.shape != wanted.shape:
        return False
    share = 2e-7 if single else 1e-9
    finite = wanted[np.isfinite(wanted)]
    size = max([1.0, *np.abs(finite)])
    with np.errstate(invalid="ignore"):
        near = np.abs(found - wanted) <= share * (np.abs(wanted) + 1e-2 * size)
    return bool(np.all(near | (found == wanted) | (np.isnan(found) & np.isnan(wanted))))


def learned(use, name):
    """The values that the step learns from, without missing ones."""
    values = use.before.doubles(name)
    values = values[use.before.fitted] if use.fitted else values
    return values[~np.isnan(values)]


class Use:
    """One transform, its input and what the interpreter makes of it."""

    def __init__(self, line):
        self.seed, self.fitted, self.time, self.keys = line["seed"], line["fitted"], line["time"], line["keys"]
        ((self.name, self.config),) = line["step"].items()
        self.before, self.after = Table(line["before"]), Table(line["after"])
        self.others = {name: Table(data) for name, data in line["others"].items()}

    def compare(self, output, values):
        if not close(self.after.doubles(output), values, self.after.kinds[output] == "F32"):
            raise AssertionError(f"{output}: {self.after.column(output)}, peer {list(values)}")

    def each(self):
        for name in self.config["columns"]:
            yield name, name + self.config.get("suffix", "")

    def series(self):
        """Rows of each series in order of time, as places."""
        time = self.config.get("time", self.time)
        keys = self.config.get("keys", self.keys)
        if "gaps" in self.config and self.config["gaps"] != "count_rows":
            raise NoPeer("missing periods")
        order = np.argsort(np.array(self.before.column(time), dtype=float), kind="stable")
        groups = collections.defaultdict(list)
        for place in order:
            groups[tuple(repr(self.before.rows[place][self.before.names.index(key)]) for key in keys)].append(place)
        return time, groups.values()

    def windows(self, of):
        """Computes a column series by series: `of` gets the values and their times."""
        time, groups = self.series()
        (name,) = self.config["columns"]
        values = self.before.doubles(name)
        times = None
        if any(isinstance(x, str) for key in ("by", "over", "half_life", "season") for x in listed(self.config.get(key))):
            times = self.before.times(time)
        out = np.full(len(values), np.nan)
        for places in groups:
            part = pd.Series(values[places])
            if times is not None:
                part.index = pd.DatetimeIndex(times.iloc[places])
            out[places] = np.asarray(of(part), dtype=float)
        return name, out


def duration(text):
    """A length of time; integers have no unit that pandas knows."""
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz")
    unit = text[len(digits) :]
    if unit not in TICKS:
        raise NoPeer(f"lengths in {unit}")
    return pd.Timedelta(seconds=int(digits) * TICKS[unit])


def listed(value):
    return value if isinstance(value, list) else [value]


def words(compute):
    return [("quantile", word["quantile"]) if isinstance(word, dict) else (word, None) for word in compute]


def of_window(window, word, quantile, ddof):
    if word in ("mean", "sum", "min", "max", "median", "skew", "count"):
        return getattr(window, word)()
    if word == "kurtosis":
        return window.kurt()
    if word in ("std", "var"):
        return getattr(window, word)(ddof=ddof)
    if word == "quantile":
        return window.quantile(quantile)
    raise NoPeer(word)


def suffix_of(word, quantile):
    return word if quantile is None else f"q{quantile * 100:g}"


def steady(use, name):
    """pandas slides its windows: infinities, and values beside huge ones, leave traces in what comes later."""
    values = use.before.doubles(name)
    if np.isinf(values).any() or (np.abs(values) > 1e6).any():
        raise NoPeer("windows over infinite or huge values")


def standardize(use):
    for name, output in use.each():
        if "by" in use.config:
            frame = use.before.frame(use.config["by"]).map(repr)
            frame["x"] = use.before.doubles(name)
            kept = frame[use.before.fitted] if use.fitted else frame
            groups = kept.groupby(use.config["by"], dropna=False)["x"]
            moments = groups.agg(["mean", "count"]).join(groups.std(ddof=use.config.get("ddof", 0)).rename("std"))
            both = frame.merge(moments.reset_index(), on=use.config["by"], how="left")
            mean, std, count = both["mean"].fillna(0), both["std"].fillna(0), both["count"].fillna(-1)
        else:
            seen = pd.Series(learned(use, name))
            mean, std, count = seen.mean(), seen.std(ddof=use.config.get("ddof", 0)), len(seen)
        x = use.before.doubles(name)
        if np.isinf(x).any():
            raise NoPeer("infinite deviations")
        if np.any(np.asarray(count) <= 0):
            raise NoPeer("nothing seen")
        std = np.nan_to_num(np.broadcast_to(np.asarray(std, dtype=float), x.shape))
        centred = x - np.asarray(mean, dtype=float)
        flat = 0.0 * x if use.config.get("zero_variance") == "zero" else centred
        use.compare(output, np.where(std == 0, flat, centred / np.where(std == 0, 1, std)))


def min_max(use):
    if "by" in use.config:
        raise NoPeer("scaling by key")
    for name, output in use.each():
        seen, x = learned(use, name), use.before.doubles(name)
        if len(seen) == 0 or seen.min() == seen.max() or np.isinf(seen).any():
            raise NoPeer("no range")
        lo, hi = use.config.get("lo", 0), use.config.get("hi", 1)
        use.compare(output, (x - seen.min()) / (seen.max() - seen.min()) * (hi - lo) + lo)


def robust_scale(use):
    for name, output in use.each():
        seen, x = learned(use, name), use.before.doubles(name)
        if len(seen) == 0 or np.isinf(x).any():
            raise NoPeer("no quantiles")
        lower, upper = use.config.get("lower", 0.25), use.config.get("upper", 0.75)
        scaler = RobustScaler(quantile_range=(100 * lower, 100 * upper)).fit(seen.reshape(-1, 1))
        use.compare(output, scaler.transform(x.reshape(-1, 1)).ravel())


def k_bins(use):
    for name, output in use.each():
        seen, x = learned(use, name), use.before.doubles(name)
        if len(seen) < 2 or seen.min() == seen.max() or np.isnan(x).any():
            raise NoPeer("no bins, or missing values")
        bins = KBinsDiscretizer(use.config["bins"], encode="ordinal", strategy="uniform", subsample=None)
        use.compare(output, bins.fit(seen.reshape(-1, 1)).transform(x.reshape(-1, 1)).ravel())


def apply_buckets(use):
    for name, output in use.each():
        x, nulls = use.before.doubles(name), use.before.nulls(name)
        found = np.searchsorted(use.config["boundaries"], x, side="right").astype(float)
        use.compare(output, np.where(nulls, np.nan, found))


def bucketize(use):
    for name, output in use.each():
        x, nulls, seen = use.before.doubles(name), use.before.nulls(name), np.sort(learned(use, name))
        q = use.config["q"]
        bounds = [seen[len(seen) * k // q] for k in range(1, q)] if len(seen) else []
        use.compare(output, np.where(nulls, np.nan, np.searchsorted(bounds, x, side="right").astype(float)))


def log1p(use):
    for name, output in use.each():
        with np.errstate(all="ignore"):
            use.compare(output, np.log1p(use.before.doubles(name)))


def clip(use):
    for name, output in use.each():
        if use.before.kinds[name].startswith("Int"):
            raise NoPeer("bounds of integers are whole")
        use.compare(output, np.clip(use.before.doubles(name), use.config.get("min"), use.config.get("max")))


def impute(use):
    if use.config["with"] not in ("mean", "median"):
        raise NoPeer("other values")
    for name, output in use.each():
        seen = pd.Series(learned(use, name))
        fill = getattr(seen, use.config["with"])()
        use.compare(output, pd.Series(use.before.doubles(name)).fillna(fill))


def ordinal(use):
    if "categories" in use.config:
        raise NoPeer("listed categories")
    for name, output in use.each():
        values = pd.Series(use.before.column(name), dtype=object)
        seen = values[use.before.fitted] if use.fitted else values
        seen, there = seen.dropna(), values.notna()
        if len(seen) == 0 or len({type(value) for value in seen}) > 1:
            raise NoPeer("nothing seen")
        encoder = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=np.nan)
        if all(isinstance(value, str) for value in seen):
            # Code points and UTF-8 have one order.
            seen = seen.astype(str)
        encoder.fit(seen.to_numpy(dtype=object).reshape(-1, 1))
        found = np.full(len(values), np.nan)
        if there.any():
            found[there] = encoder.transform(values[there].to_numpy(dtype=object).reshape(-1, 1)).ravel()
        unknown = use.config.get("unknown")
        if isinstance(unknown, dict):
            found[there & np.isnan(found)] = unknown["value"]
        use.compare(output, found)


def one_hot(use):
    if any(field in use.config for field in ("categories", "min_count", "top_k")):
        raise NoPeer("chosen categories")
    for name, output in use.each():
        if use.before.kinds[name] != "Text":
            raise NoPeer("texts of other types")
        values = pd.Series(use.before.column(name), dtype=object)
        seen = (values[use.before.fitted] if use.fitted else values).dropna()
        if len(seen) == 0:
            raise NoPeer("nothing seen")
        encoder = OneHotEncoder(handle_unknown="ignore", sparse_output=False, categories=[sorted(set(seen))])
        found = encoder.fit(seen.to_numpy().reshape(-1, 1)).transform(values.to_numpy().reshape(-1, 1))
        if not np.array_equal(np.array(use.after.column(output), dtype=float), found):
            raise AssertionError(output)


def date_parts(use):
    for name in use.config["columns"]:
        if use.config.get("cyclic"):
            raise NoPeer("places on a circle")
        if use.before.nulls(name).any():
            raise NoPeer("missing times")
        times = use.before.times(name).dt
        parts = {"week": lambda: times.isocalendar().week, "is_weekend": lambda: times.day_of_week >= 5}
        for part in use.config["parts"]:
            found = parts[part]() if part in parts else getattr(times, part)
            use.compare(f"{name}_{part}", np.asarray(found, dtype=float))


def lag(use):
    (by,) = use.config["by"]
    if "as_of" in use.config or isinstance(by, str):
        raise NoPeer("lags of time")
    _, groups = use.series()
    (name,) = use.config["columns"]
    values = np.array(use.before.column(name), dtype=object)
    out = np.full(len(values), None, dtype=object)
    for places in groups:
        out[places] = pd.Series(values[places], dtype=object).shift(by).to_numpy()
    found = [None if value in (None, "NaN") or value != value else value for value in out]
    if found != use.after.column(f"{name}_lag_{by}"):
        raise AssertionError(name)


def changes(use):
    (by,) = use.config["by"]
    if isinstance(by, str):
        raise NoPeer("lags of time")
    if use.before.kinds[use.config["columns"][0]].startswith("Int") and use.name == "diff":
        if np.nanmax(np.abs(use.before.doubles(use.config["columns"][0])), initial=0) > 2**52:
            raise NoPeer("integers beyond doubles")
    call = (lambda x: x.diff(by)) if use.name == "diff" else (lambda x: x.pct_change(by, fill_method=None))
    name, out = use.windows(call)
    use.compare(f"{name}_{use.name}_{by}", out)


def rolling(use):
    (over,) = use.config["over"]
    if "gap" in use.config:
        raise NoPeer("gaps")
    steady(use, use.config["columns"][0])
    closed, ddof = use.config.get("closed", "right"), use.config.get("ddof", 1)
    rows = not isinstance(over, str)
    holds = {"both": 1, "neither": -1}.get(closed, 0) + over if rows else None
    width = over if rows else duration(over)
    for word, quantile in words(use.config["compute"]):
        least = use.config.get("min_periods", 0 if word == "count" else min(holds, over) if rows else 1)
        if rows and least > over:
            raise NoPeer("more values than rows")
        if not rows and width < pd.Timedelta(milliseconds=1):
            raise NoPeer("short windows")
        # pandas takes a row of the same time in that comes later; such series are left out.
        if not rows:
            _, groups = use.series()
            times = use.before.column(use.config.get("time", use.time))
            if closed in ("left", "neither") and any(len({times[place] for place in g}) < len(g) for g in groups):
                raise NoPeer("rows of one time")
        if word in ("skew", "kurtosis") and least < 4:
            raise NoPeer("fewer values than the statistic takes")
        name, out = use.windows(
            lambda x: of_window(x.rolling(width, min_periods=least, closed=closed), word, quantile, ddof)
        )
        use.compare(f"{name}_{suffix_of(word, quantile)}_{over}", out)


def expanding(use):
    if "gap" in use.config:
        raise NoPeer("gaps")
    steady(use, use.config["columns"][0])
    for word, quantile in words(use.config["compute"]):
        least = use.config.get("min_periods", 0 if word == "count" else 1)
        if word in ("skew", "kurtosis"):
            raise NoPeer("equal values, where pandas gives 0 or -3")
        name, out = use.windows(lambda x: of_window(x.expanding(min_periods=least), word, quantile, use.config.get("ddof", 1)))
        use.compare(f"{name}_expanding_{suffix_of(word, quantile)}", out)


def ewm(use):
    if "gap" in use.config:
        raise NoPeer("gaps")
    steady(use, use.config["columns"][0])
    options = {key: use.config[key] for key in ("alpha", "span", "com") if key in use.config}
    options |= {"adjust": use.config.get("adjust", True), "ignore_na": use.config.get("ignore_na", False)}
    options["min_periods"] = use.config.get("min_periods", 1)
    half_life = use.config.get("half_life")
    if isinstance(half_life, str):
        raise NoPeer("half-lives of time")
    if half_life is not None:
        options["halflife"] = half_life
    decay = next(f"{key}{use.config[key]:g}" for key in ("alpha", "span", "com", "half_life") if key in use.config)
    for word in use.config["compute"]:
        name, out = use.windows(lambda x: getattr(x.ewm(**options), word)())
        use.compare(f"{name}_ewm_{word}_{decay}", out)


def fill_forward(use):
    (name,) = use.config["columns"]
    kind = use.before.kinds[name]
    if kind not in ("F32", "F64") and not kind.startswith("Int"):
        raise NoPeer(kind)
    if not kind.startswith("F") and np.nanmax(np.abs(use.before.doubles(name)), initial=0) > 2**52:
        raise NoPeer("integers beyond doubles")
    name, out = use.windows(lambda x: x.ffill(limit=use.config.get("limit")))
    use.compare(name + use.config.get("suffix", ""), out)


def dedupe(use):
    frame = use.before.frame(use.config["keys"]).map(repr)
    kept = ~frame.duplicated(keep=use.config.get("keep", "first"))
    if [row for row, keep in zip(use.before.rows, kept) if keep] != use.after.rows:
        raise AssertionError("rows")


def aggregate(use):
    if "every" in use.config or not use.config["by"]:
        raise NoPeer("buckets of time")
    frame = use.before.frame(use.config["by"])
    for output, ((word, of),) in ((name, tuple(c.items())) for name, c in use.config["compute"].items()):
        if of == "*":
            frame["__x"] = 1.0
        elif word in ("first", "last", "min", "max", "n_unique", "count"):
            raise NoPeer(word)
        else:
            frame["__x"] = use.before.doubles(of)
            if np.isinf(frame["__x"]).any():
                raise NoPeer("infinities")
            if use.before.kinds[of].startswith("Int") and np.nanmax(np.abs(frame["__x"]), initial=0) > 2**40:
                raise NoPeer("integers beyond doubles")
        keys = [frame[key].map(lambda v: (v is None, "" if v is None else v)) for key in use.config["by"]]
        groups = frame["__x"].groupby([key.map(repr) for key in keys], sort=False)
        ddof = {"ddof": use.config.get("ddof", 1)} if word in ("std", "var") else {}
        least = {"min_count": 1} if word == "sum" else {}
        found = getattr(groups, word)(**ddof, **least)
        rows = use.after.rows
        places = [use.after.names.index(key) for key in use.config["by"]]
        labels = [tuple(repr((row[at] is None, "" if row[at] is None else row[at])) for at in places) for row in rows]
        if len(labels) != len(found):
            raise AssertionError("groups")
        wanted = [found.loc[label if len(label) > 1 else label[0]] for label in labels]
        use.compare(output, np.array(wanted, dtype=float))


def join(use):
    other = use.others[use.config["with"]]
    here, there = use.before.frame(use.config["on"]), other.frame(use.config["on"])
    there["__row"] = np.arange(len(there))
    there = there.dropna(subset=use.config["on"])
    met = here.map(repr).merge(there.assign(**there[use.config["on"]].map(repr)), on=use.config["on"], how="left")["__row"]
    for name in other.names:
        if name in use.config["on"]:
            continue
        values = [None if pd.isna(row) else other.rows[int(row)][other.names.index(name)] for row in met]
        if use.config.get("how") == "inner":
            values = [value for value, row in zip(values, met) if not pd.isna(row)]
        if values != use.after.column(name + use.config.get("suffix", "")):
            raise AssertionError(name)


def as_of_join(use):
    if use.config.get("direction") == "nearest":
        raise NoPeer("pandas has other ties")
    other, on = use.others[use.config["with"]], use.config["on"]
    here, there = use.before.frame(on).map(repr), other.frame(on)
    missing_here = use.before.frame(on).isna().any(axis=1)
    whole = ~there.isna().any(axis=1)
    here, there = here.astype(str), there.map(repr).astype(str)
    if not other.rows:
        raise NoPeer("no rows")
    here["t"], there["t"] = use.before.times(use.time), other.times(use.time)
    here["__here"], there["__row"] = np.arange(len(here)), np.arange(len(there))
    forward = use.config.get("direction") == "forward"
    # Of rows of one time the last counts, forward too; pandas takes the first there.
    there = there[whole].drop_duplicates([*on, "t"], keep="last")
    options = {"direction": "forward" if forward else "backward"}
    options["allow_exact_matches"] = use.config.get("exact", True)
    if "tolerance" in use.config:
        options["tolerance"] = duration(use.config["tolerance"])
    met = pd.merge_asof(here.sort_values("t", kind="stable"), there.sort_values("t", kind="stable"), on="t", by=on, **options)
    met = met.sort_values("__here")["__row"].mask(missing_here.to_numpy())
    for name in other.names:
        output = name + use.config.get("suffix", "")
        if output not in use.after.names:
            continue
        values = [None if pd.isna(row) else other.rows[int(row)][other.names.index(name)] for row in met]
        if values != use.after.column(output):
            raise AssertionError(f"{output}: {use.after.column(output)}, peer {values}")


def explode(use):
    frame = pd.DataFrame({"x": pd.Series(use.before.column(use.config["column"]), dtype=object)})
    if not use.config.get("keep_empty"):
        frame = frame[[bool(value) for value in frame["x"]]]
    found = [None if value != value else value for value in frame.explode("x")["x"]]
    if found != use.after.column(use.config["column"]):
        raise AssertionError("elements")


PEERS = {
    f.__name__: f
    for f in [standardize, min_max, robust_scale, k_bins, apply_buckets, bucketize, log1p, clip, impute, ordinal, one_hot]
    + [date_parts, lag, rolling, expanding, ewm, fill_forward, dedupe, aggregate, join, as_of_join, explode]
} | {"diff": changes, "pct_change": changes}


def main():
    compared, without, wrong = collections.Counter(), collections.Counter(), 0
    for line in open(sys.argv[1]):
        use = Use(json.loads(line))
        if use.name not in PEERS or not use.before.rows or not use.after.rows:
            without[use.name] += 1
            continue
        try:
            PEERS[use.name](use)
            compared[use.name] += 1
        except NoPeer:
            without[use.name] += 1
        except AssertionError as difference:
            wrong += 1
            print(f"seed {use.seed}, {use.name} {json.dumps(use.config)}: {difference}")
    for name in sorted(compared | without):
        print(f"{name:18} {compared[name]:5} agree, {without[name]:5} have no peer here")
    print(f"{sum(compared.values())} agree, {wrong} differ, {sum(without.values())} have no peer here")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
