//! What is known so far, in a few lines that are drawn over themselves.
//!
//! Deliberately out of ClickHouse and `/metrics`, as anybody would read them; only the drawing is
//! `replay` over the same records.

use super::corpus::TENANT;
use super::metrics::Scrape;
use super::producer::{Played, Progress};
use super::{DATABASE, Stage};
use crate::replay::{Canvas, LogReader, ReplaySettings, draw, replay, unpriced};
use indicatif::ProgressBar;
use std::io::IsTerminal as _;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Between drawings on a terminal, and between lines elsewhere.
const DRAW_EVERY: Duration = Duration::from_secs(1);
const SAY_EVERY: Duration = Duration::from_secs(5);
/// How long one drawing of a run stays.
const DRAWING_STAYS: Duration = Duration::from_secs(6);
/// Between looks at whether to end.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// The figures of one moment, as text; `?` is unknown.
#[derive(Debug, Default)]
struct Figures {
    calls: String,
    total: String,
    /// By class, in the order of [`CLASSES`].
    tokens: Vec<String>,
    /// First chunk, then completion: p50, p90, p99.
    quantiles: Vec<String>,
    verdicts: String,
    tools: String,
}

const CLASSES: [&str; 6] = [
    "input uncached",
    "cache read",
    "cache write",
    "tool use",
    "answer",
    "reasoning",
];

/// Draws until the daemon is told to stop.
pub fn show(stage: &Stage<'_>, progress: &Progress) {
    let screen = Screen::of_stdout();
    let began = Instant::now();
    let mut drawing = Drawing::default();
    let mut lines_up = 0;
    let mut due = began;
    while stage.is_running() {
        if Instant::now() < due {
            std::thread::sleep(LOOK_EVERY);
            continue;
        }
        // An engine that restarts is asked again at the next drawing.
        let figures = figures(stage).unwrap_or_default();
        let scrape = stage.scrape().unwrap_or_default();
        if screen.is_terminal {
            drawing.renew(stage.dir, progress, &screen);
            let mut lines = lines(&figures, &scrape, progress, began);
            let room = screen.rows.saturating_sub(lines.len() + 2);
            lines.extend(drawing.lines.iter().take(room).cloned());
            super::put(&screen.over(lines_up, &lines));
            lines_up = lines.len();
            due = Instant::now() + DRAW_EVERY;
        } else {
            super::put(&line(&figures, &scrape, progress, began));
            due = Instant::now() + SAY_EVERY;
        }
    }
    if !screen.is_terminal {
        drawing.renew(stage.dir, progress, &screen);
        super::put(&format!("\n{}\n", drawing.lines.join("\n")));
    }
}

fn figures(stage: &Stage<'_>) -> Option<Figures> {
    let quantiles = |column: &str| {
        let each = [0.5, 0.9, 0.99]
            .map(|level| format!("round(quantileExact({level})(toFloat64({column})), 1)"));
        each.join(", ")
    };
    let calls = stage.engine.query(&format!(
        "SELECT count(), sum(total), sum(input_uncached), sum(cache_read), sum(cache_write),
            sum(tool_use_input), sum(output_total) - ifNull(sum(reasoning), 0), sum(reasoning),
            {}, {}
         FROM {DATABASE}.v_model_calls WHERE served_by = 'model' FORMAT TSV",
        quantiles("ttfc_ms"),
        quantiles("completion_ms"),
    ));
    let calls = calls.ok()?;
    let mut cells = calls.trim_end().split('\t').map(cell);
    let listed = |table: &str, word: &str| {
        let sql = format!(
            "SELECT {word}, count() FROM {DATABASE}.{table} WHERE tenant = '{TENANT}'
             GROUP BY {word} ORDER BY count() DESC, {word} FORMAT TSV"
        );
        let rows = stage.engine.query(&sql).ok()?;
        let words: Vec<String> = rows.lines().map(|row| row.replace('\t', " ")).collect();
        Some(words.join(" · "))
    };
    Some(Figures {
        calls: cells.next()?,
        total: cells.next()?,
        tokens: cells.by_ref().take(CLASSES.len()).collect(),
        quantiles: cells.collect(),
        verdicts: listed("guardrail_decisions FINAL", "decision")?,
        tools: listed("v_tool_calls", "status")?,
    })
}

