//! The Flight service of one job.
//!
//! Owns: the answer of each call, and the limit on concurrent reads.
//! Does not own: the end of a read (`bounded`), authentication (`endpoint` checks the token before
//! each call), or the socket.

use std::sync::{Arc, Weak};
use std::time::Duration;

use arrow::ipc::writer::IpcWriteOptions;
use arrow_array::RecordBatch;
use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_server::FlightService;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaAsIpc, SchemaResult, Ticket,
};
use arrow_schema::{ArrowError, DataType, Schema, SchemaRef};
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use lancemem::Job;
use lancemem::sstable::Chunks;
use lancemem_core::format::RowSchema;
use lancemem_core::memtable::MemTableView;
use lancemem_core::types::{Error, ErrorKind};
use tokio::sync::{Semaphore, watch};
use tonic::{Request, Response, Status, Streaming};

use crate::bounded::bounded;
use crate::latest::{self, NewestRows};
use crate::wire::{Ask, Header, Part, ROWS, SNAPSHOT};

type Answer<T> = Result<Response<T>, Status>;
type Answers<T> = BoxStream<'static, Result<T, Status>>;

/// Answers calls for a job, to which it holds a weak reference: an endpoint does not keep a job
/// alive.
#[derive(Debug)]
pub(crate) struct JobService {
    job: Weak<Job>,
    streams: Arc<Semaphore>,
    stall: Duration,
    ended: watch::Receiver<bool>,
}

/// The limits on reads of an endpoint.
pub(crate) struct Limits {
    /// Reads at a time.
    pub streams: usize,
    /// How long a reader may take no message before its read ends.
    pub stall: Duration,
}

/// Refuses the newest rows of memory alone where a merge rule may prefer a row of the table to them, or
/// makes a row of both.
fn refuse_rule(rows: &RowSchema) -> Result<(), Error> {
    let chooses = rows.rule().map(|rule| rule.rule());
    let Some(rule) = chooses.or_else(|| rows.fold().map(|fold| fold.rule())) else {
        return Ok(());
    };
    Err(Error::input(format!(
        "the table has merge_engine '{}', so the rows in memory are not the rows of the table; read \
         the table with consistency 'live' and this job",
        rule.engine().name()
    )))
}

impl JobService {
    /// A service of `job` within `limits`, until `ended` is true.
    pub fn new(job: Weak<Job>, limits: &Limits, ended: watch::Receiver<bool>) -> Self {
        Self { job, streams: Arc::new(Semaphore::new(limits.streams)), stall: limits.stall, ended }
    }

    fn job(&self) -> Result<Arc<Job>, Status> {
        let job = self.job.upgrade().filter(|_| !*self.ended.borrow());
        job.ok_or_else(|| Status::failed_precondition("the job has ended"))
    }

    async fn read(&self, ask: Ask) -> Result<Answers<FlightData>, Status> {
        let job = self.job()?;
        // Ownership is checked against storage after the snapshot was taken. A job that was fenced
        // without having noticed must not show rows that its successor has replaced.
        let snapshot = job.owned_snapshot().await.map_err(|error| refusal(&error))?;
        match ask {
            Ask::Rows => {
                let rows = job.row_schema();
                refuse_rule(&rows).map_err(|error| refusal(&error))?;
                let schema = latest::columns(&rows);
                refuse_large_lists(&schema).map_err(|error| refusal(&error))?;
                let columns = schema.clone();
                let choose = move || NewestRows::of(columns, rows, snapshot.memtables);
                let rows = tokio::task::spawn_blocking(choose).await;
                let rows =
                    rows.map_err(|_| Status::internal("choosing the newest rows panicked"))?;
                Ok(encode(schema, Vec::new(), stream::iter(rows)))
            }
            Ask::Snapshot(held) => {
                let header = Header::of_snapshot(&job, &snapshot, &held);
                let rows = job.row_schema();
                let schema = rows.storage().clone();
                refuse_large_lists(&schema).map_err(|error| refusal(&error))?;
                let parts: Vec<_> = header.parts.iter().cloned().zip(snapshot.memtables).collect();
                let rows =
                    parts.into_iter().flat_map(move |(part, view)| missing(&part, &view, &rows));
                Ok(encode(schema, header.encode(), stream::iter(rows)))
            }
        }
    }

    fn info(&self, name: &str) -> Result<FlightInfo, Status> {
        let job = self.job()?;
        let header = Header::of_job(&job);
        let schema = match name {
            ROWS => latest::columns(&job.row_schema()),
            SNAPSHOT => job.row_schema().storage().clone(),
            _ => return Err(Status::not_found("this endpoint serves 'rows' and 'snapshot'")),
        };
        let info = FlightInfo::new()
            .try_with_schema(&schema)
            .map_err(|error| Status::internal(error.to_string()))?;
        Ok(info
            .with_descriptor(FlightDescriptor::new_path(vec![name.to_owned()]))
            .with_endpoint(FlightEndpoint::new().with_ticket(Ticket::new(name.to_owned())))
            .with_total_records(-1)
            .with_total_bytes(-1)
            .with_app_metadata(header.encode()))
    }
}

