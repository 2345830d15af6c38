//! The engine's own process: loads the library, opens the HTTP port, parks until its owner goes.
//!
//! Deliberately not in the owner's process: the engine can be started once per process, ends the
//! whole process when it stops with a query open, and aborts on bad input from the network.

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

use super::EngineError;
use super::files::Files;

/// First argument of the hidden mode that [`run_child`] serves.
pub const CHILD_COMMAND: &str = "__clickhouse-child";

type SetSignalHandlersEnabled = unsafe extern "C" fn(c_int);
type QueryCmdline = unsafe extern "C" fn(c_int, *mut *mut c_char) -> *mut c_void;
type ResultError = unsafe extern "C" fn(*mut c_void) -> *const c_char;

/// Is the engine until standard input ends; `arguments` are those after [`CHILD_COMMAND`]:
/// library, folder, port (0 lets the system choose).
///
/// It must be called from `main` before any other thread or runtime starts: the library keeps its
/// threads for good. Where the engine did run, this never returns and the process ends with 0.
pub fn run_child(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let [library, folder, port] = arguments.as_slice() else {
        eprintln!("{CHILD_COMMAND} is internal: use `tachograph clickhouse`");
        return ExitCode::from(64);
    };
    let Some(port) = port.to_str().and_then(|text| text.parse::<u16>().ok()) else {
        eprintln!("{CHILD_COMMAND}: no port number");
        return ExitCode::from(64);
    };
    match serve(PathBuf::from(library), PathBuf::from(folder), port) {
        Ok(never) => match never {},
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(70)
        }
    }
}

fn serve(
    library: PathBuf,
    folder: PathBuf,
    port: u16,
) -> Result<std::convert::Infallible, EngineError> {
    let files = Files::in_folder(&folder)?;
    let load_error = |source| EngineError::Load {
        path: library.clone(),
        source,
    };
    // SAFETY: the library's initialisers run here, on the only thread of this process.
    let loaded = unsafe { Library::open(Some(&library), RTLD_NOW | RTLD_LOCAL) };
    // Never unloaded: its threads outlive every call.
    let loaded = Box::leak(Box::new(loaded.map_err(load_error)?));
    // SAFETY: the three types are those of version 26.7.3, which is pinned by checksum.
    let (set_signal_handlers_enabled, query_cmdline, result_error) = unsafe {
        (
            *loaded
                .get::<SetSignalHandlersEnabled>(b"chdb_set_signal_handlers_enabled\0")
                .map_err(load_error)?,
            *loaded
                .get::<QueryCmdline>(b"chdb_query_cmdline\0")
                .map_err(load_error)?,
            *loaded
                .get::<ResultError>(b"chdb_result_error\0")
                .map_err(load_error)?,
        )
    };
    let words: Vec<CString> = command_line(&files, port)
        .into_iter()
        .map(|word| CString::new(OsString::from(word).into_vec()))
        .collect::<Result<_, _>>()
        .map_err(|_| EngineError::PathNotText { path: folder })?;
    let mut pointers: Vec<*mut c_char> =
        words.iter().map(|word| word.as_ptr().cast_mut()).collect();
    let count = c_int::try_from(pointers.len()).expect("nine words fit a C int");
    pointers.push(std::ptr::null_mut());
    // SAFETY: `words` and `pointers` outlive the call, which ends with a null like a C argv; the
    // result is either null or valid until the process ends, and it is never freed.
    unsafe {
        set_signal_handlers_enabled(0);
        // Ctrl-C in a terminal reaches the whole group; stopping is the owner's decision.
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        let result = query_cmdline(count, pointers.as_mut_ptr());
        let error = if result.is_null() {
            std::ptr::null()
        } else {
            result_error(result)
        };
        if error.is_null() {
            libc::_exit(0);
        }
        eprintln!("{}", CStr::from_ptr(error).to_string_lossy());
        // Not `exit`: the library's destructors wait for threads that never end.
        libc::_exit(1);
    }
}

/// The words of `clickhouse local`. The configuration is always named, else one in the working
/// directory would be picked up; the last query blocks at no cost until standard input ends.
fn command_line(files: &Files, port: u16) -> Vec<String> {
    vec![
        "clickhouse".to_owned(),
        format!("--config-file={}", files.config()),
        format!("--path={}", files.data()),
        "--log-level=warning".to_owned(),
        "--listen_host=127.0.0.1".to_owned(),
        format!("--http_port={port}"),
        "--query=SYSTEM START LISTEN HTTP".to_owned(),
        format!(
            "--query=SELECT getServerPort('http_port') INTO OUTFILE {} TRUNCATE FORMAT TSV",
            sql_text(&files.port())
        ),
        "--query=INSERT INTO FUNCTION null('x String') \
         SELECT * FROM file('/dev/stdin', 'LineAsString', 'x String')"
            .to_owned(),
    ]
}

fn sql_text(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_what_goes_into_sql() {
        assert_eq!(sql_text(r"a'b\c"), r"'a\'b\\c'");
    }
}
