//! An object store in memory that fails, loses answers, holds requests and damages objects.
//!
//! Owns: the faults and the record of what was put.
//! Does not own: the meaning of an object, or when a test asks for a fault.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use parking_lot::Mutex;

use crate::gate::Gate;

/// The kind of request that a fault waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Any write of an object.
    Put,
    /// A read of an object, or of its size.
    Get,
    /// A listing of a folder, which can be held and refused.
    List,
}

/// What happens to a request that meets a fault.
#[derive(Clone, Debug)]
pub enum Effect {
    /// It fails and changes nothing.
    Refuse,
    /// It is done, and fails all the same.
    LoseAnswer,
    /// It is done, and answered as if another writer had done it: as a client that repeats a
    /// request sees it.
    AnswerExists,
    /// It changes nothing, and is answered as if another writer had done it: a conflict with a
    /// write that then failed, which S3 answers with 409.
    ConflictOfNothing,
    /// It waits at the gate, then goes on.
    Hold(Arc<Gate>),
    /// It waits at the gate, then fails and changes nothing.
    HoldAndRefuse(Arc<Gate>),
    /// It is done, and its answer waits at the gate.
    HoldAnswer(Arc<Gate>),
}

/// One fault: the requests `skip + 1 ..= skip + times` of its kind whose path contains a part.
#[derive(Clone, Debug)]
pub struct Fault {
    request: Request,
    path_part: String,
    skip: usize,
    times: usize,
    effect: Effect,
}

impl Fault {
    /// A fault of the next `request` whose path contains `path_part`.
    #[must_use]
    pub fn new(request: Request, path_part: &str, effect: Effect) -> Self {
        Self { request, path_part: path_part.to_owned(), skip: 0, times: 1, effect }
    }

    /// Lets `skip` such requests pass first.
    #[must_use]
    pub const fn after(mut self, skip: usize) -> Self {
        self.skip = skip;
        self
    }

    /// Meets this many requests instead of one.
    #[must_use]
    pub const fn times(mut self, times: usize) -> Self {
        self.times = times;
        self
    }

    /// Meets every request until the faults are cleared.
    #[must_use]
    pub const fn for_ever(self) -> Self {
        self.times(usize::MAX)
    }

    fn meets(&mut self, request: Request, path: &str) -> bool {
        if request != self.request || self.times == 0 || !path.contains(&self.path_part) {
            return false;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return false;
        }
        self.times -= 1;
        true
    }
}

/// The store. Share it behind an [`Arc`].
#[derive(Debug, Default)]
pub struct FaultyStore {
    inner: Arc<InMemory>,
    faults: Mutex<Vec<Fault>>,
    puts: Mutex<Vec<String>>,
    gets: Mutex<Vec<String>>,
    listings: AtomicUsize,
    behind: Mutex<Duration>,
}

impl FaultyStore {
    /// Adds a fault; the first that meets a request takes it.
    pub fn inject(&self, fault: Fault) {
        self.faults.lock().push(fault);
    }

    /// Heals the storage.
    pub fn clear_faults(&self) {
        self.faults.lock().clear();
    }

    /// Sets the store's clock back: objects look older by `behind` than they are.
    pub fn set_clock_back(&self, behind: Duration) {
        *self.behind.lock() = behind;
    }

    /// Paths of all puts that were tried, in order.
    #[must_use]
    pub fn tried_puts(&self, path_part: &str) -> Vec<String> {
        self.puts.lock().iter().filter(|path| path.contains(path_part)).cloned().collect()
    }

    /// Paths of all reads that were tried, of objects and of their sizes, in order.
    #[must_use]
    pub fn tried_gets(&self, path_part: &str) -> Vec<String> {
        self.gets.lock().iter().filter(|path| path.contains(path_part)).cloned().collect()
    }

    /// Clears the records of the requests that were tried.
    pub fn forget_requests(&self) {
        self.puts.lock().clear();
        self.gets.lock().clear();
        self.listings.store(0, Ordering::Relaxed);
    }

    /// How often a folder was listed.
    #[must_use]
    pub fn listings(&self) -> usize {
        self.listings.load(Ordering::Relaxed)
    }

