//! Usage reports: saying a thing again changes nothing, and sums know no order.

use crate::cases;
use proptest::prelude::*;
use tachograph::core::usage::{TokenClass, UsageContext, UsageReport, UsageSum};

/// A usage object of any provider, with odd values now and then.
fn object() -> impl Strategy<Value = String> {
    let keys = prop::sample::select(vec![
        "promptTokenCount",
        "candidatesTokenCount",
        "totalTokenCount",
        "cachedContentTokenCount",
        "thoughtsTokenCount",
        "toolUsePromptTokenCount",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "inputTokens",
        "outputTokens",
        "reasoning_tokens",
    ]);
    let values = prop_oneof![
        6 => (0u64..2_000).prop_map(|count| count.to_string()),
        2 => Just("0".to_owned()),
        1 => Just("null".to_owned()),
        1 => Just("-3".to_owned()),
        1 => Just("\"many\"".to_owned()),
        1 => Just("\"120\"".to_owned()),
    ];
    prop::collection::btree_map(keys, values, 0..6).prop_map(|fields| {
        let fields: Vec<String> = fields
            .iter()
            .map(|(key, value)| format!("\"{key}\":{value}"))
            .collect();
        format!("{{{}}}", fields.join(","))
    })
}

fn report() -> impl Strategy<Value = UsageReport> {
    object().prop_map(|json| UsageReport::parse(&json).expect("an object is a report"))
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn merging_again_changes_nothing(a in report(), b in report()) {
        let mut once = a.clone();
        once.merge(&b);
        let mut twice = once.clone();
        twice.merge(&b);
        prop_assert_eq!(&once, &twice);
        let mut itself = a.clone();
        itself.merge(&a);
        prop_assert_eq!(itself, a);
    }

    #[test]
    fn a_report_without_numbers_is_neutral(a in report()) {
        let empty = UsageReport::parse("{}").expect("an object is a report");
        let mut merged = a.clone();
        merged.merge(&empty);
        prop_assert_eq!(merged, a);
    }

    #[test]
    fn sums_know_no_order(
        reports in prop::collection::vec(report(), 0..6),
        at in any::<prop::sample::Index>(),
    ) {
        let context = UsageContext {
            had_content: true,
            plausible_tokens_max: 1_000_000,
            ..UsageContext::default()
        };
        let usages: Vec<_> = reports.iter().map(|report| report.normalise(&context)).collect();
        let sum = |usages: &[tachograph::core::usage::TokenUsage]| {
            let mut sum = UsageSum::default();
            usages.iter().for_each(|usage| sum.add(usage));
            let classes = [
                TokenClass::InputTotal, TokenClass::InputUncached, TokenClass::CacheRead,
                TokenClass::CacheWrite, TokenClass::ToolUseInput, TokenClass::OutputTotal,
                TokenClass::Reasoning, TokenClass::Total,
            ];
            (classes.map(|class| sum.value(class)), sum.is_complete(), sum.calls())
        };
        let mut turned = usages.clone();
        if !turned.is_empty() {
            let at = at.index(turned.len());
            turned.rotate_left(at);
            turned.reverse();
        }
        prop_assert_eq!(sum(&usages), sum(&turned));
        // A sum of sums is the sum.
        let (left, right) = usages.split_at(usages.len() / 2);
        let mut halves = UsageSum::default();
        for half in [left, right] {
            let mut sum = UsageSum::default();
            half.iter().for_each(|usage| sum.add(usage));
            halves.add_sum(&sum);
        }
        prop_assert_eq!(halves.value(TokenClass::Total), sum(&usages).0[7]);
    }
}
