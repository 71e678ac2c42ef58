//! A pipeline from the builder and the same one from YAML have equal ids.

use std::collections::{BTreeMap, BTreeSet};

use forebay::model::Step;
use forebay::prelude::*;

use crate::support::TestDirectory;

const SPEC: &str = r#"
version: 1
name: demand
sources:
  demand:
    parquet: { path: DATA }
    time: date
    keys: [store_id, item_id]
steps:
  features:
    from: demand
    fit_on: train
    do:
      - filter: "qty IS NOT NULL"
      - standardize: { columns: [price], by: [category] }
      - vocabulary: { columns: [item_id], min_count: 5, oov_buckets: 1 }
split:
  train: "date < DATE '2016-05-10'"
sinks:
  table: { from: features, parquet: { path: OUT } }
"#;

#[test]
fn yaml_and_builder_are_one() {
    let shop = TestDirectory::new();
    let data = shop.demand("data", 1000);
    let out = shop.at("out");
    let text = SPEC.replace("DATA", &data).replace("OUT", &out);
    shop.write("spec.yaml", &text);
    let options = SessionOptions::default()
        .threads(2)
        .memory_bytes(1 << 30)
        .state(shop.at("state"));
    let forebay = Forebay::new().with_options(options);
    let from_yaml = forebay
        .read_spec(shop.path("spec.yaml"), [("", ""); 0])
        .unwrap();
    let pipeline = PipelineBuilder::new("demand");
    let demand = pipeline
        .source("demand", ParquetSource::at(&data))
        .time("date")
        .keys(["store_id", "item_id"]);
    let features = pipeline
        .step("features", &demand)
        .fit_on("train")
        .apply(filter("qty IS NOT NULL"))
        .apply(standardize(["price"]).by(["category"]))
        .apply(vocabulary(["item_id"]).min_count(5).oov_buckets(1));
    pipeline.split([("train", "date < DATE '2016-05-10'")]);
    pipeline.sink("table", &features, ParquetSink::at(&out));
    let built = pipeline.build().unwrap();
    let ids = |report: &RunReport| {
        report
            .passes
            .iter()
            .map(|pass| pass.id.clone())
            .collect::<Vec<_>>()
    };
    let first = forebay.run(&from_yaml).unwrap();
    assert!(!first.nothing_new);
    let text = first.to_string();
    assert!(
        text.starts_with("table: ") && text.contains(" rows, "),
        "{text}"
    );
    assert!(text.contains("\nartifact: "), "{text}");
    // The second continues what the first one did: there is nothing left to do.
    let second = forebay.run(&built).unwrap();
    assert_eq!(ids(&first), ids(&second));
    assert!(second.nothing_new);
    assert_eq!(first.artifact, second.artifact);
}

#[rustfmt::skip]
fn readme_pipeline() -> Result<Pipeline> {
    // The example of the README begins here,
    let pipeline = PipelineBuilder::new("demand");
    let demand = pipeline.source("demand", ParquetSource::at("data/demand")).time("date").keys(["store_id", "item_id"]);
    let features = pipeline
        .step("features", &demand)
        .fit_on("train")
        .apply(filter("qty IS NOT NULL").when(FilterScope::Learning))
        .apply(lag(["qty"]).by(["7d", "28d"]))
        .apply(rolling(["qty"]).compute([SeriesStatistic::Mean, SeriesStatistic::Std]).over(["7d", "28d"]).gap("1d"))
        .apply(standardize(["price"]))
        .apply(vocabulary(["item_id", "store_id"]).min_count(5).oov_buckets(1));
    pipeline.split([("train", "date <  DATE '2016-04-25'"), ("validation", "date >= DATE '2016-04-25'")]);
    pipeline.sink("table", &features, ParquetSink::at("out/features"));
    pipeline.train("net", &features, TrainConfig::new(ModelKind::Mlp).label("qty").missing(0.0).epochs(2).path("out/net"));
    // and ends here.
    pipeline.build()
}

/// The block of a language in a page.
fn block<'a>(page: &'a str, language: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

/// A pipeline without its places in a spec, and with sinks in order of their names.
fn plain(pipeline: &Pipeline) -> serde_json::Value {
    fn forget(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Array(items) => items.iter_mut().for_each(forget),
            serde_json::Value::Object(fields) => {
                fields.remove("at");
                fields.values_mut().for_each(forget);
            }
            _ => {}
        }
    }
    let mut value = serde_json::to_value(pipeline).unwrap();
    forget(&mut value);
    value
}

