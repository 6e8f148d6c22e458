//! A remote job: a job of another process, at its reader's end.
//!
//! Owns: requesting a snapshot and rebuilding it, the copy of rows that were received before, and
//! the conversion of errors of the other end.
//! Does not own: the read over the snapshot, or the check that the job still owns its shard. The
//! job's process makes that check, against storage, for every snapshot.

use std::collections::HashMap;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_flight::decode::{DecodedPayload, FlightDataDecoder};
use arrow_flight::error::FlightError;
use arrow_flight::flight_service_client::FlightServiceClient;
use arrow_flight::{FlightData, FlightDescriptor, Ticket};
use async_recursion::async_recursion as boxed;
use async_trait::async_trait;
use futures::{StreamExt, TryStreamExt};
use lancemem::{Catalog, LiveJob, VersionStamp};
use lancemem_core::format::RowSchema;
use lancemem_core::memtable::MemTable;
use lancemem_core::shard::{ShardSnapshot, memtable_layout};
use lancemem_core::types::{Error, KeyIndexKind, Result, ShardId, WriterEpoch};
use tokio::sync::Mutex;
use tokio::time::timeout;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, Endpoint as Connection};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::address::Address;
use crate::tls;
use crate::token::{HEADER, Token};
use crate::wire::{Ask, Header, Held, Part, SNAPSHOT};

/// How long the other end may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(10);
/// Retries of a request whose connection broke, and the pause before each.
const REPEATS: usize = 2;
const REPEAT_PAUSE: Duration = Duration::from_millis(10);
/// Bytes of the largest message, the limit of protobuf: one row may be that large.
const MESSAGE_BYTES: usize = i32::MAX as usize;

/// A job that another process serves with [`serve`](crate::serve).
pub struct RemoteJob {
    location: String,
    shard_id: ShardId,
    client: FlightServiceClient<Channel>,
    token: MetadataValue<Ascii>,
    /// The rows that were received before. A read extends them and holds the lock until its end.
    copy: Mutex<LocalCopy>,
}

/// The part of the job's MemTables that was received.
#[derive(Debug, Default)]
struct LocalCopy {
    /// The table that the job writes to, and the base version by which that was checked.
    table: Option<(String, VersionStamp)>,
    epoch: WriterEpoch,
    memtables: HashMap<u64, Arc<MemTable>>,
}

impl RemoteJob {
    /// Connects to the job at `location`. With TLS the server's certificate must be signed by one
    /// of the certificates in the PEM file `tls_root_certificates`.
    ///
    /// # Errors
    /// An input error for a malformed location, unreadable certificates, or a token that is
    /// refused; a storage error where the endpoint does not answer.
    #[boxed]
    pub async fn connect(
        location: &str,
        token: &Token,
        tls_root_certificates: Option<PathBuf>,
    ) -> Result<Arc<Self>> {
        let address = Address::parse(location)?;
        let location = address.location();
        if !address.tls && tls_root_certificates.is_some() {
            return Err(Error::input(format!(
                "{location} is without TLS, so tls_root_certificates cannot be used; the location of a \
                 job that is served with TLS begins with grpc+tls://"
            )));
        }
        let unusable = |error: tonic::transport::Error| {
            Error::input(format!("cannot connect to {location}: {error}"))
        };
        let mut connection = Connection::from_shared(address.url())
            .map_err(unusable)?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(CONNECT)
            .keep_alive_timeout(CONNECT)
            .tcp_nodelay(true);
        if address.tls {
            let Some(roots) = tls_root_certificates else {
                return Err(Error::input(format!(
                    "{location} uses TLS: pass tls_root_certificates, a PEM file with the certificate \
                     that signed the certificate of the server"
                )));
            };
            let settings = tls::client_config(&roots).await?;
            connection = connection.tls_config(settings).map_err(unusable)?;
        }
        let channel =
            connection.connect().await.map_err(|error| unreachable_job(&location, &error))?;
        let client = FlightServiceClient::new(channel).max_decoding_message_size(MESSAGE_BYTES);
        let mut job = Self {
            location,
            shard_id: ShardId::nil(),
            client,
            token: token.header()?,
            copy: Mutex::default(),
        };
        job.shard_id = job.describe().await?.shard_id;
        Ok(Arc::new(job))
    }

    /// The location of the job's endpoint.
    #[must_use]
    pub fn location(&self) -> &str {
        &self.location
    }

    async fn describe(&self) -> Result<Header> {
        let request = self.request(FlightDescriptor::new_path(vec![SNAPSHOT.to_owned()]));
        let mut client = self.client.clone();
        let info = timeout(PATIENCE, client.get_flight_info(request)).await;
        let info = info.map_err(|_| self.silent())?.map_err(|status| self.refusal(&status))?;
        Header::parse(&info.get_ref().app_metadata)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        request.metadata_mut().insert(HEADER, self.token.clone());
        request
    }

