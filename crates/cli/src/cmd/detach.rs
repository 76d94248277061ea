//! `threadkeep detach`.

use threadkeep_local::change::ChangeKind;

use super::change_many;
use crate::args::{ChangeArgs, Global};
use crate::fail::Done;
use crate::out::Out;

pub fn run(global: &Global, args: &ChangeArgs, out: &mut Out) -> Done {
    change_many::run(global, ChangeKind::Detach, args, out)
}