#[test]
fn the_examples_of_the_readme_are_one_pipeline() {
    let page = std::fs::read_to_string(crate::support::repository().join("README.md")).unwrap();
    assert!(
        page.split_whitespace().count() < 900,
        "{} words",
        page.split_whitespace().count()
    );
    let own = include_str!("builder.rs");
    let own = own
        .split_once("begins here,\n")
        .unwrap()
        .1
        .split_once("    // and ends here.")
        .unwrap()
        .0;
    let own: Vec<&str> = own
        .lines()
        .map(|line| line.strip_prefix("    ").unwrap_or(line))
        .collect();
    assert!(
        block(&page, "rust").contains(&own.join("\n")),
        "the README differs from this file"
    );
    let forebay = Forebay::new();
    let text = block(&page, "yaml");
    let from_yaml =
        forebay::spec::parse(text, "README.md", &BTreeMap::new(), &forebay.spec_catalog()).unwrap();
    assert_eq!(plain(&readme_pipeline().unwrap()), plain(&from_yaml));
}

/// A step of a spec, from YAML.
fn from_yaml(forebay: &Forebay, step: &str) -> Step {
    let text = format!(
        "version: 1\nname: t\nsources:\n  a: {{ parquet: {{ path: a }} }}\n  stores: {{ parquet: {{ path: b }} }}\n\
         steps:\n  b:\n    from: a\n    do:\n      - {step}\nsinks:\n  c: {{ from: b, parquet: {{ path: o }} }}\n"
    );
    let pipeline = forebay::spec::parse(&text, "t.yaml", &BTreeMap::new(), &forebay.spec_catalog());
    let mut pipeline = pipeline.unwrap_or_else(|fault| panic!("{step}: {fault}"));
    Step {
        at: None,
        ..pipeline.nodes.remove(0).steps.remove(0)
    }
}

fn made<T: ConfiguredTransform>(transform: T) -> Step {
    transform.step().unwrap()
}

