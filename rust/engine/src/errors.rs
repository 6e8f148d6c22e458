//! Converts errors of Lance and DataFusion to errors of lancemem.
//!
//! Owns: the choice of the error kind, which decides what a caller does next, the removal of build
//! paths and secrets from the text, and the chain: the converted error is the source of the new one.
//! Does not own: the kinds; the core crate defines them.

use std::error::Error as StdError;
use std::io::ErrorKind;
use std::sync::{Arc, LazyLock};

use datafusion::error::DataFusionError;
use lancemem_core::Error;
use lancemem_core::store::{NO_FILE, scrub};
use lancemem_core::types::ErrorSource;
use tokio::task::JoinError;

use self::type_names::with_type_names;

mod type_names;

/// The end of Lance's messages: the path of the source file that raised the error.
static BUILD_PATH: LazyLock<Option<regex::Regex>> =
    LazyLock::new(|| regex::Regex::new(r",?\s*(location: )?\S+\.rs:\d+:\d+").ok());

/// Converts the error of a result to lancemem's.
pub trait Context<T> {
    /// The converted result; the text of its error begins with `action`.
    fn context(self, action: &str) -> Result<T, Error>;
}

impl<T> Context<T> for Result<T, lance_core::Error> {
    fn context(self, action: &str) -> Result<T, Error> {
        self.map_err(|error| from_lance(action, error, lance_error))
    }
}

impl<T> Context<T> for Result<T, DataFusionError> {
    fn context(self, action: &str) -> Result<T, Error> {
        self.map_err(|error| from_datafusion(action, error))
    }
}

impl<T> Context<T> for Result<T, arrow_schema::ArrowError> {
    fn context(self, action: &str) -> Result<T, Error> {
        self.map_err(|error| {
            Error::internal(format!("{action}: {}", without_path(&error))).with_source(error)
        })
    }
}

impl<T> Context<T> for Result<T, JoinError> {
    fn context(self, action: &str) -> Result<T, Error> {
        self.map_err(|error| Error::internal(format!("{action}: {error}")).with_source(error))
    }
}

/// Converts errors of reads of a flushed SSTable.
pub trait SsTableErrors<T> {
    /// The converted result. An SSTable is complete and synced before a manifest lists it, so a
    /// file that is missing or too short is damage. A retry cannot help.
    fn in_sstable(self, sstable: &str) -> Result<T, Error>;
}

impl<T> SsTableErrors<T> for Result<T, lance_core::Error> {
    fn in_sstable(self, sstable: &str) -> Result<T, Error> {
        self.map_err(|error| from_lance(sstable, error, sstable_error))
    }
}

impl<T> SsTableErrors<T> for Result<T, DataFusionError> {
    fn in_sstable(self, sstable: &str) -> Result<T, Error> {
        self.map_err(|error| from_plan(sstable, error, sstable_error))
    }
}

fn sstable_error(sstable: &str, error: &lance_core::Error) -> Error {
    if is_overflow(error) {
        return too_wide(sstable);
    }
    // Bytes that changed after their checksum was verified can make Lance's reader panic.
    let kind = damage_of_read(error).or_else(|| has_panicked(error).then_some(UNDECODABLE));
    match kind {
        Some(kind) => Error::corrupt(sstable, kind, without_path(error)),
        None => lance_error(sstable, error),
    }
}

/// Converts errors of reads of a version of the base table.
pub trait BaseContext<T> {
    /// The converted result. A file that is missing or too short is damage, as in an SSTable.
    /// Lance's invalid-input errors and Arrow's parse errors are damage too: the input of a read is
    /// a file.
    fn in_base(self, action: &str) -> Result<T, Error>;
}

impl<T> BaseContext<T> for Result<T, lance_core::Error> {
    fn in_base(self, action: &str) -> Result<T, Error> {
        self.map_err(|error| from_lance(action, error, read_error))
    }
}

