//! The cost of calls, which never exceeds the hold for them.

use std::collections::BTreeMap;

use domain::{Amount, Tokens, Usd, id::ModelName, wire::Usage};
use proptest::prelude::*;

use super::{Protocol, models, provider};
use crate::{
    model::{
        Models,
        price::{Price, Prices},
        rates::{Rates, Tier},
    },
    settings::{PriceEntry, Settings},
};

fn name(name: &str) -> ModelName {
    ModelName::new(name).unwrap()
}

fn built_in() -> Models {
    Models::new(&Settings::default()).unwrap()
}

fn entry(input: u64, output: u64) -> PriceEntry {
    PriceEntry {
        input: Usd::from_cents(input),
        cached_input: None,
        cache_write: None,
        output: Usd::from_cents(output),
    }
}

fn nanos(models: &Models, model: &str, usage: Usage) -> u64 {
    models.price(&name(model)).unwrap().cost(&usage).cost_usd.nanos()
}

#[test]
fn b3_the_table_prices_every_kind_of_token() {
    let models = built_in();
    let million = 1_000_000;
    let plain = |input_tokens, output_tokens| Usage { input_tokens, output_tokens, ..Usage::default() };
    // $0.15 and $0.60 per million.
    assert_eq!(nanos(&models, "openai/gpt-4o-mini", plain(million, 0)), 150_000_000);
    assert_eq!(nanos(&models, "gpt-4o-mini", plain(0, million)), 600_000_000);
    let cached = Usage { cached_tokens: million, ..plain(million, 0) };
    assert_eq!(nanos(&models, "gpt-4o-mini", cached), 75_000_000);
    // $3 and $15. Cache reads cost a tenth of the input price, cache writes a quarter more; long
    // prompts cost double.
    assert_eq!(nanos(&models, "claude-sonnet-4-5", plain(200_000, 1_000)), 615_000_000);
    assert_eq!(nanos(&models, "claude-sonnet-4-5", plain(200_001, 1_000)), 1_200_006_000 + 22_500_000);
    let mixed = Usage { cached_tokens: 60_000, cache_write_tokens: 40_000, ..plain(100_000, 0) };
    assert_eq!(nanos(&models, "anthropic/claude-sonnet-4-5", mixed), 18_000_000 + 150_000_000);
    // Reasoning is part of the output.
    let thought = Usage { reasoning_tokens: 900, ..plain(0, 1_000) };
    assert_eq!(nanos(&models, "gemini/gemini-2.5-flash", thought), 2_500_000);
    // A fraction of a nano-dollar is rounded up to one.
    assert_eq!(nanos(&models, "gpt-4o-mini", Usage { cached_tokens: 1, ..plain(1, 0) }), 75);
    assert_eq!(models.price(&name("gpt-4o-mini")).unwrap().version, "genai-prices 0.2.1");
}

#[test]
fn b3_the_version_is_the_table_that_is_built_in() {
    let lock = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.lock")).unwrap();
    let version = built_in().price(&name("gpt-4o-mini")).unwrap().version;
    let (crate_name, version) = version.split_once(' ').unwrap();
    assert!(lock.contains(&format!("name = \"{crate_name}\"\nversion = \"{version}\"")));
}

#[test]
fn an_unknown_price_is_refused_with_a_hint() {
    let models = models([
        ("local", provider(Protocol::Openai, "http://127.0.0.1:1/v1")),
        ("openai", provider(Protocol::Openai, "http://127.0.0.1:1/v1")),
    ]);
    // An operator's server may use the table's names, but its prices do not apply. An embedding
    // model does not chat.
    for model in
        ["local/gpt-4o-mini", "openai/gpt-4o-mini", "ollama/llama3", "gpt-999", "claude-of-tomorrow", "x"]
    {
        let refused = models.price(&name(model)).unwrap_err().to_string();
        assert!(refused.contains(model) && refused.contains("hint: "), "{refused}");
    }
    let refused = |model: &str| models.price(&name(model)).unwrap_err().to_string();
    assert!(refused("local/gpt-4o-mini").contains("the price of `local/gpt-4o-mini` is not known"));
    for model in ["foo/bar", "x"] {
        let said = refused(model);
        assert!(said.starts_with(&format!("there is no provider for `{model}`")), "{said}");
        assert!(said.contains("anthropic, gemini, local, ollama, openai"), "{said}");
    }
    assert!(built_in().price(&name("openai/text-embedding-3-small")).is_err());
}

