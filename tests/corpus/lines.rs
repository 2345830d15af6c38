//! Facts as lines of text, short enough to be read in a test: invocation by number, what it is about, what is told.

use std::fmt::Write;
use tachograph::core::fact::{Fact, FactBody, Flag, ModelCallFact};

/// The facts of one kind: run, call, tool, took (a tool's time, ms), answer, verdict, anomaly, handoff or branch.
pub fn of(facts: &[Fact], kind: &str) -> Vec<String> {
    let mut facts: Vec<&Fact> = facts.iter().collect();
    facts.sort_by_key(|fact| fact.first.offset);
    let mut ids: Vec<&str> = Vec::new();
    for fact in &facts {
        if !ids.contains(&&*fact.invocation_id) {
            ids.push(&fact.invocation_id);
        }
    }
    let number = |fact: &Fact| ids.iter().position(|id| *id == &*fact.invocation_id);
    let text = |fact: &&Fact| {
        let line = line(&fact.body, kind)?;
        Some(format!("{} {line}", number(fact).unwrap() + 1))
    };
    facts.iter().filter_map(text).collect()
}

fn line(body: &FactBody, kind: &str) -> Option<String> {
    let mut out = String::new();
    match (kind, body) {
        ("run", FactBody::Invocation(run)) => {
            out.push_str(run.status.as_str());
            optional(&mut out, "root", run.root_agent.as_deref());
            optional(&mut out, "limit", run.limit.as_deref());
            optional(&mut out, "code", run.error_code.as_deref());
            if let Some(parent) = &run.parent {
                let _ = write!(out, " parent={}", parent.basis.as_str());
            }
        }
        ("call", FactBody::ModelCall(call)) => out = model_call(call),
        ("tool", FactBody::ToolCall(tool)) => {
            let (status, executed) = (tool.status.as_str(), tool.executed.as_str());
            let _ = write!(
                out,
                "{} {} {status} executed={executed}",
                tool.tool, tool.execution
            );
        }
        ("took", FactBody::ToolCall(tool)) => {
            let ms = tool.duration.map(|nanos| (nanos.0 / 1_000_000).to_string());
            let ms = ms.unwrap_or("?".to_owned());
            let _ = write!(out, "{} {} {ms}", tool.tool, tool.execution);
        }
        ("answer", FactBody::LocalAnswer(answer)) => {
            let _ = write!(out, "{} by={}", answer.agent, answer.served_by.as_str());
            optional(&mut out, "hook", answer.hook.as_deref());
            count(&mut out, "replayed", answer.replayed.total);
        }
        ("verdict", FactBody::GuardrailDecision(verdict)) => {
            let word = verdict.decision.map_or("?", |word| word.as_str());
            let (stage, basis) = (verdict.stage.as_str(), verdict.basis.as_str());
            let _ = write!(out, "{stage} {word} {basis}");
            optional(&mut out, "actor", verdict.actor_name.as_deref());
            let enforced = verdict.enforced.map(|enforced| enforced.to_string());
            optional(&mut out, "enforced", enforced.as_deref());
        }
        ("anomaly", FactBody::Anomaly(anomaly)) => {
            out.push_str(anomaly.kind.as_str());
            optional(&mut out, "detail", anomaly.detail.as_deref());
        }
        ("handoff", FactBody::AgentRun(run)) => {
            let to = run.handoff_to.as_deref()?;
            let _ = write!(out, "{} {} to={to}", run.agent, run.status.as_str());
        }
        ("branch", FactBody::Branch(branch)) if !branch.branch.is_empty() => {
            let _ = write!(out, "{} {}", branch.branch, branch.occurrence);
        }
        _ => return None,
    }
    Some(out)
}

fn model_call(call: &ModelCallFact) -> String {
    let (status, by) = (call.status.as_str(), call.served_by.as_str());
    let mut out = format!("{} {status} by={by}", call.agent);
    let branch = Some(&*call.branch).filter(|branch| !branch.is_empty());
    optional(&mut out, "branch", branch);
    count(&mut out, "in", call.usage.input_total);
    count(&mut out, "out", call.usage.output_total);
    if call.usage.reasoning.is_some_and(|tokens| tokens > 0) {
        count(&mut out, "reasoning", call.usage.reasoning);
    }
    optional(&mut out, "code", call.error_code.as_deref());
    out.push_str(if call.recovered { " recovered" } else { "" });
    out.push_str(if call.is_unmetered { " unmetered" } else { "" });
    // Every native call has it unless its topic says otherwise.
    let flags = call
        .flags
        .iter()
        .filter(|flag| *flag != Flag::EventTimeNotArrival);
    for flag in flags {
        let _ = write!(out, " #{}", flag.as_str());
    }
    out
}

fn optional(out: &mut String, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        let _ = write!(out, " {key}={value}");
    }
}

fn count(out: &mut String, key: &str, value: Option<u64>) {
    let text = value.map_or("?".to_owned(), |tokens| tokens.to_string());
    optional(out, key, Some(&text));
}
