//! One reply as it comes: tokens become whole characters, stop strings end it, and each token's log probabilities go with
//! its text.

use std::collections::VecDeque;

use apprentice_engine::Logprobs;
use apprentice_text::{Decoder, StopStrings, Text, TextError};

/// A reply that is being made.
pub struct Reply {
    decoder: Decoder,
    stops: StopStrings,
    /// Its tokens so far.
    pub tokens: Vec<u32>,
    /// Tokens whose text is not told yet, with the byte at which that begins.
    held: VecDeque<(usize, Scored)>,
    /// Bytes of text that the tokens make.
    decoded: usize,
    /// Bytes of text that were told.
    told: usize,
}

/// A token of a reply with its log probabilities.
#[derive(Clone, PartialEq, Debug)]
pub struct Scored {
    /// The token.
    pub token: u32,
    /// Of it, and of the most likely ones.
    pub logprobs: Logprobs,
}

/// What there is to tell of a reply.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Piece {
    /// Text that follows what was told.
    pub text: String,
    /// The tokens that it begins with or lies in, where log probabilities are wanted.
    pub scored: Vec<Scored>,
    /// Whether a stop string ended the reply here.
    pub stopped: bool,
}

impl Piece {
    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.text.is_empty() && self.scored.is_empty()
    }
}

impl Reply {
    /// A reply without tokens that ends before the first of `stops`.
    ///
    /// # Errors
    /// An empty stop string.
    pub fn new(text: &Text, stops: &[String]) -> Result<Reply, TextError> {
        Ok(Reply {
            decoder: text.decoder(false),
            stops: StopStrings::new(stops)?,
            tokens: Vec::new(),
            held: VecDeque::new(),
            decoded: 0,
            told: 0,
        })
    }

    /// Takes the next token.
    ///
    /// # Errors
    /// A token outside the vocabulary.
    pub fn push(&mut self, token: u32, logprobs: Option<Logprobs>) -> Result<Piece, TextError> {
        let text = self.decoder.push(token)?;
        self.tokens.push(token);
        if let Some(logprobs) = logprobs {
            self.held.push_back((self.decoded, Scored { token, logprobs }));
        }
        self.decoded += text.len();
        let (text, stopped) = self.stops.push(&text);
        Ok(self.tell(text, stopped, false))
    }

    /// What is left at the end.
    pub fn finish(&mut self) -> Piece {
        let rest = self.decoder.finish();
        self.decoded += rest.len();
        let (mut text, stopped) = self.stops.push(&rest);
        if !stopped {
            text += &self.stops.finish();
        }
        self.tell(text, stopped, !stopped)
    }

    /// The text, and the tokens whose text begins in what is told by now; at the very end, all of them.
    fn tell(&mut self, text: String, stopped: bool, all: bool) -> Piece {
        self.told += text.len();
        let told = self.held.iter().take_while(|(begins, _)| all || *begins < self.told).count();
        let scored = self.held.drain(..told).map(|(_, scored)| scored).collect();
        Piece { text, scored, stopped }
    }
}
