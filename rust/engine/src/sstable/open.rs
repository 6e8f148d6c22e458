//! Opening an SSTable that a shard manifest lists.
//!
//! Owns: opening the dataset of a listed folder name. An SSTable that lancemem wrote takes one
//! request, for its manifest, which is checksummed. Also the dataset of a manifest that is on no
//! storage yet, over which indexes are built.
//! Does not own: which SSTables are live, or caching of opened datasets.

use std::sync::Arc;

use async_trait::async_trait;
use lance::Dataset;
use lance::dataset::builder::DatasetBuilder;
use lance::session::Session;
use lance_core::{Error, Result};
use lance_io::object_store::ObjectStore as LanceStore;
use lance_table::format::pb::Manifest as ManifestMessage;
use lance_table::format::{Fragment, IndexMetadata, Manifest, Transaction};
use lance_table::io::commit::{
    CommitError, CommitHandler, ManifestLocation, ManifestNamingScheme, ManifestWriter,
};
use lancemem_core::format::{checksummed, paths};
use lancemem_core::types::MaxBytes;
use object_store::ObjectStore;
use object_store::path::Path;
use prost::Message;

use super::SsTableContext;
use super::bloom::checksum_text;
use super::bounded::read_whole;
use super::merge_fence;
use super::read::LIBRARY;
use super::write::VERSION;

/// The footer of every file of Lance: the offset of its metadata, two version numbers, a magic
/// word.
const FOOTER_BYTES: usize = 16;
const MAGIC: &[u8] = b"LANC";

/// The key of the manifest configuration that stores the checksum of the index section, the bytes of
/// the file before the message.
pub(super) const INDEX_SECTION: &str = "lancemem.index_section_crc32";
/// Bytes of the caches over which indexes are built.
const BUILD_CACHE_BYTES: usize = 64 << 20;

/// Opens the SSTable `path`, a folder name as in [`super::SsTableWritten::path`].
///
/// # Errors
/// An input error for a `path` that is not one plain component: a manifest must not be able to
/// lead a reader outside its shard. Damage for an SSTable with files outside its folder, and for one
/// that was written under another merge rule than the context has. Otherwise
/// lance's error for a dataset that is missing or broken.
pub async fn open_sstable(context: &SsTableContext, path: &str) -> Result<Dataset> {
    if !paths::is_plain_component(path) {
        return Err(Error::invalid_input(format!(
            "SSTable path '{path}' of shard {} is not a plain folder name",
            context.shard_uri
        )));
    }
    let uri = context.uri(path);
    let mut builder = DatasetBuilder::from_uri(&uri).with_session(context.session.clone());
    if let Some(params) = context.store_params(path) {
        builder = builder.with_store_params(params);
    }
    let own = only_manifest(context, path).await?;
    let is_checked = own.is_some();
    // For SSTables of other writers lance looks for the newest version itself.
    if let Some(OwnManifest { message, file_bytes }) = own {
        builder =
            builder.with_commit_handler(Arc::new(OnlyVersion { file_bytes: Some(file_bytes) }));
        builder = builder.with_serialized_manifest(&message)?;
    }
    let sstable = builder.load().await?;
    refuse_elsewhere(&sstable)?;
    if context.rule.is_some() && !is_checked {
        let what = "another program wrote the SSTable, and its table has a merge rule";
        return Err(Error::corrupt_file(sstable.manifest_location().path.clone(), what));
    }
    Ok(sstable)
}

/// The SSTable `path` as it will be with `manifest`, which is on no storage yet. The caches are its
/// own: a cached list of its indexes would stay empty.
///
/// # Errors
/// A storage error.
pub(super) async fn open_unwritten(
    context: &SsTableContext,
    path: &str,
    manifest: &Manifest,
) -> Result<Dataset> {
    let message = ManifestMessage::from(manifest).encode_to_vec();
    let stores = context.session.store_registry();
    let session = Session::new(BUILD_CACHE_BYTES, BUILD_CACHE_BYTES, stores);
    let mut builder = DatasetBuilder::from_uri(context.uri(path)).with_session(Arc::new(session));
    if let Some(params) = context.store_params(path) {
        builder = builder.with_store_params(params);
    }
    let builder = builder.with_commit_handler(Arc::new(OnlyVersion { file_bytes: None }));
    builder.with_serialized_manifest(&message)?.load().await
}

