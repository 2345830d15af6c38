//! `--output timeline`: each invocation as lanes over time, drawn to scale for a person.
//!
//! It prints names, times, counts and verdicts, never content. Durations are rounded here, and
//! only here: the report has them exactly.

mod ink;
mod lane;
mod scale;

use super::cost::{PriceCall, Usd};
use super::fold::{self, Invocation, RunKey, run_key};
use super::json::instant_text;
use super::{Replayed, fold::sum_of};
use crate::core::EventTime;
use crate::core::fact::{Fact, FactBody, Status, Sums, Table};
use ink::{Glyphs, Ink, Line, Pen, columns, count, duration, short_id};
use lane::{Item, Lane, Shape};
use scale::Scale;
use std::collections::{BTreeMap, BTreeSet};

/// Items of one lane that get a line of their own.
const ITEMS_MAX: usize = 40;
/// The narrowest drawing.
const WIDTH_MIN: usize = 60;

/// What is drawn on.
#[derive(Clone)]
pub struct Canvas {
    /// Columns.
    pub width: usize,
    pub has_color: bool,
    pub is_ascii: bool,
    /// Invocations drawn at most, the most recent ones.
    pub limit: usize,
    pub price: PriceCall,
}

/// Columns of the three parts of a line: names, bars, notes.
#[derive(Clone, Copy, Debug)]
struct Layout {
    names: usize,
    bars: usize,
    notes: usize,
}

/// The whole drawing, as text that ends with a line feed.
pub fn draw(replayed: &Replayed, canvas: &Canvas) -> String {
    let width = canvas.width.max(WIDTH_MIN);
    let glyphs = if canvas.is_ascii {
        ink::ASCII
    } else {
        ink::UNICODE
    };
    let drawing = Drawing {
        pen: Pen {
            has_color: canvas.has_color,
            glyphs,
        },
        width,
        price: &canvas.price,
    };
    let tools = fold::tools(&replayed.facts);
    let mut rows = fold::invocations(&replayed.facts, &tools);
    rows.sort_by(|a, b| a.rank().cmp(&b.rank()));
    let mut facts: BTreeMap<RunKey, Vec<&Fact>> = BTreeMap::new();
    for fact in &replayed.facts {
        facts.entry(run_key(fact)).or_default().push(fact);
    }
    let mut body = String::new();
    let mut used = BTreeSet::new();
    let skipped = rows.len().saturating_sub(canvas.limit);
    for row in &rows[skipped..] {
        let facts = facts.get(&row.key).map_or(&[][..], Vec::as_slice);
        drawing.invocation(&mut body, row, facts, &mut used);
    }
    let mut out = String::new();
    if !used.is_empty() {
        drawing.legend(&mut out, &used);
    }
    if skipped > 0 {
        let number = count(Some(skipped as u64));
        let words = format!("{number} earlier invocations are not drawn (--limit)");
        drawing.pieces(&mut out, &[(Ink::Warn, words)], 0);
    }
    out.push_str(&body);
    drawing.summary(&mut out, replayed, &rows);
    out
}

struct Drawing<'d> {
    pen: Pen,
    width: usize,
    price: &'d PriceCall,
}

