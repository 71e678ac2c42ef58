//! Decoding of JSON lines in one pass over their bytes.
//!
//! Fields are found by their order: the next one is mostly the one that came next in the object before. Columns are
//! filled as values are met, and fields that are not read are passed over. Faults are not made here: lines that are not
//! strictly JSON of the columns' kinds, with each known field once, are left to the slower decoder, which says what is
//! wrong with them.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanBuilder, Float64Builder, Int64Builder, ListArray, NullBufferBuilder,
    StringBuilder, StructArray,
};
use arrow::buffer::{OffsetBuffer, ScalarBuffer};
use arrow::datatypes::{DataType, FieldRef, Fields};
use forebay_model::{NameIndex, TextRules};
use hashbrown::HashMap;
use memchr::memchr2;

/// Values in each other that are passed over; the slower decoder takes more.
const DEPTH_MAX: usize = 64;

/// Names in the order of the objects before, besides those of known fields.
const UNKNOWN_NAMES_MAX: usize = 256;

/// Longest name that is compared with the name that came next before.
const NAME_BYTES_MAX: usize = 256;

/// Names behind the expected one that are tried, since objects may lack fields.
const NAMES_TRIED: usize = 4;

/// Words of a text that are looked through before a search is called: most texts are short.
const TEXT_WORDS: usize = 6;

const WORD_BYTES: usize = 8;

/// Digits that all 64-bit integers can have.
const INTEGER_DIGITS_MAX: usize = 18;

/// Digits of a number that, without the point, is a float exactly.
const FLOAT_DIGITS_MAX: usize = 15;

/// Powers of ten that are floats exactly: a quotient of two exact floats is the float nearest to the number.
const POWERS_OF_TEN: [f64; FLOAT_DIGITS_MAX + 1] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
];

/// A decoder of lines as some columns.
#[derive(Debug)]
pub(super) struct OnePassDecoder {
    root: ObjectFields,
    /// The position among the fields of each column.
    columns: Vec<usize>,
    refuses_unknown: bool,
}

impl OnePassDecoder {
    /// A decoder of the `decoded` columns, or `None` for columns of types that it does not have.
    ///
    /// `value_types` are their types with numbers where texts are not taken for numbers. Columns may come as these types,
    /// by the rules for types that are found. Where `known_fields` are given, others are refused.
    pub(super) fn new(
        decoded: &Fields,
        value_types: &Fields,
        known_fields: Option<&Fields>,
    ) -> Option<OnePassDecoder> {
        let index = NameIndex::of_fields(decoded);
        let mut fields = Vec::new();
        for field in known_fields.unwrap_or(decoded) {
            let values = match index.get(field.name()) {
                Some(column) => {
                    let value_type = value_types.get(column)?.data_type();
                    FieldValues::new(decoded[column].data_type(), value_type)?
                }
                None => FieldValues::unread(field.data_type()),
            };
            fields.push(ObjectField::new(field, values));
        }
        let root = ObjectFields::new(fields);
        let columns = decoded
            .iter()
            .map(|column| root.positions.get(column.name()).copied());
        Some(OnePassDecoder {
            columns: columns.collect::<Option<Vec<usize>>>()?,
            root,
            refuses_unknown: known_fields.is_some(),
        })
    }

    /// The columns of lines with these ends, or `None` if the slower decoder must look at them.
    pub(super) fn decode(&mut self, text: &[u8], ends: &[usize]) -> Option<Vec<ArrayRef>> {
        let columns = self
            .read_lines(text, ends)
            .and_then(|()| self.finish(ends.len()));
        if columns.is_none() {
            for field in &mut self.root.fields {
                field.values.clear();
            }
        }
        columns
    }

    fn read_lines(&mut self, text: &[u8], ends: &[usize]) -> Option<()> {
        // The ends of texts are 32 bits wide.
        i32::try_from(text.len()).ok()?;
        let text = std::str::from_utf8(text).ok()?;
        let mut start = 0;
        for end in ends {
            let mut cursor = Cursor {
                text: text.get(start..*end)?,
                at: 0,
                refuses_unknown: self.refuses_unknown,
                plain: String::new(),
            };
            if cursor.peek()? != b'{' {
                return None;
            }
            self.root.read_object(&mut cursor, 0)?;
            if cursor.peek().is_some() {
                return None;
            }
            start = *end;
        }
        Some(())
    }

    fn finish(&mut self, rows: usize) -> Option<Vec<ArrayRef>> {
        let mut columns = Vec::with_capacity(self.columns.len());
        for position in &self.columns {
            columns.push(self.root.fields[*position].values.finish(rows)?);
        }
        Some(columns)
    }
}

/// The known fields of objects at one position.
#[derive(Debug)]
struct ObjectFields {
    fields: Vec<ObjectField>,
    positions: HashMap<String, usize>,
    /// Names as the objects before had them, one behind the other.
    order: Vec<ExpectedName>,
    /// Number of objects so far.
    objects: u64,
}