#[test]
fn every_transform_is_the_same_from_both() {
    use SeriesStatistic::{Mean, Quantile, Std};
    let priced = || RowExpectation::not_null(["price"]).policy(FailurePolicy::Quarantine);
    let rules = [
        priced(),
        RowExpectation::unique(["store_id", "date"]).policy(FailurePolicy::Warn),
        RowExpectation::range("qty", 0..=1000).at_most(0.001),
        RowExpectation::range("price", 0.5..),
        RowExpectation::in_set("state", ["CA", "TX"]),
        RowExpectation::sql("qty < 10 * price"),
        RowExpectation::rows(Some(1), None),
        RowExpectation::fresh("date", "2d"),
    ];
    let totals = [
        ("total", agg::sum("qty")),
        ("days", agg::count("*")),
        ("middle", agg::median("qty")),
        ("most", agg::quantile("qty", 0.9)),
        ("at", agg::weighted_mean("price", "qty")),
        ("usual", agg::weighted_quantile("price", "qty", 0.5)),
        ("first", agg::first_by("qty", "date")),
        ("last", agg::last_by("qty", "date")),
        ("often", agg::top_k("qty", 3)),
        ("each", agg::list("qty", 100)),
        ("some", agg::list_truncated("qty", 10)),
    ];
    #[rustfmt::skip]
    let cases: Vec<(&str, Step)> = vec![
        ("aggregate: { by: [store_id], every: 1w, time: date, compute: { total: { sum: qty }, days: { count: '*' }, middle: { median: qty }, most: { quantile: { column: qty, q: 0.9 } }, at: { weighted_mean: { column: price, weight: qty } }, usual: { weighted_quantile: { column: price, weight: qty, q: 0.5 } }, first: { first_by: { column: qty, time: date } }, last: { last_by: { column: qty, time: date } }, often: { top_k: { column: qty, k: 3 } }, each: { list: { column: qty, limit: 100 } }, some: { list: { column: qty, limit: 10, beyond: truncate } } } }",
            made(aggregate().by(["store_id"]).every("1w").time("date").compute(totals))),
        ("apply_buckets: { columns: [age], boundaries: [18, 30, 65] }", made(apply_buckets(["age"], [18.0, 30.0, 65.0]))),
        ("as_of_join: { with: stores, on: [item_id], tolerance: 7d, direction: nearest }",
            made(as_of_join("stores").on(["item_id"]).tolerance("7d").direction(AsOfDirection::Nearest))),
        ("bag_of_tokens: { columns: [words], buckets: 256, signed: true }", made(bag_of_tokens(["words"], 256).signed(true))),
        ("bucketize: { columns: [price], q: 10, exact: true }", made(bucketize(["price"], 10).exact(true))),
        ("bucketize: { columns: [price], q: 4, by: [category] }", made(bucketize(["price"], 4).by(["category"]))),
        ("bucketize: { columns: [price], q: 4, weight: qty }", made(bucketize(["price"], 4).weight("qty"))),
        ("calendar: { columns: [date], country: DE-BY, parts: [is_holiday, week_of_year], payday: [15, 31] }",
            made(calendar(["date"]).country("DE-BY").parts([CalendarFact::IsHoliday, CalendarFact::WeekOfYear]).payday([15, 31]))),
        ("cast: { columns: { qty: float32 }, on_error: missing }", made(cast([("qty", TypeName::Float32)]).on_error(OnCastError::Missing))),
        ("clip: { columns: [price], min: 0, max: 100 }", made(clip(["price"]).min(0.0).max(100.0))),
        ("command: { run: [cat], columns: [price], returns: { price: float64 }, nullable: [price], batch_rows: 4096 }",
            made(command(["cat"], ["price"], [("price", TypeName::Float64)]).nullable(["price"]).batch_rows(4096))),
        ("cross: { columns: [a, b], buckets: 100, name: ab }", made(cross(["a", "b"], 100).name("ab"))),
        ("date_parts: { columns: [date], parts: [month, day_of_week], cyclic: true }",
            made(date_parts(["date"]).parts([CalendarPart::Month, CalendarPart::DayOfWeek]).cyclic(true))),
        ("dedupe: { keys: [id], keep: last }", made(dedupe().keys(["id"]).keep(DedupeKeep::Last))),
        ("derive: { revenue: qty * price }", made(derive([("revenue", "qty * price")]))),
        ("diff: { columns: [qty], by: [1d], gaps: { error: { every: 1d } } }", made(diff(["qty"]).by(["1d"]).gaps(GapPolicy::error("1d")))),
        ("distance: { from: [a, b], to: [c, d], unit: miles, bearing: way }",
            made(distance(["a", "b"], ["c", "d"]).unit(DistanceUnit::Miles).bearing("way"))),
        ("drop: [a, 'tmp_*']", made(drop_columns(["a", "tmp_*"]))),
        ("estimator: { function: 'models:classifier', columns: [qty], returns: { likely: float64 }, label: sold, classes: [low, high], method: predict, fit_rows: 500 }",
            made(estimator("models:classifier", ["qty"], [("likely", TypeName::Float64)]).label("sold").classes(["low", "high"])
                .method("predict").fit_rows(500))),
        ("ewm: { columns: [qty], compute: [mean], half_life: 7d, gap: 1d }",
            made(ewm(["qty"]).compute([EwmStatistic::Mean]).half_life("7d").gap("1d"))),
        ("expanding: { columns: [qty], compute: [mean], gap: 1d }", made(expanding(["qty"]).compute([Mean]).gap("1d"))),
        ("expect: [{ not_null: [price], policy: quarantine }, { unique: [store_id, date], policy: warn }, { range: { qty: [0, 1000] }, at_most: 0.1% }, { range: { price: [0.5, null] } }, { in_set: { state: [CA, TX] } }, { sql: qty < 10 * price }, { rows: { min: 1 } }, { fresh: { date: 2d } }]",
            made(expect(rules))),
        ("explode: { column: items, keep_empty: true }", made(explode("items").keep_empty(true))),
        ("fill_forward: { columns: [price], limit: 3, gaps: { complete: { every: 1d, fill: zero } } }",
            made(fill_forward(["price"]).limit(3).gaps(GapPolicy::complete_with("1d", GapFill::Zero)))),
        ("filter: qty IS NOT NULL", made(filter("qty IS NOT NULL"))),
        ("filter: { sql: qty IS NOT NULL, when: learning }", made(filter("qty IS NOT NULL").when(FilterScope::Learning))),
        ("forecast_feature: { columns: [qty], horizon: 7d, every: 1d, season: 7d, refit: 14d, model: ets }",
            made(forecast_feature(["qty"], "7d", "1d").season("7d").refit("14d").model(ForecastFeatureModel::Ets))),
        ("frequency_encoding: { columns: [city], compute: count }", made(frequency_encoding(["city"]).compute(CategoryFrequency::Count))),
        ("future_rows: { horizon: 28d, every: 1d, carry: [category] }", made(future_rows("28d", "1d").carry(["category"]))),
        ("g_and_h: { columns: [price], epsilon: 0.002, suffix: _normal }", made(g_and_h(["price"]).epsilon(0.002).suffix("_normal"))),
        ("geohash: { place: [lat, lon], length: 7, name: cell }", made(geohash(["lat", "lon"]).length(7).name("cell"))),
        ("group_rare: { columns: [city], min_share: 0.01, other: none }", made(group_rare(["city"]).min_share(0.01).other("none"))),
        ("hash_bucket: { columns: [user_id], buckets: 1000, seed: 3 }", made(hash_bucket(["user_id"], 1000).seed(3))),
        ("hash_bucket: { columns: [user_id], buckets: 1000, hash: murmur3 }",
            made(hash_bucket(["user_id"], 1000).hash(BucketHash::Murmur3))),
        ("hash_bucket: { columns: [user_id], buckets: 1000, hash: farm }", made(hash_bucket(["user_id"], 1000).hash(BucketHash::Farm))),
        ("impute: { columns: [price], with: { constant: 0.5 }, indicator: true }",
            made(impute(["price"], ImputeStrategy::constant(0.5)).indicator(true))),
        ("impute: { columns: [price], with: { end_tail: { around: mean, side: lower, fold: 3 } } }",
            made(impute(["price"], ImputeStrategy::EndTail(EndTail { side: TailSide::Lower, ..EndTail::default() })))),
        ("impute: { columns: [price], with: mean, by: [category] }", made(impute(["price"], ImputeStrategy::Mean).by(["category"]))),
        ("interpolate: { columns: [price], suffix: _filled }", made(interpolate(["price"]).suffix("_filled"))),
        ("join: { with: stores, on: [store_id], columns: [city], how: inner }",
            made(join("stores").on(["store_id"]).columns(["city"]).how(JoinKind::Inner))),
        ("k_bins: { columns: [price], bins: 8, strategy: quantile }", made(k_bins(["price"], 8).strategy(BinStrategy::Quantile))),
        ("k_bins: { columns: [price], bins: 8, strategy: quantile, weight: qty }",
            made(k_bins(["price"], 8).strategy(BinStrategy::Quantile).weight("qty"))),
        ("k_bins: { columns: [price], bins: 8, strategy: tree, label: qty, min_rows: 20 }",
            made(k_bins(["price"], 8).strategy(BinStrategy::Tree).label("qty").min_rows(20))),
        ("keep_best: { columns: [red, green], score: anova, label: sort, count: 1, above: 0.5 }",
            made(keep_best(["red", "green"]).score(ColumnScore::Anova).label("sort").count(1).above(0.5))),
        ("keep_best: { columns: [price], score: present, above: 0.5 }",
            made(keep_best(["price"]).score(ColumnScore::Present).above(0.5))),
        ("keep_best: { columns: [price, cost], correlation_max: 0.9 }",
            made(keep_best(["price", "cost"]).correlation_max(0.9))),
        ("knn_impute: { columns: [price, list_price], neighbors: 3, weights: distance, sample_rows: 500, suffix: _full }",
            made(knn_impute(["price", "list_price"]).neighbors(3).weights(NeighborWeights::Distance).sample_rows(500).suffix("_full"))),
        ("lag: { columns: [qty], by: [7d, 28d], as_of: 3d }", made(lag(["qty"]).by(["7d", "28d"]).as_of("3d"))),
        ("list_statistics: { columns: [prices], compute: [mean, last] }",
            made(list_statistics(["prices"], [ListStatistic::Mean, ListStatistic::Last]))),
        ("log1p: { columns: [clicks] }", made(log1p("clicks"))),
        ("max_abs: { columns: [price], by: [item] }", made(max_abs(["price"]).by(["item"]))),
        ("min_max: { columns: [price], lo: -1, hi: 1 }", made(min_max(["price"]).lo(-1.0).hi(1.0))),
        ("missing_indicator: { columns: [price], suffix: _null }", made(missing_indicator(["price"]).suffix("_null"))),
        ("multi_hot: { columns: [tags], delimiter: '|', top_k: 100 }", made(multi_hot(["tags"]).delimiter("|").top_k(100))),
        ("multi_hot: { columns: [tags], as: columns, columns_max: 9 }",
            made(multi_hot(["tags"]).shape(OneHotLayout::Columns).columns_max(9))),
        ("ngrams: { columns: [title], by: characters, min: 2, max: 3 }", made(ngrams(["title"]).by(NgramUnit::Characters).min(2).max(3))),
        ("normal_quantiles: { columns: [price], q: 100 }", made(normal_quantiles(["price"]).q(100))),
        ("normalize: { columns: [a, b], norm: l1 }", made(normalize(["a", "b"]).norm(VectorNorm::L1))),
        ("normalize_text: { columns: [title], accents: strip, collapse_spaces: false }",
            made(normalize_text(["title"]).accents(AccentPolicy::Strip).collapse_spaces(false))),
        ("one_hot: { columns: [state], categories: [CA, TX], as: columns }",
            made(one_hot(["state"]).categories(["CA", "TX"]).shape(OneHotLayout::Columns))),
        ("ordinal: { columns: [size], categories: [S, M], unknown: { value: -1 } }",
            made(ordinal(["size"]).categories(["S", "M"]).unknown(UnknownPolicy::Value(-1)))),
        ("pca: { columns: [red, green, blue], components: 2, name: tone, whiten: true }",
            made(pca(["red", "green", "blue"], 2).name("tone").whiten(true))),
        ("pct_change: { columns: [price], by: [7], gaps: count_rows }", made(pct_change(["price"]).by([7]).gaps(GapPolicy::CountRows))),
        ("polynomial: { columns: [price, qty], degree: 3, interactions_only: true }",
            made(polynomial(["price", "qty"]).degree(3).interactions_only(true))),
        ("pooled: { columns: [qty], compute: [mean], by: [category], over: [28d], gap: 1d }",
            made(pooled(["qty"]).compute([Mean]).by(["category"]).over(["28d"]).gap("1d"))),
        ("power: { columns: [price], method: box_cox, standardize: false }",
            made(power(["price"]).method(PowerMethod::BoxCox).standardize(false))),
        ("profile: { columns: [price] }", made(profile().columns(["price"]))),
        ("python: { function: 'cleaning:revenue', columns: [qty, price], returns: { revenue: float64 }, frames: pandas }",
            made(python("cleaning:revenue", ["qty", "price"], [("revenue", TypeName::Float64)]).frames(FrameKind::Pandas))),
        ("python: { function: 'cleaning:level', columns: [qty], returns: { level: float64 }, by: series, looks_ahead: none }",
            made(python("cleaning:level", ["qty"], [("level", TypeName::Float64)]).by(SeriesWord::Series)
                .looks_ahead(LookAhead::None))),
        ("python: { function: 'cleaning:level', columns: [qty], returns: { level: float64 }, by: [store] }",
            made(python("cleaning:level", ["qty"], [("level", TypeName::Float64)]).by(["store"]))),
        ("quantiles: { columns: [price], q: 1000 }", made(quantiles(["price"]).q(1000))),
        ("quantiles: { columns: [price], weight: qty }", made(quantiles(["price"]).weight("qty"))),
        ("rename: { qty: quantity }", made(rename([("qty", "quantity")]))),
        ("robust_scale: { columns: ['type:float'], lower: 0.1 }", made(robust_scale("type:float").lower(0.1))),
        ("robust_scale: { columns: [price], spread: mad }", made(robust_scale(["price"]).spread(RobustSpread::Mad))),
        ("rolling: { columns: [qty], compute: [mean, std, { quantile: 0.9 }], over: [7d, 28d], gap: 1d, min_periods: 5, closed: left }",
            made(rolling(["qty"]).compute([Mean, Std, Quantile(0.9)]).over(["7d", "28d"]).gap("1d").min_periods(5).closed(ClosedWindow::Left))),
        ("sample: { share: 0.1, by: [user], of: clicked = 0, weight: weight, when: always }",
            made(sample(0.1).by(["user"]).of("clicked = 0").weight("weight").when(FilterScope::Always))),
        ("seasonal_index: { columns: [qty], period: day_of_week, gap: 1d, shrink: { strength: 4, parent: [] } }",
            made(seasonal_index(["qty"], SeasonalPeriod::DayOfWeek).gap("1d").shrink(shrinkage(4.0).parent([""; 0])))),
        ("seasonal_rolling: { columns: [qty], compute: [mean], season: 7d, over: [4], gap: 1d }",
            made(seasonal_rolling(["qty"], "7d").compute([Mean]).over([4]).gap("1d"))),
        ("select: [date, 'qty_*']", made(select(["date", "qty_*"]))),
        ("spline: { columns: [price], knots: 8, degree: 2, strategy: quantile }",
            made(spline(["price"]).knots(8).degree(2).strategy(KnotStrategy::Quantile))),
        ("standardize: { columns: [price], spread: range }", made(standardize(["price"]).spread(MeanSpread::Range))),
        ("standardize: { columns: [price], by: [category], zero_variance: zero, ddof: 1 }",
            made(standardize(["price"]).by(["category"]).zero_variance(ZeroVariance::Zero).ddof(1))),
        ("target_encoding: { columns: [city], label: clicked, compute: woe, fold_by: [user] }",
            made(target_encoding(["city"], "clicked").compute(TargetStatistic::Woe).fold_by(["user"]))),
        ("tf_idf: { columns: [words], min_count: 5, counts: share, norm: none }",
            made(tf_idf(["words"]).min_count(5).counts(TokenCounts::Share).norm(TokenNorm::None))),
        ("violations: [{ not_null: [price], policy: quarantine }]", made(violations([priced()]))),
        ("target: { column: qty, do: [log1p, { power: 0.5 }] }", made(target("qty", [TargetOperation::Log1p, TargetOperation::Power(0.5)]))),
        ("target_encoding: { columns: [city], label: qty, fold_by: [user], folds: 4 }",
            made(target_encoding(["city"], "qty").fold_by(["user"]).folds(4))),
        ("target_encoding: { columns: [city], label: qty, cross_fit: time, gap: 1d, smoothing: 20 }",
            made(target_encoding(["city"], "qty").cross_fit(CrossFit::Time).gap("1d").smoothing(TargetSmoothing::Number(20.0)))),
        ("vocabulary: { columns: [item_id], min_count: 5, oov_buckets: 1, reserved: [none], dtype: int32 }",
            made(vocabulary(["item_id"]).min_count(5).oov_buckets(1).reserved(["none"]).dtype(IdType::Int32))),
        ("vocabulary: { columns: [start, end], joint: true }", made(vocabulary(["start", "end"]).joint(true))),
        ("winsorize: { columns: [price], around: mean, fold: 3 }", made(winsorize(["price"]).around(BoundCenter::Mean).fold(3.0))),
        ("winsorize: { columns: [price], lower: 0.25, upper: 0.75, fold: 1.5 }",
            made(winsorize(["price"]).lower(0.25).upper(0.75).fold(1.5))),
        ("winsorize: { columns: [price], lower: 0.05, upper: 0.95 }", made(winsorize(["price"]).lower(0.05).upper(0.95))),
    ];
    let forebay = Forebay::new();
    let named: BTreeSet<&str> = cases.iter().map(|(_, step)| step.kind.as_str()).collect();
    assert_eq!(
        named,
        forebay.registry.kinds().map(|kind| kind.name).collect()
    );
    for (text, built) in &cases {
        assert_eq!(from_yaml(&forebay, text), *built, "{text}");
    }
}

