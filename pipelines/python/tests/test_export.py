"""Models in other formats predict as the program does: in onnxruntime and in LightGBM."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import subprocess

import lightgbm
import numpy
import onnxruntime
import pyarrow
import pyarrow.parquet
import pytest

ROWS = 4000

SPEC = """
version: 1
name: exported
sources:
  data: { parquet: { path: "data/*.parquet" } }
steps:
  features: { from: data, do: [{ derive: { part: "row % 5", third: "CAST(floor(x) AS BIGINT) % 3 * 10" } }] }
split: { train: "part < 4", validation: "part = 4" }
sinks:
  trees:
    from: features
    train:
      { path: out/trees, model: gbdt, label: y, dense: [x, gaps, pair], categorical: [item, kind], rounds: 12,
        quantiles: [0.1, 0.5, 0.9] }
  counts:
    from: features
    train: { path: out/counts, model: gbdt, loss: poisson, label: y, dense: [x], categorical: [item], rounds: 8,
             intervals: { levels: [80, 95] } }
  scaled:
    from: features
    train: { path: out/scaled, model: gbdt, label: y, dense: [x, gaps], categorical: [item], rounds: 8,
             intervals: { levels: [80], scale: gaps } }
  chance:
    from: features
    train: { path: out/chance, model: gbdt, loss: logistic, label: hit, dense: [x, gaps], rounds: 8 }
  kinds:
    from: features
    train: { path: out/kinds, model: gbdt, loss: softmax, label: shop, dense: [x, gaps], categorical: [item],
             rounds: 6 }
  numbers:
    from: features
    train: { path: out/numbers, model: gbdt, loss: softmax, label: third, dense: [x, gaps], rounds: 6 }
  layers:
    from: features
    train: { path: out/layers, model: mlp, loss: softmax, label: shop, dense: [x, gaps], categorical: [item], epochs: 1,
             non_finite: skip }
  sums:
    from: features
    train: { path: out/sums, model: linear, loss: softmax, label: third, dense: [x], categorical: [item, kind],
             epochs: 4, batch_rows: 64, learning_rate: 0.02 }
  constant:
    from: features
    train: { path: out/constant, model: gbdt, label: same, dense: [x], rounds: 2 }
  shops:
    from: features
    train: { path: out/shops, model: gbdt, label: y, by: [shop], dense: [x], categorical: [item], rounds: 4 }
  net:
    from: features
    train: { path: out/net, model: mlp, label: y, dense: [x, pair], categorical: [item, kind], epochs: 1 }
  bare:
    from: features
    train: { path: out/bare, model: linear, label: y, dense: [x, gaps], categorical: [item], epochs: 1,
             non_finite: zero }
  skips:
    from: features
    train: { path: out/skips, model: mlp, label: y, dense: [x, gaps], epochs: 1, non_finite: skip }
  odds:
    from: features
    train: { path: out/odds, model: logistic, label: hit, dense: [x], categorical: [kind], epochs: 1 }
"""

TREES = ["trees", "counts", "scaled", "chance", "constant"]
NETWORKS = ["net", "bare", "skips", "odds"]
CLASSES = ["kinds", "numbers"]
NETWORKS_OF_CLASSES = ["layers", "sums"]


def forebay(root: pathlib.Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([os.environ["FOREBAY_BIN"], *arguments], cwd=root, capture_output=True, text=True)


def rows() -> pyarrow.Table:
    rng = numpy.random.default_rng(3)
    x = rng.normal(size=ROWS)
    item = rng.integers(0, 30, ROWS)
    gaps = rng.normal(size=ROWS).astype(numpy.float32)
    gaps[rng.random(ROWS) < 0.1] = numpy.nan
    pairs = pyarrow.FixedSizeListArray.from_arrays(rng.normal(size=2 * ROWS).astype(numpy.float32), 2)
    y = numpy.exp(0.3 * x + numpy.sin(item)) + rng.gamma(1.0, 0.1, ROWS)
    return pyarrow.table(
        {
            "row": numpy.arange(ROWS),
            "x": x,
            "gaps": gaps,
            "pair": pairs,
            "item": item,
            "kind": pyarrow.array(rng.integers(0, 4, ROWS), mask=rng.random(ROWS) < 0.1),
            "shop": [f"shop {number}" for number in rng.integers(0, 3, ROWS)],
            "y": y,
            "hit": (y > 1.5).astype(numpy.float64),
            "same": numpy.full(ROWS, 2.5),
        }
    )


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if not os.path.exists(os.environ.get("FOREBAY_BIN", "")):
        pytest.skip("there is no program")
    root = tmp_path_factory.mktemp("exported")
    (root / "data").mkdir()
    pyarrow.parquet.write_table(rows(), root / "data" / "a.parquet")
    (root / "spec.yaml").write_text(SPEC)
    run = forebay(root, "run", "spec.yaml")
    assert run.returncode == 0, run.stderr
    return root


def predictions(root: pathlib.Path, model: str) -> pyarrow.Table:
    """The program's own predictions, in the order of the rows."""
    output = f"predicted/{model}"
    arguments = ["--source", "data=data/a.parquet", "--output", output, "--columns", "row"]
    predicted = forebay(root, "predict", f"out/{model}", *arguments)
    assert predicted.returncode == 0, predicted.stderr
    return pyarrow.parquet.read_table(root / output).sort_by("row")


