//! The way from one process to storage: slow, lossy, and cut when the process dies.
//!
//! Owns: latency, faults, what becomes of requests in flight, and the end of a process.
//! Does not own: the objects, which belong to the world, or when the weather changes.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use futures::stream::{BoxStream, StreamExt};
use lancemem_core::store::Store;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use tokio::sync::watch;

use crate::world::{ROOT, Weather, World};

/// What a request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Done,
    Refused,
    AnswerLost,
    /// The client repeats a request whose answer it lost, and the answer is that the object exists.
    Repeated,
    /// 409: the request met another write, and neither may have happened.
    Conflict,
    /// The answer takes longer than the client waits; the request arrives in the end.
    Late,
}

impl Fate {
    const fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Refused => "fault: 503",
            Self::AnswerLost => "fault: answer lost",
            Self::Repeated => "fault: 412 on a repeat",
            Self::Conflict => "fault: 409",
            Self::Late => "fault: late write",
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Plan {
    /// How many requests were sent before.
    number: u64,
    fate: Fate,
    there: Duration,
    back: Duration,
}

/// A process as storage sees it.
#[derive(Debug)]
pub struct Client {
    pub id: u64,
    world: Arc<World>,
    dead: AtomicBool,
    /// After this the process has promised to write nothing any more.
    closed: AtomicBool,
    /// Faults that its requests met.
    faults: AtomicU64,
    puts: AtomicU64,
    asleep: watch::Sender<bool>,
    /// How often it fell asleep or woke.
    turns: AtomicU64,
}

/// Longer than any work takes that is not stuck.
const HANGS: Duration = Duration::from_hours(3);

impl Client {
    /// The client of a new process.
    pub fn new(world: &Arc<World>) -> Arc<Self> {
        let client = Arc::new(Self {
            id: world.fresh_id(),
            world: world.clone(),
            dead: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            faults: AtomicU64::new(0),
            puts: AtomicU64::new(0),
            asleep: watch::Sender::new(false),
            turns: AtomicU64::new(0),
        });
        world.clients.lock().push(client.clone());
        client
    }

    /// The table as this process reaches it.
    pub fn store(self: &Arc<Self>) -> Store {
        Store::new(Arc::new(Connection(self.clone())), ROOT.into())
    }

    /// `kill -9`: no request goes out and no answer comes in any more.
    pub fn kill(&self) {
        self.dead.store(true, Ordering::Relaxed);
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::Relaxed)
    }

    pub fn faults(&self) -> u64 {
        self.faults.load(Ordering::Relaxed)
    }

    pub fn puts(&self) -> u64 {
        self.puts.load(Ordering::Relaxed)
    }

    /// Stops or continues the process, as seen from outside: nothing leaves it, nothing gets in.
    pub fn sleep(&self, asleep: bool) {
        self.asleep.send_replace(asleep);
        self.turns.fetch_add(1, Ordering::Relaxed);
    }

    /// A dead process waits forever; a sleeping one waits until it wakes.
    pub async fn alive(&self) {
        // Without a wait no other task runs: most processes never sleep.
        if *self.asleep.borrow() {
            let _ = self.asleep.subscribe().wait_for(|asleep| !asleep).await;
        }
        if self.is_dead() {
            std::future::pending::<()>().await;
        }
    }

    /// The outcome of `work`; `None` where it takes longer than any work that is not stuck, sleep
    /// not counted.
    pub async fn outlast<F: Future>(&self, work: F) -> Option<F::Output> {
        let mut work = std::pin::pin!(work);
        loop {
            let turns = self.turns.load(Ordering::Relaxed);
            match tokio::time::timeout(HANGS, &mut work).await {
                Ok(output) => return Some(output),
                Err(_) if *self.asleep.borrow() => {}
                Err(_) if self.turns.load(Ordering::Relaxed) > turns => {}
                Err(_) => return None,
            }
        }
    }

    /// Whether this request meets a fault. Every answer is a draw, so that a fault that is
    /// refused in one place does not move all later ones.
    fn is_unlucky(&self) -> bool {
        let per_mille = match *self.world.weather.lock() {
            Weather::Calm => 0,
            Weather::Usual => self.world.climate.faults,
            Weather::Storm => self.world.climate.faults * 5,
            Weather::Outage => 1000,
        };
        self.world.chance.odds(per_mille.min(900).max(u64::from(per_mille == 1000) * 1000))
    }

