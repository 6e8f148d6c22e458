//! The Tokio runtime of this process.
//!
//! Owns: its threads, which are started at the first call that needs them and never when the
//! library is loaded.
//! Does not own: the wait for a call (`call`), or the end of the process.
//!
//! Programs fork, as PySpark forks its workers. Threads do not survive a fork, so the runtime of
//! the parent is unusable in the child: the child leaks it and starts its own.

use std::ffi::OsStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::{env, process, thread};

use tokio::runtime::{Builder, Runtime};

use crate::error::{Error, Result};
use crate::random::reseed_after_fork;
use crate::stack::STACK;

/// A runtime, and the process that started it.
type Started = Mutex<Option<(u32, Arc<Runtime>)>>;

static RUNTIME: Started = Mutex::new(None);

/// Overrides the number of threads, which by default is the number of processors.
const THREADS: &str = "LANCEMEM_THREADS";
/// The largest number of threads. More would contend with each other.
const MAX_THREADS: usize = 1_024;
/// Threads beside the workers: one reads files, and Lance decodes on two.
const OTHER_THREADS: usize = 3;

/// The runtime of the calling process.
///
/// # Errors
/// [`Error::InvalidInput`] where the number of threads is not one; [`Error::FewThreads`] and the
/// engine's error where the system gives too few.
pub fn runtime() -> Result<Arc<Runtime>> {
    reseed_after_fork()?;
    of_process(&RUNTIME, process::id(), start)
}

/// The runtime that the process `pid` started; the first call starts it.
fn of_process(
    started: &Started,
    pid: u32,
    start: impl FnOnce() -> Result<Runtime>,
) -> Result<Arc<Runtime>> {
    let mut slot = started.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((owner, runtime)) = slot.as_ref()
        && *owner == pid
    {
        return Ok(runtime.clone());
    }
    let runtime = Arc::new(start()?);
    // Dropping the parent's runtime would wait for threads that do not exist in this process.
    #[expect(clippy::mem_forget, reason = "leaked on purpose, once a fork")]
    std::mem::forget(slot.replace((pid, runtime.clone())));
    Ok(runtime)
}

fn start() -> Result<Runtime> {
    let threads = threads(env::var_os(THREADS).as_deref())?;
    prove_threads(threads + OTHER_THREADS)?;
    let started = Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK)
        .thread_name("lancemem")
        .enable_all()
        .build()?;
    // Lance starts its own threads at the first call that needs them. If it gets none, every later
    // call waits for ever.
    started.block_on(lancemem::start_lance_threads())?;
    Ok(started)
}

/// The number of threads of the runtime, of which a program may have set another than the default.
fn threads(wanted: Option<&OsStr>) -> Result<usize> {
    let Some(wanted) = wanted else {
        return Ok(thread::available_parallelism().map_or(2, usize::from));
    };
    let number = wanted.to_str().and_then(|number| number.trim().parse().ok());
    number.filter(|number| (1..=MAX_THREADS).contains(number)).ok_or_else(|| {
        Error::InvalidInput(format!(
            "{THREADS} is \"{}\"; set it to a number of threads from 1 to {MAX_THREADS}",
            wanted.to_string_lossy()
        ))
    })
}

/// Proves that the system gives this process so many threads, by starting them all at once. A
/// runtime that gets too few threads panics, and dropping it then waits for the others.
fn prove_threads(number: usize) -> Result<()> {
    let gate = Mutex::new(());
    thread::scope(|scope| {
        let _shut = gate.lock();
        for had in 0..number {
            let waits = || drop(gate.lock());
            let started = thread::Builder::new().stack_size(STACK).spawn_scoped(scope, waits);
            started.map_err(|error| {
                Error::FewThreads(format!(
                    "the system gives this process {had} of {number} threads: {error}; raise the limit \
                     of the process, or set {THREADS} to fewer"
                ))
            })?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Result<Runtime> {
        Ok(Builder::new_current_thread().build()?)
    }

    #[test]
    fn a_process_starts_one_runtime_and_its_fork_another() {
        let started = Started::default();
        let parents = of_process(&started, 1, small).expect("a runtime");
        let again = of_process(&started, 1, || panic!("started twice")).expect("the same runtime");
        assert!(Arc::ptr_eq(&parents, &again));
        drop(again);

        let forked = of_process(&started, 2, small).expect("a runtime");
        assert!(!Arc::ptr_eq(&parents, &forked));
        assert_eq!(Arc::strong_count(&parents), 2, "the child leaks its parent's runtime");
        let again = of_process(&started, 2, || panic!("started twice")).expect("the same runtime");
        assert!(Arc::ptr_eq(&forked, &again));
    }

    #[test]
    fn a_runtime_that_did_not_start_is_started_by_the_next_call() {
        let started = Started::default();
        let refused = || Err(Error::FewThreads("2 of 5 threads".to_owned()));
        let error = of_process(&started, 1, refused).expect_err("no runtime");
        assert!(matches!(error, Error::FewThreads(_)), "{error}");
        assert!(of_process(&started, 1, small).is_ok());
    }

    #[test]
    fn a_number_of_threads_is_checked_before_any_is_started() {
        assert_eq!(threads(Some(OsStr::new(" 4 "))).ok(), Some(4));
        assert!(threads(None).is_ok_and(|number| number > 0));
        for wanted in ["0", "-1", "four", "", "1025"] {
            let error = threads(Some(OsStr::new(wanted))).expect_err("no number of threads");
            assert_eq!(
                error.to_string(),
                format!(
                    "LANCEMEM_THREADS is \"{wanted}\"; set it to a number of threads from 1 to 1024"
                )
            );
        }
    }

    #[test]
    fn threads_that_the_system_gives_are_proved() {
        assert!(prove_threads(4).is_ok());
    }
}
