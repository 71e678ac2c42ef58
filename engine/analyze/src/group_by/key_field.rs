//! One key column: how its values enter the words of a key.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayData, ArrayRef, AsArray, BooleanArray, Int32Array, UInt32Array, make_array,
};
use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::compute::{SortOptions, cast, take};
use arrow::datatypes::{ArrowNativeType, DataType};
use arrow::row::{RowConverter, SortField};
use forebay_model::{
    Fault, GroupKey, Result, StringColumn, TextRef, TimeBucket, canonical_keys, decode_rows,
    logical_type,
};

use crate::interner::{CODE_BITS, Interner};

/// A code that is not known yet.
const UNKNOWN: u32 = u32::MAX;

/// The bits of a code.
const CODE_MASK: u64 = (1 << CODE_BITS) - 1;

pub(super) struct KeyField {
    pub(super) data_type: DataType,
    bucket: Option<TimeBucket>,
    form: KeyForm,
    /// The lowest bit of the value.
    bit_place: BitPlace,
    /// The bit that is set for null.
    null: Option<BitPlace>,
}

/// The position of a field's bits in the words of a key.
#[derive(Clone, Copy)]
struct BitPlace {
    word: usize,
    /// The lowest bit.
    shift: u32,
}

impl BitPlace {
    fn is_set<const W: usize>(self, words: &[u64; W]) -> bool {
        words[self.word] >> self.shift & 1 == 1
    }
}

/// Ranks the words of a key by one field.
pub(super) type SortRank<'f, const W: usize> = Box<dyn Fn(&[u64; W]) -> u64 + 'f>;

/// The form of a value in the words of a key.
enum KeyForm {
    /// As it is, in so many bits.
    Bits(u32),
    /// As the code of a text; 0 stands for null.
    Text(Interner, Option<DictionaryCodes>),
    /// As the code of its bytes in the encoding of a converter; 0 stands for null.
    Encoded(Interner, RowConverter),
}

/// A key column as its values are compared.
pub(super) struct PreparedColumn {
    pub(super) values: ArrayRef,
    /// True if some of the values may be others than those of the column.
    pub(super) is_changed: bool,
}

/// The codes that the values of a field have in another table of keys.
pub(super) struct FieldCodes {
    bit_place: BitPlace,
    /// By the code in the table that they come from.
    codes: Vec<u32>,
}

impl FieldCodes {
    /// Replaces the code in the words of a key.
    pub(super) fn replace<const W: usize>(&self, words: &mut [u64; W]) {
        let BitPlace { word, shift } = self.bit_place;
        // Code 0 is null: the others begin with 1.
        let code = (words[word] >> shift & CODE_MASK) as usize;
        if let Some(code) = code.checked_sub(1) {
            let others = words[word] & !(CODE_MASK << shift);
            words[word] = others | u64::from(self.codes[code] + 1) << shift;
        }
    }
}

/// The codes of a dictionary's values.
struct DictionaryCodes {
    values: ArrayRef,
    codes: Vec<u32>,
}

/// The order of a key column of a type: ascending, nulls last.
pub(super) fn sort_field(data_type: &DataType) -> SortField {
    SortField::new_with_options(
        data_type.clone(),
        SortOptions {
            descending: false,
            nulls_first: false,
        },
    )
}

/// Casts to a logical type where the layout is another one.
pub(super) fn as_type(column: &ArrayRef, data_type: &DataType) -> Result<ArrayRef> {
    if column.data_type() == data_type {
        Ok(column.clone())
    } else {
        Ok(cast(column, data_type)?)
    }
}

impl KeyForm {
    fn of(data_type: &DataType) -> Result<KeyForm> {
        use DataType as T;
        Ok(match data_type {
            T::Boolean => KeyForm::Bits(1),
            T::Utf8 => KeyForm::Text(Interner::default(), None),
            T::Int8
            | T::UInt8
            | T::Int16
            | T::UInt16
            | T::Int32
            | T::UInt32
            | T::Int64
            | T::UInt64 => bits(data_type),
            T::Float32 | T::Float64 | T::Date32 | T::Date64 | T::Time32(_) | T::Time64(_) => {
                bits(data_type)
            }
            T::Timestamp(..) | T::Duration(_) => bits(data_type),
            other => {
                let converter = RowConverter::new(vec![sort_field(other)])?;
                KeyForm::Encoded(Interner::default(), converter)
            }
        })
    }

    fn width(&self) -> u32 {
        match self {
            KeyForm::Bits(width) => *width,
            _ => CODE_BITS,
        }
    }
}

