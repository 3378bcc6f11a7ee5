//! How the tokens of a reply are chosen: the flags of llama.cpp, greedy unless a temperature is given.

use apprentice_engine::Sampling;
use clap::Args;

/// Flags of sampling.
#[derive(Args, Clone, Debug)]
pub struct SamplingArgs {
    /// Temperature; 0 takes the most likely token.
    #[arg(long, alias = "temperature", value_name = "T", default_value_t = 0.0)]
    temp: f32,
    /// Choose among so many of the most likely tokens; 0: all.
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: usize,
    /// Choose among the most likely tokens up to this share of the probability; 1: all.
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    top_p: f32,
    /// Choose among tokens with this share of the most likely one's probability; 0: all.
    #[arg(long, value_name = "P", default_value_t = 0.05)]
    min_p: f32,
    /// Penalty on recent tokens, dividing their logits; 1: none.
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    repeat_penalty: f32,
    /// Taken from the logit of each recent token.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    presence_penalty: f32,
    /// Taken from the logit of each recent token, once an occurrence.
    #[arg(long, value_name = "X", default_value_t = 0.0, allow_negative_numbers = true)]
    frequency_penalty: f32,
    /// Tokens that count as recent.
    #[arg(long, value_name = "N", default_value_t = 64)]
    repeat_last_n: usize,
    /// Added to the logit of a token: ID+X or ID-X; may be given again.
    #[arg(short = 'l', long, value_name = "ID(+/-)X", value_parser = bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Seed of the random numbers: the same seed gives the same reply.
    #[arg(short, long, default_value_t = 0)]
    seed: u64,
}

impl SamplingArgs {
    /// The settings that the flags ask for.
    pub fn settings(&self) -> Sampling {
        Sampling {
            temperature: self.temp,
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            repetition_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            recent: self.repeat_last_n,
            bias: self.logit_bias.clone(),
            seed: self.seed,
            stream: 0,
        }
    }
}

/// `15043+1.5`, `15043-1`, `15043-inf`.
fn bias(text: &str) -> Result<(u32, f32), String> {
    let sign = text.find(['+', '-']).ok_or_else(|| "expected ID+X or ID-X".to_owned())?;
    let token = text[..sign].parse().map_err(|_| format!("{:?} is no token id", &text[..sign]))?;
    let bias = text[sign..].parse().map_err(|_| format!("{:?} is no number", &text[sign..]))?;
    Ok((token, bias))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_is_an_id_and_a_signed_number() {
        assert_eq!(bias("15043+1.5"), Ok((15043, 1.5)));
        assert_eq!(bias("7-1"), Ok((7, -1.0)));
        assert_eq!(bias("7-inf"), Ok((7, f32::NEG_INFINITY)));
        assert_eq!(bias("7"), Err("expected ID+X or ID-X".to_owned()));
        assert_eq!(bias("x+1"), Err("\"x\" is no token id".to_owned()));
        assert_eq!(bias("7+y"), Err("\"+y\" is no number".to_owned()));
    }
}