#[derive(Debug)]
struct ObjectField {
    name: String,
    /// Number of the last object that has the field.
    last_object: u64,
    values: FieldValues,
}

impl ObjectField {
    fn new(field: &FieldRef, values: FieldValues) -> ObjectField {
        ObjectField {
            name: field.name().clone(),
            last_object: 0,
            values,
        }
    }
}

/// A name that comes next where objects have the same fields.
#[derive(Debug)]
struct ExpectedName {
    /// The name with its quotes, as it is written.
    quoted: Box<[u8]>,
    /// Its first bytes as a word, and the bits of the word that it has.
    word: u64,
    word_mask: u64,
    /// Its position among the known fields.
    position: Option<usize>,
}

impl ExpectedName {
    fn new(quoted: &[u8], position: Option<usize>) -> ExpectedName {
        let mut word = [0; WORD_BYTES];
        let mut word_mask = [0; WORD_BYTES];
        for (at, byte) in quoted.iter().take(WORD_BYTES).enumerate() {
            word[at] = *byte;
            word_mask[at] = u8::MAX;
        }
        ExpectedName {
            quoted: quoted.into(),
            word: u64::from_le_bytes(word),
            word_mask: u64::from_le_bytes(word_mask),
            position,
        }
    }

    /// True if a text begins with the name.
    #[inline]
    fn begins(&self, text: &[u8]) -> bool {
        match text.first_chunk::<WORD_BYTES>() {
            Some(word) if u64::from_le_bytes(*word) & self.word_mask != self.word => false,
            Some(_) if self.quoted.len() <= WORD_BYTES => true,
            _ => text.starts_with(&self.quoted),
        }
    }
}

impl ObjectFields {
    fn new(fields: Vec<ObjectField>) -> ObjectFields {
        let numbered = fields.iter().enumerate();
        ObjectFields {
            positions: numbered
                .map(|(position, field)| (field.name.clone(), position))
                .collect(),
            fields,
            order: Vec::new(),
            objects: 0,
        }
    }