/// Builds a pipeline around a sound one, and gives the messages and hints of its faults.
fn faults(change: impl FnOnce(&PipelineBuilder)) -> Vec<(String, String)> {
    let pipeline = PipelineBuilder::new("demand");
    let demand = pipeline.source("demand", ParquetSource::at("data"));
    let features = pipeline
        .step("features", &demand)
        .fit_on("train")
        .apply(standardize(["price"]));
    pipeline.split([("train", "qty > 0")]);
    pipeline.sink("table", &features, ParquetSink::at("out"));
    change(&pipeline);
    let faults = pipeline
        .build()
        .err()
        .map(Fault::into_each)
        .unwrap_or_default();
    let texts = faults.iter().map(|fault| {
        (
            fault.message().to_owned(),
            fault.hint_text().unwrap_or("").to_owned(),
        )
    });
    texts.collect()
}

#[test]
fn building_parses_the_sql_of_steps() {
    let told = faults(|p| {
        let wrong = p
            .step("more", "features")
            .apply(filter("qty >"))
            .apply(derive([("a", "price +"), ("b", "qty * 2")]));
        wrong.apply(filter("qty > 0 AND random() < 0.5"));
    });
    let messages: Vec<&str> = told.iter().map(|(message, _)| message.as_str()).collect();
    assert_eq!(messages.len(), 3, "{messages:?}");
    for (message, says) in messages.iter().zip(["qty >", "price +", "random"]) {
        assert!(message.contains(says), "{message} says nothing of {says}");
    }
    // The same words as for a spec.
    let spec = "version: 1\nname: demand\nsources: { demand: { parquet: { path: data } } }\nsteps:\n  more:\n    \
                from: demand\n    do: [{ filter: \"qty >\" }]\n";
    let forebay = Forebay::new();
    let fault = forebay::spec::parse(spec, "spec.yaml", &BTreeMap::new(), &forebay.spec_catalog())
        .unwrap_err();
    assert_eq!(fault.message(), messages[0]);
}