/// The rows of a MemTable that a reader lacks, with the job's present columns. Small batches are
/// concatenated.
fn missing(
    part: &Part,
    view: &MemTableView,
    rows: &Arc<RowSchema>,
) -> impl Iterator<Item = Result<RecordBatch, ArrowError>> + Send + use<> {
    let mut skipped = part.from_row;
    let mut batches = Vec::new();
    for batch in view.batches() {
        let known = skipped.min(batch.num_rows());
        skipped -= known;
        if known < batch.num_rows() {
            batches.push(batch.slice(known, batch.num_rows() - known));
        }
    }
    let rows = rows.clone();
    Chunks::of(batches).map(move |batch| {
        let brought = rows.reconcile(&batch?);
        brought.map_err(|error| ArrowError::ExternalError(Box::new(error)))
    })
}

/// Refuses large lists. arrow-flight 58 encodes their type as small lists but sends 64-bit offsets,
/// so a reader would get wrong values.
pub(crate) fn refuse_large_lists(schema: &Schema) -> Result<(), Error> {
    let Some(column) = schema.fields().iter().find(|field| has_large_list(field.data_type()))
    else {
        return Ok(());
    };
    Err(Error::input(format!(
        "column '{}' has large lists, which a job cannot serve; use lists with 32-bit offsets",
        column.name()
    )))
}

fn has_large_list(data_type: &DataType) -> bool {
    match data_type {
        DataType::LargeList(_) => true,
        DataType::List(item) | DataType::FixedSizeList(item, _) | DataType::Map(item, _) => {
            has_large_list(item.data_type())
        }
        DataType::Struct(parts) => parts.iter().any(|part| has_large_list(part.data_type())),
        _ => false,
    }
}

fn encode(
    schema: SchemaRef,
    metadata: Vec<u8>,
    batches: impl Stream<Item = Result<RecordBatch, ArrowError>> + Send + 'static,
) -> Answers<FlightData> {
    FlightDataEncoderBuilder::new()
        .with_schema(schema)
        .with_metadata(metadata.into())
        .with_dictionary_handling(DictionaryHandling::Resend)
        .build(batches.map_err(FlightError::Arrow))
        .map_err(Status::from)
        .boxed()
}

/// The status of an error. Its code depends on what the caller can do next.
fn refusal(error: &Error) -> Status {
    let text = error.to_string();
    match error.kind() {
        ErrorKind::Fenced | ErrorKind::Held | ErrorKind::Reopen => {
            Status::failed_precondition(text)
        }
        ErrorKind::InvalidInput => Status::invalid_argument(text),
        ErrorKind::Retry => Status::unavailable(text),
        _ => Status::internal(text),
    }
}

fn not_offered<T>(call: &str) -> Answer<T> {
    Err(Status::unimplemented(format!("{call}: a job offers DoGet of 'rows' and 'snapshot'")))
}

fn name_of(descriptor: &FlightDescriptor) -> &str {
    match descriptor.path.as_slice() {
        [name] => name,
        _ => "",
    }
}

#[tonic::async_trait]
impl FlightService for JobService {
    type HandshakeStream = Answers<HandshakeResponse>;
    type ListFlightsStream = Answers<FlightInfo>;
    type DoGetStream = Answers<FlightData>;
    type DoPutStream = Answers<PutResult>;
    type DoExchangeStream = Answers<FlightData>;
    type DoActionStream = Answers<arrow_flight::Result>;
    type ListActionsStream = Answers<ActionType>;

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        let ask = Ask::parse(&request.into_inner().ticket).map_err(|error| refusal(&error))?;
        let permit = self.streams.clone().try_acquire_owned().map_err(|_| {
            Status::resource_exhausted(
                "as many reads run as max_streams of this endpoint allows; call again",
            )
        })?;
        let messages = self.read(ask).await?;
        Ok(Response::new(bounded(messages, permit, self.ended.clone(), self.stall)))
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        self.info(name_of(request.get_ref())).map(Response::new)
    }

    async fn get_schema(&self, request: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        let job = self.job()?;
        if name_of(request.get_ref()) != ROWS {
            return Err(Status::not_found("this endpoint serves the schema of 'rows'"));
        }
        let (schema, options) = (latest::columns(&job.row_schema()), IpcWriteOptions::default());
        SchemaResult::try_from(SchemaAsIpc::new(&schema, &options))
            .map(Response::new)
            .map_err(|error| Status::internal(error.to_string()))
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        let info = self.info(ROWS)?;
        Ok(Response::new(stream::iter([Ok(info)]).boxed()))
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Self::ListActionsStream> {
        Ok(Response::new(stream::empty().boxed()))
    }

    async fn handshake(
        &self,
        _: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        not_offered("Handshake")
    }

    async fn poll_flight_info(&self, _: Request<FlightDescriptor>) -> Answer<PollInfo> {
        not_offered("PollFlightInfo")
    }

    async fn do_put(&self, _: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        not_offered("DoPut")
    }

    async fn do_exchange(
        &self,
        _: Request<Streaming<FlightData>>,
    ) -> Answer<Self::DoExchangeStream> {
        not_offered("DoExchange")
    }

    async fn do_action(&self, _: Request<Action>) -> Answer<Self::DoActionStream> {
        not_offered("DoAction")
    }
}
