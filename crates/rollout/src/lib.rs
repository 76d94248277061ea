//! The rollout files of a home: names and layout, readers, lineage, the name index and the writer locks.
//!
//! This crate knows files and the records in them; it knows no index and no list.

pub mod appender;
pub mod block;
pub mod facts;
pub mod home;
pub mod lineage;
pub mod locks;
pub mod name;
pub mod name_index;
pub mod new_file;
mod packed;
pub mod par;
mod platform;
pub mod records;
pub mod reverse;
pub mod seam;
pub mod sight;
pub mod sim;
pub mod source;
pub mod tail;
pub mod unpack;
pub mod walk;
pub mod writer;
pub mod writer_lock;

pub use facts::{Depth, FileFacts};
pub use home::Home;
pub use name::{Form, RolloutName};
pub use walk::{FileEntry, Place};