    fn plan(&self, fates: &[Fate]) -> Plan {
        let (chance, climate) = (&self.world.chance, &self.world.climate);
        let fate = if self.is_unlucky() { chance.pick(fates) } else { Fate::Done };
        let calm = *self.world.weather.lock() == Weather::Calm;
        let slow = if !calm && chance.odds(10) { 20 } else { 1 };
        let there = chance.pause(climate.latency_ms * slow);
        let back = chance.pause(climate.latency_ms * slow);
        if slow > 1 {
            self.world.event("fault: slow request", self.id, "");
        }
        let late = Duration::from_millis(climate.patience_ms) + chance.pause(2_000);
        let there = if fate == Fate::Late { late } else { there };
        if fate != Fate::Done {
            self.faults.fetch_add(1, Ordering::Relaxed);
        }
        Plan { number: self.world.sent.fetch_add(1, Ordering::Relaxed), fate, there, back }
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.world.climate.patience_ms)
    }

    async fn travel(&self, time: Duration) {
        if !time.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "the clock of a life is not a real one")]
            tokio::time::sleep(time).await;
        }
    }

    /// A put in flight, which arrives although no task waits for it any more.
    async fn put_in_flight(
        self: Arc<Self>,
        plan: Plan,
        path: Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.travel(plan.there).await;
        // Of the requests that a dying process had sent, some get through.
        if self.is_dead() && self.world.chance.odds(500) {
            return Err(outage("the process died before its request left"));
        }
        let name = short(&path);
        self.world.event(plan.fate.name(), self.id, name);
        if self.world.arrived.fetch_max(plan.number, Ordering::Relaxed) > plan.number {
            self.world.event("fault: overtaken", self.id, name);
        }
        let done = match plan.fate {
            Fate::Refused => Err(outage("503 slow down")),
            Fate::Conflict => Err(exists(&path)),
            _ => {
                let create = opts.mode == PutMode::Create;
                let answer = self.world.objects.put_opts(&path, payload, opts).await;
                self.world.event(put_event(create, answer.is_ok()), self.id, name);
                match plan.fate {
                    Fate::AnswerLost => Err(outage("connection reset")),
                    Fate::Repeated => Err(exists(&path)),
                    _ => answer.map_err(|error| self.as_the_service_says(&path, error)),
                }
            }
        };
        self.travel(plan.back).await;
        done
    }

    /// Services report an existing object as 409 or as 412.
    fn as_the_service_says(&self, path: &Path, error: Error) -> Error {
        if matches!(error, Error::AlreadyExists { .. }) && self.world.chance.odds(500) {
            self.world.event("fault: 412", self.id, short(path));
            return Error::Precondition { path: path.to_string(), source: "412".into() };
        }
        error
    }

    async fn read(&self, what: &str) -> Result<Duration> {
        self.alive().await;
        let plan = self.plan(&[Fate::Refused]);
        self.travel(plan.there).await;
        self.alive().await;
        if plan.fate == Fate::Done {
            self.world.event("read", self.id, what);
            return Ok(plan.back);
        }
        self.world.event("fault: read refused", self.id, what);
        Err(outage("503 slow down"))
    }

    async fn listing(self: Arc<Self>, prefix: Option<Path>) -> Vec<Result<ObjectMeta>> {
        let back = match self.read("list").await {
            Ok(back) => back,
            Err(error) => return vec![Err(error)],
        };
        let mut listed: Vec<_> = self.world.objects.list(prefix.as_ref()).collect().await;
        self.world.chance.shuffle(&mut listed);
        if self.is_unlucky() {
            self.faults.fetch_add(1, Ordering::Relaxed);
            self.world.event("fault: listing cut", self.id, "");
            listed.truncate(self.world.chance.index(listed.len() + 1));
            listed.push(Err(outage("connection reset in the middle of a listing")));
        }
        self.travel(back).await;
        self.alive().await;
        listed
    }
}

const fn put_event(create: bool, done: bool) -> &'static str {
    match (create, done) {
        (true, true) => "created",
        (true, false) => "not created",
        (false, _) => "written",
    }
}

fn short(path: &Path) -> &str {
    let text = path.as_ref();
    text.find('/').and_then(|at| text[at + 1..].find('/').map(|more| at + more + 2)).map_or(
        text,
        |at| {
            let rest = &text[at..];
            rest.find('/').map_or(rest, |at| &rest[at + 1..])
        },
    )
}

fn outage(reason: &'static str) -> Error {
    Error::Generic { store: "simulated", source: reason.into() }
}

fn exists(path: &Path) -> Error {
    Error::AlreadyExists { path: path.to_string(), source: "409".into() }
}

/// The object store that the code under test gets.
#[derive(Debug)]
struct Connection(Arc<Client>);

impl fmt::Display for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("simulated")
    }
}

#[async_trait]
impl ObjectStore for Connection {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        let client = &self.0;
        client.alive().await;
        if client.closed.load(Ordering::Relaxed) {
            client.world.fail(format!("the closed job {} writes {location}", client.id));
        }
        client.puts.fetch_add(1, Ordering::Relaxed);
        let create = [Fate::Refused, Fate::AnswerLost, Fate::Repeated, Fate::Conflict, Fate::Late];
        let fates = if opts.mode == PutMode::Create {
            &create[..]
        } else {
            &[Fate::Refused, Fate::AnswerLost, Fate::Late]
        };
        let plan = client.plan(fates);
        let request = client.clone().put_in_flight(plan, location.clone(), payload, opts);
        let answer = tokio::time::timeout(client.patience(), tokio::spawn(request)).await;
        client.alive().await;
        match answer {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => std::future::pending().await,
            Err(_) => {
                client.faults.fetch_add(1, Ordering::Relaxed);
                client.world.event("fault: gave up waiting", client.id, short(location));
                Err(outage("timeout"))
            }
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.world.objects.put_multipart_opts(location, opts).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let back = self.0.read(short(location)).await?;
        let answer = self.0.world.objects.get_opts(location, options).await;
        self.0.travel(back).await;
        self.0.alive().await;
        answer
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.world.objects.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listing = self.0.clone().listing(prefix.cloned());
        futures::stream::once(listing).flat_map(futures::stream::iter).boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.world.objects.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.world.objects.copy_opts(from, to, options).await
    }
}
