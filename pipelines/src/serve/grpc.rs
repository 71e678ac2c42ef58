//! The Open Inference Protocol by gRPC: `inference.GRPCInferenceService`.
//!
//! Answers are in `raw_output_contents`, which all clients read.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array,
    UInt32Array, UInt64Array,
};
use arrow::compute::{CastOptions, cast_with_options};
use arrow::datatypes::{DataType, Schema};
use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::routing::post;
use http::{HeaderValue, Response};
use http_body_util::Full;
use prost::Message;
use tonic::server::{Grpc, UnaryService};
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::batch_queue::AnswerForm;
use super::body::{off_network, read_body};
use super::error::ServeError;
use super::formats::NamedColumns;
use super::grpc_compression::{ACCEPT_ENCODING, ACCEPTED, ENCODING, MessageEncoding};
use super::grpc_messages::*;
use super::open_inference::{
    add_column, check_rows, described_columns, named_model, output_column,
};
use super::service::{RowsQuestion, ServeService};
use super::tensor::{
    NULL_ROWS, OutputTensor, TensorShape, TensorType, null_rows_are_no_text, read_binary,
    texts_of_bytes, with_null_rows,
};

/// Path of the service.
pub(super) const PATH: &str = "/inference.GRPCInferenceService/";

pub(super) fn routes() -> Router<Arc<ServeService>> {
    Router::new().route("/inference.GRPCInferenceService/{method}", post(call))
}

/// A status without messages.
pub(super) fn error_response(status: Status) -> Response<Body> {
    status.into_http::<tonic::body::Body>().map(Body::new)
}

async fn call(
    State(service): State<Arc<ServeService>>,
    Path(method): Path<String>,
    request: Request,
) -> Response<Body> {
    let answered = answer(&service, &method, request).await;
    let mut response = answered.unwrap_or_else(|error| error_response(Status::from(error)));
    let accepted = HeaderValue::from_static(ACCEPTED);
    response.headers_mut().insert(ACCEPT_ENCODING, accepted);
    response
}

/// The answer to a call, compressed as its request is where the client takes that.
async fn answer(
    service: &Arc<ServeService>,
    method: &str,
    request: Request,
) -> Result<Response<Body>, ServeError> {
    // The messages of these calls are whole in memory, as those of HTTP are.
    let (mut parts, body) = request.into_parts();
    let encoding = MessageEncoding::of_request(&parts.headers)?;
    let mut body = read_body(service, &parts.headers, body).await?;
    if let Some(encoding) = encoding {
        parts.headers.remove(ENCODING);
        let most = service.limits.request_bytes;
        // A few bytes may become many.
        body = off_network(service, move || encoding.unpack(body, most)).await?;
    }
    let answer_encoding = encoding.filter(|encoding| encoding.is_accepted(&parts.headers));
    let request = http::Request::from_parts(parts, Full::new(body.bytes.clone()));
    let response = match method {
        "ServerLive" => unary(service, request, server_live).await,
        "ServerReady" => unary(service, request, server_ready).await,
        "ModelReady" => unary(service, request, model_ready).await,
        "ServerMetadata" => unary(service, request, server_metadata).await,
        "ModelMetadata" => unary(service, request, model_metadata).await,
        "ModelInfer" => unary(service, request, model_infer).await,
        _ => {
            let message = format!("`{method}` is no call of this server");
            error_response(Status::new(Code::Unimplemented, message))
        }
    };
    Ok(match answer_encoding {
        Some(encoding) => encoding.pack(response).await,
        None => response,
    })
}

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, ServeError>> + Send>>;

/// A call of one message and one answer.
struct UnaryCall<Q, A> {
    service: Arc<ServeService>,
    answer: fn(Arc<ServeService>, Q) -> Answer<A>,
}

impl<Q, A> UnaryService<Q> for UnaryCall<Q, A>
where
    Q: Send + 'static,
    A: Send + 'static,
{
    type Response = A;
    type Future = Pin<Box<dyn Future<Output = Result<tonic::Response<A>, Status>> + Send>>;

    fn call(&mut self, request: tonic::Request<Q>) -> Self::Future {
        let answer = (self.answer)(self.service.clone(), request.into_inner());
        Box::pin(async move { Ok(tonic::Response::new(answer.await?)) })
    }
}