def feed_of(session: onnxruntime.InferenceSession, table: pyarrow.Table) -> dict[str, numpy.ndarray]:
    """Inputs as the page on exports says: NaN for missing numbers, -1 for missing ids."""
    feed = {}
    for taken in session.get_inputs():
        column = table[taken.name].combine_chunks()
        if pyarrow.types.is_fixed_size_list(column.type):
            feed[taken.name] = column.flatten().to_numpy().reshape(-1, 2).astype(numpy.float32)
        elif taken.type == "tensor(float)":
            feed[taken.name] = column.to_numpy(zero_copy_only=False).astype(numpy.float32)
        else:
            feed[taken.name] = column.fill_null(-1).to_numpy().astype(numpy.int64)
    return feed


@pytest.mark.parametrize("model", TREES + NETWORKS)
def test_onnxruntime_predicts_as_the_program(root: pathlib.Path, model: str) -> None:
    exported = forebay(root, "export", f"out/{model}", f"{model}.onnx")
    assert exported.returncode == 0, exported.stderr
    session = onnxruntime.InferenceSession(root / f"{model}.onnx")
    table = rows()
    names = [output.name for output in session.get_outputs()]
    results = session.run(None, feed_of(session, table))
    expected = predictions(root, model)
    assert names == [name for name in expected.column_names if name.startswith("prediction")]
    for name, result in zip(names, results, strict=True):
        # A prediction that the program leaves out is NaN here.
        wanted = expected[name].to_numpy().astype(numpy.float32)
        numpy.testing.assert_allclose(result, wanted, rtol=1e-6, err_msg=name)
    metadata = session.get_modelmeta().custom_metadata_map
    assert metadata["forebay.pipeline"] == "exported"
    assert metadata["forebay.step"] == "features"
    assert metadata["forebay.artifact"]
    units = {"chance": "probability of `hit`", "odds": "probability of `hit`", "constant": "that of `same`"}
    assert metadata["forebay.unit"] == units.get(model, "that of `y`")
    described = {one["name"]: one for one in json.loads(metadata["forebay.inputs"])}
    assert set(described) == {taken.name for taken in session.get_inputs()}
    for taken in session.get_inputs():
        assert described[taken.name]["shape"] == taken.shape
    assert [one["name"] for one in json.loads(metadata["forebay.outputs"])] == names


def probabilities_of(table: pyarrow.Table) -> numpy.ndarray:
    """The probabilities of the classes, a column each."""
    names = [name for name in table.column_names if name.startswith("prediction_")]
    return numpy.column_stack([table[name].to_numpy().astype(numpy.float32) for name in names])


@pytest.mark.parametrize("model", CLASSES + NETWORKS_OF_CLASSES)
def test_onnxruntime_predicts_classes_as_the_program(root: pathlib.Path, model: str) -> None:
    exported = forebay(root, "export", f"out/{model}", f"{model}.onnx")
    assert exported.returncode == 0, exported.stderr
    session = onnxruntime.InferenceSession(root / f"{model}.onnx")
    names = [output.name for output in session.get_outputs()]
    classes, *columns = session.run(None, feed_of(session, rows()))
    expected = predictions(root, model)
    assert names == [name for name in expected.column_names if name.startswith("prediction")]
    # The last bits of a sum decide on those of a probability.
    tolerance = 1e-5 if model in NETWORKS_OF_CLASSES else 1e-6
    wanted = probabilities_of(expected)
    numpy.testing.assert_allclose(numpy.column_stack(columns), wanted, rtol=tolerance)
    # A row that has no prediction has the empty text.
    assert [one or None for one in classes.tolist()] == [one or None for one in expected["prediction"].to_pylist()]
    assert len(set(classes)) > 1
    assert numpy.isnan(wanted).any() == (model == "layers")
    metadata = session.get_modelmeta().custom_metadata_map
    is_text = model in ["kinds", "layers"]
    assert metadata["forebay.unit"] == ("class of `shop`" if is_text else "class of `third`")
    types = [one["type"] for one in json.loads(metadata["forebay.outputs"])]
    assert types == ["string" if is_text else "int64"] + ["float32"] * len(columns)


