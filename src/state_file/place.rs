//! Where the state file is: one process has it, and it is replaced as a whole.
//!
//! Deliberately without knowledge of what stands in it, but for whose it is.

use super::Stored;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Why there is no state file; exit code 78.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error(
        "state.file: {} is in use by another process: give each instance a file of its own",
        .0.display()
    )]
    InUse(PathBuf),
    #[error(
        "state.file: cannot use {}: {source}; name a file in a folder that can be written",
        path.display()
    )]
    Unusable { path: PathBuf, source: io::Error },
}

/// A state file that is ours: no other process has it.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Beside the file, since the file itself is replaced by each save. Locked until it is closed.
    _lock: File,
}

impl StateFile {
    /// Takes the file, and reads what an earlier process of this group left. What cannot be used
    /// is set aside with a warning.
    ///
    /// # Errors
    /// Another process has it, or the folder cannot be written.
    pub fn open(path: &Path, group: &str) -> Result<(StateFile, Option<Stored>), StateError> {
        let unusable = |source| StateError::Unusable {
            path: path.to_owned(),
            source,
        };
        let lock = private().truncate(false).open(beside(path, "lock"));
        let lock = lock.map_err(unusable)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => StateError::InUse(path.to_owned()),
            TryLockError::Error(source) => unusable(source),
        })?;
        let file = StateFile {
            path: path.to_owned(),
            _lock: lock,
        };
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((file, None)),
            Err(error) => return Err(unusable(error)),
        };
        let read = std::str::from_utf8(&bytes).map_err(|error| error.to_string());
        let stored = match read.and_then(Stored::read) {
            Ok(stored) if stored.group == group => Some(stored),
            Ok(stored) => {
                file.set_aside(&format!("it is of the group {:?}", stored.group));
                None
            }
            Err(reason) => {
                file.set_aside(&reason);
                None
            }
        };
        Ok((file, stored))
    }

    /// Puts a file that cannot be used out of the way; counters begin at zero.
    pub fn set_aside(&self, reason: &str) {
        let to = beside(&self.path, "set-aside");
        let (file, aside) = (self.path.display(), to.display());
        match fs::rename(&self.path, &to) {
            Ok(()) => tracing::warn!(%file, %aside, reason, "the state file cannot be used: set \
                aside, counters begin at zero"),
            Err(error) => tracing::warn!(%file, %error, reason, "the state file cannot be used \
                and not be set aside: counters begin at zero"),
        }
    }

    /// Replaces the file as a whole: whoever reads it, also after a crash of the machine, finds
    /// the old one or the new one.
    pub fn write(&self, text: &str) -> io::Result<()> {
        let new = beside(&self.path, "new");
        // One that a crash left may be anybody's to read.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = private().create_new(true).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, &self.path)?;
        let folder = self
            .path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
    }

    /// Removes the file, as far as that can be done: counters then begin at zero after a crash,
    /// instead of falling behind what was scraped.
    pub fn remove(&self) {
        // Where not even that is possible, nothing is.
        let _ = fs::remove_file(&self.path);
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Makes files that only their owner may read: counters bear the names of tenants.
fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.create(true).write(true).mode(0o600);
    options
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::*;

    fn of_group(group: &str) -> Stored {
        Stored {
            group: group.to_owned(),
            ..Stored::default()
        }
    }

    #[test]
    fn one_process_has_it_and_the_next_goes_on() {
        let folder = Folder::new("lock");
        let path = folder.0.join("state");
        let (file, stored) = StateFile::open(&path, "g").unwrap();
        assert_eq!(stored, None);
        let taken = StateFile::open(&path, "g").unwrap_err();
        assert!(
            taken.to_string().contains("in use by another process"),
            "{taken}"
        );
        file.write(&of_group("g").text()).unwrap();
        file.write(&of_group("g").text()).unwrap();
        drop(file);
        let (_, stored) = StateFile::open(&path, "g").unwrap();
        assert_eq!(stored, Some(of_group("g")));
    }

    #[test]
    fn what_cannot_be_used_is_set_aside() {
        let folder = Folder::new("aside");
        let path = folder.0.join("state");
        for bytes in [
            b"" as &[u8],
            b"\xff",
            b"torn",
            of_group("other").text().as_bytes(),
        ] {
            fs::write(&path, bytes).unwrap();
            let (_, stored) = StateFile::open(&path, "g").unwrap();
            assert_eq!(stored, None);
            assert!(!path.exists());
            assert_eq!(fs::read(beside(&path, "set-aside")).unwrap(), bytes);
        }
    }

    #[test]
    fn a_folder_that_is_not_there_is_said() {
        let folder = Folder::new("gone");
        let path = folder.0.join("no/state");
        let error = StateFile::open(&path, "g").unwrap_err().to_string();
        assert!(error.starts_with("state.file: cannot use"), "{error}");
    }
}