fn bits(data_type: &DataType) -> KeyForm {
    KeyForm::Bits(8 * data_type.primitive_width().unwrap_or(8) as u32)
}

/// Finds `width` free bits in one word; `used` counts the bits of each word that are taken.
fn place_bits(used: &mut Vec<u32>, width: u32) -> BitPlace {
    let mut words = used.iter();
    let word = match words.position(|bits| bits + width <= u64::BITS) {
        Some(word) => word,
        None => {
            used.push(0);
            used.len() - 1
        }
    };
    let shift = used[word];
    used[word] += width;
    BitPlace { word, shift }
}

impl KeyField {
    /// The fields of a key, and the number of its words.
    pub(super) fn layout(keys: &[GroupKey]) -> Result<(Vec<KeyField>, usize)> {
        let mut fields = Vec::new();
        let mut used = Vec::new();
        for key in keys {
            let form = KeyForm::of(&key.data_type)?;
            let bit_place = place_bits(&mut used, form.width());
            let data_type = key.data_type.clone();
            let bucket = key.bucket;
            fields.push(KeyField {
                data_type,
                bucket,
                form,
                bit_place,
                null: None,
            });
        }
        // A single key of 64 bits keeps its word to itself.
        let is_full = fields.len() == 1 && used == [u64::BITS];
        for field in &mut fields {
            // Codes stand for null with 0 and need no bit.
            if !is_full && matches!(field.form, KeyForm::Bits(_)) {
                field.null = Some(place_bits(&mut used, 1));
            }
        }
        Ok((fields, used.len()))
    }

    /// True if the words of a null equal those of a value.
    pub(super) fn hides_null(&self) -> bool {
        matches!((&self.form, self.null), (KeyForm::Bits(_), None))
    }

    /// True if the values enter keys with codes.
    pub(super) fn is_coded(&self) -> bool {
        self.interner().is_some()
    }

    pub(super) fn bytes(&self) -> usize {
        self.interner().map_or(0, Interner::bytes)
    }

    /// Bytes of [`KeyField::bytes`] that stay where they are while others are added.
    pub(super) fn segment_bytes(&self) -> usize {
        self.interner().map_or(0, Interner::segment_bytes)
    }

    pub(super) fn clear(&mut self) {
        match &mut self.form {
            KeyForm::Bits(_) => {}
            KeyForm::Text(interner, dictionary_codes) => {
                interner.clear();
                *dictionary_codes = None;
            }
            KeyForm::Encoded(interner, _) => interner.clear(),
        }
    }

    fn interner(&self) -> Option<&Interner> {
        match &self.form {
            KeyForm::Bits(_) => None,
            KeyForm::Text(interner, _) | KeyForm::Encoded(interner, _) => Some(interner),
        }
    }

    /// Keeps the coded values of another field, and returns their codes here; `None` if values have no codes. Both fields
    /// are the same one of the same keys.
    pub(super) fn adopt_codes(&mut self, other: &KeyField) -> Result<Option<FieldCodes>> {
        let interner = match &mut self.form {
            KeyForm::Bits(_) => return Ok(None),
            KeyForm::Text(interner, _) | KeyForm::Encoded(interner, _) => interner,
        };
        let Some(others) = other.interner() else {
            return Ok(None);
        };
        let mut codes = Vec::new();
        interner.push_codes(others.len(), |code| others.get(code), &mut codes)?;
        Ok(Some(FieldCodes {
            bit_place: self.bit_place,
            codes,
        }))
    }

    /// True if the values of keys are those of the rows, wherever [`PreparedColumn::is_changed`] is false.
    pub(super) fn keeps_values(&self) -> bool {
        let is_plain = matches!(self.form, KeyForm::Bits(_) | KeyForm::Text(..));
        is_plain && self.bucket.is_none()
    }

    /// True if one array can hold all coded values.
    pub(super) fn fits_array(&self) -> bool {
        self.interner().is_none_or(Interner::fits_array)
    }

    /// The column as its values are compared: buckets of times, one zero and one NaN.
    pub(super) fn prepared(&self, column: &ArrayRef) -> Result<PreparedColumn> {
        let is_text = matches!(self.form, KeyForm::Text(..))
            && logical_type(column.data_type()) == DataType::Utf8;
        let column = if is_text {
            column.clone()
        } else {
            as_type(column, &self.data_type)?
        };
        let values = match self.bucket {
            Some(bucket) => bucket.starts(&column)?,
            None => canonical_keys(&column)?,
        };
        let is_changed = !Arc::ptr_eq(&values, &column);
        Ok(PreparedColumn { values, is_changed })
    }