impl Drawing<'_> {
    fn end(&self, out: &mut String, line: &Line) {
        out.push_str(line.text.trim_end_matches(' '));
        out.push('\n');
    }

    /// Words with dots between, wrapped at the width.
    fn pieces(&self, out: &mut String, pieces: &[(Ink, String)], indent: usize) {
        self.wrapped(out, pieces, indent, self.pen.glyphs.dot);
    }

    fn wrapped(&self, out: &mut String, pieces: &[(Ink, String)], indent: usize, dot: &str) {
        let mut line = Line::default();
        self.pen.pad(&mut line, indent);
        let mut is_first = true;
        for (ink, words) in pieces {
            let needs = columns(words) + if is_first { 0 } else { columns(dot) };
            if !is_first && line.columns + needs > self.width {
                self.end(out, &line);
                line = Line::default();
                self.pen.pad(&mut line, indent);
                is_first = true;
            }
            if !is_first {
                self.pen.write(&mut line, Ink::Dim, dot);
            }
            self.pen.write(&mut line, *ink, words);
            is_first = false;
        }
        self.end(out, &line);
    }

    /// What the signs mean that the drawing uses.
    fn legend(&self, out: &mut String, used: &BTreeSet<char>) {
        let g = &self.pen.glyphs;
        let signs = [
            (Ink::Waiting, g.silent, "model, until its first chunk"),
            (Ink::Model, g.model, "model"),
            (Ink::Tool, g.tool, "tool"),
            (Ink::Dim, g.waiting, "waiting"),
            (Ink::Model, g.point, "model call, duration unknown"),
            (Ink::Tool, g.tool_point, "tool call, duration unknown"),
            (Ink::Verdict, g.verdict, "verdict"),
            (Ink::Verdict, g.answer, "local answer"),
            (Ink::Warn, g.recovery, "recovery"),
            (Ink::Bad, g.anomaly, "anomaly"),
        ];
        let mut entries: Vec<(Ink, String)> = signs
            .into_iter()
            .filter(|(_, glyph, _)| used.contains(glyph))
            .map(|(ink, glyph, words)| (ink, format!("{glyph} {words}")))
            .collect();
        for words in ["tokens in/out", "first chunk / whole call", "? unknown"] {
            entries.push((Ink::Dim, words.to_owned()));
        }
        self.wrapped(out, &entries, 0, "   ");
    }

    fn invocation(
        &self,
        out: &mut String,
        row: &Invocation,
        facts: &[&Fact],
        used: &mut BTreeSet<char>,
    ) {
        out.push('\n');
        self.header(out, row, facts);
        let lanes = lane::lanes(facts, self.price, &self.pen.glyphs);
        if lanes.is_empty() {
            return;
        }
        for lane in &lanes {
            note_signs(lane, &self.pen.glyphs, used);
        }
        let layout = self.layout(&lanes);
        let scale = Scale::over(&busy(row, &lanes), layout.bars);
        if let Some(scale) = &scale {
            self.axis(out, scale, layout);
        }
        for (i, lane) in lanes.iter().enumerate() {
            let has_below = lanes.get(i + 1).is_some_and(|next| next.depth > lane.depth);
            self.lane(out, lane, has_below, scale.as_ref(), layout);
        }
    }

    fn header(&self, out: &mut String, row: &Invocation, facts: &[&Fact]) {
        let g = &self.pen.glyphs;
        let rule = |n: usize| g.rule.to_string().repeat(n);
        let mut line = Line::default();
        self.pen.write(&mut line, Ink::Dim, &rule(2));
        let status = format!(" {} {} ", g.point, row.status.as_str());
        self.pen.write(&mut line, status_ink(row.status), &status);
        self.pen.write(&mut line, Ink::Dim, &rule(2));
        let room = self.width.saturating_sub(line.columns + 30);
        let app = self.pen.cut(&ink::clean(&row.key.1), room);
        if !app.is_empty() {
            self.pen.write(&mut line, Ink::Bold, &format!(" {app}"));
        }
        let id = short_id(&row.key.2, g.ellipsis);
        self.pen.write(&mut line, Ink::Plain, &format!(" {id} "));
        let rest = self.width.saturating_sub(line.columns);
        self.pen.write(&mut line, Ink::Dim, &rule(rest));
        self.end(out, &line);
        self.pieces(out, &times(row), 2);
        self.pieces(out, &self.sums(row, facts), 2);
        if let Some(parent) = &row.parent {
            let id = parent.invocation_id.as_deref().or(parent.run_id.as_deref());
            let mut words = "started by".to_owned();
            if let Some(id) = id {
                words.push_str(&format!(" {}", short_id(id, g.ellipsis)));
            }
            if let Some(call) = &parent.call_id {
                words.push_str(&format!(", tool call {}", short_id(call, g.ellipsis)));
            }
            words.push_str(&format!(" ({})", parent.basis.as_str()));
            self.pieces(out, &[(Ink::Dim, words)], 2);
        }
    }

    fn sums(&self, row: &Invocation, facts: &[&Fact]) -> Vec<(Ink, String)> {
        let mut pieces = tokens(&row.own);
        let mut number = |n: u64, ink: Ink, one: &str, many: &str| {
            if n > 0 {
                let word = if n == 1 { one } else { many };
                pieces.push((ink, format!("{} {word}", count(Some(n)))));
            }
        };
        let of = |table: Table| facts.iter().filter(|f| f.body.table() == table).count() as u64;
        number(row.tool_call_count, Ink::Plain, "tool call", "tool calls");
        number(
            row.local_answer_count,
            Ink::Verdict,
            "local answer",
            "local answers",
        );
        number(
            of(Table::GuardrailDecisions),
            Ink::Verdict,
            "verdict",
            "verdicts",
        );
        number(of(Table::Anomalies), Ink::Bad, "anomaly", "anomalies");
        let cost = facts
            .iter()
            .filter_map(|fact| match &fact.body {
                FactBody::ModelCall(f) => (self.price)(f).cost_usd,
                _ => None,
            })
            .reduce(Usd::plus);
        if let Some(usd) = cost {
            pieces.push((Ink::Plain, format!("${usd}")));
        }
        pieces
    }

    fn layout(&self, lanes: &[Lane]) -> Layout {
        let label = |lane: &Lane| {
            let inner = lane
                .items
                .iter()
                .take(ITEMS_MAX)
                .map(|item| columns(&item.label) + 2);
            let widest = inner.chain([columns(&lane.name)]).max().unwrap_or(0);
            widest + 2 * lane.depth
        };
        let names = lanes.iter().map(label).max().unwrap_or(0);
        let names = names.clamp(12, self.width * 3 / 10);
        let notes = if self.width >= 100 { 36 } else { 24 };
        Layout {
            names,
            bars: self.width - names - notes - 4,
            notes,
        }
    }

    fn axis(&self, out: &mut String, scale: &Scale, layout: Layout) {
        let (labels, line) = scale.axis(&self.pen.glyphs);
        for text in [labels, line] {
            let mut row = Line::default();
            self.pen.pad(&mut row, layout.names + 2);
            self.pen.write(&mut row, Ink::Dim, text.trim_end());
            self.end(out, &row);
        }
    }

    fn lane(
        &self,
        out: &mut String,
        lane: &Lane,
        has_below: bool,
        scale: Option<&Scale>,
        layout: Layout,
    ) {
        let (own, inner) = guides(lane, has_below, &self.pen.glyphs);
        if !lane.name.is_empty() {
            let mut line = Line::default();
            self.pen.write(&mut line, Ink::Dim, &own);
            let room = layout.names.saturating_sub(line.columns);
            self.pen
                .write(&mut line, Ink::Bold, &self.pen.cut(&lane.name, room));
            // One thing alone is drawn once, below.
            let is_telling = lane.items.len() != 1 || !lane.present.is_empty();
            if let Some(scale) = scale.filter(|_| is_telling) {
                let cells = lane_cells(lane, scale, layout.bars, &self.pen.glyphs);
                self.bar(&mut line, &cells, layout);
            }
            self.end(out, &line);
        }
        for item in lane.items.iter().take(ITEMS_MAX) {
            self.item(out, item, &inner, scale, layout);
        }
        if let Some(more) = lane.items.len().checked_sub(ITEMS_MAX).filter(|n| *n > 0) {
            let mut line = Line::default();
            self.pen
                .write(&mut line, Ink::Dim, &format!("{inner}{more} more"));
            self.end(out, &line);
        }
    }

    fn item(
        &self,
        out: &mut String,
        item: &Item,
        inner: &str,
        scale: Option<&Scale>,
        layout: Layout,
    ) {
        let mut line = Line::default();
        self.pen.write(&mut line, Ink::Dim, inner);
        let room = layout.names.saturating_sub(line.columns);
        self.pen
            .write(&mut line, Ink::Plain, &self.pen.cut(&item.label, room));
        if let Some(scale) = scale {
            let mut cells = vec![(' ', Ink::Plain); layout.bars];
            paint(&mut cells, item, scale, &self.pen.glyphs);
            self.bar(&mut line, &cells, layout);
        }
        let column = layout.names + layout.bars + 4;
        self.pen.pad(&mut line, column);
        let mut is_first = true;
        for (ink, words) in &item.notes {
            let words = self.pen.cut(words, layout.notes);
            let needs = columns(&words) + if is_first { 0 } else { 2 };
            if !is_first && line.columns + needs > self.width {
                self.end(out, &line);
                line = Line::default();
                self.pen.write(&mut line, Ink::Dim, inner);
                self.pen.pad(&mut line, column);
                is_first = true;
            }
            if !is_first {
                self.pen.write(&mut line, Ink::Plain, "  ");
            }
            self.pen.write(&mut line, *ink, &words);
            is_first = false;
        }
        self.end(out, &line);
    }

    fn bar(&self, line: &mut Line, cells: &[(char, Ink)], layout: Layout) {
        self.pen.pad(line, layout.names + 2);
        let mut at = 0;
        while at < cells.len() {
            let ink = cells[at].1;
            let same = cells[at..].iter().take_while(|cell| cell.1 == ink).count();
            let text: String = cells[at..at + same].iter().map(|cell| cell.0).collect();
            self.pen.write(line, ink, &text);
            at += same;
        }
    }

    fn summary(&self, out: &mut String, replayed: &Replayed, rows: &[Invocation]) {
        let ended = &replayed.totals.outcomes;
        let number = |n: u64, one: &str, many: &str| {
            let word = if n == 1 { one } else { many };
            format!("{} {word}", count(Some(n)))
        };
        let mut pieces = vec![
            (
                Ink::Bold,
                number(rows.len() as u64, "invocation", "invocations"),
            ),
            (Ink::Plain, number(ended.read, "record", "records")),
        ];
        if !rows.is_empty() {
            out.push('\n');
            pieces.extend(tokens(&sum_of(rows.iter().map(|row| &row.own))));
        }
        if ended.duplicates > 0 {
            let words = number(ended.duplicates, "duplicate dropped", "duplicates dropped");
            pieces.push((Ink::Warn, words));
        }
        if ended.dead_lettered > 0 {
            pieces.push((
                Ink::Bad,
                format!("{} quarantined", count(Some(ended.dead_lettered))),
            ));
        }
        self.pieces(out, &pieces, 0);
    }
}

