//! What public bug reports say of continuing, changing and forking threads, each as a whole kind: damaged, doubled,
//! compressed and foreign rollouts, full disks, databases that are elsewhere or busy. Every test is named after the
//! report (`b30_…`) or the rule it guards.

#[path = "cases_write/home.rs"]
mod home;

#[path = "cases_write/damage.rs"]
mod damage;
#[path = "cases_write/forms.rs"]
mod forms;
#[path = "cases_write/lineage.rs"]
mod lineage;
#[path = "cases_write/names.rs"]
mod names;
#[path = "cases_write/ordinals.rs"]
mod ordinals;
#[path = "cases_write/writers.rs"]
mod writers;
