//! Logical types of Parquet that Arrow has no types for, such as `UUID`, `JSON`, `VARIANT`, and `TIME` in UTC. Schemas of
//! Arrow carry them as notes of columns, so that a column which passes through is written with the types that it came with.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema, SchemaRef};
use forebay_model::PARQUET_TYPES;
use parquet::basic::{ConvertedType, EdgeInterpolationAlgorithm, LogicalType};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::schema::types::{SchemaDescriptor, Type, TypePtr};
use serde::{Deserialize, Serialize};

/// Metadata keys under which Arrow stores the name of an extension type, and its parameters.
const EXTENSION_NAME: &str = "ARROW:extension:name";
const EXTENSION_METADATA: &str = "ARROW:extension:metadata";

/// The name of the note of a time of day in UTC. Columns without it are times of day of any place.
const TIME_IN_UTC: &str = "time_utc";

/// The logical type of a part of a column.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Annotation {
    /// The leaf that has it, counted from the first one of the column; none for the column itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    leaf: Option<usize>,
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crs: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    edges: Option<String>,
}

impl Annotation {
    fn of(leaf: Option<usize>, part: &Type) -> Option<Annotation> {
        let info = part.get_basic_info();
        let mut crs = None;
        let mut edges = None;
        let name = match (info.logical_type_ref(), info.converted_type()) {
            (Some(LogicalType::Uuid), _) => "uuid",
            (Some(LogicalType::Json), _) | (None, ConvertedType::JSON) => "json",
            (Some(LogicalType::Bson), _) | (None, ConvertedType::BSON) => "bson",
            (Some(LogicalType::Enum), _) | (None, ConvertedType::ENUM) => "enum",
            (Some(LogicalType::Variant(_)), _) => "variant",
            (Some(LogicalType::Time(time)), _) if time.is_adjusted_to_u_t_c => TIME_IN_UTC,
            // Files without logical types have no other times of day.
            (None, ConvertedType::TIME_MILLIS | ConvertedType::TIME_MICROS) => TIME_IN_UTC,
            (Some(LogicalType::Geometry(geometry)), _) => {
                crs = geometry.crs.clone();
                "geometry"
            }
            (Some(LogicalType::Geography(geography)), _) => {
                crs = geography.crs.clone();
                edges = geography
                    .algorithm
                    .as_ref()
                    .map(|edges| format!("{edges:?}"));
                "geography"
            }
            _ => return None,
        };
        Some(Annotation {
            leaf,
            name: name.to_owned(),
            crs,
            edges,
        })
    }

    /// The logical type for a leaf, in the place of that which it would be written with; `None` where it cannot have it,
    /// since an operation made another type of the column.
    fn leaf_type(&self, written: Option<&LogicalType>) -> Option<LogicalType> {
        match (self.name.as_str(), written) {
            (TIME_IN_UTC, Some(LogicalType::Time(time))) => {
                Some(LogicalType::time(true, time.unit))
            }
            (_, None | Some(LogicalType::String)) => self.logical_type(),
            _ => None,
        }
    }

    /// The logical type of a group, or of a leaf whose physical type says all else.
    fn logical_type(&self) -> Option<LogicalType> {
        Some(match self.name.as_str() {
            "uuid" => LogicalType::Uuid,
            "json" => LogicalType::Json,
            "bson" => LogicalType::Bson,
            "enum" => LogicalType::Enum,
            "variant" => LogicalType::variant(None),
            "geometry" => LogicalType::geometry(self.crs.clone()),
            "geography" => {
                let edges = match self.edges.as_deref() {
                    None => None,
                    Some("SPHERICAL") => Some(EdgeInterpolationAlgorithm::SPHERICAL),
                    Some("VINCENTY") => Some(EdgeInterpolationAlgorithm::VINCENTY),
                    Some("THOMAS") => Some(EdgeInterpolationAlgorithm::THOMAS),
                    Some("ANDOYER") => Some(EdgeInterpolationAlgorithm::ANDOYER),
                    Some("KARNEY") => Some(EdgeInterpolationAlgorithm::KARNEY),
                    Some(_) => return None,
                };
                LogicalType::geography(self.crs.clone(), edges)
            }
            _ => return None,
        })
    }
}

/// A file's schema, with notes of the logical types that Arrow has no types for.
pub(super) fn with_annotations(schema: &SchemaRef, metadata: &ParquetMetaData) -> SchemaRef {
    let stored = metadata.file_metadata().schema_descr();
    let mut notes: HashMap<&str, Vec<Annotation>> = HashMap::new();
    for root in stored.root_schema().get_fields() {
        if !root.is_group() {
            continue;
        }
        if let Some(annotation) = Annotation::of(None, root) {
            notes.entry(root.name()).or_default().push(annotation);
        }
    }
    let mut last_root = None;
    let mut leaf_of_root = 0;
    for (leaf, column) in stored.columns().iter().enumerate() {
        let root = stored.get_column_root_idx(leaf);
        leaf_of_root = if last_root == Some(root) {
            leaf_of_root + 1
        } else {
            0
        };
        last_root = Some(root);
        if let Some(annotation) = Annotation::of(Some(leaf_of_root), column.self_type()) {
            let name = stored.get_column_root(leaf).name();
            notes.entry(name).or_default().push(annotation);
        }
    }
    if notes.is_empty() {
        return schema.clone();
    }
    let mut fields: Vec<FieldRef> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        fields.push(match notes.get(field.name().as_str()) {
            Some(annotations) => annotated_field(field, annotations),
            None => field.clone(),
        });
    }
    Arc::new(Schema::new_with_metadata(fields, schema.metadata().clone()))
}