impl<T> BaseContext<T> for Result<T, DataFusionError> {
    fn in_base(self, action: &str) -> Result<T, Error> {
        self.map_err(|error| from_scan(action, error))
    }
}

/// Whether the values of a column in one batch overflow its 32-bit offsets. This is no damage: the
/// read asked for too many wide rows at once.
pub fn is_overflow(error: &lance_core::Error) -> bool {
    matches!(innermost(error), lance_core::Error::Arrow { message, .. }
        if message.starts_with("Offset overflow error"))
}

fn too_wide(action: &str) -> Error {
    Error::input(format!(
        "{action}: the values of a column in one batch of rows have more than 2 GiB; read fewer \
         columns or keys at once, or give the column a type with large offsets, such as large_string"
    ))
}

fn read_error(action: &str, error: &lance_core::Error) -> Error {
    match damage_of_read(error) {
        Some(kind) => of_base(action, kind, error),
        None => lance_error(action, error),
    }
}

/// The error of opening a version of the base table, or of planning a read of it.
pub fn from_base(action: &str, error: lance_core::Error) -> Error {
    from_lance(action, error, base_error)
}

fn base_error(action: &str, error: &lance_core::Error) -> Error {
    match damage_of(error) {
        Some(kind) => of_base(action, kind, error),
        None => lance_error(action, error),
    }
}

fn of_base(action: &str, kind: &'static str, error: &lance_core::Error) -> Error {
    let cleaned = match kind {
        MISSING => {
            "; a clean-up of old versions removes the files that only those versions use: read the \
             newest version; if the newest version has lost a file, restore the file"
        }
        _ => "",
    };
    let detail = format!("{action}: {}{cleaned}", without_path(error));
    Error::corrupt(BASE, kind, detail)
}

/// The error of a plan over a table. An error of Lance in it concerns the base table: readers of
/// SSTables convert theirs to the engine's error first.
pub fn from_scan(action: &str, error: DataFusionError) -> Error {
    from_plan(action, error, read_error)
}

/// The name of the base table in errors.
pub const BASE: &str = "the base table";
const MISSING: &str = "missing";
/// The kind of damage of a file that no reader understands.
pub const UNDECODABLE: &str = "undecodable";

/// Whether the error of a read means that the file is damaged.
pub fn is_damage(error: &lance_core::Error) -> bool {
    damage_of_read(error).is_some()
        || (has_panicked(error) && !error.to_string().contains(NO_THREAD))
}

/// The kind of damage that an error means for a file that was complete and synced; `None` where the
/// error is no damage.
fn damage_of(error: &lance_core::Error) -> Option<&'static str> {
    if causes(error).chain(causes(innermost(error))).any(is_missing) {
        return Some(MISSING);
    }
    if has_no_file(error) {
        return Some(NO_FILE);
    }
    match innermost(error) {
        lance_core::Error::CorruptFile { .. } => Some(UNDECODABLE),
        lance_core::Error::IO { .. } if !is_io_fault(error) => Some(UNDECODABLE),
        _ => None,
    }
}

/// As [`damage_of`] for a read, where Lance's invalid input is the file.
fn damage_of_read(error: &lance_core::Error) -> Option<&'static str> {
    match innermost(error) {
        _ if is_overflow(error) => None,
        lance_core::Error::InvalidInput { .. }
        | lance_core::Error::Arrow { .. }
        | lance_core::Error::Schema { .. }
        | lance_core::Error::VersionConflict { .. } => Some(UNDECODABLE),
        _ => damage_of(error),
    }
}

/// Lance's error at the end of a chain of errors. `Shared` and `External` do not return the error
/// that they wrap from `source`, so both are unwrapped by hand.
fn innermost(error: &lance_core::Error) -> &lance_core::Error {
    let carried = match error {
        lance_core::Error::Shared { source } => Some(source.as_ref()),
        lance_core::Error::External { source } => source.downcast_ref(),
        _ => causes(error).skip(1).find_map(<dyn StdError>::downcast_ref),
    };
    carried.map_or(error, innermost)
}