async fn unary<Q, A>(
    service: &Arc<ServeService>,
    request: http::Request<Full<bytes::Bytes>>,
    answer: fn(Arc<ServeService>, Q) -> Answer<A>,
) -> Response<Body>
where
    Q: Message + Default + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let call = UnaryCall {
        service: service.clone(),
        answer,
    };
    let most = service.limits.request_bytes;
    let mut grpc =
        Grpc::new(ProstCodec::<A, Q>::default()).apply_max_message_size_config(Some(most), None);
    grpc.unary(call, request).await.map(Body::new)
}

fn server_live(_: Arc<ServeService>, _: ServerLiveRequest) -> Answer<ServerLiveResponse> {
    Box::pin(async { Ok(ServerLiveResponse { live: true }) })
}

fn server_ready(service: Arc<ServeService>, _: ServerReadyRequest) -> Answer<ServerReadyResponse> {
    Box::pin(async move {
        Ok(ServerReadyResponse {
            ready: service.is_ready(),
        })
    })
}

fn model_ready(
    service: Arc<ServeService>,
    request: ModelReadyRequest,
) -> Answer<ModelReadyResponse> {
    Box::pin(async move {
        named_model(&service, &request.name, &request.version)?;
        Ok(ModelReadyResponse {
            ready: service.is_ready(),
        })
    })
}

fn server_metadata(
    _: Arc<ServeService>,
    _: ServerMetadataRequest,
) -> Answer<ServerMetadataResponse> {
    Box::pin(async {
        Ok(ServerMetadataResponse {
            name: "forebay".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            extensions: Vec::new(),
        })
    })
}

fn model_metadata(
    service: Arc<ServeService>,
    request: ModelMetadataRequest,
) -> Answer<ModelMetadataResponse> {
    Box::pin(async move {
        let model = named_model(&service, &request.name, &request.version)?;
        Ok(ModelMetadataResponse {
            name: service.name.clone(),
            versions: service.versions.ids(),
            platform: model.platform().to_owned(),
            inputs: tensor_metadata(model.inputs()),
            outputs: tensor_metadata(model.outputs()),
        })
    })
}

fn tensor_metadata(schema: &Schema) -> Vec<TensorMetadata> {
    described_columns(schema)
        .into_iter()
        .map(|(name, datatype, shape)| TensorMetadata {
            name,
            datatype: datatype.to_owned(),
            shape,
        })
        .collect()
}

fn model_infer(
    service: Arc<ServeService>,
    request: ModelInferRequest,
) -> Answer<ModelInferResponse> {
    Box::pin(async move {
        let model = named_model(&service, &request.model_name, &request.model_version)?;
        let question = RowsQuestion {
            rows: model.input_batch(input_columns(&request)?)?,
            form: AnswerForm::Aligned,
            version: Some(request.model_version.clone()),
        };
        let answer = service.answer(question).await?;
        let mut response = ModelInferResponse {
            model_name: service.name.clone(),
            model_version: answer.version,
            id: request.id,
            ..ModelInferResponse::default()
        };
        let names: Vec<String> = if request.outputs.is_empty() {
            let fields = answer.rows.schema_ref().fields().iter();
            fields.map(|field| field.name().clone()).collect()
        } else {
            let outputs = request.outputs.into_iter();
            outputs.map(|output| output.name).collect()
        };
        for name in names {
            let column = output_column(&answer.rows, &name)?;
            let tensor = OutputTensor::new(&name, column)?;
            response.raw_output_contents.push(tensor.to_binary().into());
            response.outputs.push(InferOutputTensor {
                datatype: tensor.tensor_type.name().to_owned(),
                parameters: null_parameter(&tensor),
                name,
                shape: tensor.shape,
            });
        }
        Ok(response)
    })
}

fn null_parameter(tensor: &OutputTensor) -> HashMap<String, InferParameter> {
    let parameter = |rows: String| InferParameter {
        choice: Some(ParameterChoice::Text(rows)),
    };
    let rows = tensor.null_rows().map(parameter);
    rows.map(|rows| (NULL_ROWS.to_owned(), rows))
        .into_iter()
        .collect()
}