    /// Sends a request, and retries where the connection breaks. A broken connection does not mean
    /// that the job has ended: over the next connection it either answers, or the connection is
    /// refused.
    async fn ask(&self, question: &Ask) -> Result<FlightDataDecoder> {
        let ticket = Ticket::new(question.encode());
        let mut answer = self.do_get(ticket.clone()).await?;
        for _ in 0..REPEATS {
            if !answer.as_ref().is_err_and(is_broken) {
                break;
            }
            // The channel needs a moment to notice that its connection is closed.
            #[expect(clippy::disallowed_methods, reason = "the pause is the point")]
            tokio::time::sleep(REPEAT_PAUSE).await;
            answer = self.do_get(ticket.clone()).await?;
        }
        let answer = answer.map_err(|status| self.refusal(&status))?;
        Ok(FlightDataDecoder::new(answer.into_inner().map_err(FlightError::from)))
    }

    async fn do_get(
        &self,
        ticket: Ticket,
    ) -> Result<Result<Response<Streaming<FlightData>>, Status>> {
        let mut client = self.client.clone();
        let answer = timeout(PATIENCE, client.do_get(self.request(ticket))).await;
        answer.map_err(|_| self.silent())
    }

    /// A snapshot of the job. Only rows that were not received before travel.
    async fn read_snapshot(&self, table: &Catalog) -> Result<ShardSnapshot> {
        let rows = table.row_schema();
        let mut copy = self.copy.lock().await;
        copy.forget_other_columns(&rows);
        let mut messages = self.ask(&Ask::Snapshot(copy.held())).await?;

        let header = match self.next(&mut messages).await? {
            Some((DecodedPayload::Schema(_), metadata)) => Header::parse(&metadata)?,
            _ => return Err(self.strange("the answer does not begin with a schema")),
        };
        self.check(&header, table)?;
        let place = Some((table.location().home(), header.base));
        if copy.table != place {
            self.check_base(header.base, table).await?;
            copy.table = place;
        }
        copy.begin(&header);
        let mut memtables = Vec::with_capacity(header.parts.len());
        for part in &header.parts {
            let memtable = copy.memtable(part, &rows);
            let mut have = memtable.rows();
            if have != part.from_row {
                copy.memtables.clear();
                return Err(self.strange(&format!(
                    "the rows of MemTable {} begin at row {}, requested were rows from {have} on",
                    part.id, part.from_row
                )));
            }
            while have < part.rows {
                let Some(batch) = self.next_batch(&mut messages).await? else {
                    return Err(self.strange(&format!(
                        "the answer ended after {have} of {} rows of MemTable {}",
                        part.rows, part.id
                    )));
                };
                have += batch.num_rows();
                if have > part.rows {
                    copy.memtables.clear();
                    return Err(self.strange(&format!(
                        "the answer has at least {have} rows of MemTable {}, its header records {}",
                        part.id, part.rows
                    )));
                }
                let accepted = rows.conform(&batch)?;
                let bytes = accepted.memory_bytes();
                memtable.push(accepted.batch, accepted.keys, bytes);
            }
            memtables.push(memtable.view(memtable.batches()));
        }
        if self.next_batch(&mut messages).await?.is_some() {
            copy.memtables.clear();
            return Err(self.strange("the answer has more batches than its header records"));
        }
        copy.forget_flushed(&header);
        let no_manifest = || self.strange("the answer has no shard manifest");
        let manifest = header.manifest.ok_or_else(no_manifest)?;
        memtables.retain(|view| view.rows() > 0);
        Ok(ShardSnapshot { manifest: Arc::new(manifest), memtables })
    }

    async fn next(
        &self,
        messages: &mut FlightDataDecoder,
    ) -> Result<Option<(DecodedPayload, bytes::Bytes)>> {
        let next = timeout(PATIENCE, messages.next()).await.map_err(|_| self.silent())?;
        match next.transpose() {
            Ok(next) => Ok(next.map(|data| {
                let metadata = data.app_metadata();
                (data.payload, metadata)
            })),
            Err(FlightError::Tonic(status)) => Err(self.refusal(&status)),
            Err(error) => Err(self.strange(&error.to_string())),
        }
    }

    async fn next_batch(&self, messages: &mut FlightDataDecoder) -> Result<Option<RecordBatch>> {
        loop {
            match self.next(messages).await? {
                None => return Ok(None),
                Some((DecodedPayload::RecordBatch(batch), _)) => return Ok(Some(batch)),
                Some((DecodedPayload::None, _)) => {}
                Some((DecodedPayload::Schema(_), _)) => {
                    return Err(self.strange("the answer has a second schema"));
                }
            }
        }
    }

