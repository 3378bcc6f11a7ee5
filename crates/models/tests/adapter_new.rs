//! New adapters and the names of their targets.

use apprentice_models::{Adapter, AdapterRows, Philox, targets};
use common::model;

mod common;

#[test]
fn a_new_adapter_adds_nothing_yet() {
    let model = model("llama");
    let adapter = Adapter::fresh(&model, &[5, 0, 5], 3, 6.0, AdapterRows::Reply, 11).unwrap();
    assert_eq!(adapter.sites(), [0, 5]);
    for pair in &adapter.pairs {
        let site = &model.sites()[pair.site];
        assert_eq!((pair.rank, pair.scale), (3, 2.0));
        assert_eq!((pair.a.len(), pair.b.len()), (3 * site.input, 3 * site.output));
        assert!(pair.b.iter().all(|value| value.to_bits() == 0));
    }
}

#[test]
fn a_is_uniform_within_its_bound() {
    let model = model("llama");
    let adapter = Adapter::fresh(&model, &[0], 512, 1.0, AdapterRows::All, 12).unwrap();
    let a = &adapter.pairs[0].a;
    let bound = (model.sites()[0].input as f32).sqrt().recip();
    let largest = a.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    assert!(largest <= bound && largest > 0.99 * bound, "{largest} of {bound}");
    // The variance of a uniform number in ±bound is bound^2 / 3; of 16,384 numbers it is within 2 %.
    let mean = a.iter().sum::<f32>() / a.len() as f32;
    let variance = a.iter().map(|value| value * value).sum::<f32>() / a.len() as f32;
    assert!(mean.abs() < 0.02 * bound, "{mean}");
    assert!((variance / (bound * bound / 3.0) - 1.0).abs() < 0.02, "{variance}");
    assert_eq!(a[7], (2.0 * Philox::new(12).uniform(0, 7, 0) - 1.0) * bound);
}

#[test]
fn seeds_and_sites_have_their_own_numbers() {
    let model = model("llama");
    let a = |sites: &[usize], seed| {
        let adapter = Adapter::fresh(&model, sites, 2, 1.0, AdapterRows::All, seed).unwrap();
        adapter.pairs.into_iter().map(|pair| pair.a).collect::<Vec<_>>()
    };
    assert_eq!(a(&[0, 1], 1), a(&[0, 1], 1));
    assert_eq!(a(&[0, 1], 1)[1], a(&[1], 1)[0], "what else is adapted does not matter");
    assert_ne!(a(&[0], 1), a(&[0], 2));
    assert_ne!(a(&[0, 1], 1)[0], a(&[0, 1], 1)[1]);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let model = model("llama");
    let check = |sites: &[usize], rank, alpha, expected: &str| {
        let error = Adapter::fresh(&model, sites, rank, alpha, AdapterRows::All, 0).unwrap_err();
        assert_eq!(error.to_string(), expected);
    };
    check(&[0], 0, 1.0, "rank: expected 1 to 65536, found 0");
    check(&[0], usize::MAX, 1.0, "rank: expected 1 to 65536, found 18446744073709551615");
    check(&[0], 1, 0.0, "alpha: expected a finite number other than 0, found 0");
    check(&[0], 1, f32::NAN, "alpha: expected a finite number other than 0, found NaN");
    check(&[], 1, 1.0, "targets: expected at least one, found none");
}

#[test]
fn targets_are_named_as_peft_or_gguf_do() {
    let model = model("llama");
    let check = |names: &[&str], expected: &[&str]| {
        let found = targets::resolve(&model, names).unwrap();
        let found: Vec<&str> = found.iter().map(|site| model.sites()[*site].name.as_str()).collect();
        assert_eq!(found, expected, "{names:?}");
    };
    let both = ["blk.0.attn_q.weight", "blk.1.attn_q.weight"];
    check(&["q_proj"], &both);
    check(&["self_attn.q_proj"], &both);
    check(&["attn_q"], &both);
    check(&["attn_q.weight"], &both);
    check(&["model.layers.1.self_attn.q_proj"], &both[1..]);
    check(&["blk.0.attn_q"], &both[..1]);
    check(&["blk.0.attn_q.weight", "q_proj"], &both);
    check(&["lm_head"], &["output.weight"]);
    check(&["output"], &["output.weight"]);
    check(
        &["o_proj", "attn_k"],
        &[
            "blk.0.attn_k.weight",
            "blk.0.attn_output.weight",
            "blk.1.attn_k.weight",
            "blk.1.attn_output.weight",
        ],
    );
    check(&[], &[]);
    let linears: Vec<&str> =
        model.sites().iter().filter(|site| !site.head).map(|site| site.name.as_str()).collect();
    assert_eq!(linears.len(), 14);
    check(&[targets::ALL_LINEAR], &linears);
}

#[test]
fn a_target_that_names_nothing_lists_what_could() {
    let model = model("llama");
    for name in ["proj", "q_proj.weight", "blk.2.attn_q", "", ".", ".q_proj", "Q_PROJ", "token_embd"] {
        let error = targets::resolve(&model, &["v_proj", name]).unwrap_err().to_string();
        let expected = format!(
            "target {name:?}: names nothing that an adapter may sit on; there are all-linear, q_proj (attn_q), \
             k_proj (attn_k), v_proj (attn_v), o_proj (attn_output), gate_proj (ffn_gate), up_proj (ffn_up), \
             down_proj (ffn_down), lm_head (output)"
        );
        assert_eq!(error, expected);
    }
}