#[test]
fn building_reports_every_problem() {
    type Change = Box<dyn FnOnce(&PipelineBuilder)>;
    let sink = || ParquetSink::at("elsewhere");
    #[rustfmt::skip]
    let cases: Vec<(Change, &[(&str, &str)])> = vec![
        (Box::new(|_| {}), &[]),
        (Box::new(|p| { p.step("more", "featurs"); }),
            &[("`more` reads `featurs`, and there is no such step or source", "did you mean `features`?")]),
        (Box::new(|p| { p.step("more", "features").apply(join("stores").on(["store_id"])); }),
            &[("`more` reads `stores`, and there is no such step or source", "the steps and sources are: demand, features")]),
        (Box::new(|p| { p.sql("more", "SELECT * FROM demands"); }),
            &[("`more` reads `demands`, and there is no such step or source", "did you mean `demand`?")]),
        (Box::new(|p| { p.step("a", "b"); p.step("b", "a"); }),
            &[("steps depend on each other: a -> b -> a", "let one of them read a source")]),
        (Box::new(|p| { p.step("a", "a"); }), &[("`a` reads itself", "let one of them read a source")]),
        (Box::new(|p| { p.step("demand", "features"); }),
            &[("two steps or sources are called `demand`", ""), ("steps depend on each other: features -> demand -> features", "let one of them read a source")]),
        (Box::new(move |p| { p.sink("table", "features", sink()); }), &[("two sinks are called `table`", "")]),
        (Box::new(|p| { p.step("My Step", "demand"); }),
            &[("`My Step` is not a name: use lower-case letters, digits and `_`, a letter first", "write `my_step`")]),
        (Box::new(|p| { p.step("more", "demand").fit_on("trian"); }),
            &[("`more` takes the part `trian`, and the split has none of this name", "did you mean `train`?")]),
        (Box::new(move |p| { p.sink("more", "features", sink()).split("test"); }),
            &[("`more` takes the part `test`, and the split has none of this name", "its parts are: train")]),
        (Box::new(|p| p.split(DataSplit::by_hash(["id"], [("train", 0.8), ("test", 0.1)]))),
            &[("`split`: the shares sum to 0.9, not to 1", "")]),
        (Box::new(|p| p.split(DataSplit::by_time("date", ["train", "test"], ["2016-13-01"]))),
            &[("`split`: `2016-13-01` is not a date or timestamp", "such as 2016-04-25, 2016-04-25T06:00:00 or last 28d")]),
        (Box::new(|p| p.split(DataSplit::by_time("date", ["train", "test", "last"], ["last 7d", "last 28d"]))),
            &[("`split`: `last 28d` does not come after the end before it", "")]),
        (Box::new(|p| p.split(DataSplit::by_time("date", ["train", "test"], ["last 0d"]))),
            &[("`split`: the part after `last 0d` would have no rows", "write a length above 0")]),
        (Box::new(|p| p.split(DataSplit::by_time("date", ["train", "test"], ["last week"]))),
            &[("`split`: `week` is not a length of time", "write a whole number and a unit: 30m, 12h, 7d, 2w or 1mo")]),
        (Box::new(|p| { p.step("more", "demand").apply(lag(["qty"]).by(["7 days"])).refit("often"); }),
            &[("`lag` cannot be read at `by[0]`: `7 days` is not a length", "write `7d`"),
              ("`often` does not say when a step learns anew", "write always, never, weekly, a duration such as 7d, `drift above 0.1`, or `30d or drift above 0.1`")]),
        (Box::new(|p| { p.source("more", ParquetSource::default()); }), &[("`parquet` cannot be read: `path` is missing", "")]),
        (Box::new(|p| { p.sink("more", "features", ParquetSink::at("")); }), &[("`parquet` cannot be read at `path`: the path is empty", "")]),
        (Box::new(|p| { p.source("more", ParquetSource::at("a")).lookback("3 days"); }), &[("`3 days` is not a length of time", "write `3d`")]),
        (Box::new(|p| { p.source("more", ParquetSource::at("a")).lookback("5bd"); }),
            &[("`5bd` is not a length of time", forebay_model::CIVIL_BUSINESS_DAYS_HINT)]),
        (Box::new(|p| { p.step("more", "demand").optional(); p.step("last", "more"); }),
            &[("`last` reads `more`, which may be left out", "make `last` optional too, or `more` not")]),
        (Box::new(|p| { p.predict("forecast", "features", PredictConfig::new("net", "f")); }),
            &[("`forecast` predicts with `net`, and there is no such training", "")]),
        (Box::new(|p| { p.predict("forecast", "features", PredictConfig::new("net", "f").fallback("theta")); }),
            &[("`forecast` predicts with `net`, and there is no such training", ""),
              ("`forecast` predicts with `theta`, and there is no such training", "")]),
        (Box::new(|p| { p.feed(FeedConfig::default().from("feature")); }),
            &[("`feed` reads `feature`, and there is no such step or source", "did you mean `features`?")]),
    ];
    for (number, (change, expected)) in cases.into_iter().enumerate() {
        let found = faults(change);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(message, hint)| (message.as_str(), hint.as_str()))
            .collect();
        assert_eq!(found, expected, "case {number}");
    }
}