    /// Adds the values of a prepared column to the words of their rows.
    pub(super) fn pack<const W: usize>(
        &mut self,
        column: &ArrayRef,
        words: &mut [[u64; W]],
    ) -> Result<()> {
        let bit_place = self.bit_place;
        match &mut self.form {
            KeyForm::Bits(width) => {
                let data = column.to_data();
                let nulls = column.nulls();
                match *width {
                    1 => pack_booleans(column.as_boolean(), bit_place, words),
                    8 => pack_bits::<u8, W>(data.buffer(0), nulls, bit_place, words),
                    16 => pack_bits::<u16, W>(data.buffer(0), nulls, bit_place, words),
                    32 => pack_bits::<u32, W>(data.buffer(0), nulls, bit_place, words),
                    _ => pack_bits::<u64, W>(data.buffer(0), nulls, bit_place, words),
                }
                // Null and 0 have the same bits: a bit of its own tells null apart.
                if let (Some(BitPlace { word, shift }), Some(nulls)) = (self.null, nulls) {
                    for (row, words) in words.iter_mut().enumerate() {
                        if nulls.is_null(row) {
                            words[word] |= 1 << shift;
                        }
                    }
                }
            }
            KeyForm::Text(interner, dictionary_codes) => match StringColumn::of(column)? {
                StringColumn::Dictionary(keys, values) => {
                    let same = |dictionary_codes: &DictionaryCodes| {
                        Arc::ptr_eq(&dictionary_codes.values, &values)
                            || dictionary_codes.values.to_data().ptr_eq(&values.to_data())
                    };
                    let codes = match dictionary_codes.take().filter(same) {
                        Some(dictionary_codes) => dictionary_codes,
                        None => DictionaryCodes {
                            codes: vec![UNKNOWN; values.len()],
                            values,
                        },
                    };
                    dictionary_codes
                        .insert(codes)
                        .pack(interner, &keys, bit_place, words)?;
                }
                StringColumn::Plain(array) => {
                    let texts = TextRef::new(&array).ok_or_else(unknown_layout)?;
                    let mut rows = Vec::with_capacity(array.len());
                    for (row, text) in texts.iter().enumerate() {
                        rows.extend(text.map(|text| (row, text.as_bytes())));
                    }
                    pack_codes(interner, &rows, bit_place, words)?;
                }
            },
            KeyForm::Encoded(interner, converter) => {
                let encoded = converter.convert_columns(std::slice::from_ref(column))?;
                let mut rows = Vec::with_capacity(column.len());
                for row in 0..column.len() {
                    if column.is_valid(row) {
                        rows.push((row, encoded.row(row).data()));
                    }
                }
                pack_codes(interner, &rows, bit_place, words)?;
            }
        }
        Ok(())
    }

    /// The values that codes stand for, by code.
    pub(super) fn coded_values(&self) -> Result<Option<ArrayRef>> {
        match &self.form {
            KeyForm::Bits(_) => Ok(None),
            KeyForm::Text(interner, _) => interner.to_text_array().map(Some),
            KeyForm::Encoded(interner, converter) => {
                let keys = (0..interner.len()).map(|code| interner.get(code));
                let columns = decode_rows(converter, keys)?;
                Ok(columns.into_iter().next())
            }
        }
    }

    /// The column of keys; `coded` are this field's coded values, and `is_null` is true for rows whose null the words
    /// do not show.
    pub(super) fn unpack<const W: usize>(
        &self,
        keys: impl ExactSizeIterator<Item = [u64; W]> + Clone,
        coded: Option<&ArrayRef>,
        is_null: impl Fn(usize) -> bool,
    ) -> Result<ArrayRef> {
        let BitPlace { word, shift } = self.bit_place;
        let values = keys.clone().map(|words| words[word] >> shift);
        // Code 0 is null: the others begin with 1.
        if let Some(coded) = coded {
            let codes: UInt32Array = values
                .map(|code| ((code & CODE_MASK) as u32).checked_sub(1))
                .collect();
            return Ok(take(coded, &codes, None)?);
        }
        let rows = keys.len();
        let valid = match self.null {
            Some(null) => keys.map(|words| !null.is_set(&words)).collect(),
            None => BooleanBuffer::collect_bool(rows, |row| !is_null(row)),
        };
        let nulls = Some(NullBuffer::new(valid)).filter(|nulls| nulls.null_count() > 0);
        // The buffer has the width of the type, whatever the type is.
        let buffer = match self.form.width() {
            1 => {
                let values: BooleanBuffer = values.map(|value| value & 1 == 1).collect();
                return Ok(Arc::new(BooleanArray::new(values, nulls)));
            }
            8 => values.map(|value| value as u8).collect::<Buffer>(),
            16 => values.map(|value| value as u16).collect::<Buffer>(),
            32 => values.map(|value| value as u32).collect::<Buffer>(),
            _ => values.collect::<Buffer>(),
        };
        let data = ArrayData::builder(self.data_type.clone())
            .len(rows)
            .add_buffer(buffer)
            .nulls(nulls);
        Ok(make_array(data.build()?))
    }

