//! The laws of the fold, against a model that shares no code with it.
//!
//! Owns: the stories of `merge`. `table` builds tables and events, `oracle` is the model, `laws` the
//! properties, `verbs` the table of what each rule does with each event, `functions` the columns,
//! `kernel` what it is called with,
//! `refusals` the rules that cannot be, `stored` their JSON, `public_bugs` what went wrong elsewhere.
//! Does not own: where events are stored.

mod functions;
mod kernel;
mod laws;
mod oracle;
mod public_bugs;
mod refusals;
mod stored;
mod table;
mod verbs;