/// A rule that refuses days keeps them out, or is refused where nothing tells such days: it never says nothing.
#[test]
fn days_of_built_sources_are_judged_or_their_rules_refused() {
    let shop = TestDirectory::new();
    let header = "day,hour,qty\n";
    let rows: Vec<String> = (1..29)
        .filter(|day| *day != 14)
        .map(|day| format!("2024-02-{day:02},{day},1\n"))
        .collect();
    shop.write("sales.csv", &format!("{header}{}", rows.concat()));
    let options = SessionOptions::default().state(shop.at("state"));
    let forebay = Forebay::new().with_options(options);
    let copied = PipelineBuilder::new("copied");
    let sales = copied.source("sales", CsvSource::at(shop.at("sales.csv")));
    copied.sink("arrow", &sales, ArrowSink::at(shop.at("arrow")));
    forebay.run(&copied.build().unwrap()).unwrap();
    let allowed = DayRules {
        late: DayRule::Allow,
        duplicate: DayRule::Allow,
        empty: DayRule::Allow,
    };
    let late = DayRules {
        late: DayRule::Error,
        ..allowed
    };
    let of_files = DayRules {
        duplicate: DayRule::Error,
        empty: DayRule::Error,
        ..allowed
    };
    for (time, rules, expected) in [
        (Some("day"), allowed, vec![]),
        (Some("day"), late, vec!["1 day is late"]),
        (
            Some("day"),
            of_files,
            vec!["`days.duplicate` cannot", "`days.empty` cannot"],
        ),
        (Some("hour"), late, vec!["`days.late` cannot"]),
        (None, late, vec!["`days.late` cannot"]),
    ] {
        for is_text in [true, false] {
            let pipeline = PipelineBuilder::new("sales");
            let sales = if is_text {
                pipeline.source("sales", CsvSource::at(shop.at("sales.csv")))
            } else {
                pipeline.source("sales", ArrowSource::at(shop.at("arrow")))
            };
            let sales = match time {
                Some(time) => sales.time(time).days(rules),
                None => sales.days(rules),
            };
            pipeline.sink("table", &sales, ParquetSink::at(shop.at("out")));
            let fault = forebay.run(&pipeline.build().unwrap()).err();
            let faults = fault.map(Fault::into_each).unwrap_or_default();
            let messages: Vec<&str> = faults.iter().map(Fault::message).collect();
            assert_eq!(messages.len(), expected.len(), "{messages:?}");
            for (message, words) in messages.iter().zip(&expected) {
                assert!(message.contains(words), "{message}");
            }
        }
    }
}

