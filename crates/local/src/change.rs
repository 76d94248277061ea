//! Changes of whole threads, made so that nothing is lost in the middle of them.

pub mod detach;