    /// Reads an object whose brace is the next byte.
    fn read_object(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Option<()> {
        self.objects += 1;
        cursor.at += 1;
        let mut fields_met = 0;
        let mut expected = 0;
        let mut has_more = !cursor.ends_with(b'}')?;
        while has_more {
            let position = self.read_name(cursor, &mut expected)?;
            cursor.skip_colon()?;
            match position {
                Some(position) => {
                    let field = &mut self.fields[position];
                    if std::mem::replace(&mut field.last_object, self.objects) == self.objects {
                        return None;
                    }
                    fields_met += 1;
                    field.values.read(cursor, depth + 1)?;
                }
                None if cursor.refuses_unknown => return None,
                None => cursor.skip_value(depth + 1)?,
            }
            has_more = cursor.has_next(b'}')?;
        }
        if fields_met < self.fields.len() {
            for field in &mut self.fields {
                if field.last_object != self.objects {
                    field.values.append_null();
                }
            }
        }
        Some(())
    }

    /// Reads a name. Returns the position of its field, if it is known.
    #[inline]
    fn read_name(
        &mut self,
        cursor: &mut Cursor<'_>,
        expected: &mut usize,
    ) -> Option<Option<usize>> {
        let first = cursor.peek()?;
        if let Some(name) = self.order.get(*expected)
            && name.begins(cursor.unread())
        {
            cursor.at += name.quoted.len();
            *expected += 1;
            return Some(name.position);
        }
        if first != b'"' {
            return None;
        }
        self.find_name(cursor, expected)
    }

    /// Reads a name that is not the expected one.
    fn find_name(
        &mut self,
        cursor: &mut Cursor<'_>,
        expected: &mut usize,
    ) -> Option<Option<usize>> {
        let names = self.order.iter().skip(*expected);
        for (skipped, name) in names.take(NAMES_TRIED).enumerate() {
            if name.begins(cursor.unread()) {
                cursor.at += name.quoted.len();
                *expected += skipped + 1;
                return Some(name.position);
            }
        }
        let start = cursor.at;
        let has_escapes = cursor.skip_text()?;
        let quoted = cursor.text.get(start..cursor.at)?;
        let position = if has_escapes {
            let name: String = serde_json::from_str(quoted).ok()?;
            self.positions.get(name.as_str()).copied()
        } else {
            let name = quoted.get(1..quoted.len() - 1)?;
            self.positions.get(name).copied()
        };
        let names_max = self.fields.len() + UNKNOWN_NAMES_MAX;
        if self.order.len() < names_max && quoted.len() <= NAME_BYTES_MAX {
            let at = (*expected).min(self.order.len());
            self.order
                .insert(at, ExpectedName::new(quoted.as_bytes(), position));
            *expected = at + 1;
        }
        Some(position)
    }

    /// Passes over the objects of a field that is not read: their known fields come once, too.
    fn skip_objects(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match cursor.peek()? {
            b'{' => self.read_object(cursor, depth),
            b'[' => {
                cursor.at += 1;
                let mut has_more = !cursor.ends_with(b']')?;
                while has_more {
                    self.skip_objects(cursor, depth + 1)?;
                    has_more = cursor.has_next(b']')?;
                }
                Some(())
            }
            _ => cursor.skip_value(depth),
        }
    }
}

/// Values of a field so far.
#[derive(Debug)]
enum FieldValues {
    /// They are passed over. Objects among them have known fields.
    Unread(Option<Box<ObjectFields>>),
    Text(TextValues),
    Integer(Box<IntegerValues>),
    Float(Float64Builder),
    Boolean(BooleanBuilder),
    Object(Box<ObjectValues>),
    List(Box<ListValues>),
}

#[derive(Debug)]
struct TextValues {
    builder: StringBuilder,
    /// True if numbers are expected that are read as texts.
    refuses_texts: bool,
}

/// Integers, or texts of which some are none that are plainly written.
#[derive(Debug)]
struct IntegerValues {
    numbers: Int64Builder,
    /// All values of the batch, where one of them is no such integer.
    texts: Option<TextValues>,
}

#[derive(Debug)]
struct ObjectValues {
    of: Fields,
    fields: ObjectFields,
    validity: NullBufferBuilder,
}

#[derive(Debug)]
struct ListValues {
    item: FieldRef,
    values: FieldValues,
    /// Number of all values at the begin of each list and at the end of the last one.
    offsets: Vec<i32>,
    values_len: i32,
    validity: NullBufferBuilder,
}

impl FieldValues {
    fn new(of: &DataType, value_type: &DataType) -> Option<FieldValues> {
        match (of, value_type) {
            (DataType::Utf8, DataType::Int64) => {
                Some(FieldValues::Integer(Box::new(IntegerValues::new())))
            }
            (DataType::Utf8, DataType::Float64) => {
                Some(FieldValues::Float(Float64Builder::with_capacity(0)))
            }
            (DataType::Utf8, value_type) => {
                Some(FieldValues::Text(TextValues::new(value_type.is_numeric())))
            }
            (DataType::Boolean, _) => Some(FieldValues::Boolean(BooleanBuilder::with_capacity(0))),
            (DataType::Struct(fields), DataType::Struct(value_fields)) => {
                let mut object_fields = Vec::with_capacity(fields.len());
                for (field, value_field) in fields.iter().zip(value_fields) {
                    if !field.is_nullable() {
                        return None;
                    }
                    let values = FieldValues::new(field.data_type(), value_field.data_type())?;
                    object_fields.push(ObjectField::new(field, values));
                }
                Some(FieldValues::Object(Box::new(ObjectValues {
                    of: fields.clone(),
                    fields: ObjectFields::new(object_fields),
                    validity: NullBufferBuilder::new(0),
                })))
            }
            (DataType::List(item), DataType::List(value_item)) if item.is_nullable() => {
                Some(FieldValues::List(Box::new(ListValues {
                    item: item.clone(),
                    values: FieldValues::new(item.data_type(), value_item.data_type())?,
                    offsets: vec![0],
                    values_len: 0,
                    validity: NullBufferBuilder::new(0),
                })))
            }
            _ => None,
        }
    }

    /// Values that are passed over.
    fn unread(of: &DataType) -> FieldValues {
        match of {
            DataType::Struct(fields) => {
                let unread = |field: &FieldRef| {
                    ObjectField::new(field, FieldValues::unread(field.data_type()))
                };
                let fields = ObjectFields::new(fields.iter().map(unread).collect());
                FieldValues::Unread(Some(Box::new(fields)))
            }
            DataType::List(item) => FieldValues::unread(item.data_type()),
            _ => FieldValues::Unread(None),
        }
    }

