//! Parameters as tensors in a file.

use std::collections::HashMap;

use forebay_model::{Fault, Result, codes};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensorError, SafeTensors};

use super::network::{ModelParameters, ModelShape};

/// The one key of the file's own words: maps of several have no order.
pub const WORDS_KEY: &str = "forebay";

/// Tensors by name.
pub type NamedTensors<'a> = Vec<(String, Vec<usize>, &'a [f32])>;

/// The tensors of some parameters, named as PyTorch would: `layers.0.weight` is `[outputs, inputs]`.
pub fn named_tensors<'a>(
    shape: &ModelShape,
    parameters: &'a ModelParameters,
    prefix: &str,
) -> NamedTensors<'a> {
    let mut tensors = Vec::new();
    for (number, layer) in shape.layers().into_iter().enumerate() {
        let weights = &parameters.layers[layer.weights];
        tensors.push((
            format!("{prefix}layers.{number}.weight"),
            vec![layer.outputs, layer.inputs],
            weights,
        ));
        let biases = &parameters.layers[layer.biases];
        tensors.push((
            format!("{prefix}layers.{number}.bias"),
            vec![layer.outputs],
            biases,
        ));
    }
    for (embedding, table) in shape.embeddings.iter().zip(&parameters.tables) {
        let size = vec![embedding.rows, embedding.width];
        tensors.push((
            format!("{prefix}embeddings.{}", embedding.column),
            size,
            table.as_slice(),
        ));
    }
    tensors
}

/// A tensor with the bytes of its values.
pub struct EncodedTensor {
    pub name: String,
    pub data_type: Dtype,
    pub size: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// The bytes of numbers in a file.
pub fn real_bytes(values: &[f32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * 4);
    append_reals(values, &mut bytes);
    bytes
}

pub fn append_reals(values: &[f32], bytes: &mut Vec<u8>) {
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
}

/// The bytes of whole numbers in a file.
pub fn whole_bytes(values: &[i32]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(values.len() * 4);
    append_wholes(values, &mut bytes);
    bytes
}

pub fn append_wholes(values: &[i32], bytes: &mut Vec<u8>) {
    for value in values {
        bytes.extend_from_slice(&value.to_le_bytes());
    }
}

/// A file of encoded tensors and words.
pub fn write_encoded(tensors: &[EncodedTensor], words: String) -> Result<Vec<u8>, SafeTensorError> {
    let mut views = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let view = TensorView::new(tensor.data_type, tensor.size.clone(), &tensor.bytes)?;
        views.push((tensor.name.as_str(), view));
    }
    let metadata = HashMap::from([(WORDS_KEY.to_owned(), words)]);
    safetensors::serialize(views, Some(metadata))
}

/// A file of tensors and words.
pub fn write_tensors(tensors: &NamedTensors<'_>, words: String) -> Result<Vec<u8>> {
    let mut encoded = Vec::with_capacity(tensors.len());
    for (name, size, values) in tensors {
        encoded.push(EncodedTensor {
            name: name.clone(),
            data_type: Dtype::F32,
            size: size.clone(),
            bytes: real_bytes(values),
        });
    }
    write_encoded(&encoded, words)
        .map_err(|error| Fault::internal("a model cannot be written").cause(error))
}

/// A file that was read.
pub struct TensorFile<'a> {
    tensors: SafeTensors<'a>,
    /// Metadata of the file.
    pub words: String,
}

impl<'a> TensorFile<'a> {
    /// Looks into the bytes of a file.
    pub fn read(bytes: &'a [u8]) -> Result<TensorFile<'a>> {
        let (_, head) = SafeTensors::read_metadata(bytes)
            .map_err(|error| invalid_model_fault().cause(error))?;
        let words = head
            .metadata()
            .as_ref()
            .and_then(|words| words.get(WORDS_KEY))
            .cloned()
            .ok_or_else(invalid_model_fault)?;
        let tensors =
            SafeTensors::deserialize(bytes).map_err(|error| invalid_model_fault().cause(error))?;
        Ok(TensorFile { tensors, words })
    }

    /// The parameters of a shape.
    pub fn parameters(&self, shape: &ModelShape, prefix: &str) -> Result<ModelParameters> {
        let mut parameters = ModelParameters::zeros(shape);
        let names: Vec<(String, Vec<usize>)> = named_tensors(shape, &parameters, prefix)
            .into_iter()
            .map(|(name, size, _)| (name, size))
            .collect();
        let layers = shape.layers();
        let ranges = layers
            .iter()
            .flat_map(|layer| [layer.weights.clone(), layer.biases.clone()]);
        let (of_layers, of_tables) = names.split_at(layers.len() * 2);
        for ((name, size), range) in of_layers.iter().zip(ranges) {
            self.copy(name, size, &mut parameters.layers[range])?;
        }
        for ((name, size), table) in of_tables.iter().zip(&mut parameters.tables) {
            self.copy(name, size, table)?;
        }
        Ok(parameters)
    }

    fn copy(&self, name: &str, size: &[usize], to: &mut [f32]) -> Result<()> {
        let tensor = self
            .tensors
            .tensor(name)
            .map_err(|error| invalid_model_fault().cause(error))?;
        if tensor.dtype() != Dtype::F32 || tensor.shape() != size {
            let message = format!("the tensor `{name}` is {:?}, not {size:?}", tensor.shape());
            return Err(Fault::new(codes::CORRUPT, message).hint("train the model again"));
        }
        for (value, bytes) in to.iter_mut().zip(tensor.data().chunks_exact(4)) {
            *value = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        }
        Ok(())
    }
}

/// The fault of a file that is no model.
pub fn invalid_model_fault() -> Fault {
    Fault::new(codes::CORRUPT, "this is no model that Forebay has trained")
        .hint("give the directory of a `train` sink, or train the model again")
}
