//! A file on a local disk that is synced while it is written.
//!
//! Owns: the hand-over of blocks to a thread that writes them, and that syncs while the encoder
//! works on the next page, so that little is left to sync at the end.
//! Does not own: the last sync (`sync`, with all files of the SSTable), or the remains of a failed
//! write.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use async_trait::async_trait;
use futures::channel::mpsc::{Receiver, Sender, TryRecvError, channel};
use futures::executor::block_on;
use futures::{FutureExt, StreamExt};
use lance_core::Result;
use lance_io::object_writer::WriteResult;
use lance_io::traits::Writer;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::task::JoinHandle;

/// Most bytes that are handed over at once.
const BLOCK_BYTES: usize = 1 << 20;
/// Blocks that may wait for the disk.
const BLOCKS: usize = 8;
/// Unsynced bytes from which the thread syncs when no block waits.
const SYNC_BYTES: usize = 2 << 20;

/// The writing end. When `shutdown` has returned, all bytes are written.
pub(super) struct LocalFile {
    block: Vec<u8>,
    block_bytes: usize,
    /// `None` after the last block was sent.
    blocks: Option<Sender<Vec<u8>>>,
    /// `None` after its result was taken.
    thread: Option<JoinHandle<io::Result<()>>>,
    bytes: usize,
}

impl LocalFile {
    /// Creates `path`, which must not exist, and its folder. With `fsync`, blocks are synced in
    /// between. The encoder waits once about `waiting_bytes` wait for the disk.
    pub async fn create(path: PathBuf, fsync: bool, waiting_bytes: usize) -> io::Result<Self> {
        let file = tokio::task::spawn_blocking(move || create(&path)).await??;
        let (blocks, waiting) = channel(BLOCKS);
        let thread = Some(tokio::task::spawn_blocking(move || write_blocks(file, waiting, fsync)));
        let block_bytes = (waiting_bytes / BLOCKS).clamp(4096, BLOCK_BYTES);
        let block = Vec::with_capacity(block_bytes);
        Ok(Self { block, block_bytes, blocks: Some(blocks), thread, bytes: 0 })
    }

    /// Hands the block over, waiting for room.
    fn poll_hand_over(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(blocks) = self.blocks.as_mut() else {
            return Poll::Ready(Err(io::Error::other("the file is closed")));
        };
        let room = ready!(blocks.poll_ready(context));
        let sent = room.is_ok() && {
            let next = Vec::with_capacity(self.block_bytes);
            blocks.start_send(std::mem::replace(&mut self.block, next)).is_ok()
        };
        if sent {
            return Poll::Ready(Ok(()));
        }
        // The thread stops taking blocks only where it failed; its result is the error.
        let end = ready!(self.poll_end(context));
        Poll::Ready(end.and_then(|()| Err(io::Error::other("the file's thread ended early"))))
    }

    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(thread) = self.thread.as_mut() else {
            return Poll::Ready(Err(io::Error::other("the file is closed")));
        };
        let end = ready!(thread.poll_unpin(context));
        self.thread = None;
        Poll::Ready(end?)
    }
}

fn create(path: &Path) -> io::Result<File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    File::create_new(path)
}

fn write_blocks(mut file: File, mut blocks: Receiver<Vec<u8>>, fsync: bool) -> io::Result<()> {
    let mut unsynced = 0;
    loop {
        let next = match blocks.try_recv() {
            Ok(block) => Some(block),
            Err(TryRecvError::Closed) => None,
            Err(TryRecvError::Empty) => {
                if fsync && unsynced >= SYNC_BYTES {
                    file.sync_data()?;
                    unsynced = 0;
                }
                block_on(blocks.next())
            }
        };
        let Some(block) = next else { return Ok(()) };
        file.write_all(&block)?;
        unsynced += block.len();
    }
}

impl AsyncWrite for LocalFile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.block.len() == self.block_bytes {
            ready!(self.poll_hand_over(context))?;
        }
        let taken = bytes.len().min(self.block_bytes - self.block.len());
        self.block.extend_from_slice(&bytes[..taken]);
        self.bytes += taken;
        Poll::Ready(Ok(taken))
    }

    /// Does nothing: bytes of several pages share a block.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.blocks.is_some() {
            if !self.block.is_empty() {
                ready!(self.poll_hand_over(context))?;
            }
            self.blocks = None;
        }
        self.poll_end(context)
    }
}

#[async_trait]
impl Writer for LocalFile {
    async fn tell(&mut self) -> Result<usize> {
        Ok(self.bytes)
    }

    async fn shutdown(&mut self) -> Result<WriteResult> {
        AsyncWriteExt::shutdown(self).await?;
        Ok(WriteResult { size: self.bytes, e_tag: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_has_the_bytes_that_were_written_in_their_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data").join("file");
        let mut file = LocalFile::create(path.clone(), true, 0).await.unwrap();
        let mut expected = Vec::new();
        for piece in [0, 1, 100, BLOCK_BYTES, 7, 3 * BLOCK_BYTES + 5, SYNC_BYTES, 64] {
            let bytes: Vec<u8> = (0..piece).map(|i| u8::try_from(i % 251).unwrap()).collect();
            file.write_all(&bytes).await.unwrap();
            file.flush().await.unwrap();
            expected.extend(bytes);
            assert_eq!(file.tell().await.unwrap(), expected.len());
        }
        let written = Writer::shutdown(&mut file).await.unwrap();
        assert_eq!(written.size, expected.len());
        assert!(fs::read(&path).unwrap() == expected);
        assert!(LocalFile::create(path, true, 0).await.is_err(), "it would replace a file");
    }

    #[tokio::test]
    async fn a_disk_that_refuses_bytes_is_named_and_not_waited_for() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let file = File::options().write(true).open(full).unwrap();
        let (blocks, waiting) = channel(2);
        let thread = Some(tokio::task::spawn_blocking(move || write_blocks(file, waiting, true)));
        let mut file = LocalFile {
            block: Vec::new(),
            block_bytes: BLOCK_BYTES,
            blocks: Some(blocks),
            thread,
            bytes: 0,
        };
        let bytes = vec![0; 20 * BLOCK_BYTES];
        let error = match file.write_all(&bytes).await {
            Err(error) => error,
            Ok(()) => AsyncWriteExt::shutdown(&mut file).await.unwrap_err(),
        };
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
    }
}
