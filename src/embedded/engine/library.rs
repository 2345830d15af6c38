//! Where the engine's shared library is found.
//!
//! Deliberately fetches nothing and checks no checksum: `deploy/fetch-engine.sh` does both, once,
//! because the library is 566 MB.

use std::env;
use std::path::{Path, PathBuf};

use super::EngineError;

/// Environment variable that names the library, after the command line and before the cache.
pub const LIBRARY_VARIABLE: &str = "TACHOGRAPH_CLICKHOUSE_LIB";

/// The engine's version, which is also its folder in the cache.
pub const ENGINE_VERSION: &str = "26.7.3";

const FILE_NAME: &str = "libchdb.so";

/// The library to load: `chosen` (from the command line), else [`LIBRARY_VARIABLE`], else
/// `tachograph/chdb/26.7.3/libchdb.so` in `$XDG_CACHE_HOME` (default `~/.cache`), else beside the
/// binary.
///
/// # Errors
/// [`EngineError::LibraryMissing`] if a named file is not there or nothing was found, and
/// [`EngineError::NoEngineForPlatform`] where nothing was named and no engine is published.
pub fn find(chosen: Option<&Path>) -> Result<PathBuf, EngineError> {
    let named = chosen.map(Path::to_path_buf).or_else(|| {
        env::var_os(LIBRARY_VARIABLE)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    });
    if let Some(path) = named {
        return present(vec![path]);
    }
    if !cfg!(all(
        target_os = "linux",
        target_arch = "x86_64",
        target_env = "gnu"
    )) {
        return Err(EngineError::NoEngineForPlatform);
    }
    let beside = env::current_exe()
        .ok()
        .and_then(|exe| Some(exe.parent()?.join(FILE_NAME)));
    present(in_cache().into_iter().chain(beside).collect())
}

fn in_cache() -> Option<PathBuf> {
    let folder = |name| {
        env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let cache = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")))?;
    Some(
        cache
            .join("tachograph/chdb")
            .join(ENGINE_VERSION)
            .join(FILE_NAME),
    )
}

fn present(candidates: Vec<PathBuf>) -> Result<PathBuf, EngineError> {
    match candidates.iter().find(|path| path.is_file()) {
        Some(path) => path.canonicalize().map_err(EngineError::at(path)),
        None => Err(EngineError::LibraryMissing {
            looked_at: candidates,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_library_that_is_missing_is_not_replaced_by_another() {
        let error = find(Some(Path::new("/nowhere/libchdb.so")))
            .unwrap_err()
            .to_string();
        assert!(error.contains("/nowhere/libchdb.so"), "{error}");
        assert!(error.contains("make engine"), "{error}");
    }
}