fn input_columns(request: &ModelInferRequest) -> Result<NamedColumns, ServeError> {
    let raw = &request.raw_input_contents;
    if !raw.is_empty() && raw.len() != request.inputs.len() {
        return Err(ServeError::bad_request(format!(
            "the request has {} inputs and {} raw contents",
            request.inputs.len(),
            raw.len()
        )));
    }
    let mut columns = NamedColumns::new();
    let mut rows = None;
    for (index, input) in request.inputs.iter().enumerate() {
        let name = &input.name;
        let shape = TensorShape::read(name, &input.shape)?;
        check_rows(name, shape, &mut rows)?;
        let tensor_type = TensorType::parse(&input.datatype)?;
        let values = match raw.get(index) {
            Some(bytes) => read_binary(name, tensor_type, shape.values(name)?, bytes)?,
            None => read_contents(name, tensor_type, shape.values(name)?, input)?,
        };
        let column = shape.column(values)?;
        let null_rows = input.parameters.get(NULL_ROWS);
        let column = match null_rows.and_then(|parameter| parameter.choice.as_ref()) {
            Some(ParameterChoice::Text(null_rows)) => with_null_rows(name, column, null_rows)?,
            Some(_) => return Err(null_rows_are_no_text(name)),
            None => column,
        };
        add_column(&mut columns, name, column)?;
    }
    if columns.is_empty() {
        return Err(ServeError::bad_request("the request has no inputs"));
    }
    Ok(columns)
}

/// The values of typed contents.
fn read_contents(
    name: &str,
    tensor_type: TensorType,
    values: usize,
    input: &InferInputTensor,
) -> Result<ArrayRef, ServeError> {
    let empty = InferTensorContents::default();
    let contents = input.contents.as_ref().unwrap_or(&empty);
    let column: ArrayRef = match tensor_type {
        TensorType::Bool => Arc::new(BooleanArray::from(contents.bool_contents.clone())),
        TensorType::Int8 => narrowed(name, int_column(contents), &DataType::Int8)?,
        TensorType::Int16 => narrowed(name, int_column(contents), &DataType::Int16)?,
        TensorType::Int32 => int_column(contents),
        TensorType::Int64 => Arc::new(Int64Array::from(contents.int64_contents.clone())),
        TensorType::UInt8 => narrowed(name, uint_column(contents), &DataType::UInt8)?,
        TensorType::UInt16 => narrowed(name, uint_column(contents), &DataType::UInt16)?,
        TensorType::UInt32 => uint_column(contents),
        TensorType::UInt64 => Arc::new(UInt64Array::from(contents.uint64_contents.clone())),
        TensorType::Float32 => Arc::new(Float32Array::from(contents.fp32_contents.clone())),
        TensorType::Float64 => Arc::new(Float64Array::from(contents.fp64_contents.clone())),
        TensorType::Bytes => {
            let texts = contents.bytes_contents.iter();
            texts_of_bytes(name, BinaryArray::from_iter_values(texts))?
        }
        TensorType::Float16 => {
            return Err(ServeError::bad_request(format!(
                "input `{name}`: FP16 has no typed contents; send `raw_input_contents`"
            )));
        }
    };
    if column.len() == values {
        return Ok(column);
    }
    Err(ServeError::bad_request(format!(
        "input `{name}` has {} values of {}, and its shape needs {values}",
        column.len(),
        tensor_type.name()
    )))
}

fn int_column(contents: &InferTensorContents) -> ArrayRef {
    Arc::new(Int32Array::from(contents.int_contents.clone()))
}

fn uint_column(contents: &InferTensorContents) -> ArrayRef {
    Arc::new(UInt32Array::from(contents.uint_contents.clone()))
}

fn narrowed(name: &str, column: ArrayRef, data_type: &DataType) -> Result<ArrayRef, ServeError> {
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    cast_with_options(&column, data_type, &strict)
        .map_err(|error| ServeError::bad_request(format!("input `{name}`: {error}")))
}
