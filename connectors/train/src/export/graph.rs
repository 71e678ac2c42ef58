//! A graph that grows node by node.

use prost::Message;
use serde_json::{Value as Json, json};

use super::protobuf::{
    AttributeKind, AttributeProto, DimensionProto, DimensionValue, GraphProto, ModelProto,
    NodeProto, OperatorSetIdProto, StringStringEntryProto, TensorProto, TensorShapeProto,
    TensorType, TensorTypeProto, TypeProto, ValueInfoProto,
};

/// Version of the file format. onnxruntime reads 8 to 14.
const IR_VERSION: i64 = 10;
/// Version of the operators of `ai.onnx`.
const OPERATORS: i64 = 21;
/// Version of the operators of `ai.onnx.ml`: the first one with `TreeEnsemble`.
const ML_OPERATORS: i64 = 5;
/// Domain of the operators of classical models.
const ML_DOMAIN: &str = "ai.onnx.ml";
/// Domain of operators that onnxruntime alone has.
const RUNTIME_DOMAIN: &str = "com.microsoft";
/// Version of those operators.
const RUNTIME_OPERATORS: i64 = 1;

/// Name of the dimension that counts rows.
const ROWS: &str = "rows";

/// Name of the dimension that counts the texts of a list.
const PARTS: &str = "parts";

/// Name of a value in the graph.
pub type Value = String;

#[derive(Default)]
pub struct GraphBuilder {
    graph: GraphProto,
    /// Descriptions of the inputs and outputs, for people and programs
    inputs: Vec<Json>,
    outputs: Vec<Json>,
}

impl GraphBuilder {
    pub fn new(name: &str) -> GraphBuilder {
        let graph = GraphProto {
            name: name.to_owned(),
            ..GraphProto::default()
        };
        GraphBuilder {
            graph,
            ..GraphBuilder::default()
        }
    }

    /// An input of one value per row, or of `width` values per row where `width` is not 1.
    pub fn input(&mut self, name: &str, tensor_type: TensorType, width: usize) -> Value {
        let info = value_info(name, tensor_type, width);
        self.graph.input.push(info);
        let missing = match tensor_type {
            TensorType::Float | TensorType::Double => json!("NaN"),
            TensorType::String => json!(""),
            TensorType::Int64 | TensorType::Uint8 => json!(-1),
        };
        let mut described = described(name, tensor_type, width);
        described["missing"] = missing;
        self.inputs.push(described);
        name.to_owned()
    }

    /// Describes an input as one without a value that stands for a missing one.
    pub fn without_missing(&mut self, name: &str) {
        for input in &mut self.inputs {
            if input["name"] == name {
                input["missing"] = Json::Null;
            }
        }
    }

    /// An input of a list of texts per row: shorter lists have empty texts at their ends.
    pub fn list_input(&mut self, name: &str) -> Value {
        let parts = DimensionProto {
            value: Some(DimensionValue::Name(PARTS.to_owned())),
        };
        let dimensions = vec![rows_dimension(), parts];
        let info = value_info_of(name, TensorType::String, dimensions);
        self.graph.input.push(info);
        let mut described = described(name, TensorType::String, 1);
        described["shape"] = json!([ROWS, PARTS]);
        described["missing"] = json!("");
        self.inputs.push(described);
        name.to_owned()
    }

    /// Gives the value its name among the outputs, with one value per row.
    pub fn output(&mut self, name: &str, value: &Value, tensor_type: TensorType) {
        self.push("Identity", "", &[value], vec![name.to_owned()], Vec::new());
        self.graph.output.push(value_info(name, tensor_type, 1));
        self.outputs.push(described(name, tensor_type, 1));
    }

    pub fn node(&mut self, operator: &str, inputs: &[&Value]) -> Value {
        self.node_with(operator, inputs, Vec::new())
    }

    pub fn node_with(
        &mut self,
        operator: &str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
    ) -> Value {
        let output = self.new_name(operator);
        self.push(operator, "", inputs, vec![output.clone()], attributes);
        output
    }

    /// A node of `ai.onnx.ml`.
    pub fn ml_node(
        &mut self,
        operator: &str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
    ) -> Value {
        let output = self.new_name(operator);
        let outputs = vec![output.clone()];
        self.push(operator, ML_DOMAIN, inputs, outputs, attributes);
        output
    }