    fn read(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Option<()> {
        match self {
            FieldValues::Unread(None) => cursor.skip_value(depth)?,
            FieldValues::Unread(Some(fields)) => fields.skip_objects(cursor, depth)?,
            FieldValues::Text(texts) => texts.read(cursor)?,
            FieldValues::Integer(integers) => integers.read(cursor)?,
            FieldValues::Float(builder) => match cursor.peek()? {
                b'n' => {
                    cursor.skip_word("null")?;
                    builder.append_null();
                }
                first => builder.append_value(cursor.float(first)?),
            },
            FieldValues::Boolean(builder) => match cursor.peek()? {
                b't' => {
                    cursor.skip_word("true")?;
                    builder.append_value(true);
                }
                b'f' => {
                    cursor.skip_word("false")?;
                    builder.append_value(false);
                }
                _ => {
                    cursor.skip_word("null")?;
                    builder.append_null();
                }
            },
            FieldValues::Object(objects) => match cursor.peek()? {
                b'{' => {
                    objects.fields.read_object(cursor, depth)?;
                    objects.validity.append_non_null();
                }
                _ => {
                    cursor.skip_word("null")?;
                    self.append_null();
                }
            },
            FieldValues::List(lists) => match cursor.peek()? {
                b'[' => lists.read(cursor, depth)?,
                _ => {
                    cursor.skip_word("null")?;
                    self.append_null();
                }
            },
        }
        Some(())
    }

    fn append_null(&mut self) {
        match self {
            FieldValues::Unread(_) => {}
            FieldValues::Text(texts) => texts.builder.append_null(),
            FieldValues::Integer(integers) => match &mut integers.texts {
                Some(texts) => texts.builder.append_null(),
                None => integers.numbers.append_null(),
            },
            FieldValues::Float(builder) => builder.append_null(),
            FieldValues::Boolean(builder) => builder.append_null(),
            FieldValues::Object(objects) => {
                objects.validity.append_null();
                for field in &mut objects.fields.fields {
                    field.values.append_null();
                }
            }
            FieldValues::List(lists) => {
                lists.offsets.push(lists.values_len);
                lists.validity.append_null();
            }
        }
    }

    /// The values, of which there are `len`. The next ones begin anew.
    fn finish(&mut self, len: usize) -> Option<ArrayRef> {
        let values: ArrayRef = match self {
            FieldValues::Unread(_) => return None,
            FieldValues::Text(texts) => texts.finish(len),
            FieldValues::Integer(integers) => integers.finish(len),
            FieldValues::Float(builder) => {
                let values = builder.finish();
                *builder = Float64Builder::with_capacity(len);
                Arc::new(values)
            }
            FieldValues::Boolean(builder) => Arc::new(builder.finish()),
            FieldValues::Object(objects) => {
                let mut columns = Vec::with_capacity(objects.of.len());
                let mut of = Vec::with_capacity(objects.of.len());
                for (field, values) in objects.of.iter().zip(&mut objects.fields.fields) {
                    let column = values.values.finish(len)?;
                    of.push(typed_field(field, &column));
                    columns.push(column);
                }
                let nulls = objects.validity.finish();
                let of = Fields::from(of);
                Arc::new(StructArray::try_new_with_length(of, columns, nulls, len).ok()?)
            }
            FieldValues::List(lists) => {
                let next_offsets = Vec::with_capacity(lists.offsets.len());
                let offsets = std::mem::replace(&mut lists.offsets, next_offsets);
                lists.offsets.push(0);
                let values_len = std::mem::take(&mut lists.values_len);
                let values = lists.values.finish(usize::try_from(values_len).ok()?)?;
                let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
                let nulls = lists.validity.finish();
                let item = typed_field(&lists.item, &values);
                Arc::new(ListArray::try_new(item, offsets, values, nulls).ok()?)
            }
        };
        (values.len() == len).then_some(values)
    }

    /// Drops all values.
    fn clear(&mut self) {
        match self {
            FieldValues::Unread(_) => {}
            FieldValues::Text(texts) => texts.builder = StringBuilder::with_capacity(0, 0),
            FieldValues::Integer(integers) => **integers = IntegerValues::new(),
            FieldValues::Float(builder) => *builder = Float64Builder::with_capacity(0),
            FieldValues::Boolean(builder) => *builder = BooleanBuilder::with_capacity(0),
            FieldValues::Object(objects) => {
                objects.validity = NullBufferBuilder::new(0);
                for field in &mut objects.fields.fields {
                    field.values.clear();
                }
            }
            FieldValues::List(lists) => {
                lists.offsets = vec![0];
                lists.values_len = 0;
                lists.validity = NullBufferBuilder::new(0);
                lists.values.clear();
            }
        }
    }
}

/// A field with the type of its column.
fn typed_field(field: &FieldRef, column: &ArrayRef) -> FieldRef {
    if field.data_type() == column.data_type() {
        return field.clone();
    }
    let of = column.data_type().clone();
    Arc::new(field.as_ref().clone().with_data_type(of))
}

impl IntegerValues {
    fn new() -> IntegerValues {
        IntegerValues {
            numbers: Int64Builder::with_capacity(0),
            texts: None,
        }
    }

    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        if let Some(texts) = &mut self.texts {
            return texts.read(cursor);
        }
        if cursor.peek()? == b'n' {
            cursor.skip_word("null")?;
            self.numbers.append_null();
            return Some(());
        }
        match cursor.integer() {
            Some(number) => self.numbers.append_value(number),
            None => self.begin_texts().read(cursor)?,
        }
        Some(())
    }

    /// The values so far as texts: integers that are plainly written have one form.
    fn begin_texts(&mut self) -> &mut TextValues {
        let mut texts = TextValues::new(true);
        for number in &self.numbers.finish() {
            texts
                .builder
                .append_option(number.map(|number| number.to_string()));
        }
        self.texts.insert(texts)
    }

    fn finish(&mut self, len: usize) -> ArrayRef {
        let values: ArrayRef = match self.texts.take() {
            Some(mut texts) => texts.finish(len),
            None => Arc::new(self.numbers.finish()),
        };
        self.numbers = Int64Builder::with_capacity(len);
        values
    }
}

impl TextValues {
    fn new(refuses_texts: bool) -> TextValues {
        TextValues {
            builder: StringBuilder::with_capacity(0, 0),
            refuses_texts,
        }
    }