/// An error and its sources, outermost first. Ends with an error of lancemem: its kind is decided,
/// and its sources decide nothing more.
fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |cause| cause_below(*cause))
}

fn cause_below<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a (dyn StdError + 'static)> {
    if is_own(cause) { None } else { cause.source() }
}

/// Whether this is an error of lancemem, or one around it that returns the sources of what it wraps
/// as its own.
fn is_own(cause: &(dyn StdError + 'static)) -> bool {
    if let Some(error) = cause.downcast_ref::<std::io::Error>() {
        return matches!(error.get_ref(), Some(inner) if inner.is::<Error>());
    }
    match cause.downcast_ref() {
        Some(lance_core::Error::External { source }) => source.is::<Error>(),
        Some(lance_core::Error::Shared { source }) => is_own(&**source),
        _ => cause.is::<Error>(),
    }
}

/// Whether a task of lance ended in a panic.
fn has_panicked(error: &lance_core::Error) -> bool {
    let task = |cause: &(dyn StdError + 'static)| {
        cause.downcast_ref::<JoinError>().is_some_and(JoinError::is_panic)
    };
    causes(error).chain(causes(innermost(error))).any(task)
}

/// Whether the operating system or an object store failed the read, in contrast to wrong bytes.
fn is_io_fault(error: &lance_core::Error) -> bool {
    causes(error).any(|cause| {
        let from_system = cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|error| error.raw_os_error().is_some());
        from_system || is_refused(cause) || is_fault_of_server(cause)
    })
}

/// The message of Tokio's panic where the system gives it no thread.
pub const NO_THREAD: &str = "OS can't spawn worker thread";
/// The same as an error for the user.
pub const FEW_THREADS: &str = "the system gives this process no more threads; raise its limit";

/// The store name in errors about the options of a store.
const OPTIONS: &str = "Config";
/// The error code of S3 for a missing bucket, whichever object of the bucket was requested.
const NO_BUCKET: &str = "NoSuchBucket";

/// Names of stores without a server: the local disk, memory, and files that were read into memory.
const NO_SERVERS: [&str; 4] = ["LocalFileSystem", "InMemory", "memory", "local files"];