    /// Bits of a value that sorts like the field, nulls last.
    pub(super) fn sort_bits(&self) -> u32 {
        self.form.width() + 1
    }

    /// A function from words to a number that sorts like the field, but for nulls that are hidden.
    pub(super) fn sort_rank<const W: usize>(&self) -> SortRank<'_, W> {
        let BitPlace { word, shift } = self.bit_place;
        let width = self.form.width();
        let mask = u64::MAX >> (u64::BITS - width);
        if let Some(interner) = self.interner() {
            let ranks = interner.ranks();
            return Box::new(
                move |words| match (words[word] >> shift & mask).checked_sub(1) {
                    Some(code) => u64::from(ranks[code as usize]),
                    None => ranks.len() as u64,
                },
            );
        }
        // Signed numbers sort with a flipped sign bit; negative floating-point numbers with all bits inverted.
        let sign = 1 << (width - 1);
        let is_float = self.data_type.is_floating();
        let is_unsigned =
            self.data_type.is_unsigned_integer() || self.data_type == DataType::Boolean;
        Box::new(move |words| {
            let value = words[word] >> shift & mask;
            match value & sign {
                _ if is_unsigned => value,
                0 => value ^ sign,
                _ if is_float => !value & mask,
                _ => value ^ sign,
            }
        })
    }

    /// True if the words show a null.
    pub(super) fn is_null<const W: usize>(&self, words: &[u64; W]) -> bool {
        self.null.is_some_and(|null| null.is_set(words))
    }
}

fn unknown_layout() -> Fault {
    Fault::internal("texts of an unknown layout")
}

/// Adds the codes of values to the words of their rows.
fn pack_codes<const W: usize>(
    interner: &mut Interner,
    rows: &[(usize, &[u8])],
    bit_place: BitPlace,
    words: &mut [[u64; W]],
) -> Result<()> {
    let mut codes = Vec::new();
    interner.push_codes(rows.len(), |number| rows[number].1, &mut codes)?;
    for ((row, _), code) in rows.iter().zip(codes) {
        // Code 0 is null: the others begin with 1.
        words[*row][bit_place.word] |= u64::from(code + 1) << bit_place.shift;
    }
    Ok(())
}

fn pack_bits<T: ArrowNativeType + Into<u64>, const W: usize>(
    values: &[T],
    nulls: Option<&NullBuffer>,
    bit_place: BitPlace,
    words: &mut [[u64; W]],
) {
    match nulls {
        None => {
            for (words, value) in words.iter_mut().zip(values) {
                words[bit_place.word] |= (*value).into() << bit_place.shift;
            }
        }
        Some(nulls) => {
            for (row, (words, value)) in words.iter_mut().zip(values).enumerate() {
                if nulls.is_valid(row) {
                    words[bit_place.word] |= (*value).into() << bit_place.shift;
                }
            }
        }
    }
}

fn pack_booleans<const W: usize>(
    values: &BooleanArray,
    bit_place: BitPlace,
    words: &mut [[u64; W]],
) {
    for (row, words) in words.iter_mut().enumerate() {
        words[bit_place.word] |=
            u64::from(values.is_valid(row) && values.value(row)) << bit_place.shift;
    }
}

impl DictionaryCodes {
    fn pack<const W: usize>(
        &mut self,
        interner: &mut Interner,
        keys: &Int32Array,
        bit_place: BitPlace,
        words: &mut [[u64; W]],
    ) -> Result<()> {
        let texts = TextRef::new(&self.values).ok_or_else(unknown_layout)?;
        let nulls = keys.nulls().filter(|nulls| nulls.null_count() > 0);
        for (row, (key, words)) in keys.values().iter().zip(words).enumerate() {
            if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                continue;
            }
            // A value is interned for the first row that has it.
            let code = &mut self.codes[*key as usize];
            if *code == UNKNOWN {
                *code = match texts.get(*key as usize) {
                    Some(text) => interner.code(text.as_bytes())? + 1,
                    None => 0,
                };
            }
            words[bit_place.word] |= u64::from(*code) << bit_place.shift;
        }
        Ok(())
    }
}
