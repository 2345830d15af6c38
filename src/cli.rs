//! The command line: what can be said, and what each word does.
//!
//! Deliberately the one place where errors become exit codes (config.md, "Exit codes").

use clap::{Args, Parser, Subcommand};
#[cfg(feature = "demo")]
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use tachograph::check;
use tachograph::config::{Config, ConfigError, Needs};
use tachograph::daemon::{self, DaemonError};
use tachograph::log;
use tachograph::replay::{self, ReplayArgs, ReplaySettings};
use tachograph::shutdown::Shutdown;

const USAGE: u8 = 64;
const MISSING_FILE: u8 = 66;
const UNAVAILABLE: u8 = 69;
const SOFTWARE: u8 = 70;
const LOGIN: u8 = 77;
const CONFIGURATION: u8 = 78;
#[cfg(feature = "demo")]
const INTERRUPTED: u8 = 130;

/// A flight recorder and taximeter for AI agents: Kafka in, Prometheus and ClickHouse out
#[derive(Parser)]
#[command(
    name = "tachograph",
    version,
    arg_required_else_help = true,
    after_help = "\
Examples:
  tachograph replay events.ndjson           draws what a file of records says; needs no services
  tachograph config check tachograph.toml   says all that is wrong with a file
  tachograph schema apply                   makes the tables in ClickHouse
  tachograph check                          tries every connection and right in turn
  tachograph run --config tachograph.toml   reads Kafka until a signal"
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Read Kafka, serve Prometheus, fill ClickHouse, until SIGTERM or SIGINT
    #[command(after_help = "\
Examples:
  tachograph run --config /etc/tachograph.toml
  tachograph run --instance-id \"$HOSTNAME\"   one fixed id per pod: a restart moves no partition")]
    Run(RunArgs),
    /// Read files of records, or a topic, and print what happened
    Replay(ReplayArgs),
    /// Print, apply or check the tables and views in ClickHouse
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Example:
  tachograph schema print | less"
    )]
    Schema(SchemaCommand),
    /// Try every connection and right in turn, and say in plain words what is missing
    #[command(after_help = "\
Each line begins with ok, warning, missing, refused, wrong or skipped. It joins no group and leaves
nothing behind. Exit code: 0 all is there; 69 something is missing or away, or http.listen is taken;
73 the state file cannot be made; 77 a login, certificate or right is refused; 78 the file is wrong.

Example:
  tachograph check --config /etc/tachograph.toml")]
    Check(ConfigFile),
    /// Check a configuration file, or print the effective one
    #[command(
        subcommand,
        arg_required_else_help = true,
        after_help = "\
Example:
  tachograph config print > tachograph.toml   begins with every default"
    )]
    Config(ConfigCommand),
    /// See it all at once: captured runs through Kafka into ClickHouse and /metrics
    #[cfg(feature = "demo")]
    Demo(tachograph::demo::DemoArgs),
    /// Run a ClickHouse engine of your own on this machine, for trying things out
    #[cfg(feature = "demo")]
    #[command(after_help = "\
Example:
  tachograph clickhouse --dir target/clickhouse --port 8123")]
    Clickhouse(EngineArgs),
    #[cfg(feature = "demo")]
    #[command(name = tachograph::embedded::engine::CHILD_COMMAND, hide = true)]
    ClickhouseChild {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Args)]