fn cell(text: &str) -> String {
    match text {
        "\\N" | "nan" => "?".to_owned(),
        known => known.to_owned(),
    }
}

/// The figures in a few lines.
fn lines(figures: &Figures, scrape: &Scrape, progress: &Progress, began: Instant) -> Vec<String> {
    let seconds = began.elapsed().as_secs();
    let quantiles = |from: usize| {
        let of = |at: usize| figures.quantiles.get(at).map_or("?", String::as_str);
        format!(
            "p50 {:>7} ms   p90 {:>7} ms   p99 {:>7} ms",
            of(from),
            of(from + 1),
            of(from + 2)
        )
    };
    let tokens = |range: std::ops::Range<usize>| {
        let named = CLASSES.iter().zip(&figures.tokens);
        let part = named.skip(range.start).take(range.len());
        let words: Vec<String> = part
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        words.join(" · ")
    };
    let unmetered = scrape.sum("tachograph_model_calls_unmetered_total");
    vec![
        format!(
            "pass {} · {}:{:02} · Ctrl-C ends it",
            progress.pass(),
            seconds / 60,
            seconds % 60
        ),
        String::new(),
        format!("  model calls   {}, {unmetered} unmetered", figures.calls),
        format!("  tokens        {} = {}", figures.total, tokens(0..4)),
        format!("                + {}", tokens(4..6)),
        format!("  first chunk   {}", quantiles(0)),
        format!("  completion    {}", quantiles(3)),
        format!("  tool calls    {}", figures.tools),
        format!("  verdicts      {}", figures.verdicts),
        format!(
            "  lag           {} of {} records read, {} behind, {} runs held",
            scrape.sum("tachograph_records_total"),
            progress.sent(),
            scrape.sum("tachograph_lag_records"),
            scrape.sum("tachograph_segments_held"),
        ),
        String::new(),
    ]
}

/// The same in one line.
fn line(figures: &Figures, scrape: &Scrape, progress: &Progress, began: Instant) -> String {
    let quantile = |at: usize| figures.quantiles.get(at).map_or("?", String::as_str);
    format!(
        "{:>4} s  pass {}  calls {} ({} unmetered)  tokens {}  first chunk p50 {} p99 {} ms  \
         completion p50 {} p99 {} ms  verdicts {}  lag {}\n",
        began.elapsed().as_secs(),
        progress.pass(),
        figures.calls,
        scrape.sum("tachograph_model_calls_unmetered_total"),
        figures.total,
        quantile(0),
        quantile(2),
        quantile(3),
        quantile(5),
        figures.verdicts,
        scrape.sum("tachograph_lag_records"),
    )
}

/// The drawn timeline of one run.
#[derive(Default)]
struct Drawing {
    name: &'static str,
    drawn_at: Option<Instant>,
    lines: Vec<String>,
}

impl Drawing {
    /// Draws the newest recording, unless the last drawing is too young to be taken away.
    fn renew(&mut self, dir: &Path, progress: &Progress, screen: &Screen) {
        if self.drawn_at.is_some_and(|at| at.elapsed() < DRAWING_STAYS) {
            return;
        }
        let Some(played) = progress.played().filter(|played| played.name != self.name) else {
            return;
        };
        self.drawn_at = Some(Instant::now());
        self.name = played.name;
        self.lines = drawn(&played, dir, screen).unwrap_or_default();
    }
}