fn tokens(own: &Sums) -> Vec<(Ink, String)> {
    let calls = own.model_call_count;
    let mut pieces = vec![
        (
            Ink::Plain,
            format!(
                "{} model call{}",
                count(Some(calls)),
                if calls == 1 { "" } else { "s" }
            ),
        ),
        (Ink::Plain, format!("{} tokens in", count(own.input_total))),
        (Ink::Plain, format!("{} out", count(own.output_total))),
    ];
    if own.usage_missing_calls > 0 {
        pieces.push((
            Ink::Warn,
            format!("{} unmetered", count(Some(own.usage_missing_calls))),
        ));
    } else if !own.usage_complete {
        pieces.push((Ink::Warn, "a lower bound".to_owned()));
    }
    pieces
}

fn status_ink(status: Status) -> Ink {
    match status {
        Status::Completed | Status::CompletedInferred => Ink::Good,
        Status::Error => Ink::Bad,
        Status::Open => Ink::Model,
        Status::Waiting
        | Status::Cancelled
        | Status::Limited
        | Status::Intercepted
        | Status::Incomplete => Ink::Warn,
    }
}

fn times(row: &Invocation) -> Vec<(Ink, String)> {
    let started = row.started_at.map_or_else(
        || "start ?".to_owned(),
        |at| {
            let text = instant_text(at);
            // Milliseconds are enough for a person: `2026-03-02T10:00:00.000`.
            let text = text.get(..23).unwrap_or(&text).replace('T', " ");
            format!("{text} UTC")
        },
    );
    let mut pieces = vec![
        (Ink::Dim, started),
        (Ink::Plain, format!("wall {}", duration(row.wall))),
    ];
    if row.segments > 1 {
        pieces.push((Ink::Plain, format!("active {}", duration(row.active))));
        pieces.push((Ink::Plain, format!("waiting {}", duration(row.wait))));
        pieces.push((Ink::Plain, format!("{} segments", row.segments)));
    }
    if let Some(limit) = &row.limit {
        pieces.push((Ink::Warn, format!("limit {}", ink::clean(limit))));
    }
    if let Some(code) = &row.error_code {
        pieces.push((Ink::Bad, format!("error {}", ink::clean(code))));
    }
    pieces
}