    /// A node of an operator that onnxruntime alone has.
    pub fn runtime_node(
        &mut self,
        operator: &str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
    ) -> Value {
        let output = self.new_name(operator);
        let outputs = vec![output.clone()];
        self.push(operator, RUNTIME_DOMAIN, inputs, outputs, attributes);
        output
    }

    /// A node with two outputs, as `TopK`.
    pub fn node_with_pair(
        &mut self,
        operator: &str,
        inputs: &[&Value],
        attributes: Vec<AttributeProto>,
    ) -> (Value, Value) {
        let first = self.new_name(operator);
        let second = format!("{first}_second");
        let outputs = vec![first.clone(), second.clone()];
        self.push(operator, "", inputs, outputs, attributes);
        (first, second)
    }

    pub fn cast(&mut self, value: &Value, to: TensorType) -> Value {
        self.node_with("Cast", &[value], vec![int_attribute("to", to as i64)])
    }

    pub fn constant(&mut self, tensor: TensorProto) -> Value {
        let name = format!("constant_{}", self.graph.initializer.len());
        self.graph.initializer.push(TensorProto {
            name: name.clone(),
            ..tensor
        });
        name
    }

    pub fn float(&mut self, value: f32) -> Value {
        self.constant(floats(&[], &[value]))
    }

    pub fn double(&mut self, value: f64) -> Value {
        self.constant(doubles(&[], &[value]))
    }

    pub fn int64(&mut self, value: i64) -> Value {
        self.constant(int64s(&[], &[value]))
    }

    /// Values of one column per row as a matrix of that column.
    pub fn as_column(&mut self, value: &Value) -> Value {
        let axes = self.constant(int64s(&[1], &[1]));
        self.node("Unsqueeze", &[value, &axes])
    }

    /// Column `number` of a matrix, one value per row.
    pub fn column(&mut self, matrix: &Value, number: usize) -> Value {
        let index = self.int64(number as i64);
        self.node_with("Gather", &[matrix, &index], vec![int_attribute("axis", 1)])
    }

    /// Matrices side by side.
    pub fn side_by_side(&mut self, matrices: &[Value]) -> Value {
        let inputs: Vec<&Value> = matrices.iter().collect();
        self.node_with("Concat", &inputs, vec![int_attribute("axis", 1)])
    }

    /// The bytes of the file.
    pub fn finish(self, mut metadata: Vec<(&str, String)>) -> Vec<u8> {
        let mut properties = Vec::new();
        metadata.push(("inputs", Json::from(self.inputs).to_string()));
        metadata.push(("outputs", Json::from(self.outputs).to_string()));
        for (key, value) in metadata {
            properties.push(StringStringEntryProto {
                key: format!("forebay.{key}"),
                value,
            });
        }
        let operators = OperatorSetIdProto {
            domain: String::new(),
            version: OPERATORS,
        };
        let ml_operators = OperatorSetIdProto {
            domain: ML_DOMAIN.to_owned(),
            version: ML_OPERATORS,
        };
        let mut operator_sets = vec![operators, ml_operators];
        // Other runtimes refuse a file that names the domain.
        if self
            .graph
            .node
            .iter()
            .any(|node| node.domain == RUNTIME_DOMAIN)
        {
            operator_sets.push(OperatorSetIdProto {
                domain: RUNTIME_DOMAIN.to_owned(),
                version: RUNTIME_OPERATORS,
            });
        }
        let model = ModelProto {
            ir_version: IR_VERSION,
            producer_name: "forebay".to_owned(),
            producer_version: env!("CARGO_PKG_VERSION").to_owned(),
            graph: Some(self.graph),
            opset_import: operator_sets,
            metadata_props: properties,
        };
        model.encode_to_vec()
    }

    fn new_name(&self, operator: &str) -> Value {
        format!("{operator}_{}", self.graph.node.len())
    }

