//! The files an engine starts from: its folder, password, `config.xml` and `users.xml`.
//!
//! Deliberately knows nothing of processes. Every file is private to its owner (0600 in a folder of
//! mode 0700), because `users.xml` holds a password's digest.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::EngineError;

/// The user that clients log in as.
pub const USER: &str = "daemon";

/// Bound on the engine's memory, in bytes: it shares a developer's machine.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Bound on the mark cache, in bytes; the engine's own default is 5 GB.
const MARK_CACHE_BYTES_MAX: u64 = 256 << 20;

/// Answers 1 once the child's own session has used up the quota of `default`: only then is the
/// engine both up and closed to strangers.
pub const IS_LOCKED: &str = "SELECT count() FROM system.quotas_usage \
    WHERE quota_name = 'start' AND queries >= max_queries";

/// The longest quota interval the engine takes. Intervals count from 1970, so it first starts over
/// in January 2038.
const QUOTA_SECONDS: u32 = i32::MAX as u32;

/// Where everything of one engine lies. All paths are absolute and valid UTF-8.
#[derive(Debug, Clone)]
pub struct Files {
    folder: String,
}

impl Files {
    /// Makes the folder if need be and takes its absolute name.
    ///
    /// # Errors
    /// The folder cannot be made, or its path is no UTF-8 (it goes into XML and SQL).
    pub fn in_folder(dir: &Path) -> Result<Self, EngineError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(EngineError::at(dir))?;
        let folder = dir.canonicalize().map_err(EngineError::at(dir))?;
        match folder.into_os_string().into_string() {
            Ok(folder) => Ok(Files { folder }),
            Err(_) => Err(EngineError::PathNotText {
                path: dir.to_path_buf(),
            }),
        }
    }

    /// The folder itself.
    pub fn folder(&self) -> &str {
        &self.folder
    }

    /// The engine's tables.
    pub fn data(&self) -> String {
        format!("{}/data", self.folder)
    }

    /// The engine's configuration.
    pub fn config(&self) -> String {
        format!("{}/config.xml", self.folder)
    }

    /// The file the engine writes its port to; it ends in a line feed once complete.
    pub fn port(&self) -> String {
        format!("{}/http_port", self.folder)
    }

    /// What the child said on standard error, from its last start on.
    pub fn complaints(&self) -> PathBuf {
        PathBuf::from(format!("{}/stderr.log", self.folder))
    }

    /// The file with the password of [`USER`].
    pub fn password(&self) -> PathBuf {
        PathBuf::from(format!("{}/password", self.folder))
    }

    fn users(&self) -> String {
        format!("{}/users.xml", self.folder)
    }

    /// Writes configuration and users and returns the password: the one of an earlier start, so
    /// that clients survive a restart, or a new random one.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub fn write(&self) -> Result<String, EngineError> {
        let password = self.keep_or_make_password()?;
        let digest = hex(&Sha256::digest(password.as_bytes()));
        write_private(Path::new(&self.users()), &users_xml(&digest))?;
        write_private(Path::new(&self.config()), &self.config_xml())?;
        Ok(password)
    }

    fn keep_or_make_password(&self) -> Result<String, EngineError> {
        let path = self.password();
        if path.exists() {
            let kept = fs::read_to_string(&path).map_err(EngineError::at(&path))?;
            if kept.trim().len() >= 32 {
                return Ok(kept.trim().to_owned());
            }
        }
        let password = hex(&rand::random::<[u8; 32]>());
        write_private(&path, &format!("{password}\n"))?;
        Ok(password)
    }

    fn config_xml(&self) -> String {
        let folder = xml_text(&self.folder);
        let users = xml_text(&self.users());
        // `old_parts_lifetime` is 0 in this build: merged-away parts would go before the merge
        // result is on disk.
        format!(
            "<clickhouse>
    <logger><log>{folder}/engine.log</log><size>10M</size><count>2</count></logger>
    <users_config>{users}</users_config>
    <mark_cache_size>{MARK_CACHE_BYTES_MAX}</mark_cache_size>
    <max_server_memory_usage>{MEMORY_BYTES_MAX}</max_server_memory_usage>
    <max_concurrent_queries>200</max_concurrent_queries>
    <shutdown_wait_unfinished>2</shutdown_wait_unfinished>
    <merge_tree><old_parts_lifetime>480</old_parts_lifetime></merge_tree>
</clickhouse>
"
        )
    }
}

/// The two users.
///
/// The child's own session is always `default` without a password, and anyone on this machine may
/// log in as it. So it may do three things only, and its quota of two queries is used up by the
/// child itself (opening the port, and parking): from then on `file()` answers code 201. One query
/// less and the child would not start; one more and any local user could read one file. Between the
/// two there are some milliseconds in which another local user can take the second query: then the
/// child cannot park and ends. `IS_LOCKED` tells that it is over.
fn users_xml(password_sha256_hex: &str) -> String {
    format!(
        "<clickhouse>
    <profiles><default></default></profiles>
    <quotas>
        <default><interval><duration>3600</duration></interval></default>
        <start><interval><duration>{QUOTA_SECONDS}</duration><queries>2</queries></interval></start>
    </quotas>
    <users>
        <default>
            <password></password>
            <networks><ip>127.0.0.1</ip></networks>
            <profile>default</profile>
            <quota>start</quota>
            <grants>
                <query>GRANT SYSTEM LISTEN ON *.*</query>
                <query>GRANT CREATE TEMPORARY TABLE ON *.*</query>
                <query>GRANT READ ON FILE</query>
            </grants>
        </default>
        <{USER}>
            <password_sha256_hex>{password_sha256_hex}</password_sha256_hex>
            <networks><ip>127.0.0.1</ip></networks>
            <profile>default</profile>
            <quota>default</quota>
            <access_management>1</access_management>
        </{USER}>
    </users>
</clickhouse>
"
    )
}

/// Replaces `path` in one step by a file that only its owner can read.
fn write_private(path: &Path, text: &str) -> Result<(), EngineError> {
    let beside = path.with_extension("new");
    let write = || {
        let mut options = OpenOptions::new();
        let mut file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&beside)?;
        // The mode of `open` does not apply to a file left behind by a crash.
        file.set_permissions(fs::Permissions::from_mode(0o600))?;
        file.write_all(text.as_bytes())?;
        fs::rename(&beside, path)
    };
    write().map_err(EngineError::at(path))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn xml_text(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_as_the_engine_does() {
        assert_eq!(
            hex(&Sha256::digest(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    #[test]
    fn files_are_private_and_the_password_is_kept() {
        let dir = std::env::temp_dir().join(format!("tachograph-files-{}", std::process::id()));
        let files = Files::in_folder(&dir).unwrap();
        let password = files.write().unwrap();
        assert_eq!(password, files.write().unwrap());
        assert_eq!(password.len(), 64);
        let users = fs::read_to_string(files.users()).unwrap();
        assert!(!users.contains(&password));
        for path in [PathBuf::from(files.users()), files.password()] {
            assert_eq!(
                fs::metadata(path).unwrap().permissions().mode() & 0o777,
                0o600
            );
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
