//! The text hint: which stretches of which rollouts may hold a search term.
//!
//! A rollout is cut into [`Unit`]s, byte ranges of whole records with about 64 KB of searchable text each. For each
//! unit the set of trigrams of its case-folded text is kept, up to 512 units together in an immutable [`Segment`]. A
//! [`Query`] asks a segment for the units that have every trigram of a term.
//!
//! It is a hint that only chooses what is scanned: every record with a hit lies in a unit that is given, units that
//! are given may hold none, and a segment that cannot be read means that its units are scanned. What the hint was made
//! of may be gone or changed, which is for whoever keeps the segments to know.
//!
//! Nothing here opens a database or starts a thread; [`read_units`] alone opens a file.

pub(crate) mod bytes;
mod fold;
mod fold_table;
mod query;
mod read;
mod segment;
mod trigram;
mod unit;
mod unit_set;
mod writer;

pub use bytes::ReadAt;
pub use query::Query;
pub use read::{ReadFrom, ReadUnits, read_units};
pub use segment::{Segment, SegmentError, UnitPlace};
pub use trigram::Trigrams;
pub use unit::{Contents, TEXT_OF_UNIT, Unit, UnitBuilder};
pub use unit_set::UnitSet;
pub use writer::{MAX_UNITS, SegmentWriter};