/// Refuses an SSTable with files outside its folder, such as a shallow clone. Otherwise the writer
/// of an SSTable could make its readers open any file that they may read.
fn refuse_elsewhere(sstable: &Dataset) -> Result<()> {
    let manifest = sstable.manifest();
    let is_elsewhere = |fragment: &Fragment| {
        fragment.files.iter().any(|file| file.base_id.is_some())
            || fragment.deletion_file.as_ref().is_some_and(|file| file.base_id.is_some())
    };
    if manifest.base_paths.is_empty() && !manifest.fragments.iter().any(is_elsewhere) {
        return Ok(());
    }
    let what = "the manifest names files outside the SSTable's folder";
    Err(Error::corrupt_file(sstable.manifest_location().path.clone(), what))
}

/// The manifest of an SSTable that lancemem wrote.
struct OwnManifest {
    /// The encoded message.
    message: Vec<u8>,
    /// The size of the manifest file.
    file_bytes: u64,
}

/// The manifest of an SSTable that lancemem wrote; `None` where lance opens the dataset itself, and
/// reports what is wrong with it.
///
/// # Errors
/// Damage: the file is not a manifest, its message or its index section does not match its checksum,
/// or the SSTable was written under another merge rule.
async fn only_manifest(context: &SsTableContext, path: &str) -> Result<Option<OwnManifest>> {
    let file = ManifestNamingScheme::V2.manifest_path(&context.folder(path), VERSION);
    let bytes = match read_whole(&context.object_store, &file, MaxBytes::MANIFEST).await {
        Ok(bytes) => bytes,
        Err(damage @ Error::CorruptFile { .. }) => return Err(damage),
        Err(_) => return Ok(None),
    };
    let damaged = |what: &str| Error::corrupt_file(file.clone(), what);
    let parts = ManifestFile::of(&bytes);
    let ManifestFile { before, message, .. } =
        parts.ok_or_else(|| damaged("the manifest file is incomplete"))?;
    let (unsealed, is_checked) = match checksummed::unseal(message, path) {
        Ok(unsealed) => (unsealed, true),
        Err(_) if context.verifies => return Err(damaged("checksum mismatch in the manifest")),
        Err(error) => {
            tracing::warn!(%error, "checksum mismatch in the manifest of an SSTable is ignored");
            (message, false)
        }
    };
    let Ok(manifest) = ManifestMessage::decode(unsealed) else { return Ok(None) };
    // Lance refuses a fenced manifest; any other one it opens itself.
    if !is_checked && !merge_fence::is_fenced(&manifest) {
        return Ok(None);
    }
    let writer = manifest.writer_version.as_ref();
    let is_ours = writer.is_some_and(|writer| writer.library == LIBRARY);
    let recorded = manifest.config.get(INDEX_SECTION);
    let is_damaged =
        recorded.is_some_and(|recorded| *recorded != checksum_text(crc32fast::hash(before)));
    // Without verification the rows alone are read.
    if is_damaged && context.verifies {
        return Err(damaged("checksum mismatch in the index section of the manifest"));
    }
    if !is_ours || manifest.version != VERSION {
        return Ok(None);
    }
    merge_fence::check(&manifest, context.rule.as_deref()).map_err(|what| damaged(&what))?;
    let message = if merge_fence::is_fenced(&manifest) {
        merge_fence::unfenced(manifest).encode_to_vec()
    } else {
        unsealed.to_vec()
    };
    Ok(Some(OwnManifest { message, file_bytes: bytes.len() as u64 }))
}

/// The parts of a manifest file of Lance.
struct ManifestFile<'a> {
    /// The bytes before the message.
    before: &'a [u8],
    message: &'a [u8],
    /// Records the offset of the message.
    footer: &'a [u8],
}

