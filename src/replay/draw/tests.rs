//! Drawings of facts made by hand, as a person sees them.

use super::*;
use crate::core::fact::{AnomalyKind, Basis, CallStatus, ParentLink, ToolStatus};
use crate::core::usage::TokenUsage;
use crate::replay::fixtures::*;

/// A run with a sub-agent on each of two branches, a denied refund that ran, and an unmetered call.
fn busy_run() -> Replayed {
    let mut unmetered = model_call("c2", "", "desk", 2_000);
    unmetered.usage = TokenUsage::default();
    unmetered.ttfc = None;
    unmetered.streaming = Some(false);
    let mut native = model_call("c3", "fan.alpha", "alpha", 3_300);
    (native.completion, native.ttfc, native.streaming) = (None, None, None);
    let mut failed = model_call("c4", "fan.beta", "beta", 3_400);
    failed.status = CallStatus::Error;
    failed.error_code = Some("429".into());
    failed.attempts = 3;
    let own = Sums {
        usage_missing_calls: 1,
        usage_complete: false,
        ..sums(4, 1_250, 99)
    };
    let run = invocation(Status::Completed, 0, Some(5_000), own);
    let told = |offset, body| fact("e-c1f83a89-8e7c-4a9a-a8b6-9a69eac40c55", "r", offset, body);
    let call = |call| FactBody::ModelCall(Box::new(call));
    let facts = vec![
        told(0, FactBody::Invocation(Box::new(run))),
        told(1, call(model_call("c1", "", "desk", 0))),
        told(4, call(unmetered)),
        told(5, call(native)),
        told(6, call(failed)),
        told(
            2,
            FactBody::ToolCall(Box::new(tool(
                "t1",
                "desk",
                ToolStatus::Ok,
                1_300,
                Some(1_900),
            ))),
        ),
        told(
            2,
            FactBody::GuardrailDecision(Box::new(deny("desk", 1_250, Some(false)))),
        ),
        told(
            3,
            FactBody::Anomaly(Box::new(anomaly(
                AnomalyKind::VerdictNotEnforced,
                "desk",
                "tool_call/t1",
                1_300,
            ))),
        ),
    ];
    Replayed {
        facts,
        ..Replayed::default()
    }
}

fn paused_run() -> Replayed {
    let resumed = 10_800_000;
    let segment =
        |name, offset, body| fact("e-o11", name, offset, FactBody::Invocation(Box::new(body)));
    let mut asked = tool("fc-a", "desk", ToolStatus::Deferred, 1_000, None);
    asked.tool = "approve".into();
    asked.long_running = true;
    let mut answered = asked.clone();
    (answered.status, answered.started_at) = (ToolStatus::Ok, None);
    answered.ended_at = at(resumed + 500);
    let mut child = invocation(
        Status::Completed,
        resumed,
        Some(resumed + 2_200),
        sums(1, 40, 33),
    );
    child.parent = Some(ParentLink {
        invocation_id: Some("e-0".into()),
        run_id: None,
        call_id: Some("fc-0".into()),
        basis: Basis::Inferred,
    });
    Replayed {
        facts: vec![
            segment(
                "a",
                0,
                invocation(Status::Waiting, 0, Some(1_200), sums(1, 40, 33)),
            ),
            segment("b", 5, child),
            fact(
                "e-o11",
                "a",
                1,
                FactBody::ModelCall(Box::new(model_call("c1", "", "desk", 0))),
            ),
            fact(
                "e-o11",
                "b",
                6,
                FactBody::ModelCall(Box::new(model_call("c2", "", "desk", resumed + 600))),
            ),
            fact("e-o11", "a", 2, FactBody::ToolCall(Box::new(asked))),
            fact("e-o11", "b", 7, FactBody::ToolCall(Box::new(answered))),
        ],
        ..Replayed::default()
    }
}

fn widths(drawing: &str) -> usize {
    drawing.lines().map(columns).max().unwrap_or(0)
}

#[test]
fn a_busy_run_at_80_columns() {
    let drawing = draw(&busy_run(), &canvas(80));
    assert!(widths(&drawing) <= 80);
    insta::assert_snapshot!(drawing);
}

#[test]
fn a_busy_run_at_120_columns() {
    let drawing = draw(&busy_run(), &canvas(120));
    assert!(widths(&drawing) <= 120);
    insta::assert_snapshot!(drawing);
}

#[test]
fn a_pause_is_cut_out_of_the_axis() {
    insta::assert_snapshot!(draw(&paused_run(), &canvas(80)));
}

#[test]
fn ascii_stays_ascii() {
    let ascii = Canvas {
        is_ascii: true,
        ..canvas(80)
    };
    let drawing = draw(&busy_run(), &ascii);
    assert!(drawing.is_ascii());
    insta::assert_snapshot!(drawing);
}

#[test]
fn colours_change_no_character() {
    let colored = Canvas {
        has_color: true,
        ..canvas(80)
    };
    let drawing = draw(&busy_run(), &colored);
    assert!(drawing.contains("\x1b[31m"));
    let mut plain = String::new();
    let mut parts = drawing.split('\x1b');
    plain.push_str(parts.next().unwrap());
    for part in parts {
        plain.push_str(part.split_once('m').unwrap().1);
    }
    let trimmed = |text: &str| {
        text.lines()
            .map(|l| format!("{}\n", l.trim_end()))
            .collect::<String>()
    };
    assert_eq!(trimmed(&plain), draw(&busy_run(), &canvas(80)));
}

#[test]
fn only_the_most_recent_are_drawn() {
    let mut replayed = Replayed::default();
    for i in 0..5 {
        let body = invocation(Status::Completed, i, Some(i + 1), sums(0, 0, 0));
        let id = format!("e-{i}");
        replayed
            .facts
            .push(fact(&id, "s", i, FactBody::Invocation(Box::new(body))));
    }
    let canvas = Canvas {
        limit: 2,
        ..canvas(80)
    };
    let drawing = draw(&replayed, &canvas);
    assert!(
        drawing.contains("3 earlier invocations are not drawn"),
        "{drawing}"
    );
    assert!(
        !drawing.contains("e-2") && drawing.contains("e-3"),
        "{drawing}"
    );
    assert!(drawing.find("e-3") < drawing.find("e-4"));
}
