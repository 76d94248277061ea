//! What differs between systems: owners, file identity, kinds of file systems.

use std::fs::{File, Metadata};
use std::io;
use std::path::Path;

/// What a file is, whatever its name: device and inode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity(u64, u64);

/// Who owns a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// This user, or the system does not say.
    Us,
    /// Another.
    Other(u32),
}

#[cfg(unix)]
mod system {
    use std::os::unix::fs::MetadataExt;

    use super::{File, Identity, Metadata, Owner, Path, io};

    pub(crate) fn identity(of: &Metadata) -> Option<Identity> {
        Some(Identity(of.dev(), of.ino()))
    }

    pub(crate) fn owner(of: &Metadata) -> Owner {
        if of.uid() == rustix::process::geteuid().as_raw() { Owner::Us } else { Owner::Other(of.uid()) }
    }

    pub(crate) fn has_one_name(of: &Metadata) -> bool {
        of.nlink() <= 1
    }

    /// A folder as something that can be locked.
    pub(crate) fn open_folder(path: &Path) -> io::Result<Option<File>> {
        File::open(path).map(Some)
    }
}

#[cfg(not(unix))]
mod system {
    use super::{File, Identity, Metadata, Owner, Path, io};

    /// A file that is open cannot be removed or replaced here, so nobody needs to tell it from another.
    pub(crate) fn identity(_of: &Metadata) -> Option<Identity> {
        None
    }

    pub(crate) fn owner(_of: &Metadata) -> Owner {
        Owner::Us
    }

    pub(crate) fn has_one_name(_of: &Metadata) -> bool {
        true
    }

    pub(crate) fn open_folder(_path: &Path) -> io::Result<Option<File>> {
        Ok(None)
    }
}

pub(crate) use system::{has_one_name, identity, open_folder, owner};

/// Whether shared memory between the users of a file can be relied on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    /// As far as known.
    Local,
    /// Other machines, or a program in between, may have it open too.
    Shared,
}

/// What kind of file system a folder is on.
#[cfg(target_os = "linux")]
pub(crate) fn file_system(folder: &Path) -> FileSystem {
    /// `f_type` of file systems whose files other machines may have open, from `linux/magic.h` and `statfs(2)`.
    const SHARED: [u32; 17] = [
        0x6969,      // NFS
        0x517b,      // SMB
        0xfe53_4d42, // SMB 2
        0xff53_4d42, // CIFS
        0x0102_1997, // 9P, as of virtual machines and WSL
        0x6573_5546, // FUSE, as sshfs and virtiofs
        0x00c3_6400, // Ceph
        0x5346_414f, // AFS
        0x6b41_4653, // AFS (kAFS)
        0x7375_7245, // Coda
        0x0bd0_0bd0, // Lustre
        0x4750_4653, // GPFS
        0x7461_636f, // OCFS2
        0x0116_1970, // GFS2
        0x786f_4256, // VirtualBox shared folder
        0x7c7c_6673, // Parallels shared folder
        0x564c,      // NCP
    ];
    match rustix::fs::statfs(folder) {
        // The type is a word whose upper half means nothing.
        Ok(facts) if SHARED.contains(&((facts.f_type as u64 & 0xffff_ffff) as u32)) => FileSystem::Shared,
        Ok(_) | Err(_) => FileSystem::Local,
    }
}

/// What kind of file system a folder is on: not known here, so trying decides.
#[cfg(not(target_os = "linux"))]
pub(crate) fn file_system(_folder: &Path) -> FileSystem {
    FileSystem::Local
}