    /// Refuses the snapshot of another table: two tables can have shards with the same id.
    fn check(&self, header: &Header, table: &Catalog) -> Result<()> {
        let name = table.location().name();
        if header.table != name {
            return Err(Error::input(format!(
                "the job at {} writes to table '{}', not to table '{name}'",
                self.location, header.table
            )));
        }
        if header.shard_id != self.shard_id
            || header.manifest.as_ref().is_some_and(|below| below.shard_id != self.shard_id)
        {
            return Err(Error::input(format!(
                "{} now serves a job of another shard than shard {}; connect again",
                self.location, self.shard_id
            )));
        }
        Ok(())
    }

    /// Refuses the snapshot of a table with the same name at another location.
    async fn check_base(&self, base: VersionStamp, table: &Catalog) -> Result<()> {
        if table.has_had(base).await? {
            return Ok(());
        }
        Err(Error::input(format!(
            "the job at {} writes to another table of the name '{}' than table {}",
            self.location,
            table.location().name(),
            table.uri()
        )))
    }

    fn refusal(&self, status: &Status) -> Error {
        let text = status.message();
        match status.code() {
            Code::Unauthenticated => Error::input(format!(
                "the job at {} refuses the token; pass the token of its endpoint",
                self.location
            )),
            Code::FailedPrecondition => self.stopped(text),
            Code::InvalidArgument | Code::Unimplemented => Error::input(format!(
                "the job at {} does not support the call: {text}",
                self.location
            )),
            _ if is_connection_refused(status) => self.stopped("connection refused"),
            _ => Error::storage(format!("reading the job at {}", self.location), text),
        }
    }

    fn stopped(&self, reason: &str) -> Error {
        let location = self.location.clone();
        Error::Gone { shard: self.shard_id, location, reason: reason.to_owned() }
    }

    fn silent(&self) -> Error {
        let reason = format!("no answer within {} s", PATIENCE.as_secs());
        Error::storage(format!("reading the job at {}", self.location), reason)
    }

    fn strange(&self, reason: &str) -> Error {
        Error::storage(format!("reading the job at {}", self.location), reason)
    }
}

#[async_trait]
impl LiveJob for RemoteJob {
    fn shard_id(&self) -> ShardId {
        self.shard_id
    }

    async fn snapshot(&self, table: &Catalog) -> Result<ShardSnapshot> {
        self.read_snapshot(table).await
    }
}

/// Does not show the token.
impl fmt::Debug for RemoteJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteJob")
            .field("location", &self.location)
            .field("shard_id", &self.shard_id)
            .finish_non_exhaustive()
    }
}

impl LocalCopy {
    fn held(&self) -> Held {
        let rows = self.memtables.iter().map(|(id, memtable)| (*id, memtable.rows()));
        Held { epoch: self.epoch, rows: rows.collect() }
    }

    /// Forgets MemTables whose columns are not the table handle's: the schema has changed since.
    fn forget_other_columns(&mut self, rows: &RowSchema) {
        self.memtables.retain(|_, memtable| memtable.schema() == rows.storage());
    }

    fn begin(&mut self, header: &Header) {
        if self.epoch != header.epoch {
            self.epoch = header.epoch;
            self.memtables.clear();
        }
    }

    /// The MemTable that `part` extends.
    fn memtable(&mut self, part: &Part, rows: &RowSchema) -> Arc<MemTable> {
        let new = || {
            let layout = memtable_layout(rows, KeyIndexKind::default());
            Arc::new(MemTable::new(part.generation, layout))
        };
        self.memtables.entry(part.id).or_insert_with(new).clone()
    }

    /// Forgets MemTables that the snapshot does not name: their rows are in SSTables that its
    /// manifest lists.
    fn forget_flushed(&mut self, header: &Header) {
        self.memtables.retain(|id, _| header.parts.iter().any(|part| part.id == *id));
    }
}

/// Whether the connection broke before an answer came. The status of an answer has no source.
fn is_broken(status: &Status) -> bool {
    status.source().is_some() && !is_connection_refused(status)
}

/// Whether no process listens at the address: the job's process is gone, or has closed its
/// endpoint.
fn is_connection_refused(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        let kind = error.downcast_ref::<io::Error>().map(io::Error::kind);
        if kind == Some(io::ErrorKind::ConnectionRefused) {
            return true;
        }
        cause = error.source();
    }
    false
}

fn unreachable_job(location: &str, error: &tonic::transport::Error) -> Error {
    let mut causes = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        causes.push(error.to_string());
        cause = error.source();
    }
    Error::storage(format!("connecting to {location}"), causes.join(": "))
}
