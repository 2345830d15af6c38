//! Segments, tools and descendants, folded from facts made by hand.

use super::*;
use crate::core::fact::Basis;
use crate::replay::fixtures::*;

fn run(id: &str, segment: &str, offset: i64, body: InvocationFact) -> Fact {
    fact(id, segment, offset, FactBody::Invocation(Box::new(body)))
}

fn asked(segment: &str, offset: i64, call: ToolCallFact) -> Fact {
    fact("e-1", segment, offset, FactBody::ToolCall(Box::new(call)))
}

#[test]
fn a_pause_of_three_hours_is_waiting_and_not_active() {
    let resumed = 10_800_000;
    let facts = [
        run(
            "e-1",
            "b",
            9,
            invocation(
                Status::Completed,
                resumed,
                Some(resumed + 2_200),
                sums(1, 130, 6),
            ),
        ),
        run(
            "e-1",
            "a",
            0,
            invocation(Status::Waiting, 0, Some(1_200), sums(1, 100, 10)),
        ),
    ];
    let rows = invocations(&facts, &[]);
    let row = &rows[0];
    assert_eq!(
        (rows.len(), row.segments, row.status),
        (1, 2, Status::Completed)
    );
    assert_eq!((row.wall, row.active), (ms(resumed + 2_200), ms(3_400)));
    assert_eq!(row.wait, ms(resumed - 1_200));
    assert_eq!(
        (row.own.input_total, row.own.output_total),
        (Some(230), Some(16))
    );
    assert_eq!((row.started_at, row.ended_at), (at(0), at(resumed + 2_200)));
}

#[test]
fn a_headless_segment_adds_its_calls_and_nothing_else() {
    let late = InvocationFact {
        headless: true,
        ..invocation(Status::Incomplete, 90_000, None, sums(1, 7, 1))
    };
    let whole = run(
        "e-1",
        "a",
        0,
        invocation(Status::Completed, 0, Some(1_000), sums(1, 10, 2)),
    );
    let rows = invocations(&[whole, run("e-1", "b", 5, late.clone())], &[]);
    assert_eq!((rows[0].status, rows[0].segments), (Status::Completed, 1));
    assert_eq!(
        (rows[0].wall, rows[0].own.input_total),
        (ms(1_000), Some(17))
    );
    let alone = invocations(&[run("e-1", "b", 5, late)], &[]);
    assert_eq!(
        (alone[0].status, alone[0].segments),
        (Status::Incomplete, 1)
    );
}

#[test]
fn what_is_unknown_stays_unknown_and_nothing_is_zero() {
    let unknown = Sums {
        model_call_count: 1,
        usage_missing_calls: 1,
        ..Sums::default()
    };
    assert_eq!(sum_of([]).input_total, Some(0));
    assert_eq!(sum_of([&sums(0, 0, 0)]).input_total, Some(0));
    assert_eq!(sum_of([&unknown, &sums(0, 0, 0)]).input_total, None);
    let both = sum_of([&unknown, &sums(1, 120, 15)]);
    assert_eq!((both.input_total, both.usage_complete), (Some(120), false));
    assert_eq!((both.model_call_count, both.usage_missing_calls), (2, 1));
}

#[test]
fn descendants_are_found_by_invocation_run_or_call_and_circles_end() {
    let link = |invocation_id: Option<&str>, call_id: Option<&str>| {
        Some(ParentLink {
            invocation_id: invocation_id.map(Name::from),
            run_id: None,
            call_id: call_id.map(Name::from),
            basis: Basis::Declared,
        })
    };
    let of = |parent, own| InvocationFact {
        parent,
        ..invocation(Status::Completed, 0, Some(1), own)
    };
    let facts = [
        run("e-1", "a", 0, of(None, sums(1, 1_000, 100))),
        run("e-2", "b", 1, of(link(Some("e-1"), None), sums(1, 100, 10))),
        run("e-3", "c", 2, of(link(None, Some("t1")), sums(1, 50, 5))),
        run("e-4", "d", 3, of(link(Some("e-5"), None), sums(1, 1, 1))),
        run("e-5", "e", 4, of(link(Some("e-4"), None), sums(1, 2, 2))),
        asked("a", 0, tool("t1", "desk", ToolStatus::Ok, 0, Some(1))),
    ];
    let tools = tools(&facts);
    let rows = invocations(&facts, &tools);
    let below = |i: usize| rows[i].with_descendants.input_total;
    assert_eq!(
        [below(0), below(1), below(2)],
        [Some(1_150), Some(100), Some(50)]
    );
    assert_eq!([below(3), below(4)], [Some(3), Some(3)]);
    assert_eq!(rows[0].own.input_total, Some(1_000));
    assert_eq!(rows[0].tool_call_count, 1);
}

#[test]
fn a_tool_answered_in_a_later_segment_is_one_call() {
    let mut asked_first = tool("t1", "desk", ToolStatus::Deferred, 0, None);
    asked_first.long_running = true;
    let mut answered = tool("t1", "desk", ToolStatus::Ok, 0, Some(10_799_500));
    (answered.started_at, answered.duration) = (None, None);
    let facts = [asked("b", 9, answered), asked("a", 0, asked_first)];
    let rows = tools(&facts);
    assert_eq!(rows.len(), 1);
    let call = &rows[0].call;
    assert_eq!((call.status, call.long_running), (ToolStatus::Ok, true));
    assert_eq!((call.started_at, call.wait), (at(0), ms(10_799_500)));
    assert_eq!(call.duration, None);
    assert_eq!(
        (rows[0].first.offset, rows[0].last.offset),
        (Offset(0), Offset(9))
    );
}

#[test]
fn an_answered_call_is_not_joined_with_its_reused_id() {
    let call = || tool("t1", "desk", ToolStatus::Ok, 0, Some(5));
    let facts = [asked("a", 0, call()), asked("b", 9, call())];
    assert_eq!(tools(&facts).len(), 2);
}

#[test]
fn sub_branches_are_whole_path_segments() {
    let facts: Vec<Fact> = [("", 1), ("a", 10), ("a.x", 100), ("ab", 1_000)]
        .into_iter()
        .map(|(path, n)| {
            fact(
                "e-1",
                "s",
                0,
                FactBody::Branch(Box::new(branch(path, sums(1, n, 0)))),
            )
        })
        .collect();
    let branches: Vec<_> = facts
        .iter()
        .filter_map(|fact| match &fact.body {
            FactBody::Branch(f) => Some((fact, &**f)),
            _ => None,
        })
        .collect();
    let sums = branch_sums(&branches);
    let input: Vec<_> = sums.iter().filter_map(|sum| sum.input_total).collect();
    assert_eq!(input, [1_111, 110, 100, 1_000]);
}
