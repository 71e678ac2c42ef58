"""Models trained for real, beside their peers.

flights  Whether a departure arrives more than 15 minutes late (benches/specs/train_flights.yaml): the
         AUC on November and December, beside scikit-learn's logistic regression on the same features
         (numbers, and one column for each id). Real data: `--flights DIR` holds flights/ and weather/.
demand   Generated demand a week ahead (pipelines/specs/forecast.yaml): the wMAPE of the last four
         weeks, beside the seasonal naive forecast (the demand a week before), and beside the same layers
         in PyTorch on the same batches in the same order (`--torch PYTHON`: an interpreter with torch, such
         as the one that pipelines/python/test leaves; left out where there is none).
trees    Boosted trees on generated demand (benches/specs/train_trees.yaml), over all rows and for each
         store: RMSE and wMAPE of the last four weeks, beside Python's LightGBM on the same rows with the same
         settings.

The exit code is 1 where the AUC is more than 0.01 below scikit-learn's, where the network is no better
than the naive forecast, where its loss is more than 3 % above PyTorch's, or where the trees' RMSE is more than 1 % above
LightGBM's."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from measure import REPO, build, generate, measured, summary, table, tail

HERE = Path(__file__).resolve().parent
AUC_BELOW_MAX = 0.01
LOSS_ABOVE_MAX = 0.03
TREES_ABOVE_MAX = 0.01


def arguments():
    parser = argparse.ArgumentParser(
        prog="benches/train", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="flights,demand,trees", help="some of the models [flights,demand,trees]")
    parser.add_argument("--flights", type=Path, default=REPO.parent / "shared" / "data", help="real data [../shared/data]")
    parser.add_argument("--rows", type=int, default=1_000_000, help="rows of demand to generate [1000000]")
    parser.add_argument("--torch", type=Path, default=REPO / "target" / "python-venv" / "bin" / "python")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="for everyone [all]")
    parser.add_argument("--memory", default="4GiB", help="what Forebay may use [4GiB]")
    parser.add_argument("--forebay", help="the program; else it is built")
    parser.add_argument("--batches", type=Path, help="the example `batches`; else it is built")
    parser.add_argument("--work", type=Path, help="a directory that keeps the data for next time [a temporary one, removed]")
    return parser.parse_args()


FLIGHTS = HERE.parent / "specs" / "train_flights.yaml"
TREES = HERE.parent / "specs" / "train_trees.yaml"
FORECAST = REPO / "pipelines" / "specs" / "forecast.yaml"


def trained(options, spec, out, params):
    """Runs a spec; gives what its model came to, and the seconds of its epochs."""
    log = out / f"{spec.stem}.log"
    words = [options.forebay, "run", spec, "--json"]
    words += [word for key, value in params.items() for word in ("--param", f"{key}={value}")]
    words += ["--state", out / "state", "--threads", options.threads, "--memory", options.memory]
    cost = measured(words, log)
    if cost.code != 0:
        sys.exit(f"forebay failed with {cost.code}:\n{tail(log)}")
    events = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    seconds = [event["seconds"] for event in events if event["event"] == "training_epoch"]
    models = summary(log)["models"]
    return (models[0] if len(models) == 1 else models), seconds, cost


def flights(options, out):
    model, seconds, cost = trained(options, FLIGHTS, out, {"data": options.flights, "out": out})
    ours = model["epochs"][-1]["validation"]
    rows = pq.read_table(out / "table").to_pandas()
    hours = rows.time_hour.dt.tz_convert(None).to_numpy()
    train, rest = rows[hours < np.datetime64("2013-10-31")], rows[hours >= np.datetime64("2013-11-01")]
    assert len(train) == model["rows"] and len(rest) == model["validation_rows"], "the parts are others"
    theirs = logistic_regression(train, rest)
    print(f"\nflights: {len(train):,} rows, validated on {len(rest):,}")
    speed = f"{model['rows'] * len(seconds) / sum(seconds):,.0f}"
    table([
        ("", "AUC", "log loss", "rows/s"),
        ("forebay", f"{ours['auc']:.5f}", f"{ours['log_loss']:.5f}", speed),
        ("scikit-learn", f"{theirs[0]:.5f}", f"{theirs[1]:.5f}", ""),
    ])
    return ours["auc"] >= theirs[0] - AUC_BELOW_MAX


def logistic_regression(train, rest):
    from scipy.sparse import csr_matrix, hstack
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import log_loss, roc_auc_score
    from sklearn.preprocessing import OneHotEncoder

    numbers = ["distance", "temp", "humid", "wind_speed", "precip", "visib"]
    ids = ["sched_dep_time", "time_hour_day_of_week", "dest", "carrier", "origin"]
    encoder = OneHotEncoder(handle_unknown="ignore").fit(train[ids])

    def features(part):
        return hstack([csr_matrix(part[numbers].to_numpy(np.float64)), encoder.transform(part[ids])]).tocsr()

    model = LogisticRegression(max_iter=2000).fit(features(train), train.late)
    predicted = model.predict_proba(features(rest))[:, 1]
    return roc_auc_score(rest.late, predicted), log_loss(rest.late, predicted)


def demand(options, out):
    work = options.work or out
    data = generate(options.forebay, "demand", options.rows, work / f"demand_{options.rows}", "--series", 1000, "--period", "month")
    days = pq.ParquetDataset(data).read(columns=["date"]).column("date").to_numpy().astype("datetime64[D]")
    until = days.max() - 27
    params = {"history": data, "out": out, "train_until": until}
    model, seconds, cost = trained(options, FORECAST, out, params)
    ours = model["epochs"][-1]
    columns = ["date", "qty", "naive"]
    rows = pq.read_table(out / "table", columns=columns).to_pandas()
    rest = rows[rows.date.to_numpy().astype("datetime64[D]") >= until]
    assert len(rest) == model["validation_rows"], "the validation rows are others"
    naive = (rest.qty - rest.naive).abs().sum() / rest.qty.abs().sum()
    speed = model["rows"] * len(seconds) / sum(seconds)
    lines = [
        ("", "wMAPE", "RMSE", "loss", "rows/s"),
        ("forebay", f"{ours['validation']['wmape']:.5f}", f"{ours['validation']['rmse']:.5f}", f"{ours['loss']:.5f}", f"{speed:,.0f}"),
    ]
    sound = ours["validation"]["wmape"] < naive
    if options.torch.exists():
        theirs = in_torch(options, out, params, model)
        lines.append(("PyTorch", f"{theirs['wmape']:.5f}", f"{theirs['rmse']:.5f}", f"{theirs['loss']:.5f}", f"{theirs['speed']:,.0f}"))
        sound &= ours["validation"]["loss"] < theirs["rmse"] ** 2 * (1 + LOSS_ABOVE_MAX)
        sound &= ours["loss"] < theirs["loss"] * (1 + LOSS_ABOVE_MAX)
    else:
        print(f"without PyTorch: there is no {options.torch}")
    lines.append(("a week before", f"{naive:.5f}", "", "", ""))
    print(f"\ndemand: {model['rows']:,} rows, validated on {len(rest):,}")
    table(lines)
    return sound


def trees(options, out):
    work = options.work or out
    data = generate(options.forebay, "demand", options.rows, work / f"demand_{options.rows}", "--series", 1000, "--period", "month")
    days = pq.ParquetDataset(data).read(columns=["date"]).column("date").to_numpy().astype("datetime64[D]")
    until = days.max() - 27
    models, seconds, _ = trained(options, TREES, out, {"history": data, "out": out, "train_until": until})
    rows = pq.read_table(out / "table").to_pandas()
    late = rows.date.to_numpy().astype("datetime64[D]") >= until
    lines, sound = [("", "trees", "RMSE", "wMAPE", "seconds")], True
    for model, took in zip(models, seconds):
        ours = model["epochs"][0]
        assert (late.sum(), (~late).sum()) == (model["validation_rows"], model["rows"]), "the rows are others"
        theirs = lightgbm_trees(options, rows, late, model["sink"] == "by_store")
        lines.append((model["sink"], f"{ours['step']:,}", f"{ours['validation']['rmse']:.5f}", f"{ours['validation']['wmape']:.5f}", f"{took:.2f}"))
        lines.append(("  LightGBM", f"{theirs['trees']:,}", f"{theirs['rmse']:.5f}", f"{theirs['wmape']:.5f}", f"{theirs['seconds']:.2f}"))
        sound &= ours["validation"]["rmse"] < theirs["rmse"] * (1 + TREES_ABOVE_MAX)
    print(f"\ntrees: {(~late).sum():,} rows, validated on {late.sum():,}")
    table(lines)
    return sound


def lightgbm_trees(options, rows, late, by_store):
    """LightGBM on the same rows: one model, or one for each store."""
    import time

    import lightgbm

    ids = ["date_day_of_week", "item_id"] + ([] if by_store else ["store_id"])
    columns = [name for name in rows.columns if name.startswith(("qty_lag", "qty_mean", "qty_std"))] + ["price"] + ids
    settings = {"objective": "l2", "learning_rate": 0.1, "num_leaves": 31, "num_threads": options.threads, "verbose": -1}
    predicted = np.zeros(len(rows))
    count, seconds = 0, 0.0
    for _, part in rows.groupby("store") if by_store else [(None, rows)]:
        own = late[part.index]
        learn, rest = part[~own], part[own]
        began = time.perf_counter()
        known = lightgbm.Dataset(learn[columns].to_numpy(float), learn.qty, categorical_feature=[columns.index(name) for name in ids])
        valid = known.create_valid(rest[columns].to_numpy(float), rest.qty)
        stop = lightgbm.early_stopping(30, verbose=False)
        model = lightgbm.train(settings, known, 500, valid_sets=[valid], callbacks=[stop])
        seconds += time.perf_counter() - began
        count += model.best_iteration
        predicted[rest.index] = model.predict(rest[columns].to_numpy(float))
    errors = (predicted - rows.qty)[late]
    wmape = errors.abs().sum() / rows.qty[late].abs().sum()
    return {"trees": count, "rmse": np.sqrt((errors**2).mean()), "wmape": wmape, "seconds": seconds}


def in_torch(options, out, params, model):
    batches = options.batches
    if batches is None:
        subprocess.run(["cargo", "build", "--release", "-p", "forebay", "--example", "batches"], cwd=REPO, check=True)
        batches = Path(options.forebay).parent / "examples" / "batches"
    epochs = len(model["epochs"])
    job = {"epochs": epochs, "threads": options.threads, "model": model["data"]}
    for split, times in (("train", epochs), ("validation", 0)):
        job[split] = str(out / f"{split}.f32")
        words = [batches, FORECAST, out / "state", split, times, job[split]]
        words += [f"{key}={value}" for key, value in params.items()]
        subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)
    words = [options.torch, HERE / "torch_train.py", json.dumps(job)]
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"PyTorch failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main():
    options = arguments()
    options.forebay = build(options.forebay)
    sound = True
    for name in options.only.split(","):
        with tempfile.TemporaryDirectory(prefix="forebay-train-") as scratch:
            sound &= {"flights": flights, "demand": demand, "trees": trees}[name](options, Path(scratch))
    sys.exit(0 if sound else 1)


if __name__ == "__main__":
    main()
