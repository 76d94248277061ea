//! What is played.

pub mod written;
