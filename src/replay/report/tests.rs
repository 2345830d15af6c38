//! The report over facts made by hand, read back as JSON.

use super::report;
use crate::core::event::ServedBy;
use crate::core::fact::{
    AnomalyKind, Basis, Fact, FactBody, ModelCallFact, ParentLink, Status, ToolStatus,
};
use crate::replay::cost::{CallCost, Usd};
use crate::replay::fixtures::*;
use crate::replay::{ReplaySettings, Replayed};
use serde_json::{Value, json};
use std::sync::Arc;

fn told(run: &str, offset: i64, body: FactBody) -> Fact {
    fact(run, "s", offset, body)
}

fn call(call: ModelCallFact) -> FactBody {
    FactBody::ModelCall(Box::new(call))
}

fn read(facts: Vec<Fact>) -> Value {
    let prices = |call: &ModelCallFact| CallCost {
        cost_usd: (&*call.call_key != "unpriced").then(|| Usd::parse("0.1").unwrap()),
        ..CallCost::default()
    };
    let settings = ReplaySettings {
        price: Arc::new(prices),
        ..ReplaySettings::default()
    };
    let replayed = Replayed {
        facts,
        ..Replayed::default()
    };
    serde_json::from_str(&report(&replayed, &settings)).unwrap()
}

/// One invocation with two priced calls, one without a price and one of unknown origin.
fn a_run() -> Vec<Fact> {
    let mut unknown = model_call("unknown", "", "desk", 9_000);
    unknown.served_by = ServedBy::Unknown;
    let mut child = invocation(Status::Completed, 0, Some(9_000), sums(3, 120, 99));
    child.parent = Some(ParentLink {
        invocation_id: Some("e-0".into()),
        run_id: None,
        call_id: Some("fc-0".into()),
        basis: Basis::Inferred,
    });
    vec![
        told("e-1", 0, FactBody::Invocation(Box::new(child))),
        told("e-1", 9, call(model_call("late", "", "desk", 4_000))),
        told("e-1", 1, call(model_call("early", "", "desk", 0))),
        told("e-1", 2, call(model_call("unpriced", "", "desk", 2_000))),
        told("e-1", 3, call(unknown)),
        told(
            "e-1",
            4,
            FactBody::ToolCall(Box::new(tool(
                "t1",
                "desk",
                ToolStatus::Ok,
                1_300,
                Some(1_900),
            ))),
        ),
        told(
            "e-1",
            5,
            FactBody::GuardrailDecision(Box::new(deny("desk", 1_250, None))),
        ),
        told(
            "e-1",
            6,
            FactBody::Anomaly(Box::new(anomaly(
                AnomalyKind::UnmeteredCall,
                "desk",
                "x",
                1,
            ))),
        ),
    ]
}

#[test]
fn calls_stand_in_the_order_of_their_requests_and_money_adds_up() {
    let report = read(a_run());
    let keys: Vec<&str> = report["model_calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["call_key"].as_str().unwrap())
        .collect();
    assert_eq!(keys, ["early", "unpriced", "late", "unknown"]);
    assert_eq!(report["model_calls"][2]["seq"], 2);
    assert_eq!(report["model_calls"][1]["cost_usd"], Value::Null);
    assert_eq!(report["model_calls"][1]["cost_state"], "unpriced");
    // A call of unknown origin is in the rows, and in no sum.
    assert_eq!(report["cost_usd"], "0.2");
    assert_eq!(report["model_call_count"], 3);
    assert_eq!(report["tool_call_count"], 1);
    assert_eq!(report["totals"]["input_total"], 120);
}

#[test]
fn a_row_speaks_in_the_words_of_the_contract() {
    let report = read(a_run());
    let row = &report["invocations"][0];
    let parent = json!({"invocation_id": "e-0", "run_id": null, "call_id": "fc-0",
        "basis": "inferred"});
    assert_eq!(row["parent"], parent);
    assert_eq!(
        (&row["wall_ms"], &row["wait_ms"]),
        (&json!(9_000), &json!(0))
    );
    assert_eq!(row["own"]["model_call_count"], 3);
    assert_eq!(row["with_descendants"]["output_total"], 99);
    assert_eq!(row["own"]["reasoning"], Value::Null);
    let verdict = &report["verdicts"][0];
    assert_eq!(verdict["actor"], json!({"type": "plugin", "name": "guard"}));
    assert_eq!(
        verdict["target"],
        json!({"kind": "tool", "call_id": "t1", "name": null})
    );
    assert_eq!(
        (&verdict["policy"], &verdict["rule"]),
        (&json!("refunds"), &json!("over-500"))
    );
    assert_eq!(
        (&verdict["decision"], &verdict["enforced"]),
        (&json!("deny"), &Value::Null)
    );
    assert_eq!(report["tools"][0]["duration_ms"], 600);
    assert_eq!(report["tools"][0]["executed"], "yes");
    assert_eq!(report["anomalies"][0]["kind"], "unmetered_call");
    let call = &report["model_calls"][0];
    assert_eq!(call["ended_at"], "2026-03-02T10:00:01.200000000Z");
    assert_eq!(
        (&call["branch"], &call["usage"]["state"]),
        (&json!(""), &json!("reported"))
    );
    assert_eq!(call["usage"]["cache_read"], Value::Null);
}

#[test]
fn a_cost_over_calls_without_prices_is_unknown() {
    let own = sums(1, 40, 33);
    let run = invocation(Status::Open, 0, None, own);
    let report = read(vec![
        told("e-1", 0, FactBody::Invocation(Box::new(run))),
        told("e-1", 1, call(model_call("unpriced", "", "desk", 0))),
    ]);
    assert_eq!(report["cost_usd"], Value::Null);
    assert_eq!(report["invocations"][0]["wall_ms"], Value::Null);
}

#[test]
fn the_order_of_facts_does_not_matter() {
    let mut backwards = a_run();
    backwards.reverse();
    assert_eq!(read(a_run()), read(backwards));
}
