//! Texts: one form, runs of words and characters, and counts of them.

use crate::harness::*;
use arrow::array::*;
use arrow::datatypes::Float32Type;
use forebay_model::codes;
use serde_json::{Value, json};

fn texts(values: &[Option<&str>]) -> StringArray {
    StringArray::from(values.to_vec())
}

fn lists(values: &[Option<&[&str]>]) -> ListArray {
    let mut lists = ListBuilder::new(StringBuilder::new());
    for list in values {
        lists.append_option(list.map(|list| list.iter().map(|word| Some(*word))));
    }
    lists.finish()
}

#[test]
fn texts_get_one_form() {
    let cases: [(Value, &str, &str); 14] = [
        // unicodedata.normalize("NFC", text.lower()) of Python 3.11.
        (json!({}), "CAFE\u{301}", "caf\u{e9}"),
        (json!({}), "\u{c5}NGSTRO\u{308}M", "\u{e5}ngstr\u{f6}m"),
        (json!({}), "\u{130}", "i\u{307}"),
        (json!({}), "  A\t b\u{a0}\n", "a b"),
        (json!({"case": "keep"}), "Abc", "Abc"),
        (
            json!({"form": "keep", "case": "keep"}),
            "e\u{301}",
            "e\u{301}",
        ),
        (json!({"form": "nfkc"}), "\u{fb01}\u{ff21}", "fia"),
        (json!({"collapse_spaces": false}), " A  b ", " a  b "),
        // strip_accents_unicode of scikit-learn 1.9.1.
        (
            json!({"accents": "strip", "case": "keep"}),
            "Caf\u{e9}",
            "Cafe",
        ),
        (
            json!({"accents": "strip", "case": "keep"}),
            "na\u{ef}ve stra\u{df}e",
            "naive stra\u{df}e",
        ),
        (
            json!({"accents": "strip", "case": "keep"}),
            "\u{c5}ngstr\u{f6}m",
            "Angstrom",
        ),
        (
            json!({"punctuation": "space"}),
            "Rock-'n'-Roll: $5, \u{201e}ja\u{201c}!",
            "rock n roll $5 ja",
        ),
        (
            json!({"punctuation": "remove"}),
            "don't; e-mail",
            "dont email",
        ),
        (json!({"punctuation": "remove"}), "?!", ""),
    ];
    for (settings, text, expected) in cases {
        let mut step = json!({"columns": ["s"]});
        for (name, value) in settings.as_object().unwrap() {
            step[name] = value.clone();
        }
        check(
            json!({"normalize_text": step}),
            vec![col("s", texts(&[Some(text), None, Some(text), Some("")]))],
            vec![col(
                "s",
                texts(&[Some(expected), None, Some(expected), Some("")]),
            )],
        );
    }
    check(
        json!({"normalize_text": {"columns": ["l"]}}),
        vec![col("l", lists(&[Some(&["A", " b"]), None, Some(&[])]))],
        vec![col("l", lists(&[Some(&["a", "b"]), None, Some(&[])]))],
    );
}

#[test]
fn runs_as_scikit_learn() {
    // CountVectorizer(analyzer, ngram_range).build_analyzer() of scikit-learn 1.9.1.
    let words: &[&str] = &[
        "the",
        "quick",
        "brown_fox",
        "dog",
        "the quick",
        "quick brown_fox",
        "brown_fox dog",
    ];
    check(
        json!({"ngrams": {"columns": ["s"], "max": 2, "min_length": 2}}),
        vec![col(
            "s",
            texts(&[
                Some("the quick, brown_fox: a dog"),
                None,
                Some("."),
                Some(""),
            ]),
        )],
        vec![col("s", lists(&[Some(words), None, Some(&[]), Some(&[])]))],
    );
    check(
        json!({"ngrams": {"columns": ["s"], "by": "characters", "min": 2, "max": 3, "suffix": "_n"}}),
        vec![col(
            "s",
            texts(&[Some("abcd"), Some("\u{e4}"), Some("\u{e4}b")]),
        )],
        vec![
            col("s", texts(&[Some("abcd"), Some("\u{e4}"), Some("\u{e4}b")])),
            col(
                "s_n",
                lists(&[
                    Some(&["ab", "bc", "cd", "abc", "bcd"]),
                    Some(&[]),
                    Some(&["\u{e4}b"]),
                ]),
            ),
        ],
    );
    // tf.Transform's documentation of `ngrams`: two and three of the words of a list.
    check(
        json!({"ngrams": {"columns": ["l"], "min": 2, "max": 3, "separator": "_"}}),
        vec![col("l", lists(&[Some(&["a", "b", "c"]), None]))],
        vec![col("l", lists(&[Some(&["a_b", "b_c", "a_b_c"]), None]))],
    );
    for step in [
        json!({"ngrams": {"columns": ["s"], "min": 2}}),
        json!({"ngrams": {"columns": ["s"], "min": 0}}),
        json!({"ngrams": {"columns": ["s"], "max": 33}}),
    ] {
        check_fault(step, vec![col("s", texts(&[Some("a")]))], codes::BAD_VALUE);
    }
    check_fault(
        json!({"ngrams": {"columns": ["l"], "by": "characters"}}),
        vec![col("l", lists(&[Some(&["a"])]))],
        codes::BAD_VALUE,
    );
}

