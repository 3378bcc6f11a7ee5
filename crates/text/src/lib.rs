//! Text in and out of a model: tokenisers.

#![forbid(unsafe_code)]

mod byte_level;
mod byte_pairs;
mod character;
mod decode;
mod error;
mod merge;
mod names;
mod sentence_piece;
mod special;
mod split;
mod tokenizer;
mod vocabulary;

pub use decode::Decoder;
pub use error::TextError;
pub use tokenizer::EncodeOptions;
pub use vocabulary::{TokenKind, Vocabulary};