impl<'a> ManifestFile<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let (body, footer) = bytes.split_at_checked(bytes.len().checked_sub(FOOTER_BYTES)?)?;
        let (start, rest) = footer.split_first_chunk::<8>()?;
        let start = usize::try_from(u64::from_le_bytes(*start)).ok()?;
        let (length, message) = body.get(start..)?.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        // The message ends at the footer. Without this check a zeroed length would parse as an
        // empty manifest, an SSTable without rows.
        let is_whole = message.len() == length && rest.ends_with(MAGIC);
        is_whole.then_some(Self { before: &body[..start], message, footer })
    }
}

/// The bytes of a manifest file before its message: the index section.
pub(super) fn before_message(file: &[u8]) -> Option<&[u8]> {
    ManifestFile::of(file).map(|file| file.before)
}

/// A manifest file with its message checksummed. Lance skips the checksum as unknown protobuf
/// fields.
pub(super) fn sealed(file: &[u8]) -> Option<Vec<u8>> {
    let ManifestFile { before, message, footer } = ManifestFile::of(file)?;
    let message = checksummed::seal(message);
    let length = u32::try_from(message.len()).ok()?.to_le_bytes();
    Some([before, &length, &message, footer].concat())
}

/// Resolves the manifest of an SSTable without a listing: an SSTable has one version.
#[derive(Debug)]
struct OnlyVersion {
    /// The size of the manifest file, where it is on storage.
    file_bytes: Option<u64>,
}

#[async_trait]
impl CommitHandler for OnlyVersion {
    async fn resolve_version_location(
        &self,
        base_path: &Path,
        version: u64,
        _: &dyn ObjectStore,
    ) -> Result<ManifestLocation> {
        let naming_scheme = ManifestNamingScheme::V2;
        let path = naming_scheme.manifest_path(base_path, version);
        let (size, e_tag, identity) = (self.file_bytes, None, None);
        Ok(ManifestLocation { version, path, size, naming_scheme, e_tag, identity })
    }

    async fn commit(
        &self,
        _: &mut Manifest,
        _: Option<Vec<IndexMetadata>>,
        _: &Path,
        _: &LanceStore,
        _: ManifestWriter,
        _: ManifestNamingScheme,
        _: Option<Transaction>,
    ) -> std::result::Result<ManifestLocation, CommitError> {
        Err(CommitError::OtherError(Error::not_supported("an SSTable is immutable")))
    }
}

#[cfg(test)]
mod tests {
    use lancemem_core::format::checksummed;

    use super::{ManifestFile, sealed};

    fn message_of(file: &[u8]) -> Option<&[u8]> {
        ManifestFile::of(file).map(|file| file.message)
    }

    #[test]
    fn a_manifest_file_that_is_truncated_or_points_outside_itself_has_no_message() {
        let mut file = b"before".to_vec();
        file.extend(3_u32.to_le_bytes());
        file.extend(b"abc");
        file.extend(6_u64.to_le_bytes());
        file.extend([0, 0, 2, 0]);
        file.extend(b"LANC");
        assert_eq!(message_of(&file), Some(&b"abc"[..]));
        for length in 0..file.len() {
            assert_eq!(message_of(&file[..length]), None, "{length} bytes");
        }
        for start in [7_u64, 13, 100, u64::MAX] {
            let place = file.len() - 16;
            let mut wrong = file.clone();
            wrong[place..place + 8].copy_from_slice(&start.to_le_bytes());
            assert_eq!(message_of(&wrong), None, "start {start}");
        }
    }

    #[test]
    fn a_checksummed_message_is_at_the_offset_in_the_footer() {
        let mut file = b"before".to_vec();
        file.extend(3_u32.to_le_bytes());
        file.extend(b"abc");
        file.extend(6_u64.to_le_bytes());
        file.extend(b"\0\0\x02\0LANC");
        let sealed = sealed(&file).unwrap();
        assert_eq!(checksummed::unseal(message_of(&sealed).unwrap(), "x").unwrap(), b"abc");
        assert!(sealed.starts_with(b"before") && sealed.ends_with(b"LANC"));
    }
}