#[test]
fn checks_and_runs_of_a_built_pipeline_report_every_problem() {
    let shop = TestDirectory::new();
    let pipeline = PipelineBuilder::new("demand");
    let demand = pipeline.source("demand", ParquetSource::at(shop.demand("data", 100)));
    let features = pipeline
        .step(
            "features",
            &demand.time("date").keys(["store_id", "item_id"]),
        )
        .apply(lag(["qtyy"]).by(["7d"]))
        .apply(derive([
            ("dearer", "pryce + 1"),
            ("twice", "dearer + itemm"),
        ]))
        .apply(standardize(["qtyy_lag_7d", "prise"]).by(["twice", "stor"]));
    pipeline.sink("table", &features, ParquetSink::at(shop.at("out")));
    let built = pipeline.build().unwrap();
    let forebay = Forebay::new().with_options(SessionOptions::default().state(shop.at("state")));
    for fault in [
        forebay.check(&built).err().unwrap(),
        forebay.run(&built).err().unwrap(),
    ] {
        let found: Vec<String> = fault
            .into_each()
            .iter()
            .map(|fault| {
                let site = fault.site();
                let part = |part: &Option<String>| part.clone().unwrap_or_default();
                format!(
                    "{} {} {}",
                    part(&site.step),
                    part(&site.field),
                    part(&site.column)
                )
            })
            .collect();
        let expected = [
            "features.lag  qtyy",
            "features.derive dearer pryce",
            "features.derive twice itemm",
            "features.standardize  prise",
            "features.standardize  stor",
        ];
        assert_eq!(found, expected);
    }
}