/// Everything that must be on the axis, waiting aside.
fn busy(row: &Invocation, lanes: &[Lane]) -> Vec<(EventTime, EventTime)> {
    let ends = [row.started_at, row.ended_at];
    let mut busy: Vec<_> = ends.into_iter().flatten().map(|at| (at, at)).collect();
    for lane in lanes {
        let present = lane.present.iter();
        busy.extend(present.flat_map(|(from, to)| [(*from, *from), (*to, *to)]));
        for item in &lane.items {
            match item.shape {
                Shape::Model { from, to, .. } | Shape::Tool { from, to } => busy.push((from, to)),
                Shape::Wait { from, to } => busy.extend([(from, from), (to, to)]),
                Shape::Point { at, .. } => busy.push((at, at)),
                Shape::Nowhere => {}
            }
        }
    }
    busy
}

/// The signs with which a lane is drawn.
fn note_signs(lane: &Lane, g: &Glyphs, used: &mut BTreeSet<char>) {
    if !lane.present.is_empty() || lane.items.len() > 1 {
        used.insert(g.waiting);
    }
    for item in &lane.items {
        match item.shape {
            Shape::Model { first_chunk, .. } => {
                used.insert(g.model);
                used.extend(first_chunk.map(|_| g.silent));
            }
            Shape::Tool { .. } => used.extend([g.tool]),
            Shape::Wait { .. } => used.extend([g.tool_point, g.waiting]),
            Shape::Point { glyph, .. } => used.extend([glyph]),
            Shape::Nowhere => {}
        }
    }
}

