//! What is played.

pub mod alternate;
pub mod changes;
pub mod compressed;
pub mod detached;
pub mod forks;
pub mod held;
pub mod locks;
pub mod names;
pub mod releases;
pub mod reverts;
pub mod roots;
pub mod written;
