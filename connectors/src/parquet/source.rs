//! Finding files, and opening their spans.

use std::sync::Arc;

use arrow::datatypes::{FieldRef, Fields, Schema};
use forebay_model::{Dataset, Fault, Piece, Result, Span, codes, nearest};
use forebay_run::{Chunks, Io, ScanRequest, Source};

use crate::files::Partitions;
use crate::files::cut::{Group, cut};
use crate::files::drift::{Known, Schemas, logical};
use crate::files::extent::{of_folders, same_points};
use crate::files::hive;
use crate::files::list::{Listed, list};
use crate::files::survey::survey;

use super::chunks::Scan;
use super::config::Parquet;
use super::extent::extents;
use super::footer::Footers;
use super::prune::Pruner;

const ENDINGS: &[&str] = &[".parquet", ".parq", ".pq"];

/// The configured source.
#[derive(Debug)]
pub(super) struct Reader {
    config: Parquet,
    footers: Arc<Footers>,
}

/// What discovery keeps of a file.
struct Facts {
    piece: Piece,
    groups: Vec<Group>,
    fields: Fields,
    /// Stored bytes per column of `fields`.
    bytes: Vec<u64>,
}

impl Facts {
    /// Forgets extents of columns that come from elsewhere, or in another type.
    fn forget_others(&mut self, watch: &[String], in_files: &Fields) {
        for (watched, name) in watch.iter().enumerate() {
            let both = self.fields.find(name).zip(in_files.find(name));
            if !both.is_some_and(|((_, a), (_, b))| same_points(a.data_type(), b.data_type())) {
                self.groups.iter_mut().for_each(|group| group.extents[watched] = None);
            }
        }
    }
}

impl Reader {
    pub(super) fn new(config: Parquet) -> Self {
        Reader { config, footers: Arc::default() }
    }

    fn facts(&self, io: &Io, file: &Listed, known: &Known, watch: &[String]) -> Result<Facts> {
        let (_, footer) = self.footers.open(io, &file.path)?;
        let partition = match self.config.partitions {
            Partitions::Auto => hive::partition(&file.relative),
            Partitions::None => Vec::new(),
        };
        let metadata = &footer.metadata;
        let roots = metadata.file_metadata().schema_descr();
        let fields = known.one(logical(footer.schema.fields()));
        let mut bytes = vec![0; fields.len()];
        let mut groups = Vec::with_capacity(metadata.num_row_groups());
        let watched: Vec<_> = watch.iter().map(|column| extents(metadata, &footer.schema, column)).collect();
        for (at, group) in metadata.row_groups().iter().enumerate() {
            for (leaf, column) in group.columns().iter().enumerate() {
                if let Some((field, _)) = fields.find(roots.get_column_root(leaf).name()) {
                    bytes[field] += column.compressed_size().max(0) as u64;
                }
            }
            let extents = watched.iter().map(|groups| groups[at].clone()).collect();
            groups.push(Group { rows: group.num_rows() as u64, bytes: group.compressed_size().max(0) as u64, extents });
        }
        let fingerprint = footer.stamp.fingerprint(&file.relative, &partition, Some(footer.digest));
        let piece = Piece {
            path: file.path.clone(),
            relative: file.relative.clone(),
            row_groups: None,
            first_row: 0,
            rows: Some(groups.iter().map(|group| group.rows).sum()),
            bytes: footer.stamp.size,
            partition,
            extents: Vec::new(),
            fingerprint,
        };
        Ok(Facts { piece, groups, fields, bytes })
    }

    /// The columns that were asked for.
    fn select(&self, all: Vec<FieldRef>) -> Result<Vec<FieldRef>> {
        let Some(wanted) = &self.config.columns else { return Ok(all) };
        let find = |name: &String| {
            all.iter().find(|field| field.name() == name).cloned().ok_or_else(|| {
                let fault =
                    Fault::new(codes::UNKNOWN_COLUMN, format!("the files have no column `{name}`")).column(name);
                match nearest(name, all.iter().map(|field| field.name().as_str())) {
                    Some(near) => fault.hint(format!("did you mean `{near}`?")),
                    None => fault,
                }
            })
        };
        wanted.iter().map(find).collect()
    }
}

impl Source for Reader {
    fn discover(&self, io: &Io, watch: &[String]) -> Result<Dataset> {
        let files = list(io, &self.config.paths(), ENDINGS)?;
        let known = Known::default();
        let mut facts = survey(&files, |file| self.facts(io, file, &known, watch))?;
        let mut schemas = Schemas::default();
        for file in &facts {
            schemas.add(&file.piece.path, file.fields.clone());
        }
        let merged = schemas.merge(&self.config.schema)?;
        let places: Vec<_> =
            facts.iter().map(|file| (file.piece.path.as_str(), file.piece.partition.as_slice())).collect();
        let partitions = hive::fields(&places)?;
        // A folder's value stands for all rows of its files: it replaces a column of that name.
        let in_files: Fields =
            merged.iter().filter(|field| !partitions.iter().any(|of| of.name() == field.name())).cloned().collect();
        let fields = self.select(in_files.iter().chain(&partitions).cloned().collect())?;
        let bytes_of = |field: &FieldRef| match partitions.iter().any(|of| of.name() == field.name()) {
            true => 0,
            false => facts.iter().filter_map(|file| file.fields.find(field.name()).map(|(at, _)| file.bytes[at])).sum(),
        };
        let column_bytes = Some(fields.iter().map(bytes_of).collect());
        for file in &mut facts {
            file.piece.extents = of_folders(&file.piece, watch, &partitions);
            file.forget_others(watch, &in_files);
        }
        let spans = cut(facts.into_iter().map(|file| (file.piece, file.groups)))?;
        Ok(Dataset { schema: Arc::new(Schema::new(fields)), spans, column_bytes, watched: watch.to_vec() })
    }

    fn open(&self, io: &Io, span: &Span, request: &ScanRequest) -> Result<Chunks> {
        let pruner = Pruner::new(&request.pruning, &request.schema);
        Ok(Box::new(Scan::new(io.clone(), self.footers.clone(), span.clone(), request.clone(), pruner)))
    }
}