fn annotated_field(field: &FieldRef, annotations: &[Annotation]) -> FieldRef {
    let Ok(text) = serde_json::to_string(annotations) else {
        return field.clone();
    };
    let mut metadata = field.metadata().clone();
    metadata.insert(PARQUET_TYPES.to_owned(), text);
    if let Some(extension) = extension_name(field, annotations) {
        // A file that Arrow wrote may name the extension itself.
        metadata
            .entry(EXTENSION_NAME.to_owned())
            .or_insert_with(|| extension.to_owned());
        metadata.entry(EXTENSION_METADATA.to_owned()).or_default();
    }
    Arc::new(field.as_ref().clone().with_metadata(metadata))
}

/// The name that Arrow has for a column of a logical type, where it has one.
fn extension_name(field: &Field, notes: &[Annotation]) -> Option<&'static str> {
    match (notes, field.data_type()) {
        ([note], DataType::FixedSizeBinary(16)) if note.name == "uuid" => Some("arrow.uuid"),
        ([note], DataType::Utf8) if note.name == "json" => Some("arrow.json"),
        _ => None,
    }
}

/// A schema without the notes of logical types, as other programs are shown it.
pub(super) fn without_annotations(schema: &Schema) -> Schema {
    let plain = |field: &FieldRef| {
        let mut metadata = field.metadata().clone();
        metadata.remove(PARQUET_TYPES);
        Arc::new(field.as_ref().clone().with_metadata(metadata))
    };
    Schema::new(schema.fields().iter().map(plain).collect::<Fields>())
}

/// The stored columns of a schema, with the logical types that its notes tell where the stored types can have them.
pub(super) fn annotated(
    stored: SchemaDescriptor,
    schema: &Schema,
) -> Result<SchemaDescriptor, ParquetError> {
    let has_notes = |field: &FieldRef| field.metadata().contains_key(PARQUET_TYPES);
    if !schema.fields().iter().any(has_notes) {
        return Ok(stored);
    }
    let root = stored.root_schema();
    let mut fields = Vec::with_capacity(root.get_fields().len());
    for (part, field) in root.get_fields().iter().zip(schema.fields()) {
        let notes: Option<Vec<Annotation>> = field
            .metadata()
            .get(PARQUET_TYPES)
            .and_then(|notes| serde_json::from_str(notes).ok());
        fields.push(match notes {
            Some(notes) => annotated_column(part, &notes)?,
            None => part.clone(),
        });
    }
    let root = Type::group_type_builder(root.name())
        .with_fields(fields)
        .build()?;
    Ok(SchemaDescriptor::new(Arc::new(root)))
}

fn annotated_column(column: &TypePtr, notes: &[Annotation]) -> Result<TypePtr, ParquetError> {
    let mut leaf = 0;
    let leaves = annotated_leaves(column, notes, &mut leaf)?;
    let whole = notes.iter().find(|note| note.leaf.is_none());
    match whole.and_then(Annotation::logical_type) {
        Some(logical_type) if leaves.is_group() => {
            group_with(&leaves, leaves.get_fields().to_vec(), Some(logical_type))
        }
        _ => Ok(leaves),
    }
}

fn annotated_leaves(
    part: &TypePtr,
    notes: &[Annotation],
    leaf: &mut usize,
) -> Result<TypePtr, ParquetError> {
    if part.is_group() {
        let fields = part
            .get_fields()
            .iter()
            .map(|field| annotated_leaves(field, notes, leaf))
            .collect::<Result<Vec<_>, _>>()?;
        let logical_type = part.get_basic_info().logical_type_ref().cloned();
        return group_with(part, fields, logical_type);
    }
    let note = notes.iter().find(|note| note.leaf == Some(*leaf));
    *leaf += 1;
    let written = part.get_basic_info().logical_type_ref();
    let Some(logical_type) = note.and_then(|note| note.leaf_type(written)) else {
        return Ok(part.clone());
    };
    let Type::PrimitiveType {
        basic_info,
        physical_type,
        type_length,
        ..
    } = part.as_ref()
    else {
        return Ok(part.clone());
    };
    let built = Type::primitive_type_builder(part.name(), *physical_type)
        .with_repetition(basic_info.repetition())
        .with_converted_type(ConvertedType::from(Some(logical_type.clone())))
        .with_logical_type(Some(logical_type))
        .with_length(*type_length)
        .with_id(basic_info.has_id().then(|| basic_info.id()))
        .build();
    Ok(built.map_or_else(|_| part.clone(), Arc::new))
}

fn group_with(
    group: &TypePtr,
    fields: Vec<TypePtr>,
    logical_type: Option<LogicalType>,
) -> Result<TypePtr, ParquetError> {
    let info = group.get_basic_info();
    let mut builder = Type::group_type_builder(group.name())
        .with_converted_type(info.converted_type())
        .with_logical_type(logical_type)
        .with_fields(fields)
        .with_id(info.has_id().then(|| info.id()));
    if info.has_repetition() {
        builder = builder.with_repetition(info.repetition());
    }
    Ok(Arc::new(builder.build()?))
}