def test_ids_that_were_never_seen_are_those_of_the_program(root: pathlib.Path) -> None:
    table = rows()
    unseen = pyarrow.array(numpy.where(numpy.arange(ROWS) % 3 == 0, 1_000_000, -7))
    table = table.set_column(table.column_names.index("item"), "item", unseen)
    (root / "unseen").mkdir()
    pyarrow.parquet.write_table(table, root / "unseen" / "a.parquet")
    for model in ["trees", "net"]:
        forebay(root, "export", f"out/{model}", f"unseen-{model}.onnx")
        output = f"unseen-{model}"
        arguments = ["--source", "data=unseen/a.parquet", "--output", output, "--columns", "row"]
        assert forebay(root, "predict", f"out/{model}", *arguments).returncode == 0
        expected = pyarrow.parquet.read_table(root / output).sort_by("row")["prediction"].to_numpy()
        session = onnxruntime.InferenceSession(root / f"unseen-{model}.onnx")
        (result, *_) = session.run(["prediction"], feed_of(session, table))
        numpy.testing.assert_allclose(result, expected, rtol=1e-6)


def test_one_group_of_many_is_exported(root: pathlib.Path) -> None:
    refused = forebay(root, "export", "out/shops", "shops.onnx")
    assert refused.returncode == 78 and "--group" in refused.stderr
    assert not (root / "shops.onnx").exists()
    exported = forebay(root, "export", "out/shops", "shops.onnx", "--group", "shop 1")
    assert exported.returncode == 0, exported.stderr
    session = onnxruntime.InferenceSession(root / "shops.onnx")
    table = rows()
    (result,) = session.run(None, feed_of(session, table))
    chosen = numpy.array(table["shop"].to_pylist()) == "shop 1"
    expected = predictions(root, "shops")["prediction"].to_numpy()
    numpy.testing.assert_allclose(result[chosen], expected[chosen], rtol=1e-6)


@pytest.mark.parametrize("model", TREES + CLASSES)
def test_lightgbm_predicts_as_the_program(root: pathlib.Path, model: str) -> None:
    exported = forebay(root, "export", f"out/{model}", f"{model}.txt")
    assert exported.returncode == 0, exported.stderr
    booster = lightgbm.Booster(model_file=str(root / f"{model}.txt"))
    table = rows()
    columns = {"pair_0": "pair", "pair_1": "pair"}
    features = []
    for name in booster.feature_name():
        column = table[columns.get(name, name)].combine_chunks()
        if name in columns:
            values = column.flatten().to_numpy().reshape(-1, 2)[:, int(name[-1])]
        elif pyarrow.types.is_integer(column.type):
            values = column.fill_null(-1).to_numpy()
        else:
            # Trees have numbers of 32 bits.
            values = column.to_numpy(zero_copy_only=False).astype(numpy.float32)
        features.append(values.astype(numpy.float64))
    rows_of_features = numpy.column_stack(features)
    predicted = booster.predict(rows_of_features)
    expected = predictions(root, model)
    wanted = probabilities_of(expected) if model in CLASSES else expected["prediction"].to_numpy()
    numpy.testing.assert_allclose(predicted, wanted, rtol=1e-6)
    if model not in CLASSES:
        assert_contributions(booster, model, root, rows_of_features, predicted)


def assert_contributions(booster, model, root, rows_of_features, predicted):
    """Contributions of features weigh branches by the rows of the training, and add up to the sum of the trees."""
    contributions = booster.predict(rows_of_features[:50], pred_contrib=True)
    raw = booster.predict(rows_of_features[:50], raw_score=True)
    numpy.testing.assert_allclose(contributions.sum(axis=1), raw, rtol=1e-6, atol=1e-9)
    # Chances have contributions of both classes there.
    if importlib.util.find_spec("shap") and model != "chance":
        import shap

        explainer = shap.TreeExplainer(booster)
        values = explainer.shap_values(rows_of_features[:50])
        numpy.testing.assert_allclose(values, contributions[:, :-1], rtol=1e-6, atol=1e-9)
    if importlib.util.find_spec("treelite"):
        import treelite

        loaded = treelite.frontend.load_lightgbm_model(str(root / f"{model}.txt"))
        found = treelite.gtil.predict(loaded, rows_of_features).ravel()
        numpy.testing.assert_allclose(found, predicted, rtol=1e-5)


