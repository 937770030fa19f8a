//! `MappedFile`: a file's bytes in memory without reading them: pages come in when they are looked at.
//!
//! Note [Mapped files]
//! The bytes of a mapping are the file's own. Two things that others do to the file show through:
//! - Writing into it changes the bytes. A `&[u8]` of them must not change while it is borrowed, by the language's rules;
//!   nothing here or above keeps references to single bytes whose change could break more than the value read, and
//!   whoever parses the bytes copies the part it decides by first.
//! - Cutting it short takes pages away: looking at them ends the process by a signal (SIGBUS).
//!
//! Neither can be prevented from here on Unix: locks are advisory. Files that Fireclay writes are safe by construction,
//! since a save never writes into an existing file but puts a new one in its place: the mapping keeps the old one alive.
//! On Windows the system itself refuses both while a file is mapped.

use std::fs::File;
use std::io;
use std::ops::Deref;

use memmap2::Mmap;

/// The bytes of a file, read-only. See Note [Mapped files] for what must not be done to the file meanwhile.
#[derive(Debug)]
pub struct MappedFile(Mmap);

impl MappedFile {
    /// Maps the whole of `file`; an empty file gives no bytes.
    ///
    /// # Errors
    /// What the system says: not a regular file, no address space left, ...
    pub fn map(file: &File) -> io::Result<MappedFile> {
        // SAFETY: the mapping is private to this value, read-only, and as long as the file is now (`Mmap::map` asks for
        // the length), so every byte of the slice is backed by the file as long as nobody cuts the file short. That
        // nobody cuts it or writes into it is the bound relied on; see Note [Mapped files] for who keeps it.
        unsafe { Mmap::map(file) }.map(MappedFile)
    }
}

impl Deref for MappedFile {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_shows_the_file_and_outlives_its_replacement() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"old bytes").unwrap();
        let mapped = MappedFile::map(&File::open(&path).unwrap()).unwrap();
        let other = folder.path().join("other");
        std::fs::write(&other, b"new").unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(&*mapped, b"old bytes");
        let mapped = MappedFile::map(&File::open(&path).unwrap()).unwrap();
        assert_eq!(&*mapped, b"new");
    }

    #[test]
    fn an_empty_file_has_no_bytes_and_a_folder_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("empty");
        std::fs::write(&path, b"").unwrap();
        assert!(
            MappedFile::map(&File::open(&path).unwrap())
                .unwrap()
                .is_empty()
        );
        assert!(MappedFile::map(&File::open(folder.path()).unwrap()).is_err());
    }
}