    /// Paths of all objects that contain `path_part`, sorted.
    pub async fn paths(&self, path_part: &str) -> Vec<String> {
        let listed: Vec<Result<ObjectMeta>> = self.inner.list(None).collect().await;
        let mut paths: Vec<String> = listed
            .into_iter()
            .map(|meta| meta.unwrap().location.to_string())
            .filter(|path| path.contains(path_part))
            .collect();
        paths.sort_unstable();
        paths
    }

    /// The bytes of an object.
    pub async fn bytes(&self, path: &str) -> Bytes {
        self.inner.get(&Path::from(path)).await.unwrap().bytes().await.unwrap()
    }

    /// Replaces the bytes of an object, past all faults.
    pub async fn overwrite(&self, path: &str, bytes: Bytes) {
        self.inner.put(&Path::from(path), bytes.into()).await.unwrap();
    }

    /// Removes an object.
    pub async fn drop_file(&self, path: &str) {
        self.inner.delete(&Path::from(path)).await.unwrap();
    }

    /// Cuts an object to `length` bytes.
    pub async fn cut(&self, path: &str, length: usize) {
        let bytes = self.bytes(path).await;
        self.overwrite(path, bytes.slice(..length)).await;
    }

    /// Flips one bit of the byte at `offset`.
    pub async fn flip_bit(&self, path: &str, offset: usize) {
        let mut bytes = self.bytes(path).await.to_vec();
        bytes[offset] ^= 1;
        self.overwrite(path, bytes.into()).await;
    }

    fn effect(&self, request: Request, location: &Path) -> Option<Effect> {
        let path = location.as_ref();
        let mut faults = self.faults.lock();
        faults.iter_mut().find_map(|fault| fault.meets(request, path).then(|| fault.effect.clone()))
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

fn outage() -> Error {
    Error::Generic { store: "faulty", source: "injected outage".into() }
}

fn exists(location: &Path) -> Error {
    Error::AlreadyExists { path: location.to_string(), source: "injected answer".into() }
}

/// What a listing meets before it sees anything.
async fn listing(effect: Option<Effect>) -> Result<()> {
    match effect {
        None => Ok(()),
        Some(Effect::Hold(gate)) => {
            gate.pass().await;
            Ok(())
        }
        Some(_) => Err(outage()),
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.puts.lock().push(location.to_string());
        match self.effect(Request::Put, location) {
            None => {}
            Some(Effect::Refuse) => return Err(outage()),
            Some(Effect::Hold(gate)) => gate.pass().await,
            Some(Effect::HoldAndRefuse(gate)) => {
                gate.pass().await;
                return Err(outage());
            }
            Some(Effect::LoseAnswer) => {
                self.inner.put_opts(location, payload, opts).await?;
                return Err(outage());
            }
            Some(Effect::HoldAnswer(gate)) => {
                let answer = self.inner.put_opts(location, payload, opts).await;
                gate.pass().await;
                return answer;
            }
            Some(Effect::ConflictOfNothing) => return Err(exists(location)),
            Some(Effect::AnswerExists) => {
                self.inner.put_opts(location, payload, opts).await?;
                return Err(exists(location));
            }
        }
        self.inner.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.gets.lock().push(location.to_string());
        match self.effect(Request::Get, location) {
            None => {}
            Some(Effect::Hold(gate)) => gate.pass().await,
            Some(Effect::HoldAndRefuse(gate)) => {
                gate.pass().await;
                return Err(outage());
            }
            Some(Effect::HoldAnswer(gate)) => {
                let answer = self.inner.get_opts(location, options).await;
                gate.pass().await;
                return answer;
            }
            Some(_) => return Err(outage()),
        }
        let mut found = self.inner.get_opts(location, options).await?;
        found.meta.last_modified -= *self.behind.lock();
        Ok(found)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.listings.fetch_add(1, Ordering::Relaxed);
        let (inner, prefix) = (self.inner.clone(), prefix.cloned());
        let effect = self.effect(Request::List, prefix.as_ref().unwrap_or(&Path::default()));
        let listed = async move { listing(effect).await.map(|()| inner.list(prefix.as_ref())) };
        stream::once(listed).try_flatten().boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.listings.fetch_add(1, Ordering::Relaxed);
        listing(self.effect(Request::List, prefix.unwrap_or(&Path::default()))).await?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