STEPS = """
version: 1
name: prepared
sources:
  data: { parquet: { path: "data/*.parquet" }, time: at, keys: [shop] }
steps:
  features:
    from: data
    fit_on: train
    do:
      - lag: { columns: [y], by: [1d] }
      - derive: { unused: "x * 2" }
      - apply_buckets: { columns: [gaps], boundaries: [-1, 0, 0.5], suffix: _bucket }
      - missing_indicator: { columns: [small] }
      - impute: { columns: [small], by: [shop, item], with: mean, suffix: _full }
      - standardize: { columns: [x], by: [shop], suffix: _by_shop }
      - min_max: { columns: [x], by: [shop, part], zero_range: lower, suffix: _by_both }
      - max_abs: { columns: [x], by: [item], suffix: _by_item }
      - one_hot: { columns: [shop], suffix: _flags }
      - one_hot: { columns: [kind], as: columns, columns_max: 4, suffix: _flag }
      - one_hot: { columns: [part], as: columns, categories: ["0", "3", "9"] }
      - group_rare: { columns: [item], top_k: 6, suffix: _group }
      - one_hot: { columns: [item_group], suffix: _flags }
      - frequency_encoding: { columns: [item], suffix: _share }
      - frequency_encoding: { columns: [part], compute: count, suffix: _rows }
      - ordinal: { columns: [item], unknown: missing, suffix: _rank }
      - ordinal: { columns: [item], unknown: { value: -1 }, suffix: _signed }
      - ordinal: { columns: [part], unknown: missing, suffix: _id }
      - vocabulary: { columns: [part], oov_buckets: 1, suffix: _token }
      - standardize: { columns: [part_rows, item_rank, item_signed] }
      - impute: { columns: [gaps], with: median }
      - impute: { columns: [small], with: { constant: -1.5 } }
      - standardize: { columns: [x, y_lag_1d], suffix: _score }
      - min_max: { columns: [x], suffix: _range }
      - min_max: { columns: [same], suffix: _flat }
      - robust_scale: { columns: [x], suffix: _robust }
      - max_abs: { columns: [x], suffix: _portion }
      - power: { columns: [x], suffix: _power }
      - power: { columns: [positive], method: box_cox, suffix: _power }
      - winsorize: { columns: [x], suffix: _bounded }
      - clip: { columns: [x], min: -1, max: 1.5, suffix: _clipped }
      - quantiles: { columns: [x], q: 20, suffix: _rank }
      - multi_hot: { columns: [tags], suffix: _flags }
      - multi_hot: { columns: [tags], as: columns, categories: [red, green] }
      - multi_hot: { columns: [colors], delimiter: "|", top_k: 3, suffix: _flags }
      - multi_hot: { columns: [colors], delimiter: "|", as: columns, columns_max: 5, suffix: _flag }
      - quantiles: { columns: [small, same], q: 4, suffix: _rank }
      - bucketize: { columns: [x], q: 5, suffix: _fifth }
      - k_bins: { columns: [small], bins: 3, strategy: uniform, suffix: _bin }
      - log1p: { columns: [positive] }
      - hash_bucket: { columns: [item], buckets: 16, seed: 3, hash: murmur3, suffix: _slot }
      - vocabulary: { columns: [item], min_count: 2, oov_buckets: 1 }
      - vocabulary: { columns: [kind], default: 7 }
      - ordinal: { columns: [shop], unknown: { value: 99 }, suffix: _id }
      - rename: { x_score: z }
split: { train: "part < 4", validation: "part = 4" }
sinks:
  net:
    from: features
    train:
      { path: out/net, model: mlp, label: y, epochs: 1, categorical: [item, item_slot, kind, shop_id], missing: 0,
        dense: [z, x_range, same_flat, x_robust, x_portion, x_power, positive_power, x_bounded, x_clipped, positive,
                gaps, small, y_lag_1d_score, x_fifth] }
  trees:
    from: features
    train:
      { path: out/trees, model: gbdt, label: y, rounds: 8, categorical: [item, item_slot, shop_id, x_fifth],
        dense: [z, gaps, positive, gaps_bucket, small_bin] }
  lookups:
    from: features
    train:
      { path: out/lookups, model: gbdt, label: y, rounds: 30, categorical: [part_id, part_token],
        dense: [small_missing, shop_flags, kind_0_flag, kind_1_flag, kind_2_flag, kind_3_flag, part_0, part_3, part_9,
                item_group_flags, item_share, part_rows, item_rank, item_signed, small_full, x_by_shop, x_by_both,
                x_by_item, x_rank, small_rank, same_rank, tags_flags, tags_red, tags_green, colors_flags,
                colors_0_flag, colors_1_flag, colors_4_flag] }
  flags:
    from: features
    train:
      { path: out/flags, model: linear, label: y, epochs: 1, missing: 0,
        dense: [small_missing, shop_flags, kind_0_flag, kind_1_flag, kind_2_flag, kind_3_flag, part_0, part_3, part_9,
                item_group_flags, item_share, part_rows, item_rank, item_signed, small_full, x_by_shop, x_by_both,
                x_by_item, x_rank, small_rank, same_rank, tags_flags, tags_red, tags_green, colors_flags,
                colors_0_flag, colors_1_flag, colors_4_flag] }
  hashed:
    from: hashed
    train: { path: out/hashed, model: gbdt, label: y, rounds: 2, categorical: [item], dense: [x] }
"""

