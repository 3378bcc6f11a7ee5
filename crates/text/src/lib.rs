//! Text in and out of a model: tokenisers, chat templates, and conversations as tokens with the runs of their replies.
//!
//! A model file says by name how its text is cut. Two tokenisers are built, byte-level BPE ([`Vocabulary::model`]
//! `gpt2` with the pre-tokenisers `smollm` and `qwen2`) and SentencePiece BPE (`llama`, as Gemma uses it); any other
//! name is refused by name. Everything else of the program knows token ids only.
//!
//! - [`Text`] is the door: encode, decode, render, end of generation.
//! - [`Decoder`] turns a stream of ids into whole characters.
//! - [`StopStrings`] ends that text where a caller wants it ended.
//! - [`Conversation`] is what a chat template reads; [`EncodedConversation`] is its tokens and where the replies lie.

#![forbid(unsafe_code)]

mod byte_level;
mod byte_pairs;
mod character;
mod conversation;
mod decode;
mod error;
mod from_gguf;
mod merge;
mod names;
mod replies;
mod sentence_piece;
mod special;
mod split;
mod stop_strings;
mod template;
mod text;
mod tokenizer;
mod vocabulary;

pub use conversation::{Conversation, EncodedConversation, EncodedReply, Message};
pub use decode::Decoder;
pub use error::TextError;
pub use stop_strings::StopStrings;
pub use text::Text;
pub use tokenizer::EncodeOptions;
pub use vocabulary::{TokenKind, Vocabulary};