#[test]
fn the_operators_prices_come_before_the_table() {
    let proxy = crate::settings::Provider {
        priced_as: Some("openai".into()),
        ..provider(Protocol::Openai, "http://127.0.0.1:1/v1")
    };
    let own = |entries: &[(&str, PriceEntry)]| -> BTreeMap<ModelName, PriceEntry> {
        entries.iter().map(|(model, entry)| (name(model), entry.clone())).collect()
    };
    let settings = Settings {
        prices: own(&[
            ("proxy/special", entry(100, 200)),
            ("special", entry(300, 400)),
            ("local/free", entry(0, 0)),
        ]),
        providers: [("proxy".to_owned(), proxy)].into(),
        ..Settings::default()
    };
    let models = Models::new(&settings).unwrap();
    let million = Usage { input_tokens: 1_000_000, ..Usage::default() };
    assert_eq!(nanos(&models, "proxy/special", million), 1_000_000_000);
    assert_eq!(nanos(&models, "elsewhere/special", million), 3_000_000_000);
    assert_eq!(nanos(&models, "local/free", million), 0);
    assert_eq!(nanos(&models, "proxy/gpt-4o-mini", million), 150_000_000);

    let version = models.price(&name("special")).unwrap().version;
    assert!(version.starts_with("own sha256:") && version.len() == 23, "{version}");
    let other = Prices::new(&own(&[("special", entry(300, 401))])).price(&name("special"), None).unwrap();
    assert_ne!(other.version, version, "other prices, another version");
}

fn rates() -> impl Strategy<Value = Rates> {
    let rate = 0..200_000_000_000_u64;
    (rate.clone(), rate.clone(), rate.clone(), rate, 0..1000_u64).prop_map(
        |(input, cached, cache_write, output, call)| Rates { input, cached, cache_write, output, call },
    )
}

fn price() -> impl Strategy<Value = Price> {
    let more = proptest::collection::btree_map(1..400_000_u64, rates(), 0..3);
    (rates(), more).prop_map(|(first, more)| {
        let first = Tier { from: 0, rates: first };
        let more = more.into_iter().map(|(from, rates)| Tier { from, rates });
        Price { tiers: std::iter::once(first).chain(more).collect(), version: "test".into() }
    })
}

proptest! {
    /// For any number of tokens that are read from or written to a cache.
    #[test]
    fn b3_no_usage_that_fits_costs_more_than_the_worst_case(
        price in price(),
        (most_input, input) in (0..500_000_u64).prop_flat_map(|most| (Just(most), 0..=most)),
        (most_output, output) in (0..100_000_u32).prop_flat_map(|most| (Just(most), 0..=most)),
        cached in 0..600_000_u64,
        written in 0..600_000_u64,
    ) {
        let usage = Usage {
            input_tokens: input,
            cached_tokens: cached,
            cache_write_tokens: written,
            output_tokens: output.into(),
            reasoning_tokens: 0,
        };
        let worst = price.worst_case(most_input, most_output);
        prop_assert_eq!(price.cost(&usage).exceeds(worst), None);
    }

    #[test]
    fn b5_what_is_affordable_fits_and_one_token_more_does_not(
        price in price(),
        input in 0..500_000_u64,
        dollars in 0..20_000_000_000_u64,
        tokens in 0..600_000_u64,
        most in prop_oneof![0..200_000_u32, Just(u32::MAX)],
    ) {
        let left = Amount::new(Usd::from_nanos(dollars), Tokens::new(tokens));
        let fits = |max_tokens| price.worst_case(input, max_tokens).exceeds(left).is_none();
        match price.affordable(input, left, most) {
            Some(fit) => {
                prop_assert!(fit >= 1 && fit <= most && fits(fit));
                prop_assert!(fit == most || !fits(fit + 1));
            }
            None => prop_assert!(most == 0 || !fits(1)),
        }
    }
}