HASHED = """
  hashed: { from: data, do: [{ hash_bucket: { columns: [item], buckets: 8 } }] }
"""


def raw_rows() -> pyarrow.Table:
    """Raw columns of each type that steps take, with missing values."""
    rng = numpy.random.default_rng(11)
    x = rng.normal(5, 3, ROWS)
    item = [f"item {number}" for number in rng.geometric(0.1, ROWS)]
    gaps = rng.normal(size=ROWS)
    missing = rng.random(ROWS) < 0.2
    positive = numpy.concatenate([rng.gamma(1.0, 1e-9, ROWS // 2), rng.gamma(2.0, 100.0, ROWS - ROWS // 2)])
    shop = [f"shop {number % 4}" for number in range(ROWS)]
    day = numpy.datetime64("2024-01-01") + numpy.arange(ROWS) // 4
    colors = [None if row % 9 == 0 else ["|a||b", "b|zz", "", "c"][row % 4] for row in range(ROWS)]
    return pyarrow.table(
        {
            "row": numpy.arange(ROWS),
            "at": pyarrow.array(day),
            "part": numpy.arange(ROWS) % 5,
            "x": pyarrow.array(x),
            "same": numpy.full(ROWS, 3.0),
            "small": pyarrow.array(rng.integers(0, 5, ROWS).astype(numpy.float32), mask=missing),
            "gaps": pyarrow.array(gaps, mask=missing),
            "positive": positive,
            "item": pyarrow.array(item, mask=rng.random(ROWS) < 0.05),
            "kind": [f"kind {number}" for number in rng.integers(0, 3, ROWS)],
            "shop": shop,
            "tags": pyarrow.array([None if row % 7 == 0 else ["red", "blue", "red"][: row % 4] for row in range(ROWS)]),
            "colors": pyarrow.array(colors),
            "y": 10 + x + numpy.array([len(name) for name in item]) + rng.normal(size=ROWS),
        }
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    if not os.path.exists(os.environ.get("FOREBAY_BIN", "")):
        pytest.skip("there is no program")
    root = tmp_path_factory.mktemp("prepared")
    (root / "data").mkdir()
    pyarrow.parquet.write_table(raw_rows(), root / "data" / "a.parquet")
    (root / "spec.yaml").write_text(STEPS.replace("split:", f"{HASHED.strip(chr(10))}\nsplit:"))
    run = forebay(root, "run", "spec.yaml")
    assert run.returncode == 0, run.stderr
    return root


def raw_feed(session: onnxruntime.InferenceSession, table: pyarrow.Table) -> dict[str, numpy.ndarray]:
    """Raw columns in the types of a file with steps: NaN for missing numbers, and empty texts for missing ones."""
    types = {"tensor(float)": numpy.float32, "tensor(double)": numpy.float64, "tensor(int64)": numpy.int64}
    feed = {}
    for taken in session.get_inputs():
        column = table[taken.name].combine_chunks()
        if len(taken.shape) > 1:
            width = max(len(texts or []) for texts in column.to_pylist())
            padded = [[*(texts or []), *[""] * width][:width] for texts in column.to_pylist()]
            feed[taken.name] = numpy.array(padded, dtype=object)
        elif taken.type == "tensor(string)":
            feed[taken.name] = numpy.array(column.fill_null("").to_pylist(), dtype=object)
        else:
            feed[taken.name] = column.to_numpy(zero_copy_only=False).astype(types[taken.type])
    return feed


@pytest.mark.parametrize("model", ["net", "trees", "lookups", "flags"])
def test_steps_before_a_model_are_part_of_it(prepared: pathlib.Path, model: str) -> None:
    exported = forebay(prepared, "export", f"out/{model}", f"{model}.onnx")
    assert exported.returncode == 0, exported.stderr
    table = raw_rows()
    # Every third text was never seen, among known and missing ones.
    strange = [f"never {row}" if row % 3 == 0 else item for row, item in enumerate(table["item"].to_pylist())]
    table = table.set_column(table.column_names.index("item"), "item", pyarrow.array(strange))
    (prepared / f"new-{model}").mkdir()
    pyarrow.parquet.write_table(table, prepared / f"new-{model}" / "a.parquet")
    source = f"data=new-{model}/a.parquet"
    arguments = ["--source", source, "--output", f"predicted-{model}", "--columns", "row"]
    predicted = forebay(prepared, "predict", f"out/{model}", *arguments, "--whole-history")
    assert predicted.returncode == 0, predicted.stderr
    expected = pyarrow.parquet.read_table(prepared / f"predicted-{model}").sort_by("row")["prediction"].to_numpy()

    session = onnxruntime.InferenceSession(prepared / f"{model}.onnx")
    lagged = [None] * 4 + table["y"].to_pylist()[:-4]
    table = table.append_column("y_lag_1d", pyarrow.array(lagged, pyarrow.float64()))
    feed = raw_feed(session, table)
    assert "unused" not in feed and "z" not in feed
    (result,) = session.run(["prediction"], feed)
    # A sum of many products depends on their order in its last bits.
    numpy.testing.assert_allclose(result, expected, rtol=1e-5 if model == "flags" else 1e-6)


CODES = """
version: 1
name: codes
sources:
  data: { parquet: { path: "data/*.parquet" } }
steps:
  features: { from: data, do: [{ ordinal: { columns: [code], unknown: { value: 99 } } }] }
sinks:
  trees: { from: features, train: { path: out/trees, model: gbdt, label: y, dense: [code], rounds: 20 } }
"""


def test_numbers_beyond_those_of_categories_were_never_seen(tmp_path: pathlib.Path) -> None:
    if not os.path.exists(os.environ.get("FOREBAY_BIN", "")):
        pytest.skip("there is no program")
    codes = [None if row % 5 == 0 else row % 5 for row in range(500)]
    labels = [100.0 if code is None else float(code) for code in codes]
    table = pyarrow.table({"code": pyarrow.array(codes, pyarrow.int64()), "y": labels})
    (tmp_path / "data").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "data" / "a.parquet")
    (tmp_path / "spec.yaml").write_text(CODES)
    for arguments in [("run", "spec.yaml"), ("export", "out/trees", "trees.onnx")]:
        ended = forebay(tmp_path, *arguments)
        assert ended.returncode == 0, ended.stderr
    session = onnxruntime.InferenceSession(tmp_path / "trees.onnx")
    # A double of 2^63 is no int64.
    seen = numpy.array([numpy.nan, 4.0, 5.0, 2.0**63, -(2.0**63), numpy.inf])
    (predicted,) = session.run(["prediction"], {"code": seen})
    # Unknown codes go with the greatest one, missing ones with those of the training.
    numpy.testing.assert_allclose(predicted[2:], predicted[1])
    assert predicted[0] > 50 > predicted[1]


TEXTS = """
version: 1
name: texts
sources:
  data: { parquet: { path: "data/*.parquet" } }
steps:
  features: { from: data, do: [{ ordinal: { columns: [full, gaps], unknown: missing } }] }
sinks:
  trees: { from: features, train: { path: out/trees, model: gbdt, label: y, dense: [full, gaps], rounds: 2 } }
"""


def test_empty_texts_that_are_categories_are_not_described_as_missing(tmp_path: pathlib.Path) -> None:
    if not os.path.exists(os.environ.get("FOREBAY_BIN", "")):
        pytest.skip("there is no program")
    full = [["", "a", "b"][row % 3] for row in range(300)]
    gaps = [[None, "a", "b"][row % 3] for row in range(300)]
    table = pyarrow.table({"full": full, "gaps": gaps, "y": [float(row % 3) for row in range(300)]})
    (tmp_path / "data").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "data" / "a.parquet")
    (tmp_path / "spec.yaml").write_text(TEXTS)
    for arguments in [("run", "spec.yaml"), ("export", "out/trees", "trees.onnx")]:
        ended = forebay(tmp_path, *arguments)
        assert ended.returncode == 0, ended.stderr
    session = onnxruntime.InferenceSession(tmp_path / "trees.onnx")
    described = json.loads(session.get_modelmeta().custom_metadata_map["forebay.inputs"])
    assert {column["name"]: column["missing"] for column in described} == {"full": None, "gaps": ""}


TARGETS = """
version: 1
name: targets
sources:
  data: { parquet: { path: "data/*.parquet" }, time: at, keys: [shop] }
steps:
  roots: { from: data, do: [{ target: { column: y, do: [{ power: 0.5 }, log1p] } }] }
  scaled: { from: data, do: [{ target: { column: y, do: [{ scale: standard }] } }, { rename: { x: z } }] }
  fitted:
    from: data
    do: [{ target: { column: y, keys: [shop, part], do: [{ box_cox: likelihood }, { scale: robust }] } }]
  whole: { from: data, do: [{ target: { column: y, keys: [], do: [{ box_cox: 0.5 }, { scale: min_max }] } }] }
  changes: { from: data, do: [{ target: { column: y, do: [{ difference: 1d }] } }] }
sinks:
  trees:
    from: roots
    train: { path: out/trees, model: gbdt, label: y, dense: [x, gaps], rounds: 8, quantiles: [0.1, 0.9] }
  linear: { from: roots, train: { path: out/linear, model: linear, label: y, dense: [x], epochs: 1, missing: 0 } }
  scaled: { from: scaled, train: { path: out/scaled, model: gbdt, label: y, dense: [z], rounds: 8 } }
  fitted: { from: fitted, train: { path: out/fitted, model: gbdt, label: y, dense: [x], rounds: 8 } }
  whole: { from: whole, train: { path: out/whole, model: gbdt, label: y, dense: [x], rounds: 8 } }
  changes: { from: changes, train: { path: out/changes, model: gbdt, label: y, dense: [x], rounds: 2 } }
"""


def test_transformed_targets_are_undone(tmp_path: pathlib.Path) -> None:
    if not os.path.exists(os.environ.get("FOREBAY_BIN", "")):
        pytest.skip("there is no program")
    (tmp_path / "data").mkdir()
    table = raw_rows()
    pyarrow.parquet.write_table(table, tmp_path / "data" / "a.parquet")
    (tmp_path / "spec.yaml").write_text(TARGETS)
    run = forebay(tmp_path, "run", "spec.yaml")
    assert run.returncode == 0, run.stderr
    for model in ["trees", "linear"]:
        exported = forebay(tmp_path, "export", f"out/{model}", f"{model}.onnx")
        assert exported.returncode == 0, exported.stderr
        expected = predictions(tmp_path, model)
        session = onnxruntime.InferenceSession(tmp_path / f"{model}.onnx")
        feed = {
            taken.name: table[taken.name].combine_chunks().to_numpy(zero_copy_only=False).astype(numpy.float32)
            for taken in session.get_inputs()
        }
        names = [output.name for output in session.get_outputs()]
        assert names == [name for name in expected.column_names if name.startswith("prediction")]
        assert {output.type for output in session.get_outputs()} == {"tensor(double)"}
        for name, result in zip(names, session.run(names, feed), strict=True):
            numpy.testing.assert_allclose(result, expected[name].to_numpy(), rtol=1e-6, err_msg=name)
    # Scales and exponents of series are looked up by their keys, among them some that were never seen.
    strange = [f"never {row}" if row % 3 == 0 else shop for row, shop in enumerate(table["shop"].to_pylist())]
    table = table.set_column(table.column_names.index("shop"), "shop", pyarrow.array(strange))
    (tmp_path / "strange").mkdir()
    pyarrow.parquet.write_table(table, tmp_path / "strange" / "a.parquet")
    for model, inputs in {"scaled": {"x", "shop"}, "fitted": {"x", "shop", "part"}, "whole": {"x"}}.items():
        exported = forebay(tmp_path, "export", f"out/{model}", f"{model}.onnx")
        assert exported.returncode == 0, exported.stderr
        output = f"strange-{model}"
        arguments = ["--source", "data=strange/a.parquet", "--output", output, "--columns", "row"]
        predicted = forebay(tmp_path, "predict", f"out/{model}", *arguments)
        assert predicted.returncode == 0, predicted.stderr
        expected = pyarrow.parquet.read_table(tmp_path / output).sort_by("row")["prediction"].to_numpy()
        session = onnxruntime.InferenceSession(tmp_path / f"{model}.onnx")
        assert {taken.name for taken in session.get_inputs()} == inputs
        (result,) = session.run(["prediction"], raw_feed(session, table))
        numpy.testing.assert_allclose(result, expected, rtol=1e-6, err_msg=model)
    # A model alone predicts the transformed label, and says so. Earlier values are no part of a file.
    assert forebay(tmp_path, "export", "out/trees", "alone.onnx", "--without-steps").returncode == 0
    metadata = onnxruntime.InferenceSession(tmp_path / "alone.onnx").get_modelmeta().custom_metadata_map
    assert metadata["forebay.unit"] == "that of `y` as `target` transforms it"
    refused = forebay(tmp_path, "export", "out/changes", "changes.onnx")
    assert refused.returncode == 78 and "earlier values of the row's series" in refused.stderr, refused.stderr


def test_steps_without_a_form_are_named(prepared: pathlib.Path) -> None:
    refused = forebay(prepared, "export", "out/hashed", "hashed.onnx")
    assert refused.returncode == 78
    assert "hashed.hash_bucket" in refused.stderr and "--without-steps" in refused.stderr
    assert "hash: murmur3" in refused.stderr
    alone = forebay(prepared, "export", "out/hashed", "hashed.onnx", "--without-steps")
    assert alone.returncode == 0, alone.stderr
    session = onnxruntime.InferenceSession(prepared / "hashed.onnx")
    assert {taken.name for taken in session.get_inputs()} == {"x", "item"}


ENCODINGS = """
version: 1
name: encodings
sources:
  data: { parquet: { path: "data/*.parquet" } }
steps:
  means: { from: data, do: [{ target_encoding: { columns: [item], label: y, fold_by: [row], suffix: _mean } }] }
  dates: { from: data, do: [{ frequency_encoding: { columns: [at], suffix: _share } }] }
  numbers: { from: data, do: [{ one_hot: { columns: [x], top_k: 3, suffix: _flags } }] }
  forms: { from: data, do: [{ min_max: { columns: [x], by: [shop], suffix: _range } }] }
  large: { from: data, do: [{ frequency_encoding: { columns: [large], suffix: _share } }] }
sinks:
  means: { from: means, train: { path: out/means, model: gbdt, label: y, rounds: 2, dense: [item_mean] } }
  dates: { from: dates, train: { path: out/dates, model: gbdt, label: y, rounds: 2, dense: [at_share] } }
  numbers: { from: numbers, train: { path: out/numbers, model: gbdt, label: y, rounds: 2, dense: [x_flags] } }
  forms: { from: forms, train: { path: out/forms, model: gbdt, label: y, rounds: 2, dense: [x_range] } }
  large: { from: large, train: { path: out/large, model: gbdt, label: y, rounds: 2, dense: [large_share] } }
"""


def test_encodings_that_other_runtimes_do_not_compute_say_what_to_use(tmp_path: pathlib.Path) -> None:
    if not os.path.exists(os.environ.get("FOREBAY_BIN", "")):
        pytest.skip("there is no program")
    (tmp_path / "data").mkdir()
    # The next whole number has the same double.
    table = raw_rows().append_column("large", pyarrow.array([2**53 + 2 * (row % 3) for row in range(ROWS)]))
    pyarrow.parquet.write_table(table, tmp_path / "data" / "a.parquet")
    (tmp_path / "spec.yaml").write_text(ENCODINGS)
    run = forebay(tmp_path, "run", "spec.yaml")
    assert run.returncode == 0, run.stderr
    expected = {
        # Folds are a hash of ours.
        "means": ["means.target_encoding", "`frequency_encoding`"],
        "dates": ["`at`", "no input of ONNX"],
        "numbers": ["`x`", "do not look up"],
        "forms": ["forms.min_max", "different forms"],
        "large": ["`large`", "double precision"],
    }
    for model, texts in expected.items():
        refused = forebay(tmp_path, "export", f"out/{model}", f"{model}.onnx")
        assert refused.returncode == 78, refused.stderr
        assert "--without-steps" in refused.stderr
        for text in texts:
            assert text in refused.stderr, refused.stderr
        assert not (tmp_path / f"{model}.onnx").exists()


def test_what_has_no_form_is_refused(root: pathlib.Path) -> None:
    network = forebay(root, "export", "out/net", "net.txt")
    assert network.returncode == 78 and "model.onnx" in network.stderr
    nothing = forebay(root, "export", "data", "data.onnx")
    assert nothing.returncode != 0 and "there is no model here" in nothing.stderr
    (root / "there.onnx").write_text("mine")
    occupied = forebay(root, "export", "out/net", "there.onnx")
    assert occupied.returncode != 0
    assert (root / "there.onnx").read_text() == "mine"
