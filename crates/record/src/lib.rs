//! What a rollout says: ids, records, envelopes, items, turns, previews and search text, as pure values.
//!
//! Bytes in, values out: no files and no clock. A record is its bytes; every typed view here is made from them on
//! demand, borrows where it can, and never replaces them.

pub mod damage;
pub mod envelope;
pub mod fold;
pub mod id;
pub mod item;
pub mod json_stream;
pub mod long;
pub mod meta;
pub mod new_header;
pub mod new_item;
pub mod observe;
pub mod patch;
pub mod preview;
pub mod sniff;
pub mod text;
pub mod time;
pub mod tokens;
pub mod turns;
pub mod visible;

pub use damage::{DamageReason, LineState, check_line};
pub use envelope::{Envelope, Kind, Shape};
pub use id::ThreadId;
pub use item::{Item, ItemBody, Origin};
pub use meta::{GitInfo, HistoryBase, HistoryMode, SessionMeta, SourceClass};
pub use new_header::{NewHeader, continued_header};
pub use new_item::{ItemPlace, NewItem};
pub use patch::{Field, GitPatch, MetadataPatch, PatchKind, ThreadMetadata};
pub use text::Speaker;
pub use time::UtcMillis;
pub use tokens::TokenUsage;
pub use turns::Accounts;
