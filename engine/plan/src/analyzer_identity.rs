//! Identities of analyzers that do not depend on the rows: a finding of an earlier run may replace a current one if
//! their identities are equal.

use std::collections::BTreeMap;

use forebay_model::{ContentId, DataSplit, IdBuilder, NameIndex, Pipeline, Result};
use serde_json::json;

use crate::slice::StreamIndexes;
use crate::{AnalyzerId, BaseDataset, BaseId, BoundOp, BoundPipeline, OpStream, PlanOp};

/// Identity of every analyzer of a pipeline: the analyzer and all operations before it. File
/// locations, file contents and dates in row conditions are excluded, because they change from run
/// to run.
pub fn analyzer_identities(bound: &BoundPipeline, pipeline: &Pipeline) -> Result<Vec<ContentId>> {
    let mut names = IdentityBuilder {
        bound,
        pipeline,
        indexes: StreamIndexes::default(),
        field_indexes: BTreeMap::new(),
        known: BTreeMap::new(),
    };
    (0..bound.asks.len())
        .map(|analyzer| names.ask(analyzer))
        .collect()
}

struct IdentityBuilder<'a> {
    bound: &'a BoundPipeline,
    pipeline: &'a Pipeline,
    indexes: StreamIndexes<'a>,
    /// The columns of each base.
    field_indexes: BTreeMap<BaseId, NameIndex<'a>>,
    known: BTreeMap<AnalyzerId, ContentId>,
}

impl IdentityBuilder<'_> {
    fn ask(&mut self, analyzer_id: AnalyzerId) -> Result<ContentId> {
        if let Some(cached) = self.known.get(&analyzer_id) {
            return Ok(*cached);
        }
        let bound_analyzer = &self.bound.asks[analyzer_id];
        let analyzer = &bound_analyzer.ask.analyzer;
        let mut id = IdBuilder::new("asked");
        let columns: Vec<&str> = bound_analyzer
            .ask
            .inputs
            .iter()
            .chain(&bound_analyzer.part)
            .map(String::as_str)
            .collect();
        id.text(analyzer.kind())
            .json(&json!([analyzer.version(), analyzer.config(), columns]));
        id.id(self.bound.ops[bound_analyzer.op].identity);
        self.streams(&bound_analyzer.streams, &columns, &mut id)?;
        let name = id.finish();
        self.known.insert(analyzer_id, name);
        Ok(name)
    }

    fn streams(
        &mut self,
        streams: &[OpStream],
        columns: &[&str],
        id: &mut IdBuilder,
    ) -> Result<()> {
        for stream in streams {
            let index = self.indexes.of(self.bound, stream);
            let (ops, read) = index.slice_for_columns(stream.ops.len(), columns);
            self.base(stream, &read, id)?;
            for position in ops {
                self.operation(stream, position, id)?;
            }
        }
        Ok(())
    }

    fn base(&mut self, stream: &OpStream, columns: &[String], id: &mut IdBuilder) -> Result<()> {
        let op = match &self.bound.bases[stream.base] {
            BaseDataset::Source(name) => {
                id.text(name);
                let schema = &self.bound.base_schemas[stream.base];
                let index = self.field_indexes.entry(stream.base);
                let index = index.or_insert_with(|| NameIndex::of_fields(schema.fields()));
                for column in columns {
                    let field = match index.get(column) {
                        Some(position) => schema.field(position),
                        None => schema.field_with_name(column)?,
                    };
                    id.text(column).text(&field.data_type().to_string());
                }
                if let Some(source) = self.pipeline.source(name) {
                    id.text(&source.format).json(&source.config_without_run());
                }
                return Ok(());
            }
            BaseDataset::Gathered(op) => *op,
        };
        id.id(self.bound.ops[op].identity);
        for (name, flow) in self.bound.gather_inputs.get(&op).into_iter().flatten() {
            let columns: Vec<&str> = flow
                .schema
                .fields()
                .iter()
                .map(|field| field.name().as_str())
                .collect();
            id.text(name);
            self.streams(&flow.streams, &columns, id)?;
        }
        for analyzer in &self.bound.ops[op].asks {
            id.id(self.ask(*analyzer)?);
        }
        Ok(())
    }

    fn operation(&mut self, stream: &OpStream, position: usize, id: &mut IdBuilder) -> Result<()> {
        let bound = self.bound;
        let op = &bound.ops[stream.ops[position]];
        match &op.op {
            PlanOp::Keep(keep) if keep.condition.is_some() => {
                let condition = keep
                    .condition
                    .as_ref()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                id.text(&without_dates(&condition));
            }
            PlanOp::Map(_) if is_split(op) => {
                let split = self.pipeline.split.as_ref().map(DataSplit::config);
                id.text(&without_dates(&split.unwrap_or_default().to_string()));
            }
            PlanOp::Join(join) => {
                id.id(op.identity);
                let input_stream = OpStream {
                    base: stream.base,
                    ops: stream.ops.first(position),
                };
                let columns: Vec<&str> = join.columns_here().map(String::as_str).collect();
                self.streams(&[input_stream], &columns, id)?;
                let flow = bound.join_inputs.get(&stream.ops[position]);
                let columns: Vec<&str> = join.columns_there().map(String::as_str).collect();
                self.streams(
                    flow.map(|flow| flow.streams.as_slice()).unwrap_or_default(),
                    &columns,
                    id,
                )?;
            }
            _ => {
                id.id(op.identity);
            }
        }
        for analyzer in &op.asks {
            id.id(self.ask(*analyzer)?);
        }
        Ok(())
    }
}

fn is_split(op: &BoundOp) -> bool {
    op.label == "split"
}

/// Replaces every date (2016-05-22), together with a following time of day, by `*`.
fn without_dates(text: &str) -> String {
    let day = |at: &[u8]| {
        at.len() >= 10
            && at[..10]
                .iter()
                .enumerate()
                .all(|(position, byte)| match position {
                    4 | 7 => *byte == b'-',
                    _ => byte.is_ascii_digit(),
                })
    };
    let in_time = |byte: &u8| byte.is_ascii_digit() || b"T:.+-Z".contains(byte);
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < bytes.len() {
        if day(&bytes[at..]) {
            out.push(b'*');
            at += 10;
            // A space before a time of day belongs to the timestamp.
            if bytes.get(at) == Some(&b' ') && bytes.get(at + 1).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            at += bytes[at..].iter().take_while(|byte| in_time(byte)).count();
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::without_dates;

    #[test]
    fn without_dates_replaces_dates_only() {
        assert_eq!(
            without_dates("d <= CAST('2016-05-22' AS Date32) AND é > 20"),
            "d <= CAST('*' AS Date32) AND é > 20"
        );
        assert_eq!(
            without_dates("'2016-05-22 06:30:00' '2016-05-22T06:30:00Z'"),
            "'*' '*'"
        );
        assert_eq!(without_dates("x - 2016 - 5 - 22"), "x - 2016 - 5 - 22");
        assert_ne!(without_dates("store = 1"), without_dates("store = 2"));
    }
}