#[test]
fn rows_of_steps_are_collected_and_streamed() {
    use futures::StreamExt;
    let shop = TestDirectory::new();
    let data = shop.demand("data", 1000);
    let pipeline = PipelineBuilder::new("demand");
    let demand = pipeline
        .source("demand", ParquetSource::at(&data))
        .time("date")
        .keys(["store_id", "item_id"]);
    let scaled = pipeline
        .step("scaled", &demand)
        .apply(filter("qty IS NOT NULL"))
        .apply(standardize(["price"]));
    let totals = pipeline
        .step("totals", &scaled)
        .apply(aggregate().compute([("rows", agg::count("*"))]));
    pipeline.sink("table", &scaled, ParquetSink::at(shop.at("out")));
    let built = pipeline.build().unwrap();
    let options = SessionOptions::default().state(shop.at("state"));
    let forebay = Forebay::new().with_options(options);

    let collected = forebay.collect(&built, &scaled).unwrap();
    let mut batches = forebay.rows(&built, &scaled).unwrap();
    assert!(batches.schema().field_with_name("price").is_ok());
    assert!(
        batches
            .by_ref()
            .map(Result::unwrap)
            .eq(collected.iter().cloned())
    );
    drop(batches);
    let streamed =
        futures::executor::block_on(forebay.stream(&built, &scaled).unwrap().collect::<Vec<_>>());
    assert!(
        streamed
            .into_iter()
            .map(Result::unwrap)
            .eq(collected.iter().cloned())
    );
    let rows: usize = collected.iter().map(|batch| batch.num_rows()).sum();
    let total = &forebay.collect(&built, &totals).unwrap()[0]["rows"];
    assert_eq!(
        arrow::array::AsArray::as_primitive::<arrow::datatypes::Int64Type>(total).value(0),
        rows as i64
    );
    assert!(!shop.path("out").exists());
    // Nothing stays in the state directory's place.
    let left = std::fs::read_dir(shop.path("state")).map_or(0, |entries| entries.count());
    assert_eq!(left, 0);

    // A run has the same rows; it goes on beside the caller.
    let report = futures::executor::block_on(forebay.run_async(built.clone()).unwrap()).unwrap();
    assert_eq!(report.outputs[0].rows, rows as u64);
    let written = shop.rows("out");
    assert_eq!(
        arrow::compute::concat_batches(&collected[0].schema(), &collected)
            .unwrap()
            .columns(),
        written.columns()
    );

    let unknown = forebay.collect(&built, "scald").err().unwrap();
    assert_eq!(unknown.hint_text(), Some("did you mean `scaled`?"));
    let unknown =
        futures::executor::block_on(forebay.stream(&built, "scald").unwrap().collect::<Vec<_>>());
    assert_eq!(unknown[0].as_ref().err().unwrap().code().name, "FB0105");
}