/// The guides before a lane's name and before its items.
fn guides(lane: &Lane, has_below: bool, g: &Glyphs) -> (String, String) {
    let mut above = String::new();
    let (mut own, mut inner) = (String::new(), String::new());
    for (i, is_last) in lane.is_last.iter().enumerate() {
        let is_own = i + 1 == lane.is_last.len();
        let through = if *is_last { "  " } else { g.down };
        if is_own {
            own = format!("{above}{}", if *is_last { g.last } else { g.fork });
        }
        above.push_str(through);
        inner.clone_from(&above);
    }
    if !lane.name.is_empty() {
        inner.push_str(if has_below { g.down } else { "  " });
    }
    (own, inner)
}

/// All of a lane on one line: dots while it was there, and whatever it did over them.
fn lane_cells(lane: &Lane, scale: &Scale, bars: usize, g: &Glyphs) -> Vec<(char, Ink)> {
    let mut cells = vec![(' ', Ink::Plain); bars];
    let times = || lane.items.iter().filter_map(Item::at);
    let span = times().min().zip(times().max());
    for (from, to) in lane.present.iter().copied().chain(span) {
        fill(&mut cells, scale.span(from, to), (g.waiting, Ink::Dim));
    }
    // Marks last, so that no bar hides them.
    let is_mark = |item: &&Item| matches!(item.shape, Shape::Point { .. });
    for item in lane.items.iter().filter(|item| !is_mark(item)) {
        paint(&mut cells, item, scale, g);
    }
    for item in lane.items.iter().filter(is_mark) {
        paint(&mut cells, item, scale, g);
    }
    cells
}

fn paint(cells: &mut [(char, Ink)], item: &Item, scale: &Scale, g: &Glyphs) {
    match item.shape {
        Shape::Model {
            from,
            first_chunk,
            to,
        } => {
            let whole = scale.span(from, to);
            fill(cells, whole.clone(), (g.model, Ink::Model));
            if let Some(first) = first_chunk {
                // The cell of the first chunk is the model's: of a bar of one cell nothing is
                // silent.
                let silent = whole.start..scale.column(first).min(whole.end - 1);
                fill(cells, silent, (g.silent, Ink::Waiting));
            }
        }
        Shape::Tool { from, to } => fill(cells, scale.span(from, to), (g.tool, Ink::Tool)),
        Shape::Wait { from, to } => {
            let whole = scale.span(from, to);
            fill(cells, whole.clone(), (g.waiting, Ink::Tool));
            fill(
                cells,
                whole.start..whole.start + 1,
                (g.tool_point, Ink::Tool),
            );
        }
        Shape::Point { at, glyph, ink } => {
            let column = scale.column(at);
            fill(cells, column..column + 1, (glyph, ink));
        }
        Shape::Nowhere => {}
    }
}

fn fill(cells: &mut [(char, Ink)], columns: std::ops::Range<usize>, cell: (char, Ink)) {
    let end = columns.end.min(cells.len());
    for place in &mut cells[columns.start.min(end)..end] {
        *place = cell;
    }
}

#[cfg(test)]
mod tests;
