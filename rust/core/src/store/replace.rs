//! Replacing an object that was read.
//!
//! Owns: that only the version that was read is replaced, as far as the store can promise it.
//! Does not own: why an object is replaced; only a repair does so.

use bytes::Bytes;
use object_store::{PutMode, PutOptions, UpdateVersion};

use super::{Store, change, failed};
use crate::types::{MaxBytes, Result};

/// An object as it was read.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its bytes.
    pub bytes: Bytes,
    /// The store's name of this version, such as an `ETag`; `None` where it has none, as on a local
    /// disk.
    version: Option<UpdateVersion>,
}

impl Store {
    /// [`Self::get`] of an object that may be replaced.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub async fn get_seen(&self, path: &str, most: MaxBytes) -> Result<Option<Seen>> {
        if self.local.is_some() {
            let bytes = self.get(path, most).await?;
            return Ok(bytes.map(|bytes| Seen { bytes, version: None }));
        }
        let Some(found) = self.find(path, most).await? else { return Ok(None) };
        let meta = &found.meta;
        let version = UpdateVersion { e_tag: meta.e_tag.clone(), version: meta.version.clone() };
        let version = Some(version).filter(|it| it.e_tag.is_some() || it.version.is_some());
        let bytes = found.bytes().await;
        let bytes = bytes.map_err(|error| failed(format!("reading {path}"), error))?;
        Ok(Some(Seen { bytes, version }))
    }

    /// Writes `bytes` in the place of the `seen` version; false if the object is not that version
    /// any more. A local disk, and a server without conditional writes, compare once more and then
    /// write: that is not atomic.
    ///
    /// # Errors
    /// A storage error; the object may or may not be replaced then.
    pub async fn replace(&self, path: &str, seen: &Seen, bytes: Bytes) -> Result<bool> {
        if let Some(version) = &seen.version {
            let options = PutOptions::from(PutMode::Update(version.clone()));
            let (inner, place, new) = (self.inner.clone(), self.at(path), bytes.clone());
            match change(async move { inner.put_opts(&place, new.into(), options).await }).await {
                Ok(_) => return Ok(true),
                Err(
                    object_store::Error::Precondition { .. } | object_store::Error::NotFound { .. },
                ) => return Ok(false),
                Err(object_store::Error::NotImplemented { .. }) => {}
                Err(error) => return Err(failed(format!("replacing {path}"), error)),
            }
        }
        if self.get(path, MaxBytes::LOG_ENTRY).await?.as_ref() != Some(&seen.bytes) {
            return Ok(false);
        }
        self.put(path, bytes).await.map(|()| true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;

    use super::*;

    #[tokio::test]
    async fn only_what_was_seen_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let local = Store::open(folder.path().to_str().unwrap(), true).unwrap();
        let remote = Store::new(Arc::new(InMemory::new()), "table".into());
        for store in [local, remote] {
            assert!(store.get_seen("a/b", MaxBytes::NOTE).await.unwrap().is_none());
            store.put("a/b", "1".into()).await.unwrap();
            let seen = store.get_seen("a/b", MaxBytes::NOTE).await.unwrap().unwrap();
            assert!(store.replace("a/b", &seen, "2".into()).await.unwrap());
            assert!(!store.replace("a/b", &seen, "3".into()).await.unwrap());
            assert_eq!(store.get("a/b", MaxBytes::NOTE).await.unwrap().unwrap(), "2");
            store.delete("a/b").await.unwrap();
            assert!(!store.replace("a/b", &seen, "3".into()).await.unwrap());
            assert!(store.get("a/b", MaxBytes::NOTE).await.unwrap().is_none());
        }
    }
}