struct ConfigFile {
    /// Configuration file [default: tachograph.toml if it is there]
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

#[derive(Args)]
struct RunArgs {
    #[command(flatten)]
    file: ConfigFile,
    /// Static membership: one fixed id per instance; wins over kafka.instance_id
    #[arg(long, value_name = "ID")]
    instance_id: Option<String>,
}

#[derive(Subcommand)]
enum SchemaCommand {
    /// Print the SQL, for those who apply it by other means
    #[command(after_help = "\
Example:
  tachograph schema print > schema.sql")]
    Print,
    /// Apply what is missing; applying again is harmless
    #[command(after_help = "\
Example:
  tachograph schema apply --config tachograph.toml")]
    Apply(ConfigFile),
    /// Say whether everything is there that the daemon writes
    #[command(after_help = "\
Example:
  tachograph schema check --config tachograph.toml")]
    Check(ConfigFile),
}

#[derive(Subcommand)]
enum ConfigCommand {
    /// List everything that is wrong with a file; opens no socket
    #[command(after_help = "\
Example:
  tachograph config check tachograph.toml")]
    Check {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print the effective configuration with all defaults, without secrets
    #[command(after_help = "\
Example:
  tachograph config print --config tachograph.toml")]
    Print(ConfigFile),
}

#[cfg(feature = "demo")]
#[derive(Args)]
struct EngineArgs {
    /// Folder of tables, configuration and password; kept
    #[arg(long, value_name = "DIR", default_value = "clickhouse")]
    dir: PathBuf,
    /// Port on 127.0.0.1; 0 lets the system choose at the first start
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
}

/// A command that did not end well: what to say, and the exit code.
struct Failure {
    code: u8,
    says: String,
}

impl Failure {
    fn new(code: u8, says: impl ToString) -> Failure {
        let says = says.to_string();
        Failure { code, says }
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        let code = match &error {
            ConfigError::Unreadable { .. } => MISSING_FILE,
            ConfigError::Problems(_) => CONFIGURATION,
        };
        Failure::new(code, error)
    }
}

impl From<DaemonError> for Failure {
    fn from(error: DaemonError) -> Failure {
        Failure::new(error.exit_code(), error)
    }
}

/// Parses the arguments, does what they say, and answers with the exit code.
pub fn main() -> ExitCode {
    log::guard_crashes();
    let command = match CommandLine::try_parse() {
        Ok(line) => line.command,
        Err(told) => {
            // Help that was asked for is no error; help because nothing was said is.
            let is_error = told.use_stderr();
            let _ = told.print();
            return ExitCode::from(if is_error { USAGE } else { 0 });
        }
    };
    match perform(command) {
        Ok(code) => code,
        Err(Failure { code, says }) => {
            let _ = writeln!(std::io::stderr(), "tachograph: {says}");
            ExitCode::from(code)
        }
    }
}

fn perform(command: Command) -> Result<ExitCode, Failure> {
    match command {
        Command::Run(args) => run(&args)?,
        Command::Replay(args) => return replay(&args),
        Command::Schema(command) => schema(command)?,
        Command::Check(file) => return check(file.config.as_deref()),
        Command::Config(command) => config(command)?,
        #[cfg(feature = "demo")]
        Command::Demo(args) => return demo(&args),
        #[cfg(feature = "demo")]
        Command::Clickhouse(args) => engine(args)?,
        #[cfg(feature = "demo")]
        Command::ClickhouseChild { arguments } => {
            return Ok(tachograph::embedded::engine::run_child(arguments));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn run(args: &RunArgs) -> Result<(), Failure> {
    let mut config = Config::load(args.file.config.as_deref(), Needs::Everything)?;
    if let Some(id) = &args.instance_id {
        config.kafka.instance_id.clone_from(id);
    }
    log::init(config.log_format);
    daemon::run(&config, &Shutdown::default(), |_| {})?;
    Ok(())
}

fn replay(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let needs = match args.topic {
        Some(_) => Needs::Kafka,
        None => Needs::Nothing,
    };
    let config = Config::load(args.config.as_deref(), needs)?;
    let kafka = config.kafka.clone();
    let settings = ReplaySettings {
        limits: config.limits.clone(),
        defaults_of: Arc::new(move |topic| config.topic_defaults(topic)),
        ..ReplaySettings::default()
    };
    Ok(replay::run(args, &kafka, &settings))
}

fn check(file: Option<&Path>) -> Result<ExitCode, Failure> {
    let config = match Config::load(file, Needs::Everything) {
        Ok(config) => config,
        Err(error @ ConfigError::Unreadable { .. }) => return Err(error.into()),
        Err(ConfigError::Problems(problems)) => {
            for finding in check::of_problems(&problems) {
                say(&format!("{finding}\n"))?;
            }
            return Ok(ExitCode::from(CONFIGURATION));
        }
    };
    // Whoever closed standard output has heard enough, and the exit code still tells.
    let mut told = |finding: &check::Finding| drop(say(&format!("{finding}\n")));
    let code = check::run(&config, &mut told);
    let code = code.map_err(|error| Failure::new(SOFTWARE, error))?;
    Ok(ExitCode::from(code))
}

fn config(command: ConfigCommand) -> Result<(), Failure> {
    match command {
        ConfigCommand::Check { file } => {
            Config::load(Some(&file), Needs::Everything)?;
            say(&format!("{}: no problems\n", file.display()))
        }
        ConfigCommand::Print(file) => {
            let config = Config::load(file.config.as_deref(), Needs::Nothing)?;
            say(&config.render())
        }
    }
}

fn schema(command: SchemaCommand) -> Result<(), Failure> {
    use tachograph::clickhouse_sink::schema;
    match command {
        SchemaCommand::Print => say(&schema::print()),
        SchemaCommand::Apply(file) => {
            let sink = sink_of(file.config.as_deref())?;
            let applied =
                schema::apply_blocking(&sink).map_err(|e| schema_failure(&sink.url, &e))?;
            match applied.as_slice() {
                [] => say("nothing to apply\n"),
                names => say(&format!("applied {}\n", names.join(", "))),
            }
        }
        SchemaCommand::Check(file) => {
            let sink = sink_of(file.config.as_deref())?;
            schema::check_blocking(&sink).map_err(|e| schema_failure(&sink.url, &e))?;
            say("everything is there\n")
        }
    }
}

fn sink_of(file: Option<&Path>) -> Result<tachograph::clickhouse_sink::SinkConfig, Failure> {
    let config = Config::load(file, Needs::ClickHouse)?;
    let in_flight = config.limits.work_in_flight_max;
    Ok(daemon::sink_config(&config.clickhouse, in_flight)?)
}

fn schema_failure(url: &str, error: &tachograph::clickhouse_sink::schema::ApplyError) -> Failure {
    use tachograph::clickhouse_sink::{FailureReason, SinkError, schema::ApplyError};
    let (code, says) = match error {
        ApplyError::Sink(error) => {
            let code = match error {
                SinkError::LoginRefused { .. } => LOGIN,
                error if error.reason() == FailureReason::Schema => CONFIGURATION,
                _ => UNAVAILABLE,
            };
            (code, error.chain())
        }
        error => (SOFTWARE, error.to_string()),
    };
    Failure::new(code, format!("{url}: {says}"))
}

#[cfg(feature = "demo")]
fn demo(args: &tachograph::demo::DemoArgs) -> Result<ExitCode, Failure> {
    use tachograph::demo::DemoError;
    match tachograph::demo::run(args) {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::FAILURE),
        Err(DemoError::Daemon(error)) => Err(error.into()),
        Err(error @ DemoError::Interrupted) => Err(Failure::new(INTERRUPTED, error)),
        Err(error) => Err(Failure::new(UNAVAILABLE, error)),
    }
}

#[cfg(feature = "demo")]
fn engine(args: EngineArgs) -> Result<(), Failure> {
    use tachograph::embedded::engine::{EngineOptions, run_foreground};
    let mut options = EngineOptions::new(args.dir);
    options.http_port = args.port;
    run_foreground(options).map_err(|error| Failure::new(UNAVAILABLE, error))
}

/// Writes to standard output; whoever closed it has heard enough.
fn say(text: &str) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Failure::new(SOFTWARE, format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}