/// Whether a server failed a request after all retries: `Generic` is the error of a store without a
/// more specific kind. From a disk or from memory it means that a file ends too early.
fn is_fault_of_server(cause: &(dyn StdError + 'static)) -> bool {
    match cause.downcast_ref::<object_store::Error>() {
        Some(object_store::Error::Generic { store, source }) => {
            !NO_SERVERS.contains(store)
                && *store != OPTIONS
                && !source.to_string().contains("Range Not Satisfiable")
        }
        _ => false,
    }
}

/// Whether an object store refused the credentials.
fn is_refused(cause: &(dyn StdError + 'static)) -> bool {
    match cause.downcast_ref::<object_store::Error>() {
        Some(
            object_store::Error::PermissionDenied { .. }
            | object_store::Error::Unauthenticated { .. },
        ) => true,
        // A listing reports a refusal as `Generic`.
        Some(object_store::Error::Generic { source, .. }) => {
            let text = source.to_string();
            text.contains("status code: 403") || text.contains("status code: 401")
        }
        _ => false,
    }
}

/// The error that `convert` makes of an error of Lance, which becomes its source.
fn from_lance(action: &str, error: lance_core::Error, convert: Conversion) -> Error {
    convert(action, &error).with_source(error)
}

/// A choice of the error kind for an error of Lance, by what the failed action was.
type Conversion = fn(&str, &lance_core::Error) -> Error;

fn lance_error(action: &str, error: &lance_core::Error) -> Error {
    let text = without_path(error);
    match error {
        _ if text.contains(NO_THREAD) => Error::storage(action, FEW_THREADS),
        panic if has_panicked(panic) => Error::internal(format!("{action}: {text}")),
        wide if is_overflow(wide) => too_wide(action),
        lasting if has_no_file(lasting) => Error::corrupt(action, NO_FILE, text),
        lance_core::Error::InvalidInput { .. }
        | lance_core::Error::DatasetNotFound { .. }
        | lance_core::Error::DatasetAlreadyExists { .. }
        | lance_core::Error::SchemaMismatch { .. }
        | lance_core::Error::NotSupported { .. }
        | lance_core::Error::FieldNotFound { .. }
        | lance_core::Error::Schema { .. } => Error::input(format!("{action}: {text}")),
        lance_core::Error::CorruptFile { .. } => Error::corrupt(action, UNDECODABLE, text),
        lance_core::Error::Internal { .. } => Error::internal(format!("{action}: {text}")),
        _ => Error::storage(action, text),
    }
}

/// Whether Lance found no table.
pub fn is_absent(error: &lance_core::Error) -> bool {
    missing_manifest(error).is_none() && causes(error).any(is_missing)
}

/// The manifest that a listing named and that was missing when Lance read it. For a small manifest
/// Lance wraps this error in others, which do not count as absent.
pub fn missing_manifest(error: &lance_core::Error) -> Option<String> {
    let mut missing = causes(error).chain(causes(innermost(error))).filter_map(missing_path);
    missing.find(|path| path.ends_with(".manifest")).map(str::to_owned)
}

fn missing_path<'a>(cause: &'a (dyn StdError + 'static)) -> Option<&'a str> {
    match cause.downcast_ref::<lance_core::Error>() {
        Some(lance_core::Error::NotFound { uri, .. }) => return Some(uri),
        Some(lance_core::Error::DatasetNotFound { path, .. }) => return Some(path),
        _ => {}
    }
    match cause.downcast_ref::<object_store::Error>() {
        Some(object_store::Error::NotFound { path, .. }) => Some(path),
        _ => None,
    }
}

/// A wrong address and a table that is still to be created look alike.
const NO_TABLE: &str = "there is no table; check the address, or create one (create_table)";

/// The error of a table that cannot be opened. A table that is missing, or that may not be read, is
/// no passing fault: a retry fails in the same way.
pub fn from_open(action: &str, error: lance_core::Error) -> Error {
    from_lance(action, error, open_error)
}

fn open_error(action: &str, error: &lance_core::Error) -> Error {
    if is_absent(error) {
        let told = without_path(error);
        let told = if told.contains(NO_BUCKET) { told } else { NO_TABLE.to_owned() };
        return Error::no_table(format!("{action}: {told}"));
    }
    match create_error(action, error) {
        // The manifest is not readable, or truncated.
        Error::Storage { .. } => base_error(action, error),
        known => known,
    }
}

/// The error of a table that cannot be created. Another process may have created it meanwhile. A
/// location that does not exist, or that refuses writes, is no passing fault.
pub fn from_create(action: &str, error: lance_core::Error) -> Error {
    from_lance(action, error, create_error)
}

fn create_error(action: &str, error: &lance_core::Error) -> Error {
    if let lance_core::Error::DatasetAlreadyExists { .. } = innermost(error) {
        return Error::table_exists(format!("{action}: {}", without_path(error)));
    }
    let told = without_path(error);
    if told.contains(NO_CREDENTIALS) {
        return Error::input(format!("{action}: {GIVE_CREDENTIALS}"));
    }
    if causes(error).any(|cause| is_in_the_way(cause) || is_missing(cause)) {
        return Error::input(format!("{action}: {told}"));
    }
    lance_error(action, error)
}

/// Every source of credentials was asked, and none has any: no passing fault.
const NO_CREDENTIALS: &str = "no providers in chain provided credentials";
const GIVE_CREDENTIALS: &str = "S3 has no credentials; set AWS_ACCESS_KEY_ID and \
    AWS_SECRET_ACCESS_KEY, or pass storage_options with aws_access_key_id and \
    aws_secret_access_key";

/// The error of a look for the newest version of an open table. No version at all means that the
/// table was deleted. A version that is listed and missing is damage. Other errors may pass, and a
/// job retries after them.
pub fn from_look(action: &str, error: lance_core::Error) -> Error {
    let convert = if is_absent(&error) { open_error } else { base_error };
    from_lance(action, error, convert)
}

fn is_missing(cause: &(dyn StdError + 'static)) -> bool {
    matches!(
        cause.downcast_ref::<lance_core::Error>(),
        Some(lance_core::Error::NotFound { .. } | lance_core::Error::DatasetNotFound { .. })
    ) || match cause.downcast_ref::<object_store::Error>() {
        Some(object_store::Error::NotFound { .. }) => true,
        Some(object_store::Error::Generic { source, .. }) => source.to_string().contains(NO_BUCKET),
        _ => false,
    } || cause
        .downcast_ref::<std::io::Error>()
        .is_some_and(|error| error.kind() == ErrorKind::NotFound)
}

/// Whether the path of a file holds something that can never be read as a file.
pub fn has_no_file(error: &lance_core::Error) -> bool {
    causes(error).chain(causes(innermost(error))).any(is_no_file)
}

/// Whether a link leads to itself, or the name of a file is that of a folder or of a special file.
fn is_no_file(cause: &(dyn StdError + 'static)) -> bool {
    cause.downcast_ref().is_some_and(lancemem_core::store::is_no_file)
}

fn is_in_the_way(cause: &(dyn StdError + 'static)) -> bool {
    let of_system = cause.downcast_ref::<std::io::Error>().is_some_and(|error| {
        let is_refusal = matches!(
            error.kind(),
            ErrorKind::PermissionDenied | ErrorKind::NotADirectory | ErrorKind::ReadOnlyFilesystem
        );
        is_refusal || lancemem_core::store::is_no_file(error)
    });
    let is_no_place = match cause.downcast_ref::<object_store::Error>() {
        Some(object_store::Error::InvalidPath { .. }) => true,
        Some(object_store::Error::Generic { store, .. }) => *store == OPTIONS,
        _ => false,
    };
    of_system || is_no_place || is_refused(cause)
}

/// The engine's own error, for DataFusion to carry.
pub fn external(error: Error) -> DataFusionError {
    DataFusionError::External(Box::new(error))
}

/// The engine's own error where DataFusion only carried it, else an error made of DataFusion's.
pub fn from_datafusion(action: &str, error: DataFusionError) -> Error {
    from_plan(action, error, lance_error)
}

/// As [`from_datafusion`]; `convert` decides where DataFusion only carried an error of Lance.
fn from_plan(action: &str, error: DataFusionError, convert: Conversion) -> Error {
    let root = root_of(&error);
    if let Some(own) = carried::<Error>(root) {
        return own.clone();
    }
    let made = match carried(root) {
        Some(lance) => convert(action, lance),
        None => datafusion_error(action, root),
    };
    match source_of(error) {
        Some(source) => made.with_source(source),
        None => made,
    }
}

/// DataFusion's innermost error. `find_root` would look below the engine's own error too.
fn root_of(error: &DataFusionError) -> &DataFusionError {
    let of_datafusion =
        causes(error).filter_map(|cause| match cause.downcast_ref::<Arc<DataFusionError>>() {
            Some(shared) => Some(shared.as_ref()),
            None => cause.downcast_ref(),
        });
    of_datafusion.last().unwrap_or(error)
}

/// The error of another library in an error of DataFusion.
fn carried<E: StdError + 'static>(error: &DataFusionError) -> Option<&E> {
    match error {
        DataFusionError::External(source) => source.downcast_ref(),
        _ => None,
    }
}

/// The error of another library, without the errors of DataFusion around it: a caller that asks
/// DataFusion for the root of an error gets the engine's own error, and not one below it. `None`
/// where the text of DataFusion is all there is.
fn source_of(error: DataFusionError) -> Option<ErrorSource> {
    match error {
        DataFusionError::External(source) => Some(ErrorSource::from_box(source)),
        DataFusionError::ArrowError(source, _) => Some((*source).into()),
        DataFusionError::ObjectStore(source) => Some((*source).into()),
        DataFusionError::IoError(source) => Some(source.into()),
        DataFusionError::ExecutionJoin(source) => Some((*source).into()),
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => {
            source_of(*inner)
        }
        DataFusionError::Shared(inner) => Arc::try_unwrap(inner).ok().and_then(source_of),
        DataFusionError::Collection(errors) => errors.into_iter().next().and_then(source_of),
        _ => None,
    }
}

fn datafusion_error(action: &str, root: &DataFusionError) -> Error {
    let text = without_path(root);
    let text = match root {
        DataFusionError::Plan(_) | DataFusionError::ArrowError(..) => with_type_names(&text),
        _ => text.as_str().into(),
    };
    match root {
        DataFusionError::SQL(..)
        | DataFusionError::Plan(_)
        | DataFusionError::SchemaError(..)
        | DataFusionError::ArrowError(..)
        // A function that refuses its arguments. Errors of this engine and of Lance are `External`.
        | DataFusionError::Execution(_)
        | DataFusionError::NotImplemented(_) => Error::input(format!("{action}: {text}")),
        DataFusionError::ResourcesExhausted(_) => Error::input(format!(
            "{action}: the sorts, aggregates and joins of this read need more than the memory or \
             the temporary files that they may use; read fewer rows or columns: {text}"
        )),
        DataFusionError::ObjectStore(_) | DataFusionError::IoError(_) => {
            Error::storage(action, text)
        }
        _ => Error::internal(format!("{action}: {text}")),
    }
}

/// The text of an error without paths of the build and without secrets.
pub fn without_path(error: &impl ToString) -> String {
    let text = error.to_string();
    match BUILD_PATH.as_ref() {
        Some(path) => scrub(&path.replace_all(&text, "")).into_owned(),
        None => scrub(&text).into_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind as ErrorKindOfIo;

    use lancemem_core::types::ErrorKind;

    use super::*;

    #[test]
    fn a_server_that_fails_is_no_damage_of_an_sstable_and_a_file_that_ends_early_is() {
        let of = |store: &'static str, text: &str| {
            let generic = object_store::Error::Generic { store, source: text.into() };
            let read = Err::<(), _>(lance_core::Error::from(generic));
            read.in_sstable("an SSTable").unwrap_err().kind()
        };
        let ended = "status 416 Range Not Satisfiable";
        assert_eq!(of("S3", "status 503 Service Unavailable"), ErrorKind::Retry);
        assert_eq!(of("S3", ended), ErrorKind::Corruption);
        assert_eq!(of("LocalFileSystem", "Requested range was invalid"), ErrorKind::Corruption);
    }

    #[cfg(unix)]
    #[test]
    fn a_link_that_leads_to_itself_is_damage_and_no_passing_fault() {
        let folder = tempfile::tempdir().unwrap();
        let link = folder.path().join("loop");
        std::os::unix::fs::symlink("loop", &link).unwrap();
        let of_system = || std::fs::read(&link).unwrap_err();
        let source = Box::new(of_system());
        let of_store = object_store::Error::Generic { store: "any", source };
        for error in [lance_core::Error::from(of_system()), of_store.into()] {
            for error in [lance_error("reading", &error), base_error("reading", &error)] {
                assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
            }
        }
    }

    #[test]
    fn a_table_that_another_process_made_first_exists() {
        let error = from_create("creating table t", lance_core::Error::dataset_already_exists("t"));
        assert!(matches!(error, Error::TableExists { .. }), "{error}");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }

    #[test]
    fn a_message_of_lance_loses_the_path_of_the_machine_that_built_it() {
        let error = lance_core::Error::invalid_input("no such column");
        let text = lance_error("scanning", &error).to_string();
        assert_eq!(text, "scanning: Invalid user input: no such column");
    }

    /// The first error of type `E` in the chain of sources.
    fn in_chain<E: StdError + 'static>(error: &Error) -> Option<&E> {
        let mut cause = error.source();
        while let Some(source) = cause {
            if let Some(found) = source.downcast_ref() {
                return Some(found);
            }
            cause = source.source();
        }
        None
    }

    fn refused_by_store() -> object_store::Error {
        object_store::Error::Generic { store: "S3", source: "key=AKIA0123".into() }
    }

    #[test]
    fn an_error_of_lance_keeps_the_error_of_the_store_or_of_the_system_below_it() {
        let lance = lance_core::Error::from(refused_by_store());
        let error = Err::<(), _>(lance).context("scanning").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Retry);
        assert!(
            matches!(error.source(), Some(source) if source.is::<lance_core::Error>()),
            "{error}"
        );
        assert!(in_chain::<object_store::Error>(&error).is_some(), "{error}");

        let system = std::io::Error::from_raw_os_error(5);
        let error = from_base("opening", lance_core::Error::from(system));
        assert_eq!(error.kind(), ErrorKind::Retry);
        let found = in_chain::<std::io::Error>(&error).and_then(std::io::Error::raw_os_error);
        assert_eq!(found, Some(5), "{error}");
    }

    #[test]
    fn an_error_of_datafusion_keeps_the_error_that_it_carries() {
        // DataFusion has an object store of its own, older than Lance's.
        type Refused = datafusion::object_store::Error;
        let lance = || DataFusionError::External(Box::new(lance_core::Error::internal("broken")));
        let shared = DataFusionError::Shared(Arc::new(lance()));
        for error in [lance(), lance().context("running"), shared] {
            let text = error.to_string();
            let error = Err::<(), _>(error).in_base("scanning").unwrap_err();
            let is_lance =
                matches!(error.source(), Some(source) if source.is::<lance_core::Error>());
            assert!(is_lance, "{text}: {error}");
        }
        let refused = Refused::Generic { store: "S3", source: "key=AKIA0123".into() };
        let error = from_datafusion("scanning", DataFusionError::ObjectStore(Box::new(refused)));
        assert!(matches!(error.source(), Some(source) if source.is::<Refused>()));
        assert_eq!(error.kind(), ErrorKind::Retry);
        let planned = from_datafusion("planning", DataFusionError::Plan("no column".into()));
        assert!(planned.source().is_none());
    }

    #[test]
    fn an_error_of_lancemem_comes_back_whole_from_datafusion() {
        let lance = lance_core::Error::from(refused_by_store());
        let own = Err::<(), _>(lance).in_sstable("an SSTable").unwrap_err();
        let (text, kind) = (own.to_string(), own.kind());
        let carried = external(own).context("running");
        let root = carried.find_root();
        assert!(matches!(root, DataFusionError::External(own) if own.is::<Error>()), "{root}");
        let error = from_scan("scanning", carried);
        assert_eq!((error.to_string(), error.kind()), (text, kind));
        assert!(in_chain::<object_store::Error>(&error).is_some(), "{error}");
    }

    #[test]
    fn sources_of_an_own_error_decide_nothing() {
        let own = || {
            let missing = std::io::Error::from(ErrorKindOfIo::NotFound);
            Error::input("a name is taken").with_source(missing)
        };
        let by_system = lance_core::Error::from(std::io::Error::other(own()));
        assert_eq!(damage_of(&by_system), Some(UNDECODABLE));
        let by_lance = lance_core::Error::External { source: Box::new(own()) };
        assert_eq!(damage_of(&by_lance), None);
        assert!(!is_absent(&by_lance));
    }
}
