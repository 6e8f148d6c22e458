pub use lance; pub use datafusion; pub use lance_index;
