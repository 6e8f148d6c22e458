//! A gate that holds a request until the test lets it pass.
//!
//! Owns: the wait, and the count of visitors for the test.
//! Does not own: which request is held (`faults`, `sink`).

use tokio::sync::watch;

/// Holds every visitor until it is opened; then it stays open.
#[derive(Debug)]
pub struct Gate {
    open: watch::Sender<bool>,
    arrived: watch::Sender<usize>,
}

impl Default for Gate {
    fn default() -> Self {
        Self { open: watch::Sender::new(false), arrived: watch::Sender::new(0) }
    }
}

impl Gate {
    /// Lets every visitor pass from now on.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Counts the visitor and waits until the gate is open.
    pub async fn pass(&self) {
        self.arrived.send_modify(|arrived| *arrived += 1);
        let _ = self.open.subscribe().wait_for(|open| *open).await;
    }

    /// Waits until `visitors` have come, whether they still wait or not.
    pub async fn wait_for_visitors(&self, visitors: usize) {
        let _ = self.arrived.subscribe().wait_for(|arrived| *arrived >= visitors).await;
    }
}
