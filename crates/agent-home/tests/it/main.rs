//! Task homes on real file systems: the behaviours that operators know, the invariants, and the public bug reports.
#![cfg(unix)]

mod place;

mod behaviours;
mod crash;
mod doubt;
mod exposing;
mod failing;
mod files;
mod keys;
mod leaving;
mod migration;
mod moving;
mod names;
mod pruning;
mod reports;
mod resuming;
mod safety;
