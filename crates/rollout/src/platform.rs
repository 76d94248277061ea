//! What differs between systems: walking a folder quickly, the system's lock table, file identity.

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
pub use linux::{
    KnownFolder, all_write_locks, holder_facts, host_name, identity, identity_here, identity_of, lock_table,
    read_folder, rename_new, stands, sync_file_system,
};

#[cfg(not(target_os = "linux"))]
mod other;
#[cfg(not(target_os = "linux"))]
pub use other::{
    KnownFolder, all_write_locks, holder_facts, host_name, identity, identity_here, identity_of, lock_table,
    read_folder, rename_new, stands, sync_file_system,
};

/// What a folder entry is.
pub enum EntryKind {
    /// A folder.
    Folder,
    /// A regular file with its facts.
    File(FileStat),
    /// A symbolic link.
    Link,
    /// A regular-looking entry whose facts could not be read.
    Unreadable(std::io::Error),
}

/// The facts of a file that a reader compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileStat {
    /// Bytes.
    pub size: u64,
    /// Modification time, nanoseconds since the Unix epoch.
    pub mtime_ns: i64,
    /// Time of the last change of the file or of what the system keeps about it; 0 where there is no such time.
    pub ctime_ns: i64,
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
}

/// Tells one state of a folder from others: its names only change with these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FolderMark {
    /// Device.
    pub dev: u64,
    /// Inode.
    pub ino: u64,
    /// Modification time, nanoseconds since the Unix epoch.
    pub mtime_ns: i64,
    /// Time of the last change of any kind.
    pub ctime_ns: i64,
}

/// A lock in the system's table: device (major, minor) and inode of the file, and the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockRow {
    /// Major device number.
    pub major: u32,
    /// Minor device number.
    pub minor: u32,
    /// Inode.
    pub ino: u64,
    /// Process that holds it; `None` where the system does not say.
    pub pid: Option<u32>,
}