    /// Reads a text, or a number or a literal as it is written.
    fn read(&mut self, cursor: &mut Cursor<'_>) -> Option<()> {
        let first = cursor.peek()?;
        let start = cursor.at;
        match first {
            b'"' if self.refuses_texts => return None,
            b'"' => {
                if cursor.skip_text()? {
                    self.builder.append_value(&cursor.plain);
                } else {
                    let value = cursor.text.get(start + 1..cursor.at - 1)?;
                    self.builder.append_value(value);
                }
            }
            b'n' => {
                cursor.skip_word("null")?;
                self.builder.append_null();
            }
            _ => {
                cursor.skip_plain(first)?;
                self.builder
                    .append_value(cursor.text.get(start..cursor.at)?);
            }
        }
        Some(())
    }

    fn finish(&mut self, len: usize) -> ArrayRef {
        let bytes = self.builder.values_slice().len();
        let is_loose = self.builder.values_capacity() > bytes + bytes / 4;
        let mut values = self.builder.finish();
        // Batches are counted with the memory that they keep.
        if is_loose {
            values.shrink_to_fit();
        }
        // The next batch mostly has about as many bytes.
        self.builder = StringBuilder::with_capacity(len, bytes + bytes / 8);
        Arc::new(values)
    }
}

impl ListValues {
    fn read(&mut self, cursor: &mut Cursor<'_>, depth: usize) -> Option<()> {
        cursor.at += 1;
        let mut has_more = !cursor.ends_with(b']')?;
        while has_more {
            self.values.read(cursor, depth + 1)?;
            self.values_len += 1;
            has_more = cursor.has_next(b']')?;
        }
        self.offsets.push(self.values_len);
        self.validity.append_non_null();
        Some(())
    }
}

/// A position in a line. Its methods return `None` where the line is not strictly JSON.
struct Cursor<'t> {
    text: &'t str,
    at: usize,
    refuses_unknown: bool,
    /// The last text with escapes, without them.
    plain: String,
}