    fn push(
        &mut self,
        operator: &str,
        domain: &str,
        inputs: &[&Value],
        outputs: Vec<Value>,
        attributes: Vec<AttributeProto>,
    ) {
        self.graph.node.push(NodeProto {
            input: inputs.iter().map(|input| (*input).clone()).collect(),
            name: format!("{operator}_{}", self.graph.node.len()),
            output: outputs,
            op_type: operator.to_owned(),
            attribute: attributes,
            domain: domain.to_owned(),
        });
    }
}

/// Name, type and shape of a value, in JSON.
fn described(name: &str, tensor_type: TensorType, width: usize) -> Json {
    let type_name = match tensor_type {
        TensorType::Float => "float32",
        TensorType::Double => "float64",
        TensorType::Int64 => "int64",
        TensorType::Uint8 => "uint8",
        TensorType::String => "string",
    };
    let shape = if width == 1 {
        json!([ROWS])
    } else {
        json!([ROWS, width])
    };
    json!({ "name": name, "type": type_name, "shape": shape })
}

fn value_info(name: &str, tensor_type: TensorType, width: usize) -> ValueInfoProto {
    let mut dimensions = vec![rows_dimension()];
    if width != 1 {
        dimensions.push(DimensionProto {
            value: Some(DimensionValue::Size(width as i64)),
        });
    }
    value_info_of(name, tensor_type, dimensions)
}

fn rows_dimension() -> DimensionProto {
    DimensionProto {
        value: Some(DimensionValue::Name(ROWS.to_owned())),
    }
}

fn value_info_of(
    name: &str,
    tensor_type: TensorType,
    dimensions: Vec<DimensionProto>,
) -> ValueInfoProto {
    let tensor = TensorTypeProto {
        elem_type: tensor_type as i32,
        shape: Some(TensorShapeProto { dim: dimensions }),
    };
    ValueInfoProto {
        name: name.to_owned(),
        r#type: Some(TypeProto {
            tensor_type: Some(tensor),
        }),
    }
}

pub fn int_attribute(name: &str, value: i64) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        i: value,
        r#type: AttributeKind::Int as i32,
        ..AttributeProto::default()
    }
}

pub fn string_attribute(name: &str, value: &str) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        s: value.as_bytes().to_vec(),
        r#type: AttributeKind::String as i32,
        ..AttributeProto::default()
    }
}

pub fn ints_attribute(name: &str, values: Vec<i64>) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        ints: values,
        r#type: AttributeKind::Ints as i32,
        ..AttributeProto::default()
    }
}

pub fn strings_attribute(name: &str, values: Vec<String>) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        strings: values.into_iter().map(String::into_bytes).collect(),
        r#type: AttributeKind::Strings as i32,
        ..AttributeProto::default()
    }
}

pub fn tensor_attribute(name: &str, tensor: TensorProto) -> AttributeProto {
    AttributeProto {
        name: name.to_owned(),
        t: Some(tensor),
        r#type: AttributeKind::Tensor as i32,
        ..AttributeProto::default()
    }
}

/// A tensor of these dimensions; none for a single number.
pub fn floats(dimensions: &[usize], values: &[f32]) -> TensorProto {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    tensor(TensorType::Float, dimensions, bytes.collect())
}

pub fn doubles(dimensions: &[usize], values: &[f64]) -> TensorProto {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    tensor(TensorType::Double, dimensions, bytes.collect())
}

pub fn int64s(dimensions: &[usize], values: &[i64]) -> TensorProto {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes());
    tensor(TensorType::Int64, dimensions, bytes.collect())
}

pub fn bytes(dimensions: &[usize], values: &[u8]) -> TensorProto {
    tensor(TensorType::Uint8, dimensions, values.to_vec())
}

/// A tensor of one dimension.
pub fn texts(values: &[String]) -> TensorProto {
    let texts = values.iter().map(|text| text.clone().into_bytes());
    TensorProto {
        string_data: texts.collect(),
        ..tensor(TensorType::String, &[values.len()], Vec::new())
    }
}

fn tensor(tensor_type: TensorType, dimensions: &[usize], raw_data: Vec<u8>) -> TensorProto {
    TensorProto {
        dims: dimensions.iter().map(|size| *size as i64).collect(),
        data_type: tensor_type as i32,
        string_data: Vec::new(),
        name: String::new(),
        raw_data,
    }
}