/// Runs `replay` over the records as they were sent, and draws the last of their runs. They are
/// kept in a file, so that anybody can draw them again.
fn drawn(played: &Played, dir: &Path, screen: &Screen) -> Option<Vec<String>> {
    let file = dir.join("timeline.ndjson");
    std::fs::write(
        &file,
        [played.payloads.join(&b'\n'), b"\n".to_vec()].concat(),
    )
    .ok()?;
    let mut reader = LogReader::new(std::slice::from_ref(&file), ProgressBar::hidden()).ok()?;
    let replayed = replay(&mut reader, &ReplaySettings::default()).ok()?;
    let canvas = Canvas {
        width: screen.columns,
        has_color: screen.has_color,
        is_ascii: false,
        limit: 1,
        price: Arc::new(unpriced),
    };
    let mut lines = vec![format!("  {} ({})", played.name, file.display())];
    let drawing = draw(&replayed, &canvas);
    lines.extend(
        drawing
            .lines()
            .filter(|line| !line.is_empty())
            .map(str::to_owned),
    );
    Some(lines)
}

/// What is drawn on.
struct Screen {
    is_terminal: bool,
    has_color: bool,
    columns: usize,
    rows: usize,
}

impl Screen {
    fn of_stdout() -> Screen {
        let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let is_terminal = std::io::stdout().is_terminal() && !is_dumb;
        // SAFETY: `winsize` is plain data, and the call writes no more than one of it.
        let size = unsafe {
            let mut size: libc::winsize = std::mem::zeroed();
            let answer = libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size);
            (answer == 0 && size.ws_col > 0).then_some(size)
        };
        Screen {
            is_terminal,
            has_color: is_terminal && !is_set("NO_COLOR"),
            columns: size.map_or(100, |size| usize::from(size.ws_col)),
            rows: size.map_or(40, |size| usize::from(size.ws_row)),
        }
    }

    /// The text that draws `lines` over the `up` lines above the cursor.
    fn over(&self, up: usize, lines: &[String]) -> String {
        let mut out = match up {
            0 => String::new(),
            up => format!("\x1b[{up}A"),
        };
        out.push_str("\x1b[J");
        for line in lines {
            out.push_str(&cut(line, self.columns));
            out.push('\n');
        }
        out
    }
}

/// No more than `columns` characters of a line; escape sequences take no room.
fn cut(line: &str, columns: usize) -> String {
    let mut out = String::new();
    let (mut used, mut is_escape) = (0, false);
    for c in line.chars() {
        if c == '\x1b' {
            is_escape = true;
        }
        if !is_escape {
            used += 1;
            if used > columns {
                continue;
            }
        }
        out.push(c);
        if is_escape && c == 'm' {
            is_escape = false;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::corpus::recordings;
    use super::super::producer::{Cluster, Play, play};
    use super::*;

    fn screen() -> Screen {
        Screen {
            is_terminal: true,
            has_color: false,
            columns: 90,
            rows: 50,
        }
    }

    #[test]
    fn a_line_is_cut_by_what_is_seen() {
        assert_eq!(cut("abcdef", 3), "abc");
        assert_eq!(cut("\x1b[31mabcdef\x1b[0m", 3), "\x1b[31mabc\x1b[0m");
    }

    #[test]
    fn drawing_again_goes_over_the_same_lines() {
        let lines = ["a".to_owned(), "b".to_owned()];
        assert_eq!(screen().over(0, &lines), "\x1b[Ja\nb\n");
        assert_eq!(screen().over(2, &lines), "\x1b[2A\x1b[Ja\nb\n");
    }

    #[test]
    fn the_newest_recording_is_drawn() {
        let cluster = Cluster::start().unwrap();
        let progress = Progress::default();
        play(&cluster.brokers(), &recordings(), Play::Once, &progress).unwrap();
        let dir = std::env::temp_dir().join(format!("tachograph-draw-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let lines = drawn(&progress.played().unwrap(), &dir, &screen());
        std::fs::remove_dir_all(&dir).unwrap();
        let lines = lines.unwrap();
        assert!(lines.len() > 4, "{lines:?}");
    }
}