impl Cursor<'_> {
    /// The bytes that follow.
    #[inline]
    fn unread(&self) -> &[u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    /// The next byte that is no blank.
    #[inline]
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.text.as_bytes().get(self.at)?;
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    /// Goes past the end of an object or a list, if it comes next.
    fn ends_with(&mut self, end: u8) -> Option<bool> {
        let is_end = self.peek()? == end;
        self.at += usize::from(is_end);
        Some(is_end)
    }

    /// Goes past what stands behind a value: a comma, or the end. Returns true for a comma.
    #[inline]
    fn has_next(&mut self, end: u8) -> Option<bool> {
        let byte = self.peek()?;
        if byte != b',' && byte != end {
            return None;
        }
        self.at += 1;
        Some(byte == b',')
    }

    #[inline]
    fn skip_colon(&mut self) -> Option<()> {
        let is_colon = self.peek()? == b':';
        self.at += 1;
        is_colon.then_some(())
    }

    /// Goes past a word that stands for a value.
    fn skip_word(&mut self, word: &str) -> Option<()> {
        let unread = self.text.as_bytes().get(self.at..)?;
        self.at += word.len();
        unread.starts_with(word.as_bytes()).then_some(())
    }

    /// Goes past a number or a truth value that begins with a byte.
    fn skip_plain(&mut self, first: u8) -> Option<()> {
        match first {
            b'-' | b'0'..=b'9' => {
                let unread = self.text.as_bytes().get(self.at..)?;
                let is_part =
                    |byte: &&u8| matches!(**byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
                self.at += unread.iter().take_while(is_part).count();
                Some(())
            }
            b't' => self.skip_word("true"),
            b'f' => self.skip_word("false"),
            _ => None,
        }
    }

    /// Goes past an integer without needless signs and zeros. Returns `None` for other values, and stays before them.
    fn integer(&mut self) -> Option<i64> {
        let unread = self.text.as_bytes().get(self.at..)?;
        let is_negative = unread.first() == Some(&b'-');
        let start = usize::from(is_negative);
        let mut end = start;
        let mut number = 0i64;
        while let Some(digit @ b'0'..=b'9') = unread.get(end) {
            number = number
                .wrapping_mul(10)
                .wrapping_add(i64::from(digit - b'0'));
            end += 1;
        }
        let digits = &unread[start..end];
        let is_longer = matches!(unread.get(end), Some(b'.' | b'e' | b'E' | b'-' | b'+'));
        let has_needless_zero = digits.first() == Some(&b'0') && end > 1;
        if digits.is_empty() || digits.len() > INTEGER_DIGITS_MAX || is_longer || has_needless_zero
        {
            return None;
        }
        self.at += end;
        Some(if is_negative { -number } else { number })
    }

    /// Goes past a number that is a float by the rules for types that are found.
    fn float(&mut self, first: u8) -> Option<f64> {
        if let Some(number) = self.short_float() {
            return Some(number);
        }
        if first != b'-' && !first.is_ascii_digit() {
            return None;
        }
        let start = self.at;
        self.skip_plain(first)?;
        TextRules::inferred().float64(self.text.get(start..self.at)?)
    }

    /// Goes past a number of a few digits without an exponent. Returns `None` for other values, and stays before them.
    fn short_float(&mut self) -> Option<f64> {
        let unread = self.text.as_bytes().get(self.at..)?;
        let is_negative = unread.first() == Some(&b'-');
        let start = usize::from(is_negative);
        let mut end = start;
        let mut digits = 0u64;
        let mut point = None;
        loop {
            match unread.get(end) {
                Some(digit @ b'0'..=b'9') => {
                    digits = digits
                        .wrapping_mul(10)
                        .wrapping_add(u64::from(digit - b'0'));
                }
                Some(b'.') if point.is_none() => point = Some(end),
                _ => break,
            }
            end += 1;
        }
        let whole_end = point.unwrap_or(end);
        let whole_digits = whole_end - start;
        let fraction_digits = point.map_or(0, |point| end - point - 1);
        let is_longer = matches!(unread.get(end), Some(b'.' | b'e' | b'E' | b'-' | b'+'));
        let has_needless_zero = unread.get(start) == Some(&b'0') && whole_digits > 1;
        if is_longer
            || has_needless_zero
            || whole_digits == 0
            || point.is_some_and(|_| fraction_digits == 0)
            || whole_digits + fraction_digits > FLOAT_DIGITS_MAX
        {
            return None;
        }
        self.at += end;
        let number = digits as f64 / POWERS_OF_TEN[fraction_digits];
        Some(if is_negative { -number } else { number })
    }

    /// Goes past a text. Returns true if it has escapes: it is then in `plain` without them.
    #[inline]
    fn skip_text(&mut self) -> Option<bool> {
        let start = self.at + 1;
        let end = text_end(self.text.as_bytes(), start)?;
        if self.text.as_bytes()[end] == b'"' {
            self.at = end + 1;
            return Some(false);
        }
        self.unescape(start, end)
    }

    /// Goes past a text that begins at `start` and whose first escape is at `end`.
    #[cold]
    fn unescape(&mut self, start: usize, end: usize) -> Option<bool> {
        let bytes = self.text.as_bytes();
        self.at = end + 1;
        self.plain.clear();
        self.plain.push_str(self.text.get(start..end)?);
        loop {
            let escaped = self.escape()?;
            self.plain.push(escaped);
            let start = self.at;
            let end = text_end(bytes, start)?;
            self.plain.push_str(self.text.get(start..end)?);
            self.at = end + 1;
            if bytes[end] == b'"' {
                return Some(true);
            }
        }
    }

    /// The character of an escape, behind its backslash.
    fn escape(&mut self) -> Option<char> {
        let bytes = self.text.as_bytes();
        let mark = *bytes.get(self.at)?;
        self.at += 1;
        Some(match mark {
            b'"' | b'\\' | b'/' => char::from(mark),
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => {
                let digits = bytes.get(self.at..self.at + 4)?;
                self.at += 4;
                let mut code = 0;
                for digit in digits {
                    code = code * 16 + char::from(*digit).to_digit(16)?;
                }
                // Pairs have been replaced by their characters; a half alone is none.
                char::from_u32(code)?
            }
            _ => return None,
        })
    }

    /// Goes past a value of any kind.
    fn skip_value(&mut self, depth: usize) -> Option<()> {
        if depth > DEPTH_MAX {
            return None;
        }
        match self.peek()? {
            b'"' => {
                self.skip_text()?;
            }
            b'{' => {
                self.at += 1;
                let mut has_more = !self.ends_with(b'}')?;
                while has_more {
                    if self.peek()? != b'"' {
                        return None;
                    }
                    self.skip_text()?;
                    self.skip_colon()?;
                    self.skip_value(depth + 1)?;
                    has_more = self.has_next(b'}')?;
                }
            }
            b'[' => {
                self.at += 1;
                let mut has_more = !self.ends_with(b']')?;
                while has_more {
                    self.skip_value(depth + 1)?;
                    has_more = self.has_next(b']')?;
                }
            }
            b'n' => self.skip_word("null")?,
            first => self.skip_plain(first)?,
        }
        Some(())
    }
}

/// The position of the next quote or backslash.
#[inline]
fn text_end(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    for _ in 0..TEXT_WORDS {
        let Some(word) = bytes.get(at..)?.first_chunk::<WORD_BYTES>() else {
            break;
        };
        let word = u64::from_le_bytes(*word);
        let marks = equal_bytes(word, b'"') | equal_bytes(word, b'\\');
        if marks != 0 {
            return Some(at + (marks.trailing_zeros() / u8::BITS) as usize);
        }
        at += WORD_BYTES;
    }
    memchr2(b'"', b'\\', bytes.get(at..)?).map(|offset| at + offset)
}

/// The highest bit of the first byte of a word that is a given one. Bits of bytes behind it may be set, too.
fn equal_bytes(word: u64, byte: u8) -> u64 {
    let ones = u64::MAX / 255;
    let difference = word ^ (ones * u64::from(byte));
    difference.wrapping_sub(ones) & !difference & (ones << 7)
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Field;

    use super::*;

    fn columns(number: DataType) -> Fields {
        let field = |name: &str, of: DataType| Field::new(name, of, true);
        let object = DataType::Struct(Fields::from(vec![
            field("x", DataType::Utf8),
            field("y", number.clone()),
        ]));
        let item = Field::new("item", number.clone(), true);
        Fields::from(vec![
            field("n", number),
            field("t", DataType::Utf8),
            field("b", DataType::Boolean),
            field("o", object),
            field("l", DataType::List(Arc::new(item))),
        ])
    }

    /// A line, whether it is decoded where unknown fields are faults, and where they are not.
    const LINES: &[(&str, bool, bool)] = &[
        ("{}", true, true),
        (
            r#" { "n" : -1.5e3 , "t" : "a\"\u00e4" , "b" : true , "o" : { } , "l" : [ ] } "#,
            true,
            true,
        ),
        (
            r#"{"o":{"y":1,"x":null},"l":[1,null,2.5],"b":null,"t":false,"n":null}"#,
            true,
            true,
        ),
        (r#"{"o":null,"l":null,"\u0074":"a","n":0}"#, true, true),
        (r#"{"n":1,"z":{"t":[{},{"t":"\n"}],"t":1}}"#, false, true),
        (r#"{"o":{"z":1}}"#, false, true),
        (r#"{"z":"\ud83d"}"#, false, false),
        (r#"{"z":[1,]}"#, false, false),
        (r#"{"z":tru}"#, false, false),
        (r#"{"t":1,"t":2}"#, false, false),
        (r#"{"t":1,"\u0074":2}"#, false, false),
        (r#"{"o":{"x":1,"y":2,"x":3}}"#, false, false),
        (r#"{"n":1e400}"#, false, false),
        (r#"{"n":01}"#, false, false),
        (r#"{"n":true}"#, false, false),
        (r#"{"n":"1"}"#, false, false),
        (r#"{"l":["1"]}"#, false, false),
        (r#"{"o":{"y":"1"}}"#, false, false),
        (r#"{"t":{}}"#, false, false),
        (r#"{"t":[]}"#, false, false),
        (r#"{"b":"true"}"#, false, false),
        (r#"{"o":[]}"#, false, false),
        (r#"{"l":{}}"#, false, false),
        (r#"{"t":"\x"}"#, false, false),
        (r#"{"t":"a}"#, false, false),
        (r#"{"t":"a"#, false, false),
        (r#"{"t":"a" "n":1}"#, false, false),
        (r#"{"t":"a",}"#, false, false),
        (r#"{"t" "a"}"#, false, false),
        (r#"{,"t":"a"}"#, false, false),
        (r#"{"t":"a"}}"#, false, false),
        (r#"{"t":"a"} {}"#, false, false),
        (r#"{"t":nulls}"#, false, false),
        ("[]", false, false),
        ("null", false, false),
    ];

    #[test]
    fn lines_that_are_not_strictly_of_the_columns_are_left() {
        let decoded = columns(DataType::Utf8);
        let value_types = columns(DataType::Float64);
        let strict = OnePassDecoder::new(&decoded, &value_types, Some(&decoded));
        let lenient = OnePassDecoder::new(&decoded, &value_types, None);
        let mut strict = strict.unwrap();
        let mut lenient = lenient.unwrap();
        for (line, is_strict, is_lenient) in LINES {
            let plain = r#"{"t":"a","o":{"x":"b"},"l":[7]}"#;
            let text = format!("{plain}{line}{plain}");
            let line_end = plain.len() + line.len();
            for (decoder, is_decoded) in [(&mut strict, is_strict), (&mut lenient, is_lenient)] {
                let ends = [plain.len(), line_end, text.len()];
                let columns = decoder.decode(text.as_bytes(), &ends);
                assert_eq!(columns.is_some(), *is_decoded, "{line}");
                // Values of lines that are left do not come again.
                let columns = decoder.decode(plain.as_bytes(), &[plain.len()]).unwrap();
                assert!(columns.iter().all(|column| column.len() == 1));
                assert_eq!(columns[1].as_string::<i32>().value(0), "a");
                assert_eq!(columns[4].as_list::<i32>().values().len(), 1);
            }
        }
    }

    #[test]
    fn fields_that_are_not_read_are_passed_over() {
        let all = columns(DataType::Utf8);
        let texts = Fields::from(vec![all[1].clone()]);
        let mut decoder = OnePassDecoder::new(&texts, &texts, Some(&all)).unwrap();
        let deep = format!("{}1{}", "[".repeat(70), "]".repeat(70));
        let deep_line = format!(r#"{{"t":"a","l":{deep}}}"#);
        for (line, is_decoded) in [
            (
                r#"{"n":"any","t":"a","o":[{"x":1},[{"x":[2]}],3],"l":{"z":{}}}"#,
                true,
            ),
            (r#"{"t":"a","o":{"x":1,"x":2}}"#, false),
            (r#"{"t":"a","o":[{"x":1},{"z":2}]}"#, false),
            (r#"{"t":"a","n":1,"n":2}"#, false),
            (deep_line.as_str(), false),
        ] {
            let columns = decoder.decode(line.as_bytes(), &[line.len()]);
            assert_eq!(columns.is_some(), is_decoded, "{line}");
            if let Some(columns) = columns {
                assert_eq!(columns.len(), 1);
                assert_eq!(columns[0].as_string::<i32>().value(0), "a");
            }
        }
    }

    fn cursor(text: &str) -> Cursor<'_> {
        Cursor {
            text,
            at: 0,
            refuses_unknown: false,
            plain: String::new(),
        }
    }

    #[test]
    fn floats_are_those_of_the_rules() {
        for text in [
            "0",
            "-0",
            "7",
            "0.1",
            "-0.30",
            "1.0",
            "123456789012345",
            "12345.6789012345",
            "0.00000000000001",
            "9.99999999999999",
            "1234567890.12345",
            "1e5",
            "-2.5E-3",
            "0.1234567890123456",
            "9007199254740993",
            "1234567890123456789",
            "01",
            "-01",
            "00.5",
            "1.",
            ".5",
            "-",
            "-.5",
            "1.2.3",
            "1-2",
            "1e400",
            "1e-400",
        ] {
            let line = format!("{text},");
            let mut cursor = cursor(&line);
            let first = text.as_bytes()[0];
            // The reader of values calls it for what begins as a number.
            let number = cursor.float(first).map(f64::to_bits);
            let is_number = first == b'-' || first.is_ascii_digit();
            let expected = TextRules::inferred().float64(text).filter(|_| is_number);
            assert_eq!(number, expected.map(f64::to_bits), "{text}");
            assert!(number.is_none() || cursor.at == text.len(), "{text}");
        }
    }

    #[test]
    fn integers_have_one_form() {
        for (text, expected) in [
            ("0", Some(0)),
            ("-7", Some(-7)),
            ("123456789012345678", Some(123_456_789_012_345_678)),
            ("1234567890123456789", None),
            ("-0", None),
            ("00", None),
            ("01", None),
            ("-01", None),
            ("1.0", None),
            ("1e3", None),
            ("1-2", None),
            ("-", None),
            ("\"1\"", None),
        ] {
            let line = format!("{text}]");
            let mut cursor = cursor(&line);
            let number = cursor.integer();
            assert_eq!(number, expected, "{text}");
            assert_eq!(cursor.at, number.map_or(0, |_| text.len()), "{text}");
        }
    }

    #[test]
    fn integers_are_texts_where_one_is_written_otherwise() {
        let texts = Fields::from(vec![Field::new("n", DataType::Utf8, true)]);
        let integers = Fields::from(vec![Field::new("n", DataType::Int64, true)]);
        let mut decoder = OnePassDecoder::new(&texts, &integers, None).unwrap();
        let mut decode = |lines: &[&str]| {
            let mut text = String::new();
            let mut ends = Vec::new();
            for line in lines {
                text += line;
                ends.push(text.len());
            }
            decoder.decode(text.as_bytes(), &ends).unwrap().remove(0)
        };
        let numbers = decode(&[r#"{"n":1}"#, "{}", r#"{"n":-20}"#]);
        assert_eq!(numbers.data_type(), &DataType::Int64);
        let numbers = decode(&[
            r#"{"n":1}"#,
            "{}",
            r#"{"n":-20}"#,
            r#"{"n":1.0}"#,
            r#"{"n":null}"#,
        ]);
        let values: Vec<Option<&str>> = numbers.as_string::<i32>().iter().collect();
        assert_eq!(values, [Some("1"), None, Some("-20"), Some("1.0"), None]);
        let numbers = decode(&[r#"{"n":4}"#]);
        assert_eq!(numbers.data_type(), &DataType::Int64);
    }

    #[test]
    fn the_end_of_a_text_is_its_first_quote_or_backslash() {
        for length in 0..80 {
            for end in *b"\"\\" {
                let mut text = vec![b'a'; length];
                text.push(end);
                text.extend_from_slice(b"!#[]\"\\\xe2\x80\xa2");
                assert_eq!(text_end(&text, 0), Some(length));
            }
            // These differ from the marks in one bit.
            let near: Vec<u8> = b"#\xa2]\xdc \x02"
                .iter()
                .copied()
                .cycle()
                .take(length)
                .collect();
            assert_eq!(text_end(&near, 0), None);
        }
    }
}