/// The bags of lists of tokens, as rows of numbers.
fn bags(settings: Value, input: ListArray) -> Vec<Vec<f32>> {
    let mut step = json!({"columns": ["l"], "buckets": 8});
    for (name, value) in settings.as_object().unwrap() {
        step[name] = value.clone();
    }
    let table = RecordBatch::try_from_iter(vec![col("l", input)]).unwrap();
    let sources = std::collections::BTreeMap::from([("this", table)]);
    let result = run(
        &[("out", "this", vec![json!({"bag_of_tokens": step})])],
        &sources,
        2,
    )
    .unwrap();
    let vectors = result.column(0).as_fixed_size_list();
    let of_row = |row: usize| {
        vectors
            .value(row)
            .as_primitive::<Float32Type>()
            .values()
            .to_vec()
    };
    (0..vectors.len()).map(of_row).collect()
}

#[test]
fn tokens_are_counted_by_their_buckets() {
    let tokens: &[&str] = &["red", "green", "red", "blue"];
    let plain = bags(json!({}), lists(&[Some(tokens), None, Some(&[])]));
    let mut expected = vec![0.0; 8];
    // The buckets are those of `hash_bucket`.
    let table =
        RecordBatch::try_from_iter(vec![col("s", StringArray::from(tokens.to_vec()))]).unwrap();
    let sources = std::collections::BTreeMap::from([("this", table)]);
    let hash = json!({"hash_bucket": {"columns": ["s"], "buckets": 8}});
    let buckets = run(&[("out", "this", vec![hash])], &sources, 2).unwrap();
    for bucket in buckets
        .column(0)
        .as_primitive::<arrow::datatypes::Int64Type>()
        .values()
    {
        expected[*bucket as usize] += 1.0;
    }
    assert_eq!(plain, vec![expected, vec![0.0; 8], vec![0.0; 8]]);
    let signed = bags(json!({"signed": true, "seed": 5}), lists(&[Some(tokens)]));
    let absolute: f32 = signed[0].iter().map(|count| count.abs()).sum();
    assert!(absolute <= 4.0, "{signed:?}");
    let many: Vec<String> = (0..1000).map(|token| format!("t{token}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let signed = bags(json!({"signed": true}), lists(&[Some(&many)]));
    let sum: f32 = signed[0].iter().sum();
    assert!(
        sum.abs() < 150.0,
        "about half of the tokens count -1: {sum}"
    );
    for buckets in [0, 65_537] {
        check_fault(
            json!({"bag_of_tokens": {"columns": ["l"], "buckets": buckets}}),
            vec![col("l", lists(&[Some(&["a"])]))],
            codes::BAD_VALUE,
        );
    }
}

#[test]
fn tokens_are_weighted_as_scikit_learn() {
    let rows: [Option<&[&str]>; 4] = [
        Some(&["red", "red", "hat"]),
        Some(&["hat", "shoe"]),
        Some(&["red"]),
        None,
    ];
    // By the formulas of TfidfVectorizer(analyzer=list), with sublinear_tf=True, norm=None and norm="l1": the weights
    // are ln(4 / 3) + 1, ln(4 / 3) + 1 and ln(4 / 2) + 1.
    let hat = 1.287_682_f32;
    let shoe = 1.693_147_2_f32;
    let cases: [(Value, [[f32; 3]; 3]); 4] = [
        (
            json!({}),
            [
                [0.447_213_6, 0.894_427_2, 0.0],
                [0.605_348_5, 0.0, 0.795_960_5],
                [0.0, 1.0, 0.0],
            ],
        ),
        (
            json!({"counts": "logarithm"}),
            [
                [0.508_542_3, 0.861_037, 0.0],
                [0.605_348_5, 0.0, 0.795_960_5],
                [0.0, 1.0, 0.0],
            ],
        ),
        (
            json!({"norm": "none"}),
            [[hat, 2.0 * hat, 0.0], [hat, 0.0, shoe], [0.0, hat, 0.0]],
        ),
        (
            json!({"norm": "l1"}),
            [
                [1.0 / 3.0, 2.0 / 3.0, 0.0],
                [hat / (hat + shoe), 0.0, shoe / (hat + shoe)],
                [0.0, 1.0, 0.0],
            ],
        ),
    ];
    for (settings, expected) in cases {
        let mut step = json!({"columns": ["l"]});
        step.as_object_mut()
            .unwrap()
            .extend(settings.as_object().unwrap().clone());
        let mut expected: Vec<f32> = expected.concat();
        // A null row does not count, and gives zeros.
        expected.extend([0.0; 3]);
        check(
            json!({ "tf_idf": step }),
            vec![col("l", lists(&rows))],
            vec![col("l", vectors(expected, 3))],
        );
    }
    check(
        json!({"tf_idf": {"columns": ["l"], "top_k": 1, "norm": "none"}}),
        vec![col(
            "l",
            lists(&[Some(&["b", "a"]), Some(&["b", "b"]), Some(&[])]),
        )],
        vec![col("l", vectors(vec![hat, 2.0 * hat, 0.0], 1))],
    );
    // Nothing seen: no places.
    check(
        json!({"tf_idf": {"columns": ["l"], "suffix": "_v"}}),
        vec![col("l", lists(&[None]))],
        vec![col("l", lists(&[None])), col("l_v", vectors(Vec::new(), 0))],
    );
    check_fault(
        json!({"tf_idf": {"columns": ["s"]}}),
        vec![col("s", texts(&[Some("a")]))],
        codes::COLUMN_TYPE,
    );
}

/// Vectors of `width` numbers each; one without numbers where there is no width.
fn vectors(values: Vec<f32>, width: usize) -> FixedSizeListArray {
    let rows = values.len().checked_div(width).unwrap_or(1);
    let item = arrow::datatypes::Field::new_list_field(arrow::datatypes::DataType::Float32, false);
    let values = std::sync::Arc::new(Float32Array::from(values));
    FixedSizeListArray::try_new_with_length(item.into(), width as i32, values, None, rows).unwrap()
}
